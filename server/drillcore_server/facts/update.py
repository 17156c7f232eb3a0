"""UpdateFact and SetFactStatus, and the signed reviews that lift quarantines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from drillcore_fdb.engine import Reader, Transaction
from drillcore_formats.audit.findings import VerificationFailed
from drillcore_formats.audit.signatures import FACT, check_signature_of_person
from drillcore_proto.reasons import Reason
from drillcore_server.facts.change import Embedded, FactPlanner
from drillcore_server.facts.fact_reads import check_facts
from drillcore_server.facts.model import (
    FACTS_MAX,
    REASON_CHARACTERS_MAX,
    ChangedFact,
    Fact,
    FactChange,
    FactStatus,
    check_duration,
    check_importance,
    check_location,
    check_tokens,
    fact_hash,
)
from drillcore_server.facts.signable import fact_content
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusReads
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import BadInput, NotReady, Stale
from drillcore_server.kernel.journal import SigningKeys
from drillcore_server.kernel.named import changed_metadata
from drillcore_server.kernel.revise import NothingToChange, Plan
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.signatures import store as signatures
from drillcore_server.signatures.messages import signature_content
from drillcore_server.storage.ids import CorpusId, FactId, Revision, TenantId
from drillcore_server.storage.records import RecordKind
from drillcore_server.vectors.embedding.unit_vectors import client_vector
from drillcore_server.vectors.model import Model
from drillcore_server.vectors.stored_vectors import packed


@dataclass(frozen=True, slots=True)
class FactUpdate:
    """The new values of a fact. A field that is None stays as it is."""

    content: str | None = None
    source_location: str | None = None
    importance: float | None = None
    ttl: str | None = None
    """The new time to live. Empty: the fact no longer expires."""
    set_metadata: Mapping[str, str] = field(default_factory=dict)
    remove_metadata: Sequence[str] = ()
    expected_version: int | None = None
    embedding: tuple[float, ...] = ()
    embedding_model: str = ""


@dataclass(frozen=True, slots=True)
class UpdatedFact:
    version: int
    revision: Revision


UPDATED_FACT = RecordKind(UpdatedFact)


def update_fact(
    planner: FactPlanner, call: Call, *, tenant: TenantId | None, fact: FactId, update: FactUpdate
) -> UpdatedFact:
    """Changes a fact as one revision; earlier revisions keep it as it was. If nothing changes, makes no revision.

    A retry of the same call returns the first outcome. Raises `Refused`: `Stale` if the fact is not at
    `expected_version`, `NotReady` if it is deleted.
    """
    _check(update)
    made: list[_Update] = []

    def plan(snapshot: BatchedReads) -> Plan[UpdatedFact] | NothingToChange[UpdatedFact]:
        if not made:
            made.append(_Update(planner, call, fact, update))
        return made[0].plan(snapshot)

    return planner.reviser.revise(call, planner.target(call, tenant, [fact]), UPDATED_FACT, plan)


def _check(update: FactUpdate) -> None:
    check_importance(update.importance, "the fact")
    check_location(update.source_location or "", "the fact")
    if update.ttl:
        check_duration(update.ttl, "ttl")
    if bool(update.embedding) != bool(update.embedding_model) or (update.embedding and update.content is None):
        message = "give embedding only together with content and embedding_model, the name of the model that made it"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="embedding")


class _Update:
    """May plan several times, but counts tokens only once."""

    def __init__(self, planner: FactPlanner, call: Call, fact: FactId, update: FactUpdate) -> None:
        self._planner = planner
        self._call = call
        self._fact = fact
        self._update = update
        self._tokens = 0
        if update.content is not None:
            self._tokens = planner.counter.count(update.content)
            check_tokens(self._tokens, "the fact")

    def plan(self, snapshot: BatchedReads) -> Plan[UpdatedFact] | NothingToChange[UpdatedFact]:
        (before,) = self._planner.facts(snapshot, [self._fact])
        _check_changeable(before, self._update.expected_version)
        after, what = self._changed(before)
        if not what:
            number = self._planner.reviser.make_keys(snapshot.corpus, [])
            return NothingToChange(UpdatedFact(before.version, snapshot.revision), number)
        model: Model | None = None
        vector: bytes | None = None
        if what & FactChange.CONTENT:
            model, (vector,) = self._embedded(snapshot, after.content)
            after = replace(after, embedding_model=model.name)
        change = ChangedFact(before, after, what, vector)
        return self._planner.plan(
            snapshot, [change], lambda revision: UpdatedFact(after.version, revision), model=model
        )

    def _changed(self, before: Fact) -> tuple[Fact, FactChange]:
        update = self._update
        content = before.content if update.content is None else update.content
        changed = replace(
            before,
            content=content,
            content_hash=fact_hash(content),
            tokens=before.tokens if update.content is None else self._tokens,
            source_location=before.source_location if update.source_location is None else update.source_location,
            importance=before.importance if update.importance is None else update.importance,
            ttl=before.ttl if update.ttl is None else update.ttl,
            metadata=changed_metadata(before.metadata, update.set_metadata, update.remove_metadata),
        )
        if content != before.content:  # new content no longer begins with text of the document
            changed = replace(changed, leads=(), lead_characters=0)
        what = FactChange.CONTENT if changed.content_hash != before.content_hash else FactChange(0)
        if replace(changed, **_content_fields(before)) != before:
            what |= FactChange.DETAILS
        return replace(changed, modified_at=self._call.at, version=before.version + 1), what

    def _embedded(self, snapshot: BatchedReads, content: str) -> Embedded:
        if not self._update.embedding:
            return self._planner.embedded(snapshot, [content])
        vector = client_vector(self._update.embedding, "embedding")
        return Embedded(Model(self._update.embedding_model, len(vector)), [packed(vector)])


def _content_fields(fact: Fact) -> dict[str, Any]:
    """The content, and the fields that change only with it."""
    names = ("content", "content_hash", "tokens", "leads", "lead_characters")
    return {name: getattr(fact, name) for name in names}


def _check_changeable(fact: Fact, expected_version: int | None) -> None:
    if fact.status is FactStatus.DELETED:
        raise NotReady(Reason.ILLEGAL_TRANSITION, "the fact is deleted, so it cannot change; put a new fact")
    check_fact_version(fact, expected_version)


def check_fact_version(fact: Fact, expected: int | None) -> None:
    if expected is not None and fact.version != expected:
        message = f"the fact is at version {fact.version}, not {expected}; read it again"
        raise Stale(Reason.VERSION_MISMATCH, message, version=str(fact.version))


@dataclass(frozen=True, slots=True)
class QuarantineReviews:
    """Checks the signed reviews that lift quarantines, and tells the operator of new quarantines."""

    reads: CorpusReads
    signing: SigningKeys
    tell: Callable[[CorpusId, Sequence[FactId]], None]
    """Tells the operator which facts of a corpus were quarantined."""

    def check(self, tr: Reader, corpus: Corpus, fact: Fact, signature: UUID) -> None:
        """Raises `NotReady` (REVIEW_REQUIRED) unless the signature is of this fact at its present version.

        The quarantine made that version or an earlier one, so nothing that was signed before it is accepted.
        """
        found = signatures.find(tr, self.reads.unit.keys, corpus.tenant_id, signature)
        if found is None:
            raise _required("there is no such signature")
        shown = signature_content(signatures.with_salt(self.reads.keyring, found))
        try:
            checked = check_signature_of_person(shown, self.signing.trusted(tr))
            if (checked.id, checked.kind, checked.target) != (str(signature), FACT, str(fact.id)):
                raise _required("the signature is not of this fact")
            if checked.version != fact.version:
                raise _required(f"the signature is of version {checked.version}, the fact is at {fact.version}")
            if not checked.check_content(fact_content(fact, corpus.id)):
                raise _required("the content that was signed can no longer be checked")
        except VerificationFailed as failure:
            raise _required("the signature does not verify") from failure


def _required(why: str) -> NotReady:
    message = f"{why}; to lift the quarantine, sign a review of the fact as it is now and give its signature_id"
    return NotReady(Reason.REVIEW_REQUIRED, message)


@dataclass(frozen=True, slots=True)
class StatusChange:
    status: FactStatus
    reason: str
    signature: UUID | None = None
    """The signature of a review that lifts a quarantine."""
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class StatusSet:
    changed: int
    revision: Revision


STATUS_SET = RecordKind(StatusSet)


def set_fact_status(
    planner: FactPlanner,
    reviews: QuarantineReviews,
    call: Call,
    *,
    tenant: TenantId | None,
    facts: Sequence[FactId],
    change: StatusChange,
) -> StatusSet:
    """Moves facts of one corpus to another status, as one revision: all or none.

    A retry of the same call returns the first outcome, and does not tell the operator of a quarantine again. Raises
    `Refused`: `NotReady` (ILLEGAL_TRANSITION, REVIEW_REQUIRED), `Stale` if a fact is not at `expected_version`.
    """
    ids = check_facts(facts, FACTS_MAX)
    _check_change(change, len(ids))
    target = planner.target(call, tenant, ids)

    planned: list[CorpusId] = []

    def plan(snapshot: BatchedReads) -> Plan[StatusSet]:
        planned.append(snapshot.corpus.id)
        found = planner.facts(snapshot, ids)
        for fact in found:
            check_fact_version(fact, change.expected_version)
        changes = [
            ChangedFact(fact, fact.moved(change.status, change.reason, call.at), FactChange.STATUS) for fact in found
        ]
        _check_lifted(reviews, snapshot, found, change)
        made = planner.plan(snapshot, changes, lambda revision: StatusSet(len(changes), revision))
        return replace(made, finish=finish)

    def finish(_tr: Transaction, trail: Trail, _revision: Revision) -> None:
        trail.detail["status"] = change.status.name
        if change.reason:
            trail.private["status_reason"] = change.reason
        if change.signature is not None:
            trail.detail["signature_id"] = str(change.signature)

    done = planner.reviser.revise(call, target, STATUS_SET, plan)
    if change.status is FactStatus.QUARANTINED and planned:  # a retry plans nothing, and the operator knows already
        reviews.tell(planned[0], ids)
    return done


def _check_change(change: StatusChange, count: int) -> None:
    if len(change.reason) > REASON_CHARACTERS_MAX:
        message = f"reason must have at most {REASON_CHARACTERS_MAX} characters"
        raise BadInput(Reason.TOO_LARGE, message, field="reason")
    if change.status is FactStatus.QUARANTINED and not change.reason.strip():
        raise BadInput(Reason.INVALID_ARGUMENT, "reason is missing: say why the facts are quarantined", field="reason")
    if (change.signature is not None or change.expected_version is not None) and count > 1:
        message = "signature_id and expected_version belong to one fact; name one fact in fact_ids"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="fact_ids")


def _check_lifted(
    reviews: QuarantineReviews, snapshot: BatchedReads, facts: Sequence[Fact], change: StatusChange
) -> None:
    """Only a signed review lifts a quarantine, one for each fact. No other change takes a signature.

    The check may run before the commit: a signature never changes, and if the fact changes, this plan is made again.
    """
    lifted = [fact for fact in facts if fact.status is FactStatus.QUARANTINED]
    if change.signature is None and lifted:
        message = "the fact is quarantined; sign a review of it and give its signature_id"
        raise NotReady(Reason.REVIEW_REQUIRED, message)
    if change.signature is None:
        return
    if not lifted:
        message = "the fact is not quarantined; leave signature_id out"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="signature_id")
    (fact,), signature = lifted, change.signature
    snapshot.read(lambda view: reviews.check(view.tr, view.corpus, fact, signature))
