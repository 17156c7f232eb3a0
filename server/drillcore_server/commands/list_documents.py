"""ListDocuments."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.get_document import check_documents
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.ids import CorpusId, DocumentId, Revision, TenantId
from drillcore_server.domain.nodes import Document
from drillcore_server.domain.pages import Page, PageLimit, fill_page, make_token, page_size, read_token

_OVERHEAD_BYTES: Final = 1_000
"""Of ids, times, hashes and numbers: a generous guess."""


def list_documents(
    library: Library, call: Call, *, tenant: TenantId | None, corpus: CorpusId, as_of: AsOf, size: int, token: str
) -> tuple[Page[Document], Revision]:
    """Documents by id, and the revision they are of. Later pages are of the first one's revision."""
    limit = PageLimit(page_size(size), library.unit.page_bytes_max)
    listing = f"documents of {corpus}"
    cursor = read_token(listing, token)
    after = None
    if cursor is not None:
        as_of, after = AsOf(Revision(int.from_bytes(cursor[:6], "big"))), DocumentId(UUID(bytes=cursor[6:]))

    def work(tr: Reader, granted: InTenant, trail: Trail) -> tuple[Page[Document], Revision]:
        shelf = library.shelf(tr, granted, trail, corpus, as_of)
        check_documents(granted, corpus)
        items, more = fill_page(((one, _size_bytes(one)) for one in shelf.view.documents(after)), limit)
        trail.touch_documents(one.id for one in items)
        token = make_token(listing, shelf.revision.to_bytes(6, "big") + items[-1].id.bytes) if more else ""
        return Page(items, token), shelf.revision

    return library.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _size_bytes(document: Document) -> int:
    """About what it takes in an answer."""
    texts = [document.source, document.title, *document.preprocessing, *document.metadata, *document.metadata.values()]
    return _OVERHEAD_BYTES + 4 * sum(map(len, texts))
