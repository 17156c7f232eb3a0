"""Writes a corpus's next revision, whatever its size: all levels and indexes become visible together, or none.

    plan on the head as it is now -> small: one transaction writes it and moves the head
                                  -> large: claim the next revision, write it in batches nobody sees, then move the head

A plan that another writer overtook is made again on the new head. Only planning is repeated: parsing, embedding and
digests of documents are done before and kept. A claim is a lease: when its holder dies it expires, and whoever writes
next first sweeps away what it had written.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Final, Generic, TypeVar
from uuid import uuid4

from drillcore_fdb.engine import Engine, Options, Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.kernel import access, revisions, trimming
from drillcore_server.kernel import revisions as changes
from drillcore_server.kernel import writes as manifests
from drillcore_server.kernel.access import InTenant, Rule
from drillcore_server.kernel.accounts import Permission
from drillcore_server.kernel.corpora import Corpus
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.errors import BadInput, Unavailable
from drillcore_server.kernel.revisions import Claim, RevisionRecord
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit, refusing
from drillcore_server.kernel.writes import Write, apply_all
from drillcore_server.storage import audit_records
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import (
    CorpusId,
    DocumentId,
    FactId,
    Level,
    NodeId,
    RecordId,
    Revision,
    SourceId,
    TenantId,
)
from drillcore_server.storage.keyring import CORPUS_SCOPE, KeyErased, KeyNumber, Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed import KeyNumbers, SealedKind, SealedRecords

R = TypeVar("R")

SMALL_BYTES_MAX: Final = 3_000_000
"""A revision up to this size is one transaction. FoundationDB allows 10 MB, but wants them well below."""
BATCH_BYTES_MAX: Final = 500_000
"""Of a large revision, for each transaction. The embedded engine's file has room for a copy of every page that one
changes, and those of the indexes are spread: larger batches make the file larger."""
RECORD_BYTES_MAX: Final = 5_000_000
"""Of a revision's own record, which names the documents and sections it changed: about 250,000 of them."""
LEASE_S: Final = 30.0
_PAUSE_S: Final = 0.02


def _nothing_more(_tr: Transaction, _trail: Trail, _revision: Revision) -> None:
    """Most revisions are their writes."""


@dataclass(frozen=True, slots=True)
class Plan(Generic[R]):
    """A revision about to be written, made on the corpus as it was at `base`."""

    base: Revision
    number: KeyNumbers
    """Of the corpus's own key, and of sources that the result names: it is stored sealed under all of them."""
    writes: Iterable[Write]
    """Gone through once: a large revision is never in memory as a whole."""
    sections: tuple[NodeId, ...]
    documents_added: tuple[DocumentId, ...]
    documents_removed: tuple[DocumentId, ...]
    sources: Collection[SourceId]
    """Those of the documents."""
    result: Callable[[Revision], R]
    """What the caller gets, once the revision has its number."""
    facts: Collection[FactId] = ()
    """That it changes, if they are few enough to name in the audit record; the feed of changes names all."""
    facts_count: Callable[[], int] = int
    """How many it changes; asked when all writes were gone through."""
    communities: bool = False
    """Whether communities were computed anew."""
    finish: Callable[[Transaction, Trail, Revision], None] = _nothing_more
    """What belongs into the transaction that makes it the head, beside its writes."""


@dataclass(frozen=True, slots=True)
class NothingToChange(Generic[R]):
    """What a plan is if the corpus is already as it was asked to be: the caller gets an answer, and no revision."""

    result: R
    number: KeyNumbers | None = None
    """The keys that seal the stored answer. None: nothing is stored or recorded; for what the server does itself."""
    finish: Callable[[Transaction, Trail, Revision], None] = _nothing_more
    """What belongs into the transaction that records the call."""


@dataclass(frozen=True, slots=True)
class Target:
    """The corpus to revise, as the caller named it."""

    tenant: TenantId | None
    corpus: CorpusId
    by_server: bool = False
    """Whether it is the server itself that revises it."""

    @property
    def access(self) -> Rule[InTenant]:
        if self.by_server:
            assert self.tenant is not None
            return access.server_in(self.tenant)
        return access.in_tenant(self.tenant, Permission.WRITE)


@dataclass(frozen=True, slots=True)
class Staged:
    """A large revision that is written and not yet visible."""

    claim: Claim
    commitment: bytes


