"""EraseSource and ListErasures.

EraseSource makes everything that came from a source unreadable for ever, at every revision and in every backup:

    commit: one revision without the source, noted and recorded -> destroy its keys -> the call returns

From the commit on nobody uses the keys, although they may exist for another moment. If a server dies before it has
destroyed them, the next start does so (`destroy_keys.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Final

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.communities.community_plan import plan_without
from drillcore_server.communities.store import CommunityWrites
from drillcore_server.cores import foreign_store
from drillcore_server.documents.document_planner import Change
from drillcore_server.documents.ingestion.revision_plan import SettledSections
from drillcore_server.erasure.destroy_keys import Eraser
from drillcore_server.facts.block_writes import FactWrites
from drillcore_server.facts.blocks import FactBlock
from drillcore_server.facts.state_hash import forget_state
from drillcore_server.facts.store import FactReader, block_in
from drillcore_server.graphs.quad_store import without_source
from drillcore_server.graphs.turn_store import TurnWrites
from drillcore_server.hierarchy.model import Document
from drillcore_server.hierarchy.store import DOCUMENT
from drillcore_server.kernel import access, erasures
from drillcore_server.kernel import corpus_store as corpora
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, BatchedReads, CorpusAtRevision, CorpusReads
from drillcore_server.kernel.corpus_model import Corpus, check_not_on_hold
from drillcore_server.kernel.erasures import ERASURE, ErasedKey, Erasure
from drillcore_server.kernel.errors import BadInput, Missing, NotReady, Refused
from drillcore_server.kernel.holdings import Holdings
from drillcore_server.kernel.pages import Page, make_token, page_size, read_token
from drillcore_server.kernel.revise import Overtaken, Plan, Target
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, errors_as_refusals
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.ids import SOURCE_CHARACTERS_MAX, CorpusId, FactId, Revision, SourceId, TenantId, new_uuid
from drillcore_server.storage.keyring import SNAPSHOT_SCOPE, KeyNumber
from drillcore_server.storage.spaces import Space

REASON_CHARACTERS_MAX: Final = 1_000


def erase_source(
    eraser: Eraser, call: Call, target: Target, source: SourceId, *, reason: str = "", purge_now: bool = False
) -> Erasure:
    """Erases a source. Afterwards nobody can read it any more; with `purge_now`, its bytes are removed too.

    A repeated request returns its first result.

    Raises `Refused`: SOURCE_NOT_FOUND, SOURCE_ERASED, CORPUS_ON_HOLD.
    """
    _check(source, reason)
    planner = _ErasurePlanner(eraser, call, source, reason)
    done = eraser.reviser.revise(call, target, ERASURE, planner.plan)
    corpus = planner.corpus or eraser.reviser.find(call, target)[0]
    with errors_as_refusals():
        stored = eraser.destroy_keys(corpus, done, datetime.now(call.at.tzinfo))
        if not purge_now:
            return stored
        eraser.purger.purge_by_itself(corpus.tenant_id, corpus.id, call.at, lambda: False)
        return eraser.as_stored(corpus, done)


def _check(source: SourceId, reason: str) -> None:
    if not 0 < len(source) <= SOURCE_CHARACTERS_MAX:
        message = f"source_id must have 1 to {SOURCE_CHARACTERS_MAX} characters"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="source_id")
    if len(reason) > REASON_CHARACTERS_MAX:
        raise BadInput(Reason.TOO_LARGE, f"reason must have at most {REASON_CHARACTERS_MAX} characters", field="reason")


class _ErasurePlanner:
    """Plans one call's erasure, again whenever another change is committed first."""

    def __init__(self, eraser: Eraser, call: Call, source: SourceId, reason: str) -> None:
        self._eraser = eraser
        self._reviser = eraser.reviser
        self._planner = eraser.documents
        self._call = call
        self._source = source
        self._hashed = eraser.reviser.keyring.hashed(source)
        self._reason = reason
        self._id = new_uuid()
        self._settled = SettledSections()
        self.corpus: Corpus | None = None
        """The corpus, once a plan was made."""

    def plan(self, snapshot: BatchedReads) -> Plan[Erasure]:
        corpus, base = snapshot.corpus, snapshot.revision
        check_not_on_hold(corpus.legal_hold)
        self.corpus = corpus
        found = self._find(snapshot)
        if found is None:
            raise self._unknown(snapshot)
        keys = self._keys(corpus)
        if keys[0].number != found.held.number:
            raise Overtaken  # somebody else has erased the source meanwhile
        documents, blocks = found.documents, found.blocks
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
            chunks=sum(len(document.chunks) for document in documents),
            facts=sum(len(block.facts) for block in blocks),
            sections=0,
            purge_due=self._call.at + timedelta(days=self._eraser.purge_days),
        )
        return self._planned(snapshot, found, about)

    def _planned(self, snapshot: BatchedReads, found: _Found, about: Erasure) -> Plan[Erasure]:
        corpus = snapshot.corpus
        made = self._plan_documents(snapshot, found.documents)
        outcome = _Outcome(replace(about, sections=len(made.sections)))
        facts = [fact.id for block in found.blocks for fact in block.facts]
        communities = self._community_writes(corpus, found.held, facts)

        def finish(tr: Transaction, trail: Trail, _revision: Revision) -> None:
            self._finish(tr, trail, corpus, outcome)

        return Plan(
            base=snapshot.revision,
            number=made.number,
            writes=chain(
                made.writes,
                self._fact_writes(corpus, found),
                self._source_writes(found.held),
                without_source(found.held),
                communities,
                self._turn_writes(corpus, found.held),
                foreign_store.without_source(found.held),
            ),
            sections=made.sections,
            documents_added=(),
            documents_removed=made.documents_removed,
            sources=(),  # the reason must stay readable, so it is not sealed under the source's key
            result=lambda _revision: outcome.erasure,
            facts_count=lambda: len(facts),
            communities=bool(communities),
            finish=finish,
        )

    def _plan_documents(self, snapshot: BatchedReads, documents: Sequence[Document]) -> Plan[None]:
        """The plan that removes the documents of the source from the hierarchy."""
        if not documents:
            number = self._reviser.make_keys(snapshot.corpus, [])
            return Plan(snapshot.revision, number, (), (), (), (), (), lambda _revision: None)
        change = Change([], documents, [])
        return self._planner.plan(self._call, snapshot, change, self._settled, lambda _revision, _sections: None)

    def _find(self, snapshot: BatchedReads) -> _Found | None:
        """What the corpus has of the source. None if it has neither the source nor facts from it."""
        number = self._reviser.keyring.find(snapshot.corpus.number, self._source)
        return None if number is None else snapshot.read(lambda view: _Found.of(snapshot, view, number))

    def _unknown(self, snapshot: BatchedReads) -> Refused:
        before = snapshot.read(lambda view: list(erasures.of_corpus(view.tr, view.keys)))
        if any(erasure.source == self._hashed for erasure in before):
            return NotReady(Reason.SOURCE_ERASED, "this source was already erased; ListErasures shows when and by whom")
        return Missing(Reason.SOURCE_NOT_FOUND, "the corpus has no such source; ListSources shows those it has")

    def _keys(self, corpus: Corpus) -> tuple[ErasedKey, ...]:
        """The source's own key, then the key of saved indexes. Makes missing ones, so that nobody else can."""
        scopes = [self._source, SNAPSHOT_SCOPE]
        numbers = self._reviser.keyring.numbers(corpus.number, scopes)
        hashes = list(map(self._reviser.keyring.hashed, scopes))
        return tuple(ErasedKey(number, scope) for number, scope in zip(numbers, hashes, strict=True))

    def _fact_writes(self, corpus: Corpus, found: _Found) -> Iterator[Write]:
        """Removes the facts of the source, whatever their status."""
        if not found.blocks:
            return
        model, *others = found.models
        keys, keyring = self._reviser.keys, self._reviser.keyring
        make = FactWrites(keys, corpus.tenant_id, corpus.number, keyring, model, others)
        yield from make.erase(found.blocks)

    def _community_writes(self, corpus: Corpus, held: Holdings, facts: Sequence[FactId]) -> list[Write]:
        """Removes the words of the source from the labels of communities."""
        make = CommunityWrites(held.snapshot.keys, corpus.number, self._reviser.keyring)
        return plan_without(corpus.id, facts, held, make, self._call.at)

    def _turn_writes(self, corpus: Corpus, held: Holdings) -> Iterator[Write]:
        make = TurnWrites(self._reviser.keys, corpus.tenant_id, corpus.number, self._reviser.keyring)
        return make.without_source(held)

    @staticmethod
    def _source_writes(held: Holdings) -> Iterator[Write]:
        return (Write(entry.key, None) for entry in held.entries(Space.SOURCES))

    def _finish(self, tr: Transaction, trail: Trail, corpus: Corpus, outcome: _Outcome) -> None:
        keyspace = self._reviser.keys
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


