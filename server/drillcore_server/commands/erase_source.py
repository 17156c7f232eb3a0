"""EraseSource: makes everything that came from a source unreadable for ever, at every revision and in every backup.

    one revision without the source, noted and recorded: one commit -> its keys destroyed -> the call returns

From the commit on nobody uses the keys, though they may be there for a moment; whoever dies before they are destroyed
leaves that to the next start (`commands/erasing.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Final

from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.commands.community_plan import plan_without
from drillcore_server.commands.erasing import Eraser
from drillcore_server.commands.ingester import Change
from drillcore_server.commands.revise import Plan, Target
from drillcore_server.commands.unit import Call, refusing
from drillcore_server.derived.state_hashes import forget_state
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.erasures import ErasedKey, Erasure
from drillcore_server.domain.errors import BadInput, Missing, NotReady
from drillcore_server.domain.facts import Fact
from drillcore_server.domain.ids import FactId, Revision, SourceId, new_uuid
from drillcore_server.domain.nodes import Document
from drillcore_server.domain.retention import check_not_on_hold
from drillcore_server.domain.sources import SOURCE_CHARACTERS_MAX
from drillcore_server.ingest.planning import Settled
from drillcore_server.store import corpora, entity_vectors, erasures, foreign_signatures, library
from drillcore_server.store.communities import CommunityWrites
from drillcore_server.store.erasures import ERASURE
from drillcore_server.store.facts import FactsView, FactWrites
from drillcore_server.store.hierarchy import DOCUMENT, CorpusView
from drillcore_server.store.keyring import SNAPSHOT_SCOPE, KeyNumber
from drillcore_server.store.quads import without_source
from drillcore_server.store.sealed import keys_of
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.turns import TurnWrites
from drillcore_server.store.writes import Write

REASON_CHARACTERS_MAX: Final = 1_000
_FACTS_AT_ONCE: Final = 500


def erase_source(
    eraser: Eraser, call: Call, target: Target, source: SourceId, *, reason: str = "", purge_now: bool = False
) -> Erasure:
    """The erasure, when nobody can read anything of the source any more. With `purge_now` its bytes are gone too.

    Raises `Refused`: SOURCE_NOT_FOUND, SOURCE_ERASED, CORPUS_ON_HOLD.
    """
    _check(source, reason)
    erasing = _Erasing(eraser, call, source, reason)
    done = eraser.ingester.reviser.revise(call, target, ERASURE, erasing.plan)
    corpus, _ = eraser.ingester.reviser.find(call, target)
    with refusing():
        eraser.destroy_keys(corpus, datetime.now(call.at.tzinfo))
        if purge_now:
            eraser.purger.purge_by_itself(corpus.tenant_id, corpus.id, call.at, lambda: False)
        return eraser.as_it_is(corpus, done)


def _check(source: SourceId, reason: str) -> None:
    if not 0 < len(source) <= SOURCE_CHARACTERS_MAX:
        message = f"source_id needs 1 to {SOURCE_CHARACTERS_MAX} characters"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="source_id")
    if len(reason) > REASON_CHARACTERS_MAX:
        raise BadInput(Reason.TOO_LARGE, f"reason has over {REASON_CHARACTERS_MAX} characters", field="reason")


class _Erasing:
    """One call's erasure: planned anew whenever others overtake it."""

    def __init__(self, eraser: Eraser, call: Call, source: SourceId, reason: str) -> None:
        self._eraser = eraser
        self._ingester = eraser.ingester
        self._call = call
        self._source = source
        self._hashed = eraser.ingester.keyring.hashed(source)
        self._reason = reason
        self._id = new_uuid()
        self._settled = Settled()

    def plan(self, corpus: Corpus, base: Revision) -> Plan[Erasure]:
        check_not_on_hold(corpus.legal_hold)
        snapshot = self._ingester.snapshot(corpus, base)
        self._check_there(snapshot)
        keys = self._keys(corpus)
        documents = list(self._documents(snapshot, keys[0].number))
        facts = list(self._fact_ids(snapshot))
        about = Erasure(
            id=self._id,
            number=0,
            source=self._hashed,
            keys=keys,
            at=self._call.at,
            by=self._call.principal.id,
            revision=Revision(base + 1),
            record=self._call.trails[-1].record,
            documents=len(documents),
            chunks=sum(len(one.chunks) for one in documents),
            facts=len(facts),
            sections=0,
            purge_due=self._call.at + timedelta(days=self._eraser.purge_days),
        )
        return self._planned(corpus, base, snapshot, documents, facts, about)

    def _planned(
        self,
        corpus: Corpus,
        base: Revision,
        snapshot: Snapshot,
        documents: Sequence[Document],
        facts: Sequence[FactId],
        about: Erasure,
    ) -> Plan[Erasure]:
        made = self._of_documents(corpus, base, documents)
        outcome = _Outcome(replace(about, sections=len(made.sections)))
        communities = self._community_writes(corpus, snapshot, facts)

        def finish(tr: Transaction, trail: Trail, _revision: Revision) -> None:
            self._finish(tr, trail, corpus, outcome)

        return Plan(
            base=base,
            number=made.number,
            writes=chain(
                made.writes,
                self._fact_writes(corpus, snapshot, facts),
                self._source_writes(snapshot),
                without_source(snapshot, self._hashed),
                communities,
                self._turn_writes(corpus, snapshot, about.keys[0].number),
                self._foreign_writes(snapshot, KeyNumber(about.keys[0].number)),
            ),
            sections=made.sections,
            documents_added=(),
            documents_removed=made.documents_removed,
            sources=(),  # why it was erased must stay readable, so it is not sealed with the source
            result=lambda _revision: outcome.erasure,
            facts_count=lambda: len(facts),
            communities=bool(communities),
            finish=finish,
        )

    def _of_documents(self, corpus: Corpus, base: Revision, documents: Sequence[Document]) -> Plan[None]:
        """What the removal of its documents changes in the hierarchy."""
        if not documents:
            number = self._ingester.make_keys(corpus, [])
            return Plan(base, number, (), (), (), (), (), lambda _revision: None)
        change = Change([], documents, [])
        return self._ingester.plan(self._call, corpus, base, change, self._settled, lambda _revision, _sections: None)

    def _check_there(self, snapshot: Snapshot) -> None:
        """Raises `Refused` unless the corpus has the source, or facts of it."""
        known = snapshot.read(lambda view: view.source(self._source))
        if known is not None or any(True for _ in self._fact_ids(snapshot)):
            return
        before = snapshot.read(lambda view: list(erasures.of_corpus(view.tr, view.keys)))
        if any(one.source == self._hashed for one in before):
            raise NotReady(Reason.SOURCE_ERASED, "this source was erased already")
        raise Missing(Reason.SOURCE_NOT_FOUND, "the corpus has no such source")

    def _keys(self, corpus: Corpus) -> tuple[ErasedKey, ...]:
        """The source's own first. Both are made if they are not there: nobody else can make one meanwhile."""
        scopes = [self._source, SNAPSHOT_SCOPE]
        numbers = self._ingester.keyring.numbers(corpus.number, scopes)
        hashes = [self._ingester.keyring.hashed(one) for one in scopes]
        return tuple(ErasedKey(number, scope) for number, scope in zip(numbers, hashes, strict=True))

    def _documents(self, snapshot: Snapshot, number: int) -> Iterator[Document]:
        """Those of the source: there may be several, and they are known by the key that they are sealed under."""
        for entry in snapshot.entries(snapshot.keys.documents()):
            if number in keys_of(entry.value):
                yield DOCUMENT.decode(snapshot.sealed.opened(entry).value)

    def _fact_ids(self, snapshot: Snapshot) -> Iterator[FactId]:
        """Of every status."""
        after: FactId | None = None
        while True:
            page = snapshot.read(lambda view, a=after: list(_some(FactsView(view).of_source(self._source, a))))  # type: ignore[misc]
            yield from page
            if len(page) < _FACTS_AT_ONCE:
                return
            after = page[-1]

    def _fact_writes(self, corpus: Corpus, snapshot: Snapshot, facts: Sequence[FactId]) -> Iterator[Write]:
        if not facts:
            return
        embeddings = snapshot.read(lambda view: FactsView(view).embeddings())
        assert embeddings is not None, "a corpus with facts has a model"
        unit, keyring = self._ingester.unit, self._ingester.keyring
        model, others = embeddings.current.number, embeddings.others
        make = FactWrites(unit.keys, corpus.tenant_id, corpus.number, keyring, model, others)
        for fact in snapshot.each(facts, _fact):
            yield from make.erase(fact)

    def _community_writes(self, corpus: Corpus, snapshot: Snapshot, facts: Sequence[FactId]) -> list[Write]:
        """Communities without its facts, and without its words in their labels."""
        make = CommunityWrites(snapshot.keys, corpus.number, self._ingester.keyring)
        return plan_without(corpus.id, facts, snapshot, make, self._call.at)

    def _turn_writes(self, corpus: Corpus, snapshot: Snapshot, number: int) -> Iterator[Write]:
        """Conversations without its turns: they are known by the key that they are sealed under."""
        make = TurnWrites(self._ingester.unit.keys, corpus.tenant_id, corpus.number, self._ingester.keyring)
        return make.without_source(snapshot, KeyNumber(number))

    @staticmethod
    def _foreign_writes(snapshot: Snapshot, number: KeyNumber) -> Iterator[Write]:
        """What came with cores: library documents and vectors of the source, and signatures of what is made of it."""
        for store in (library, entity_vectors, foreign_signatures):
            yield from store.without_source(snapshot, number)

    def _source_writes(self, snapshot: Snapshot) -> Iterator[Write]:
        if snapshot.read(lambda view: view.source(self._source)) is not None:
            yield Write(snapshot.keys.source(self._hashed), None)

    def _finish(self, tr: Transaction, trail: Trail, corpus: Corpus, outcome: _Outcome) -> None:
        keyspace = self._ingester.unit.keys
        check_not_on_hold(corpora.get(tr, keyspace, corpus.tenant_id, corpus.id).legal_hold)
        outcome.erasure = erasures.add(tr, keyspace, corpus, replace(outcome.erasure, record=trail.record))
        forget_state(tr, keyspace.of_corpus(corpus.number))
        erasure = outcome.erasure
        trail.detail |= {
            "erasure_id": str(erasure.id),
            "erased_keys": list(erasure.key_numbers),
            "source": erasure.source.hex(),
            "chunks_removed": erasure.chunks,
        }
        if self._reason:
            trail.private["erasure_reason"] = self._reason


@dataclass(slots=True)
class _Outcome:
    """What the last run of the commit made of it."""

    erasure: Erasure


def _some(facts: Iterator[FactId]) -> Iterator[FactId]:
    return islice(facts, _FACTS_AT_ONCE)


def _fact(view: CorpusView, one: FactId) -> Fact | None:
    return FactsView(view).fact(one)
