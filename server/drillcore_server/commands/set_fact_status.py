"""SetFactStatus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.commands.fact_changing import ChangedFact, FactDesk
from drillcore_server.commands.fact_library import check_facts
from drillcore_server.commands.quarantine_reviews import QuarantineReviews
from drillcore_server.commands.revise import Plan
from drillcore_server.commands.unit import Call
from drillcore_server.commands.update_fact import check_fact_version
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import BadInput, NotReady
from drillcore_server.domain.facts import FACTS_MAX, REASON_CHARACTERS_MAX, Fact, FactChange, FactStatus
from drillcore_server.domain.ids import FactId, Revision, TenantId
from drillcore_server.store.records import RecordKind


@dataclass(frozen=True, slots=True)
class StatusChange:
    status: FactStatus
    reason: str
    signature: UUID | None = None
    """Of a review, to lift a quarantine."""
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class StatusSet:
    changed: int
    revision: Revision


STATUS_SET = RecordKind(StatusSet)


def set_fact_status(
    desk: FactDesk,
    reviews: QuarantineReviews,
    call: Call,
    *,
    tenant: TenantId | None,
    facts: Sequence[FactId],
    change: StatusChange,
) -> StatusSet:
    """Moves facts of one corpus to another status, as one revision: all or none."""
    ids = check_facts(facts, FACTS_MAX)
    _check(change, len(ids))
    target = desk.target(call, tenant, ids)

    planned: list[Revision] = []

    def plan(corpus: Corpus, base: Revision) -> Plan[StatusSet]:
        planned.append(base)
        found = desk.facts(corpus, base, ids)
        for fact in found:
            check_fact_version(fact, change.expected_version)
        changes = [
            ChangedFact(fact, fact.moved(change.status, change.reason, call.at), FactChange.STATUS) for fact in found
        ]
        _check_lifted(desk, reviews, corpus, found, change)
        made = desk.plan(corpus, base, changes, lambda revision: StatusSet(len(changes), revision))
        return replace(made, finish=finish)

    def finish(_tr: Transaction, trail: Trail, _revision: Revision) -> None:
        trail.detail["status"] = change.status.name
        if change.reason:
            trail.private["status_reason"] = change.reason
        if change.signature is not None:
            trail.detail["signature_id"] = str(change.signature)

    done = desk.ingester.reviser.revise(call, target, STATUS_SET, plan)
    if change.status is FactStatus.QUARANTINED and planned:  # a retry plans nothing: the operator knows
        reviews.tell(target.corpus, ids)
    return done


def _check(change: StatusChange, count: int) -> None:
    if len(change.reason) > REASON_CHARACTERS_MAX:
        message = f"reason has over {REASON_CHARACTERS_MAX} characters"
        raise BadInput(Reason.TOO_LARGE, message, field="reason")
    if change.status is FactStatus.QUARANTINED and not change.reason.strip():
        raise BadInput(Reason.INVALID_ARGUMENT, "say why the facts are quarantined", field="reason")
    if (change.signature is not None or change.expected_version is not None) and count > 1:
        message = "a signature and a version are those of one fact"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="fact_ids")


def _check_lifted(
    desk: FactDesk, reviews: QuarantineReviews, corpus: Corpus, facts: Sequence[Fact], change: StatusChange
) -> None:
    """A quarantine is lifted only by a signed review, one for each fact; nothing else takes a signature.

    A signature never changes, and the fact is at its version when this is committed: so it may be looked at before.
    """
    lifted = [fact for fact in facts if fact.status is FactStatus.QUARANTINED]
    if change.signature is None and lifted:
        message = "the fact is quarantined: sign a review of it, and name the signature"
        raise NotReady(Reason.REVIEW_REQUIRED, message)
    if change.signature is None:
        return
    if not lifted:
        raise BadInput(Reason.INVALID_ARGUMENT, "the fact is not quarantined", field="signature_id")
    (fact,), signature = lifted, change.signature
    desk.ingester.engine.run(lambda tr: reviews.check(tr.snapshot, corpus, fact, signature))