@dataclass(frozen=True, slots=True)
class _Found:
    """What a revision has of the source."""

    held: Holdings
    documents: Sequence[Document]
    """There may be several."""
    blocks: Sequence[FactBlock]
    models: Sequence[int]
    """The numbers of the models that may have made vectors of its facts."""

    @classmethod
    def of(cls, snapshot: BatchedReads, view: CorpusAtRevision, number: KeyNumber) -> _Found | None:
        """Reads all of it, what is small in the view's own transaction. None if there is no such source."""
        held = Holdings.of(snapshot, view, number, ahead=[view.keys.embeddings()])
        documents = [DOCUMENT.decode(view.sealed.opened(entry).value) for entry in held.entries(Space.DOCUMENTS)]
        blocks = [block_in(view.sealed.opened(entry)) for entry in held.entries(Space.FACTS)]
        if not blocks and not any(held.entries(Space.SOURCES)):
            return None
        models = FactReader(view).embeddings() if blocks else None
        return cls(held, documents, blocks, [] if models is None else [models.current.number, *models.others])


@dataclass(slots=True)
class _Outcome:
    """The erasure as the last run of the commit made it."""

    erasure: Erasure


def list_erasures(
    reads: CorpusReads, call: Call, *, tenant: TenantId | None, corpus: CorpusId, size: int, token: str
) -> Page[Erasure]:
    """The erasures of a corpus, oldest first. They show who erased something and when, never what."""
    wanted, listing = page_size(size), f"erasures of {corpus}"
    cursor = read_token(listing, token)
    after = int.from_bytes(cursor, "big") if cursor else 0

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Page[Erasure]:
        view = reads.at(tr, granted, trail, corpus, AsOf())
        found = list(islice(erasures.of_corpus(tr, view.keys, after), wanted + 1))
        trail.detail["erasures"] = [str(erasure.id) for erasure in found[:wanted]]
        more = make_token(listing, found[wanted - 1].number.to_bytes(4, "big")) if len(found) > wanted else ""
        return Page(found[:wanted], more)

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ, Permission.AUDIT), work)
