"""GetSource.

ListSources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.hierarchy.reader import check_documents
from drillcore_server.hierarchy.source_model import Source
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.accounts import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusReads
from drillcore_server.kernel.errors import Missing
from drillcore_server.kernel.pages import PageLimit, fill_page, make_token, page_size, read_token
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, erased
from drillcore_server.storage.ids import CorpusId, Revision, SourceId, TenantId


def get_source(
    reads: CorpusReads, call: Call, *, tenant: TenantId | None, corpus: CorpusId, source: SourceId, as_of: AsOf
) -> tuple[Source, Revision]:
    """What the registry has of a source, and the revision it is of."""

    def work(tr: Reader, granted: InTenant, trail: Trail) -> tuple[Source, Revision]:
        view = reads.at(tr, granted, trail, corpus, as_of)
        check_documents(granted, corpus)
        found = HierarchyReader(view).source(source)
        if found is None and view.was_erased(view.keys.source(reads.sealed.hashed(source))):
            raise erased()
        if found is None:
            raise Missing(Reason.SOURCE_NOT_FOUND, "the corpus has no such source")
        trail.sources.add((view.corpus.number, source))
        if found.document is not None:
            trail.touch_documents([found.document])
        return found, view.revision

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


_OVERHEAD_BYTES: Final = 500
"""Of ids, times, hashes and numbers: a generous guess."""


@dataclass(frozen=True, slots=True)
class SourcesFound:
    sources: list[Source]
    next_token: str
    revision: Revision


def list_sources(
    reads: CorpusReads, call: Call, *, tenant: TenantId | None, corpus: CorpusId, as_of: AsOf, size: int, token: str
) -> SourcesFound:
    """Sources in an order of the store's own, removed ones too. Later pages are of the first one's revision."""
    limit = PageLimit(page_size(size), reads.unit.page_bytes_max)
    listing = f"sources of {corpus}"
    cursor = read_token(listing, token)
    after = None
    if cursor is not None:
        as_of, after = AsOf(Revision(int.from_bytes(cursor[:6], "big"))), cursor[6:]

    def work(tr: Reader, granted: InTenant, trail: Trail) -> SourcesFound:
        view = reads.at(tr, granted, trail, corpus, as_of)
        check_documents(granted, corpus)
        items, more = fill_page(((one, _size_bytes(one)) for one in HierarchyReader(view).sources(after)), limit)
        trail.touch_documents(one.document for one in items if one.document is not None)
        trail.sources.update((view.corpus.number, one.id) for one in items)
        last = reads.sealed.hashed(items[-1].id) if more else b""
        token = make_token(listing, view.revision.to_bytes(6, "big") + last) if more else ""
        return SourcesFound(items, token, view.revision)

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _size_bytes(source: Source) -> int:
    """About what it takes in an answer."""
    return _OVERHEAD_BYTES + 4 * sum(map(len, (source.id, source.title, source.uri)))
