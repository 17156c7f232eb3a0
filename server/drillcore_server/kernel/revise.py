"""Writes a corpus's next revision, whatever its size: all levels and indexes become visible together, or none.

    plan on the current head -> small: one transaction writes the revision and moves the head
                             -> large: claim the next revision, write it in batches nobody sees, then move the head

If another writer moved the head first, the plan is made again on the new head. Only planning is repeated: documents
stay parsed, digested and embedded. A claim is a lease. If its holder dies, it expires, and the next writer first
removes what the holder had written.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Final, Generic, TypeVar
from uuid import uuid4

from drillcore_fdb.engine import Engine, Options, Reader, Reads, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.kernel import access, retention, revisions
from drillcore_server.kernel import revisions as changes
from drillcore_server.kernel import writes as manifests
from drillcore_server.kernel.access import InTenant, Rule
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import BadInput, Unavailable
from drillcore_server.kernel.read_ahead import Subjects
from drillcore_server.kernel.revisions import Claim, RevisionRecord
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit, errors_as_refusals
from drillcore_server.kernel.writes import Write, apply_all, locators_of
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
T = TypeVar("T")

SMALL_BYTES_MAX: Final = 3_000_000
"""A revision up to this size is one transaction. FoundationDB allows 10 MB and recommends much less."""
BATCH_BYTES_MAX: Final = 500_000
"""The size of each transaction of a large revision.

The embedded engine's file grows by a copy of every page that a transaction changes. Index entries are spread over many
pages, so larger batches would make the file larger.
"""
RECORD_BYTES_MAX: Final = 5_000_000
"""The size of a revision's record. It names the documents and sections that changed: up to about 250,000."""
LEASE_S: Final = 30.0
_PAUSE_S: Final = 0.02


def _nothing_more(_tr: Transaction, _trail: Trail, _revision: Revision) -> None:
    """The default for plans that need nothing in the publishing transaction besides their writes."""


@dataclass(frozen=True, slots=True)
class Plan(Generic[R]):
    """A revision to write. It was planned on the revision `base` of the corpus."""

    base: Revision
    number: KeyNumbers
    """The keys that seal the stored result: the corpus's own, and those of sources that the result names."""
    writes: Iterable[Write]
    """Iterated once, so that a large revision is never in memory as a whole."""
    sections: tuple[NodeId, ...]
    documents_added: tuple[DocumentId, ...]
    documents_removed: tuple[DocumentId, ...]
    sources: Collection[SourceId]
    """The sources of the documents."""
    result: Callable[[Revision], R]
    """Makes the caller's result from the number of the new revision."""
    facts: Collection[FactId] = ()
    """The changed facts, if they are few enough for the audit record. The feed of changes names all of them."""
    facts_count: Callable[[], int] = int
    """Returns how many facts change. Called after all writes were iterated."""
    communities: bool = False
    """Whether the revision has recomputed communities."""
    finish: Callable[[Transaction, Trail, Revision], None] = _nothing_more
    """Further work in the transaction that makes the revision the head."""


@dataclass(frozen=True, slots=True)
class NothingToChange(Generic[R]):
    """The plan if the corpus is already in the requested state: the caller gets an answer, but there is no revision."""

    result: R
    number: KeyNumbers | None = None
    """The keys that seal the stored answer. None, for background work of the server: nothing is stored or recorded."""
    finish: Callable[[Transaction, Trail, Revision], None] = _nothing_more
    """Further work in the transaction that records the call."""


@dataclass(frozen=True, slots=True)
class Target:
    """The corpus to revise, as the caller named it."""

    tenant: TenantId | None
    corpus: CorpusId
    by_server: bool = False
    """Whether the server itself revises it, in its background work."""

    @property
    def access(self) -> Rule[InTenant]:
        if self.by_server:
            assert self.tenant is not None
            return access.server_in(self.tenant)
        return access.in_tenant(self.tenant, Permission.WRITE)


@dataclass(frozen=True, slots=True)
class SoughtTarget:
    """A corpus to revise that the caller named by something in it."""

    tenant: TenantId | None
    find: Callable[[Reader, InTenant], CorpusId]
    """Finds the corpus. Raises `Refused` if it is not there for the caller."""
    expected: Sequence[bytes] = ()
    """Keys that `find` reads first, to be read ahead."""

    @property
    def access(self) -> Rule[InTenant]:
        return access.in_tenant(self.tenant, Permission.WRITE)


@dataclass(frozen=True, slots=True)
class Staged:
    """A large revision that is written but not visible yet."""

    claim: Claim
    commitment: bytes


@dataclass(frozen=True, slots=True)
class Begun(Generic[R]):
    """The start of a request: the corpus, its head, and the request's result if it was made before."""

    corpus: Corpus
    head: Revision
    known: R | None

    def target_of(self, target: Target | SoughtTarget) -> Target:
        """The target that is found, if it was sought."""
        return target if isinstance(target, Target) else Target(target.tenant, self.corpus.id)


