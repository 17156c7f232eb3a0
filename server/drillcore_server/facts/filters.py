"""Filters of listings and searches: which facts of a corpus they allow.

Indexes narrow a listing or search by source, document, chunk and community. Status, metadata and times are in no index
(see docs/decisions/facts-and-state.md). So a search tries facts in the order of their scores. After many attempts in
vain it stops, reads all records of the corpus in as many transactions as it takes, and starts again among the facts
that the filters allow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from drillcore_fdb.tuples import KeyRange
from drillcore_server.facts.blocks import FactBlock, block_of
from drillcore_server.facts.fact_reads import FactReads
from drillcore_server.facts.model import Fact, FactFilters
from drillcore_server.facts.state_hash import changed_facts
from drillcore_server.facts.store import FactReader, block_id, block_in, stored_facts
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel.corpus_at_revision import BatchedReads, BoundedScan, CorpusAtRevision
from drillcore_server.kernel.pages import read_together
from drillcore_server.kernel.unit import errors_as_refusals
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import BlockId, CorpusNumber, DocumentId, FactId, NodeId, Revision

_BLOCKS_AT_ONCE: Final = 100
"""Blocks of facts that are read together."""
_INDEXED_MAX: Final = 5_000
"""Entries of an index that are read for each page of a listing. With more, the listing looks at all facts instead."""
LOOKED_AT_MAX: Final = 20_000
"""Facts that a listing looks at for one page, allowed or not: well within the five seconds of a transaction."""


@dataclass(slots=True)
class FactListing:
    """The facts that the filters allow, in the order of ids. It stops when one transaction cannot look further."""

    reads: FactReads
    view: CorpusAtRevision
    filters: FactFilters
    behind: FactPlace | None
    """The last place that was looked at, or None at the beginning. The listing continues behind it."""
    is_cut: bool = False
    """Whether the listing stopped early, so that more facts may follow. Read it once the facts are consumed."""

    def facts(self) -> Iterator[Fact]:
        for count, fact in enumerate(self._looked_at()):
            if count == LOOKED_AT_MAX:
                self.is_cut = True
                return
            self.behind = FactPlace(fact.id)
            if allowed(self.reads, self.view, self.filters, fact):
                yield fact

    def _looked_at(self) -> Iterator[Fact]:
        after = self.behind
        for block in self._blocks():
            yield from (fact for fact in block.facts if after is None or after.is_block or fact.id > after.id)

    def _blocks(self) -> Iterator[FactBlock]:
        view = self.view
        keys = view.keys.fact_blocks() if self.behind is None else self.behind.following(view.keys)
        narrowed = narrowed_blocks(self.reads, view, self.filters)
        if narrowed is not None:
            left = sorted(block for block in narrowed if view.keys.fact_block(block) >= keys.begin)
            there = read_together(left, _BLOCKS_AT_ONCE, FactReader(view).blocks_unless_erased)
            yield from (block for block in there if block is not None)
            return
        scan = BoundedScan(view, keys)
        yield from map(block_in, scan.entries())
        if scan.cut_at is not None:
            self.behind, self.is_cut = FactPlace(FactId(block_id(scan.cut_at)), is_block=True), True


class FactPlace(NamedTuple):
    """A place in the listing of a corpus's facts: a fact, or the end of a block."""

    id: FactId
    is_block: bool = False

    def following(self, keys: CorpusKeys) -> KeyRange:
        """The blocks that may have facts behind the place."""
        if not self.is_block:
            return keys.fact_blocks(block_of(self.id))
        return KeyRange(versioned.behind(keys.fact_block(BlockId(self.id))), keys.fact_blocks().end)

    def encoded(self) -> bytes:
        return self.id.bytes + bytes([self.is_block])

    @classmethod
    def decoded(cls, stored: bytes) -> FactPlace:
        return cls(FactId(UUID(bytes=stored[:16])), stored[16:] == b"\1")


def narrowed_blocks(reads: FactReads, view: CorpusAtRevision, filters: FactFilters) -> set[BlockId] | None:
    """The blocks that may have facts that the filters allow. None if no index narrows them, or not by much."""
    sets: list[set[BlockId] | None] = []
    if filters.sources:
        ranges = [view.keys.source_blocks(view.sealed.hashed(source)) for source in sorted(filters.sources)]
        sets.append(_indexed(view, ranges))
    chunks_of_documents = _chunks_of(view, filters.documents)
    for chunks in (chunks_of_documents, filters.chunks):
        if chunks:
            found = _indexed(view, list(map(view.keys.chunk_blocks, sorted(chunks))))
            sets.append(None if found is None else found | set(map(BlockId, chunks)))
    if filters.communities:
        memberships = reads.communities.at(view)
        members = [fact for community in filters.communities for fact in memberships.members(community)]
        sets.append({*map(block_of, members), *map(BlockId, members)})
    narrowing = [blocks for blocks in sets if blocks is not None]
    return set.intersection(*narrowing) if narrowing else None


