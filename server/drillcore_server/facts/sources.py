"""GetSource and ListSources, and the counts of facts in the source registry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.facts.model import Fact, FactStatus
from drillcore_server.hierarchy.reader import check_documents
from drillcore_server.hierarchy.source_model import Source, source_without_document
from drillcore_server.hierarchy.store import SOURCE, HierarchyReader, HierarchyWrites
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, BoundedScan, CorpusReads
from drillcore_server.kernel.errors import Missing
from drillcore_server.kernel.pages import PageLimit, fill_page, make_token, page_size, read_token
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, erased
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.ids import (
    CorpusId,
    Revision,
    SourceId,
    TenantId,
)


def get_source(
    reads: CorpusReads, call: Call, *, tenant: TenantId | None, corpus: CorpusId, source: SourceId, as_of: AsOf
) -> tuple[Source, Revision]:
    """The record of a source in the registry, and its revision. Raises `Missing` (SOURCE_NOT_FOUND or ERASED)."""

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


_HASH_BYTES: Final = 16
_OVERHEAD_BYTES: Final = 500
"""A generous guess of what ids, times, hashes and numbers take in an answer."""


@dataclass(frozen=True, slots=True)
class SourcesFound:
    sources: list[Source]
    next_token: str
    revision: Revision


def list_sources(
    reads: CorpusReads, call: Call, *, tenant: TenantId | None, corpus: CorpusId, as_of: AsOf, size: int, token: str
) -> SourcesFound:
    """A page of sources, also removed ones, in no meaningful order. Later pages are of the same revision.

    A page may be short or empty although more follow, if the store has many sources that this revision lacks.
    """
    limit = PageLimit(page_size(size), reads.unit.page_bytes_max)
    listing = f"sources of {corpus}"
    cursor = read_token(listing, token)
    after = None
    if cursor is not None:
        as_of, after = AsOf(Revision(int.from_bytes(cursor[:6], "big"))), cursor[6:]

    def work(tr: Reader, granted: InTenant, trail: Trail) -> SourcesFound:
        view = reads.at(tr, granted, trail, corpus, as_of)
        check_documents(granted, corpus)
        scan = BoundedScan(view, view.keys.sources(after))
        sources = (SOURCE.decode(entry.value) for entry in scan.entries())
        items, more = fill_page(((source, _size_bytes(source)) for source in sources), limit)
        trail.touch_documents(source.document for source in items if source.document is not None)
        trail.sources.update((view.corpus.number, source.id) for source in items)
        last = reads.sealed.hashed(items[-1].id) if more else (scan.cut_at or b"")[-_HASH_BYTES:]
        token = make_token(listing, view.revision.to_bytes(6, "big") + last) if last else ""
        return SourcesFound(items, token, view.revision)

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _size_bytes(source: Source) -> int:
    """About how much of an answer a source takes."""
    return _OVERHEAD_BYTES + 4 * sum(map(len, (source.id, source.title, source.uri)))


def source_writes(
    changes: Iterable[tuple[Fact | None, Fact | None]],
    source_of: Callable[[SourceId], Source | None],
    make: HierarchyWrites,
) -> Iterator[Write]:
    """Writes the new counts of the sources whose facts a revision changes, and registers unknown sources.

    `changes` are facts before and after; None stands for a fact that does not exist. `source_of` reads at the revision
    before. The source of a fact never changes.
    """
    counts: Counter[SourceId] = Counter()
    seen_at: dict[SourceId, datetime] = {}
    for before, after in changes:
        fact = after or before
        assert fact is not None
        counts[fact.source] += count_change(before, after)
        seen_at.setdefault(fact.source, fact.modified_at)
    for source, count in sorted(counts.items()):
        known = source_of(source)
        if known is None or count:
            record = known or source_without_document(source, seen_at[source])
            yield from make.put_source(replace(record, fact_count=record.fact_count + count))


def count_change(before: Fact | None, after: Fact | None) -> int:
    """How much a change of a fact adds to the count of its source: -1, 0 or 1."""
    return _counts(after) - _counts(before)


def _counts(fact: Fact | None) -> int:
    return int(fact is not None and fact.status is not FactStatus.DELETED)
