"""What a change of documents writes of the facts of their sources.

- A new version of a source keeps the facts that it says again, word for word, and adds the others; what it does not say
  any more is stale. See `ingestion/fact_changes.py`.
- With its document a source's facts are deleted. A quarantined one stays that until it is reviewed.
- Deleted facts never come back: what says the same again is a new fact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from drillcore_server.documents.ingestion.fact_changes import FactChanges, FactChangeSettings
from drillcore_server.documents.ingestion.prepared_documents import PreparedDocument
from drillcore_server.facts.model import Fact, FactChange, FactStatus, fact_hash
from drillcore_server.facts.store import FactReader, FactWrites, fact_id
from drillcore_server.hierarchy.model import Document
from drillcore_server.hierarchy.source_model import Source
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.ids import SourceId

SOURCE_REMOVED: Final = "its source was removed"


@dataclass(slots=True)
class DocumentFacts:
    """Makes the writes of one revision; afterwards it knows how many facts that changes."""

    snapshot: BatchedReads
    """Of the revision before."""
    sources: Mapping[SourceId, Source]
    """Of the documents, as they will be, with the counts of facts that they had."""
    make: FactWrites
    settings: FactChangeSettings
    changed: int = 0
    _counts: Counter[SourceId] = field(default_factory=Counter)
    """What is added to the count of each source."""

    def counted(self, source: Source) -> Source:
        """With its facts as they will be; once the writes of its documents were made."""
        return replace(source, fact_count=source.fact_count + self._counts[source.id])

    def drawn(self, prepared: PreparedDocument, replaced: Document | None) -> Iterator[Write]:
        """The facts of a document that is added, in place of another of its source if there was one."""
        changes = FactChanges.of(prepared.document, replaced, self.settings)
        said = _by_hash(self._facts_of(prepared.document.source))
        for one in prepared.chunks:
            for fact in one.facts:
                hashed = fact_hash(fact.content)
                if hashed not in said:
                    yield from self._add(changes.new(fact, hashed, one), fact.vector)
                for before in said.pop(hashed, ()):
                    yield from self._change(before, changes.again(before, fact, one))
        if replaced is not None:
            for before in (fact for facts in said.values() for fact in facts):
                yield from self._change(before, changes.not_drawn(before, prepared.chunks))

    def left(self, source: SourceId) -> Iterator[Write]:
        """The facts of a source that has no document any more."""
        for before in self._facts_of(source):
            if before.status in {FactStatus.ACTIVE, FactStatus.STALE}:
                yield from self._change(before, before.moved(FactStatus.DELETED, SOURCE_REMOVED, self.settings.at))

    def _facts_of(self, source: SourceId) -> list[Fact]:
        """Those that are not deleted."""
        known = self.sources.get(source)
        if known is None or not known.fact_count:
            return []
        keys = self.snapshot.keys.source_facts(self.snapshot.sealed.hashed(source))
        ids = [fact_id(entry.key) for entry in self.snapshot.entries(keys)]
        found = self.snapshot.each(ids, lambda view, one: FactReader(view).fact(one))
        return [fact for fact in found if fact.status is not FactStatus.DELETED]

    def _add(self, fact: Fact, vector: bytes) -> Iterator[Write]:
        self.changed += 1
        self._counts[fact.source] += 1
        return self.make.add(fact, vector)

    def _change(self, before: Fact, after: Fact) -> Iterator[Write]:
        if after == before:
            return iter(())
        self.changed += 1
        self._counts[after.source] -= after.status is FactStatus.DELETED
        return self.make.change(before, after, _what(before, after))


def _by_hash(facts: Sequence[Fact]) -> dict[str, list[Fact]]:
    found: dict[str, list[Fact]] = {}
    for fact in facts:
        found.setdefault(fact.content_hash, []).append(fact)
    return found


def _what(before: Fact, after: Fact) -> FactChange:
    what = FactChange(0)
    if after.status is not before.status:
        what |= FactChange.STATUS
    if (after.chunk, after.titles) != (before.chunk, before.titles):
        what |= FactChange.DETAILS
    if before.archived_at is not None and after.archived_at is None:
        what |= FactChange.RESTORED
    return what