@dataclass(frozen=True, slots=True)
class Begun(Generic[R]):
    """What a request finds: the corpus, its head, and its own outcome if that is part of the head already."""

    corpus: Corpus
    head: Revision
    known: R | None


class Overtaken(Exception):  # noqa: N818 - a turn of events, not an error
    """The head has moved since the plan was made."""


class Claimed(Exception):  # noqa: N818 - likewise
    """Somebody else holds the claim."""

    def __init__(self, claim: Claim) -> None:
        super().__init__()
        self.claim = claim


class Reviser:
    def __init__(self, engine: Engine, unit: Unit, sealed: SealedRecords, keyring: Keyring) -> None:
        self.engine = engine
        self.unit = unit
        self.sealed = sealed
        self.keyring = keyring

    @property
    def keys(self) -> Keyspace:
        return self.unit.keys

    def batched(self, corpus: Corpus, revision: Revision) -> BatchedReads:
        """What plans read: a revision of the corpus, in as many transactions as it takes."""
        return BatchedReads(self.engine, corpus, self.keys.of_corpus(corpus.number), self.sealed, revision)

    def make_keys(self, corpus: Corpus, sources: Iterable[SourceId]) -> KeyNumber:
        """The number of the corpus's own key. Makes all keys that are missing at once: each would wait for the disk."""
        number, *_ = self.keyring.numbers(corpus.number, [CORPUS_SCOPE, *sorted(sources)])
        return number

    def revise(
        self,
        call: Call,
        target: Target,
        kind: RecordKind[R],
        make_plan: Callable[[Corpus, Revision], Plan[R] | NothingToChange[R]],
    ) -> R:
        """Plans and writes the next revision; what the plan's `result` says, stored as the outcome of the request.

        A request that was made before gets its outcome without a plan: what it changed is changed already.
        Raises `Refused`; CONFLICT or DEADLINE_EXCEEDED if others keep writing first for as long as the call may take.
        To plan, and to sweep up after a dead writer, may take longer: that is work of our own, and gets us further.
        """
        deadline: float | None = None
        while True:
            begun = self.begin(call, target, kind)
            if begun.known is not None:
                return begun.known
            corpus, base = begun.corpus, begun.head
            keys = self.keys.of_corpus(corpus.number)
            with refusing():
                try:
                    plan = make_plan(corpus, base)
                    if isinstance(plan, NothingToChange):
                        return self.leave(call, target, kind, plan)
                    return self._write(call, target, kind, plan, keys)
                except (Overtaken, KeyErased):  # what an erasure takes away while we plan, the next head has no more
                    deadline = deadline or time.monotonic() + call.timeout_s
                except Claimed as claimed:
                    deadline = deadline or time.monotonic() + call.timeout_s
                    if self._wait_or_sweep(keys, claimed.claim, deadline):
                        deadline = None
            if deadline is not None and time.monotonic() > deadline:
                raise Unavailable(Reason.CONFLICT, "others kept changing the corpus; nothing was written, try again")

    def find(self, call: Call, target: Target) -> tuple[Corpus, Revision]:
        """The corpus and its head. Raises `Refused` if the caller may not have it."""

        def work(tr: Reader, granted: InTenant) -> tuple[Corpus, Revision]:
            corpus = self._corpus(tr, granted, target)
            return corpus, revisions.head(tr, self.keys.of_corpus(corpus.number))

        return self.unit.look(call, target.access, work)

    def begin(self, call: Call, target: Target, kind: RecordKind[R]) -> Begun[R]:
        """What a request finds before it changes anything. Raises `Refused` if the caller may not have the corpus."""

        def work(tr: Reader, granted: InTenant) -> Begun[R]:
            corpus = self._corpus(tr, granted, target)
            head = revisions.head(tr, self.keys.of_corpus(corpus.number))
            return Begun(corpus, head, self.unit.known(tr, call, SealedKind(kind, self.sealed, call.request_id)))

        return self.unit.look(call, target.access, work)

    def leave(self, call: Call, target: Target, kind: RecordKind[R], unchanged: NothingToChange[R]) -> R:
        """Records a request that turns out to change nothing, and stores its answer as its outcome."""
        if unchanged.number is None:
            return unchanged.result

        def work(tr: Transaction, granted: InTenant, trail: Trail) -> R:
            corpus = self._corpus(tr, granted, target)
            head = revisions.head(tr.snapshot, self.keys.of_corpus(corpus.number))
            trail.touch_corpus(corpus.id, head)
            trail.detail["unchanged"] = True
            unchanged.finish(tr, trail, head)
            return unchanged.result

        stored_as = SealedKind(kind, self.sealed, call.request_id, unchanged.number)
        return self.unit.write(call, target.access, stored_as, work)

    def _corpus(self, tr: Reader, granted: InTenant, target: Target) -> Corpus:
        """The corpus, which the caller may change: that is all of its levels."""
        corpus = granted.corpus(tr, self.keys, target.corpus)
        granted.check_level(corpus.id, *Level)
        return corpus

    def _write(self, call: Call, target: Target, kind: RecordKind[R], plan: Plan[R], keys: CorpusKeys) -> R:
        writes = iter(plan.writes)
        first = _up_to(SMALL_BYTES_MAX, writes)
        following = next(writes, None)
        if following is None:
            return self._publish(call, target, kind, plan, first)
        claim = Claim(uuid4(), Revision(plan.base + 1), _lease_end())
        _check_record(_record(call, plan, claim.revision, RecordId(claim.id), call.at))
        try:
            self._claim(keys, claim)
            batches = enumerate(_batches(chain(first, [following], writes)))
            hashes = [self._stage(keys, claim, number, batch) for number, batch in batches]
            return self._publish(call, target, kind, plan, Staged(claim, manifests.root(hashes)))
        except BaseException:
            self._sweep(keys, claim)
            raise

    def _publish(
        self, call: Call, target: Target, kind: RecordKind[R], plan: Plan[R], written: Staged | Sequence[Write]
    ) -> R:
        at = datetime.now(UTC)  # when readers begin to see it: the call itself may have begun long before

        def work(tr: Transaction, granted: InTenant, trail: Trail) -> R:
            corpus = self._corpus(tr, granted, target)
            keys = self.keys.of_corpus(corpus.number)
            self._check_claim(tr, keys, written.claim if isinstance(written, Staged) else None)
            if revisions.head(tr, keys) != plan.base:
                raise Overtaken
            revision = Revision(plan.base + 1)
            if isinstance(written, Staged):
                revisions.clear_claim(tr, keys)
                revisions.unstage(tr, keys)
                commitment = written.commitment
            else:
                commitment = manifests.root([self._apply(tr, keys, written, revision)])
            revisions.publish(tr, keys, _record(call, plan, revision, trail.record, at))
            incarnation = audit_records.state(tr.snapshot, self.keys).incarnation
            changes.append(tr, self.keys, corpus, revision, incarnation)
            _leave_trail(trail, corpus, plan, revision, commitment)
            plan.finish(tr, trail, revision)
            return plan.result(revision)

        stored_as = SealedKind(kind, self.sealed, call.request_id, plan.number)
        return self.unit.write(call, target.access, stored_as, work)

    def _apply(self, tr: Transaction, keys: CorpusKeys, writes: Sequence[Write], revision: Revision) -> bytes:
        """Makes all writes of a small revision; the hash of their manifest."""
        try:
            return apply_all(tr, keys, writes, revision, 0, self.sealed)[1]
        except KeyErased as erased:
            raise Overtaken from erased  # a source of ours was erased, and has another key now

    def _check_claim(self, tr: Transaction, keys: CorpusKeys, own: Claim | None) -> None:
        held = revisions.get_claim(tr, keys)
        if held is not None and (own is None or held.id != own.id):
            raise Claimed(held)
        if held is None and own is not None:
            raise Overtaken

    def _claim(self, keys: CorpusKeys, claim: Claim) -> None:
        def work(tr: Transaction) -> None:
            held = revisions.get_claim(tr, keys)
            if held is not None and held.id != claim.id:
                raise Claimed(held)
            if revisions.head(tr, keys) + 1 != claim.revision:
                raise Overtaken
            revisions.put_claim(tr, keys, claim)

        self.engine.run(work, Options(idempotent=True))

    def _stage(self, keys: CorpusKeys, claim: Claim, number: int, batch: Sequence[Write]) -> bytes:
        """Writes a batch; the hash of its manifest."""
        renewed = Claim(claim.id, claim.revision, _lease_end())

        def work(tr: Transaction) -> bytes:
            self._check_claim(tr, keys, claim)
            revisions.put_claim(tr, keys, renewed)
            written, hashed = apply_all(tr, keys, batch, claim.revision, number, self.sealed)
            revisions.stage(tr, keys, claim.revision, number, written)
            return hashed

        return self.engine.run(work, Options(idempotent=True))

    def _wait_or_sweep(self, keys: CorpusKeys, claim: Claim, deadline: float) -> bool:
        """Returns when the claim is gone, swept away or somebody else's, or when there is no more time.

        True if it had expired.
        """
        held: Claim | None = claim
        while held is not None and held.id == claim.id and time.monotonic() <= deadline:
            if held.is_expired(datetime.now(UTC)):
                self._take_over(keys, held)
                return True
            time.sleep(_PAUSE_S * (1 + random.random()))
            held = self.engine.run(lambda tr: revisions.get_claim(tr.snapshot, keys))
        return False

    def _take_over(self, keys: CorpusKeys, held: Claim) -> None:
        own = Claim(uuid4(), held.revision, _lease_end())

        def take_over(tr: Transaction) -> bool:
            now_held = revisions.get_claim(tr, keys)
            if now_held != held and (now_held is None or now_held.id != own.id):
                return False
            revisions.put_claim(tr, keys, own)
            return True

        if self.engine.run(take_over, Options(idempotent=True)):
            self._sweep(keys, own)

    def _sweep(self, keys: CorpusKeys, claim: Claim) -> None:
        """Removes what was staged under a claim of ours, then the claim. Does nothing if it is no longer ours."""

        def work(tr: Transaction, renewed: Claim) -> bool:
            held = revisions.get_claim(tr, keys)
            if held is None or held.id != claim.id:
                return False
            revisions.put_claim(tr, keys, renewed)
            if revisions.sweep_batch(tr, keys):
                return True
            revisions.clear_claim(tr, keys)
            trimming.walk_again(tr, keys)
            return False

        has_more = True
        while has_more:
            renewed = Claim(claim.id, claim.revision, _lease_end())
            has_more = self.engine.run(lambda tr: work(tr, renewed), Options(idempotent=True))  # noqa: B023 - run at once


