"""Makes the writes for the facts of changed documents.

- A new version of a source keeps the facts that it repeats word for word, and adds new ones. Missing facts become
  stale. See `ingestion/fact_changes.py`.
- When a source loses its document, its facts are deleted. A quarantined fact stays in quarantine until it is reviewed.
- Deleted facts never come back. If a source repeats a deleted fact, that is a new fact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from drillcore_server.documents.ingestion.fact_changes import FactChanges, FactChangeSettings
from drillcore_server.documents.ingestion.prepared_documents import PreparedDocument
from drillcore_server.facts.block_writes import FactWrites
from drillcore_server.facts.model import ChangedFact, Fact, FactChange, FactStatus, fact_hash
from drillcore_server.facts.store import blocks_of_source
from drillcore_server.hierarchy.model import Document
from drillcore_server.hierarchy.source_model import Source
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.ids import SourceId

SOURCE_REMOVED: Final = "its source was removed"


@dataclass(slots=True)
class DocumentFacts:
    """Makes the writes of one revision. `changed` counts the changed facts while the writes are read."""

    snapshot: BatchedReads
    """The revision before the change."""
    sources: Mapping[SourceId, Source]
    """The new sources of the documents, still with their old counts of facts."""
    make: FactWrites
    settings: FactChangeSettings
    changed: int = 0
    _counts: Counter[SourceId] = field(default_factory=Counter)
    """The number to add to the fact count of each source."""

    def with_fact_count(self, source: Source) -> Source:
        """Returns the source with its new count of facts. The writes for its documents must have been read before."""
        return replace(source, fact_count=source.fact_count + self._counts[source.id])

    def added_writes(self, prepared: PreparedDocument, replaced: Document | None) -> Iterator[Write]:
        """Yields the writes for the facts of an added document. `replaced` is the source's earlier document, if any."""
        changes = FactChanges.of(prepared.document, replaced, self.settings)
        known = _by_hash(self._facts_of(prepared.document.source))
        changed: list[ChangedFact] = []
        for chunk in prepared.chunks:
            new: list[tuple[Fact, bytes]] = []
            for fact in chunk.facts:
                hashed = fact_hash(fact.content)
                if hashed not in known:
                    new.append((changes.new(fact, hashed, chunk), fact.vector))
                changed += _changes((before, changes.repeated(before, fact, chunk)) for before in known.pop(hashed, ()))
            yield from self._add(new)
        if replaced is not None:
            left = (fact for facts in known.values() for fact in facts)
            changed += _changes((before, changes.not_drawn(before, prepared.chunks)) for before in left)
        yield from self._change(changed)

    def removed_writes(self, source: SourceId) -> Iterator[Write]:
        """Yields the writes for the facts of a source that has no document any more."""
        left = (fact for fact in self._facts_of(source) if fact.status in {FactStatus.ACTIVE, FactStatus.STALE})
        moved = ((fact, fact.moved(FactStatus.DELETED, SOURCE_REMOVED, self.settings.at)) for fact in left)
        yield from self._change(list(_changes(moved)))

    def _facts_of(self, source: SourceId) -> list[Fact]:
        """Returns the facts of a source that are not deleted."""
        known = self.sources.get(source)
        if known is None or not known.fact_count:
            return []
        found = (fact for block in blocks_of_source(self.snapshot, source) for fact in block.facts)
        return [fact for fact in found if fact.status is not FactStatus.DELETED]

    def _add(self, facts: Sequence[tuple[Fact, bytes]]) -> Iterator[Write]:
        """Adds facts of one chunk, which the same revision adds."""
        self.changed += len(facts)
        for fact, _ in facts:
            self._counts[fact.source] += 1
        return self.make.add(facts, may_share=lambda _: True, has_chunk=lambda _: True)

    def _change(self, changes: Sequence[ChangedFact]) -> Iterator[Write]:
        """Changes facts of one source. Call it once for each source: a revision writes a block of facts only once."""
        self.changed += len(changes)
        for change in changes:
            self._counts[change.after.source] -= change.after.status is FactStatus.DELETED
        return self.make.change(self.snapshot, changes)


def _by_hash(facts: Sequence[Fact]) -> dict[str, list[Fact]]:
    found: dict[str, list[Fact]] = {}
    for fact in facts:
        found.setdefault(fact.content_hash, []).append(fact)
    return found


def _changes(pairs: Iterable[tuple[Fact, Fact]]) -> Iterator[ChangedFact]:
    """The pairs that differ, as changes."""
    for before, after in pairs:
        if after != before:
            yield ChangedFact(before, after, _kinds_of_change(before, after))


def _kinds_of_change(before: Fact, after: Fact) -> FactChange:
    kinds = FactChange(0)
    if after.status is not before.status:
        kinds |= FactChange.STATUS
    if (after.chunk, after.titles) != (before.chunk, before.titles):
        kinds |= FactChange.DETAILS
    if before.archived_at is not None and after.archived_at is None:
        kinds |= FactChange.RESTORED
    return kinds
