"""ListDocuments."""

from __future__ import annotations

from itertools import islice
from uuid import UUID

from drillcore_fdb.engine import Transaction
from drillcore_server.auth import access
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.ids import CorpusId, DocumentId, Revision, TenantId
from drillcore_server.domain.nodes import Document
from drillcore_server.domain.pages import Page, make_token, page_size, read_token


def list_documents(
    library: Library, call: Call, *, tenant: TenantId | None, corpus: CorpusId, as_of: AsOf, size: int, token: str
) -> tuple[Page[Document], Revision]:
    """Documents by id, and the revision they are of. Later pages are of the first one's revision."""
    wanted = page_size(size)
    listing = f"documents of {corpus}"
    cursor = read_token(listing, token)
    after = None
    if cursor is not None:
        as_of, after = AsOf(Revision(int.from_bytes(cursor[:6], "big"))), DocumentId(UUID(bytes=cursor[6:]))

    def work(tr: Transaction, granted: TenantId) -> tuple[Page[Document], Revision]:
        shelf = library.shelf(tr, granted, corpus, as_of)
        found = list(islice(shelf.view.documents(after), wanted + 1))
        items = found[:wanted]
        more = ""
        if len(found) > wanted:
            more = make_token(listing, shelf.revision.to_bytes(6, "big") + items[-1].id.bytes)
        return Page(items, more), shelf.revision

    return library.unit.read(call, access.in_tenant(tenant), work)