def _indexed(view: CorpusAtRevision, ranges: Sequence[KeyRange]) -> set[BlockId] | None:
    """The blocks that entries of an index lead to; None if there are too many to be read for each page."""
    found = versioned.pages(view.tr, ranges, view.revision, _INDEXED_MAX)
    blocks = {block_id(entry.key) for entries, _ in found for entry in entries}
    is_cut = any(following is not None for _, following in found)
    return None if is_cut or len(blocks) > _INDEXED_MAX else blocks


def _chunks_of(view: CorpusAtRevision, documents: Collection[DocumentId]) -> set[NodeId]:
    """The chunks of documents. None at all if one of the documents is not there.

    Facts of a removed document stay, but its list of chunks is gone: then this index cannot narrow the search.
    """
    found = HierarchyReader(view).documents_by_id(sorted(documents))
    if None in found:
        return set()
    return {chunk for document in found if document is not None for chunk in document.chunks}


def candidates(reads: FactReads, view: CorpusAtRevision, filters: FactFilters) -> set[FactId] | None:
    """The facts that indexes find for these filters; `allowed` must still check each. None if no index narrows them."""
    facts = FactReader(view)
    sets: list[set[FactId]] = []
    if filters.sources:
        sets.append({fact.id for fact in facts.of_sources(sorted(filters.sources))})
    chunks = set(filters.chunks)
    of_documents = _chunks_of(view, filters.documents)
    if of_documents:
        sets.append({fact.id for fact in facts.of_chunks(sorted(of_documents))})
    if chunks:
        sets.append({fact.id for fact in facts.of_chunks(sorted(chunks))})
    if filters.communities:
        memberships = reads.communities.at(view)
        sets.append({fact for community in filters.communities for fact in memberships.members(community)})
    return set.intersection(*sets) if sets else None


def allowed(reads: FactReads, view: CorpusAtRevision, filters: FactFilters, fact: Fact) -> bool:
    """Whether all filters allow a fact."""
    return filters.allows(fact, reads.community_of(view, fact.id) if filters.communities else None)


T = TypeVar("T")
_GROWTH: Final = 4
_BATCH_MAX: Final = 1_000


def growing_batches(ranking: Iterable[T], first: int) -> Iterator[list[T]]:
    """A ranking in batches, each to be read together: `first` of them, then four times as many each time.

    Without filters the first batch is enough. A filter that allows few of them takes few batches.
    """
    left, size = iter(ranking), min(first, _BATCH_MAX)
    while batch := list(islice(left, size)):
        yield batch
        size = min(_GROWTH * size, _BATCH_MAX)


TRIED_MAX: Final = 5_000
"""Facts of one corpus that a search tries in vain: a fraction of the five seconds of a transaction."""


class _TriedTooMany(Exception):  # noqa: N818 - control flow, not an error
    def __init__(self, view: CorpusAtRevision) -> None:
        super().__init__()
        self.view = view


@dataclass(frozen=True, slots=True)
class _Allowed:
    revision: Revision
    facts: frozenset[FactId]


class FilteredSearch:
    """Runs one search with filters, and restarts it if too many facts were tried in vain.

    What it then knows about the filters is brought up to the revision that each run of the search sees.
    """

    def __init__(self, reads: FactReads, filters: FactFilters) -> None:
        self._reads = reads
        self._filters = replace(filters, communities=frozenset())
        """Without communities, which are not in the records of facts and have an index."""
        self._known: dict[CorpusNumber, _Allowed] = {}

    def run(self, search: Callable[[], T]) -> T:
        """Returns what a search finds. Runs it again when it has tried too many facts of a corpus in vain."""
        while True:
            try:
                return search()
            except _TriedTooMany as tried:
                with errors_as_refusals():
                    self._known[tried.view.corpus.number] = self._gathered(self._reads.snapshot(tried.view))

    def among(self, view: CorpusAtRevision, candidates: set[FactId] | None) -> set[FactId] | frozenset[FactId] | None:
        """The candidates that may be allowed, as far as is known by now. None, given or returned, means all facts."""
        known = self._known.get(view.corpus.number)
        if known is None:
            return candidates
        if known.revision != view.revision:
            known = self._followed(known, self._reads.snapshot(view))
            self._known[view.corpus.number] = known
        return known.facts if candidates is None else candidates & known.facts

    def check(self, view: CorpusAtRevision, tried: int) -> None:
        """The search must call this after each fact that it tried in vain, and only while `run` runs it."""
        if tried >= TRIED_MAX and view.corpus.number not in self._known:
            raise _TriedTooMany(view)

    def _gathered(self, snapshot: BatchedReads) -> _Allowed:
        found = (fact.id for fact in stored_facts(snapshot) if self._is_allowed(fact))
        return _Allowed(snapshot.revision, frozenset(found))

    def _followed(self, known: _Allowed, snapshot: BatchedReads) -> _Allowed:
        touched = changed_facts(snapshot, known.revision)
        now = snapshot.together(touched, lambda view, facts: FactReader(view).facts_unless_erased(facts))
        allowed = {fact.id for fact in now if fact is not None and self._is_allowed(fact)}
        return _Allowed(snapshot.revision, known.facts.difference(touched) | allowed)

    def _is_allowed(self, fact: Fact) -> bool:
        return fact.is_searched and self._filters.allows(fact, None)
