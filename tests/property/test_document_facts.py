"""Facts of sources against a plain model: versions of a document, removals and statuses set by hand, in any order.

After each step every fact is as in the model, the registry counts the facts, fsck finds nothing, and earlier revisions
read as they did before.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from drillcore_server.facts.change import ChangedFact
from drillcore_server.facts.lexical.lexical_cache import LexicalIndexes
from drillcore_server.facts.lexical.lexical_index import LexicalIndex
from drillcore_server.facts.model import Fact, FactChange, FactStatus
from drillcore_server.facts.store import FactReader
from drillcore_server.kernel import revise, revisions
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.revise import Plan
from drillcore_server.storage.ids import FactId, Revision
from drillcore_server.storage.records import RecordKind
from tests.support.stores.archive import opened_archive
from tests.support.stores.archive_migrations import fact_planner

SOURCES = ["north", "south"]
SENTENCES = [
    f"The operator of plant number {n} shall inspect all of its valves once in every {n + 2} weeks." for n in range(6)
]
ACTIVE, STALE, QUARANTINED = FactStatus.ACTIVE, FactStatus.STALE, FactStatus.QUARANTINED

versions = st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=5)
"""The sentences of a version. The same sentence may be there twice."""


@dataclass(frozen=True)
class Nothing:
    revision: Revision


class Facts(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.open_now = contextlib.ExitStack()
        self.patch = self.open_now.enter_context(pytest.MonkeyPatch.context())
        self.patch.setattr(revise, "BATCH_BYTES_MAX", 5_000)
        path = Path(self.open_now.enter_context(tempfile.TemporaryDirectory()))
        self.archive = self.open_now.enter_context(opened_archive(path))
        self.said: dict[str, list[str]] = {}
        """The present sentences of each source."""
        self.model: dict[str, dict[str, FactStatus]] = {source: {} for source in SOURCES}
        """The facts of each source that are not deleted, by their sentence."""
        self.ids: dict[tuple[str, str], FactId] = {}
        self.earlier: list[dict[FactId, Fact]] = [{}]
        self.words = LexicalIndexes(self.archive.engine)

    def teardown(self) -> None:
        self.open_now.close()

    @rule(source=st.sampled_from(SOURCES), version=versions, large=st.booleans())
    def put_version(self, source: str, version: list[str], large: bool) -> None:
        if self.said.get(source) == version:
            return
        self.patch.setattr(revise, "SMALL_BYTES_MAX", 0 if large else 3_000_000)
        self.archive.add({source: "\n\n".join(version)})
        facts, is_update = self.model[source], source in self.said
        for sentence, status in facts.items():
            if status is ACTIVE and is_update and sentence not in version:
                facts[sentence] = STALE
        facts |= {sentence: ACTIVE for sentence in version if facts.get(sentence) is not QUARANTINED}
        self.said[source] = version
        self._check()

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        source = data.draw(st.sampled_from(sorted(self.said)))
        self.archive.remove([self.archive.documents()[source]])
        facts = self.model[source]
        for sentence in [known for known, status in facts.items() if status is not QUARANTINED]:
            del facts[sentence]
            del self.ids[source, sentence]
        del self.said[source]
        self._check()

    @precondition(lambda self: any(ACTIVE in facts.values() for facts in self.model.values()))
    @rule(data=st.data())
    def quarantine(self, data: st.DataObject) -> None:
        active = [
            (s, sentence) for s, facts in self.model.items() for sentence, status in facts.items() if status is ACTIVE
        ]
        source, sentence = data.draw(st.sampled_from(sorted(active)))
        self._set_status(self.ids[source, sentence], QUARANTINED)
        self.model[source][sentence] = QUARANTINED
        self._check()

    def _set_status(self, fact: FactId, status: FactStatus) -> None:
        archive = self.archive
        planner, call = fact_planner(archive), archive.call("SetFactStatus")

        def plan(snapshot: BatchedReads) -> Plan[Nothing]:
            (before,) = planner.facts(snapshot, [fact])
            after = before.moved(status, "so", call.at)
            return planner.plan(snapshot, [ChangedFact(before, after, FactChange.STATUS)], Nothing)

        planner.reviser.revise(call, archive.target, RecordKind(Nothing), plan)

    def _check(self) -> None:
        archive = self.archive
        now = {fact.id: fact for fact in self._facts(archive.head())}
        kept = [fact for fact in now.values() if fact.status is not FactStatus.DELETED]
        assert {(fact.source, fact.content): fact.status for fact in kept} == {
            (source, sentence): status for source, facts in self.model.items() for sentence, status in facts.items()
        }
        for fact in kept:
            assert self.ids.setdefault((fact.source, fact.content), fact.id) == fact.id, "a sentence keeps its fact"
        assert self.earlier[-1].keys() <= now.keys(), "no record of a fact is ever gone"
        assert archive.fsck().problems == ()
        self.earlier.append(now)
        self._check_words(now)
        for revision, known in enumerate(self.earlier):
            assert {fact.id: fact for fact in self._facts(Revision(revision))} == known

    def _check_words(self, now: dict[FactId, Fact]) -> None:
        """An index that followed the revisions finds the same as a fresh one, and has every searched fact."""
        followed, fresh = self._index(self.words), self._index(LexicalIndexes(self.archive.engine))
        assert len(followed) == len(fresh) == sum(fact.is_searched for fact in now.values())
        for question in (SENTENCES[1], "north south plant", "weeks"):
            assert followed.search(question, 50) == fresh.search(question, 50)
        found = {fact for fact, _ in followed.search(" ".join(SENTENCES), 50)}
        assert found == {fact.id for fact in now.values() if fact.is_searched}

    def _index(self, indexes: LexicalIndexes) -> LexicalIndex:
        archive, head = self.archive, self.archive.head()

        def work(tr: revisions.Transaction) -> LexicalIndex:
            return indexes.at(CorpusAtRevision(tr.snapshot, archive.corpus, archive.keys, archive.sealed, head))

        return archive.engine.run(work)

    def _facts(self, at: Revision) -> Iterator[Fact]:
        archive = self.archive

        def work(tr: revisions.Transaction) -> list[Fact]:
            return list(FactReader(CorpusAtRevision(tr, archive.corpus, archive.keys, archive.sealed, at)).facts())

        return iter(archive.engine.run(work)) if at else iter(())


TestFacts = Facts.TestCase
TestFacts.settings = settings(max_examples=12, stateful_step_count=12, deadline=None)