def _leave_trail(trail: Trail, corpus: Corpus, plan: Plan[R], revision: Revision, commitment: bytes) -> None:
    trail.touch_corpus(corpus.id, revision)
    trail.levels.update(Level)
    trail.touch_node_ids(plan.sections)
    trail.touch_documents((*plan.documents_added, *plan.documents_removed))
    trail.before = {"revision": plan.base}
    trail.after = {"revision": revision, "commitment": commitment.hex()}
    added, removed = len(plan.documents_added), len(plan.documents_removed)
    trail.detail |= {"documents_added": added, "documents_removed": removed, "sections_changed": len(plan.sections)}
    trail.sources.update((corpus.number, source) for source in plan.sources)
    trail.touch_node_ids(map(NodeId, plan.facts))
    if facts := plan.facts_count():
        trail.detail["facts_changed"] = facts


def _record(call: Call, plan: Plan[R], revision: Revision, audit: RecordId, at: datetime) -> RevisionRecord:
    return RevisionRecord(
        revision=revision,
        at=at,
        by=call.principal.id,
        request_id=call.request_id,
        action=call.action,
        documents_added=plan.documents_added,
        documents_removed=plan.documents_removed,
        sections=plan.sections,
        audit_id=audit,
        facts=plan.facts_count(),
        communities=plan.communities,
    )


def _check_record(record: RevisionRecord) -> None:
    """Before anything is staged: what a revision says of itself is published in one transaction."""
    if len(revisions.REVISION.encode(record)) > RECORD_BYTES_MAX:
        message = "it changes more documents and sections than one revision can name; nothing was written"
        raise BadInput(Reason.TOO_LARGE, message)


def _up_to(size_bytes_max: int, writes: Iterator[Write]) -> list[Write]:
    """The first of the writes, or all if they take no more than this."""
    taken: list[Write] = []
    size_bytes = 0
    while size_bytes <= size_bytes_max and (write := next(writes, None)) is not None:
        taken.append(write)
        size_bytes += write.size_bytes
    return taken


def _batches(writes: Iterable[Write]) -> Iterator[list[Write]]:
    batch: list[Write] = []
    size_bytes = 0
    for write in writes:
        if batch and size_bytes + write.size_bytes > BATCH_BYTES_MAX:
            yield batch
            batch, size_bytes = [], 0
        batch.append(write)
        size_bytes += write.size_bytes
    if batch:
        yield batch


def _lease_end() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=LEASE_S)