class Overtaken(Exception):  # noqa: N818 - a signal, not an error
    """The head has moved since the plan was made."""


class Claimed(Exception):  # noqa: N818 - likewise
    """Another writer holds the claim."""

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

    def batched(self, corpus: Corpus, revision: Revision, shared: Reads | None = None) -> BatchedReads:
        """A revision of the corpus, read in as many transactions as it takes, or in those that others share."""
        keys = self.keys.of_corpus(corpus.number)
        return BatchedReads(self.engine, corpus, keys, self.sealed, revision, shared=shared)

    def make_keys(self, corpus: Corpus, sources: Iterable[SourceId]) -> KeyNumber:
        """Makes the missing keys of the corpus and these sources, and returns the number of the corpus's own key.

        Makes them all at once, because each separate write to the keyring would wait for the disk.
        """
        number, *_ = self.keyring.numbers(corpus.number, [CORPUS_SCOPE, *sorted(sources)])
        return number

    def revise(
        self,
        call: Call,
        target: Target | SoughtTarget,
        kind: RecordKind[R],
        make_plan: Callable[[BatchedReads], Plan[R] | NothingToChange[R]],
        reads: Reads | None = None,
    ) -> R:
        """Plans and writes the next revision. Returns the plan's `result`, which is stored as the request's outcome.

        `make_plan` gets the corpus as it is now. It reads in the transaction that found the corpus while that is young,
        and in following ones later; so a small revision takes two transactions, one to plan and one to write. `reads`
        are those of the same call before: the first plan goes on with them.

        A request that was made before gets its stored outcome and is not planned. Raises `Refused`: CONFLICT or
        DEADLINE_EXCEEDED if others keep writing first until the call's time is over. Planning, and cleaning up after a
        dead writer, do not count towards that time, because they make progress.
        """
        deadline: float | None = None
        shared = reads or self.engine.reads()
        while True:
            with shared, errors_as_refusals():
                begun = self.begin(call, target, kind, shared)
                if begun.known is not None:
                    return begun.known
                snapshot = self.batched(begun.corpus, begun.head, shared)
                found = begun.target_of(target)
                try:
                    plan = make_plan(snapshot)
                    if isinstance(plan, NothingToChange):
                        return self.leave(call, found, kind, plan)
                    return self._write(call, found, kind, plan, snapshot)
                except (Overtaken, KeyErased):  # after an erasure during planning, the next head is without the source
                    deadline = deadline or time.monotonic() + call.timeout_s
                except Claimed as claimed:
                    deadline = deadline or time.monotonic() + call.timeout_s
                    if self._wait_or_sweep(snapshot.keys, claimed.claim, deadline):
                        deadline = None
            if deadline is not None and time.monotonic() > deadline:
                raise Unavailable(Reason.CONFLICT, "others kept changing the corpus; nothing was written, try again")

    def find(self, call: Call, target: Target, reads: Reads | None = None) -> tuple[Corpus, Revision]:
        """The corpus and its head. Raises `Refused` if the caller may not change the corpus.

        With `reads`, it is the first of them.
        """

        def work(tr: Reader, granted: InTenant) -> tuple[Corpus, Revision]:
            corpus = self._corpus(tr, granted, target)
            self.unit.read_ahead.remember(corpus)
            return corpus, revisions.head(tr, self.keys.of_corpus(corpus.number))

        return self._look(_naming(call, target), target.access, work, reads)

    def begin(
        self, call: Call, target: Target | SoughtTarget, kind: RecordKind[R], reads: Reads | None = None
    ) -> Begun[R]:
        """The corpus, its head and a known result. Raises `Refused` if the caller may not change the corpus.

        With `reads`, it is the first of them.
        """

        def work(tr: Reader, granted: InTenant) -> Begun[R]:
            corpus = self._corpus(tr, granted, target)
            self.unit.read_ahead.remember(corpus)
            head = revisions.head(tr, self.keys.of_corpus(corpus.number))
            return Begun(corpus, head, self.unit.known(tr, call, SealedKind(kind, self.sealed, call.request_id)))

        named = _naming(call, target) if isinstance(target, Target) else call
        expected = () if isinstance(target, Target) else target.expected
        return self._look(named, target.access, work, reads, expected)

    def _look(
        self,
        call: Call,
        access: Rule[InTenant],
        work: Callable[[Reader, InTenant], T],
        reads: Reads | None,
        expected: Sequence[bytes] = (),
    ) -> T:
        if reads is None:
            return self.unit.look(call, access, work, expected=expected)
        return self.unit.look_first(call, access, work, reads, expected=expected)

    def leave(self, call: Call, target: Target, kind: RecordKind[R], unchanged: NothingToChange[R]) -> R:
        """Records a request that changes nothing, and stores its answer as its outcome."""
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
        return self.unit.write(_naming(call, target), target.access, stored_as, work)

    def _corpus(self, tr: Reader, granted: InTenant, target: Target | SoughtTarget) -> Corpus:
        """The corpus. Raises `Refused` unless the caller may change all of its levels."""
        named = target.corpus if isinstance(target, Target) else target.find(tr, granted)
        corpus = granted.corpus(tr, self.keys, named)
        granted.check_level(corpus.id, *Level)
        return corpus

    def _write(self, call: Call, target: Target, kind: RecordKind[R], plan: Plan[R], base: BatchedReads) -> R:
        keys, writes = base.keys, iter(plan.writes)
        first = _up_to(SMALL_BYTES_MAX, writes)
        following = next(writes, None)
        if following is None:
            return self._publish(call, target, kind, plan, first, keys)
        claim = Claim(uuid4(), Revision(plan.base + 1), _lease_end())
        _check_record(_record(call, plan, claim.revision, RecordId(claim.id), call.at))
        try:
            self._claim(keys, claim)
            batches = enumerate(_batches(chain(first, [following], writes)))
            hashes = [self._stage(keys, claim, number, batch) for number, batch in batches]
            return self._publish(call, target, kind, plan, Staged(claim, manifests.root(hashes)), keys)
        except BaseException:
            self._sweep(keys, claim)
            raise

    def _publish(
        self,
        call: Call,
        target: Target,
        kind: RecordKind[R],
        plan: Plan[R],
        written: Staged | Sequence[Write],
        keys: CorpusKeys,
    ) -> R:
        at = datetime.now(UTC)  # when readers begin to see the revision; the call may have begun long before

        def work(tr: Transaction, granted: InTenant, trail: Trail) -> R:
            corpus = self._corpus(tr, granted, target)
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
        expected = [keys.revision(plan.base), *(() if isinstance(written, Staged) else locators_of(written))]
        return self.unit.write(_naming(call, target), target.access, stored_as, work, expected=expected)

    def _apply(self, tr: Transaction, keys: CorpusKeys, writes: Sequence[Write], revision: Revision) -> bytes:
        """Makes all writes of a small revision. Returns the hash of their manifest."""
        try:
            return apply_all(tr, keys, writes, revision, 0, self.sealed).manifest
        except KeyErased as erased:
            raise Overtaken from erased  # a source of this revision was erased and has a new key now

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
        """Writes a batch. Returns the hash of its manifest."""
        renewed = Claim(claim.id, claim.revision, _lease_end())

        def work(tr: Transaction) -> bytes:
            self._check_claim(tr, keys, claim)
            revisions.put_claim(tr, keys, renewed)
            applied = apply_all(tr, keys, batch, claim.revision, number, self.sealed)
            revisions.stage(tr, keys, claim.revision, number, applied.places)
            return applied.manifest

        return self.engine.run(work, Options(idempotent=True))

    def _wait_or_sweep(self, keys: CorpusKeys, claim: Claim, deadline: float) -> bool:
        """Waits until the claim is gone or another writer's, or the time is over. Returns True if it had expired.

        Removes what an expired claim left.
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
        """Removes what was staged under this claim, then the claim. Does nothing if another claim has replaced it."""

        def work(tr: Transaction, renewed: Claim) -> bool:
            held = revisions.get_claim(tr, keys)
            if held is None or held.id != claim.id:
                return False
            revisions.put_claim(tr, keys, renewed)
            if revisions.sweep_batch(tr, keys):
                return True
            revisions.clear_claim(tr, keys)
            retention.walk_again(tr, keys)
            return False

        has_more = True
        while has_more:
            renewed = Claim(claim.id, claim.revision, _lease_end())
            has_more = self.engine.run(lambda tr: work(tr, renewed), Options(idempotent=True))  # noqa: B023 - run at once


def _naming(call: Call, target: Target) -> Call:
    """The call, naming the corpus that it revises, so that what is needed of the corpus is read ahead."""
    return replace(call, subjects=Subjects(target.tenant, (target.corpus,)))


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
    """Raises `BadInput`, before anything is staged, if the revision's record is too large for one transaction."""
    if len(revisions.REVISION.encode(record)) > RECORD_BYTES_MAX:
        message = "this changes more documents than one revision can name; nothing was written; change fewer at once"
        raise BadInput(Reason.TOO_LARGE, message)


def _up_to(size_bytes_max: int, writes: Iterator[Write]) -> list[Write]:
    """Takes writes until they exceed the size, or all of them if they do not."""
    taken: list[Write] = []
    size_bytes = 0
    while size_bytes <= size_bytes_max and (write := next(writes, None)) is not None:
        taken.append(write)
        size_bytes += write.size_bytes
    return taken


def _batches(writes: Iterable[Write]) -> Iterator[list[Write]]:
    batch: list[Write] = []
    size_bytes = 0
    for write in chain.from_iterable(write.parts() for write in writes):
        if batch and size_bytes + write.size_bytes > BATCH_BYTES_MAX:
            yield batch
            batch, size_bytes = [], 0
        batch.append(write)
        size_bytes += write.size_bytes
    if batch:
        yield batch


def _lease_end() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=LEASE_S)
