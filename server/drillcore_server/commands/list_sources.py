"""ListSources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from drillcore_fdb.engine import Reader
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.get_document import check_documents
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.ids import CorpusId, Revision, TenantId
from drillcore_server.domain.pages import PageLimit, fill_page, make_token, page_size, read_token
from drillcore_server.domain.sources import Source

_OVERHEAD_BYTES: Final = 500
"""Of ids, times, hashes and numbers: a generous guess."""


@dataclass(frozen=True, slots=True)
class SourcesFound:
    sources: list[Source]
    next_token: str
    revision: Revision


def list_sources(
    library: Library, call: Call, *, tenant: TenantId | None, corpus: CorpusId, as_of: AsOf, size: int, token: str
) -> SourcesFound:
    """Sources in an order of the store's own, removed ones too. Later pages are of the first one's revision."""
    limit = PageLimit(page_size(size), library.unit.page_bytes_max)
    listing = f"sources of {corpus}"
    cursor = read_token(listing, token)
    after = None
    if cursor is not None:
        as_of, after = AsOf(Revision(int.from_bytes(cursor[:6], "big"))), cursor[6:]

    def work(tr: Reader, granted: InTenant, trail: Trail) -> SourcesFound:
        shelf = library.shelf(tr, granted, trail, corpus, as_of)
        check_documents(granted, corpus)
        items, more = fill_page(((one, _size_bytes(one)) for one in shelf.view.sources(after)), limit)
        trail.touch_documents(one.document for one in items if one.document is not None)
        trail.sources.update((shelf.corpus.number, one.id) for one in items)
        last = library.sealed.hashed(items[-1].id) if more else b""
        token = make_token(listing, shelf.revision.to_bytes(6, "big") + last) if more else ""
        return SourcesFound(items, token, shelf.revision)

    return library.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _size_bytes(source: Source) -> int:
    """About what it takes in an answer."""
    return _OVERHEAD_BYTES + 4 * sum(map(len, (source.id, source.title, source.uri)))
