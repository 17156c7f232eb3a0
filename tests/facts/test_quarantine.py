"""Quarantines hide facts, are reported to the operator, and are lifted only by a signed review."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import grpc
import pytest

from drillcore import Client, Role, Signature, SignatureTarget, SignatureTargetKind
from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import facts_pb2 as pb
from drillcore_server.signatures.store import SIGNATURE
from drillcore_server.storage.ids import CorpusNumber, SourceId
from tests.support.callers.facts import FactCaller
from tests.support.callers.knowledge import info_of, refused
from tests.support.servers.running import ACME, ACME_ID, Running, create_tenants, running
from tests.support.servers.signatories import QUICK, Person, person
from tests.support.stores.aged import keyspace
from tests.support.stores.trails import records

TEXT = "The firm must keep records of every transaction for at least {} years after it was made."
WHY = "it led to a fabrication"
ACTIVE, QUARANTINED = pb.FACT_STATUS_ACTIVE, pb.FACT_STATUS_QUARANTINED


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[FactCaller]:
    with running(tmp_path, auth=QUICK) as server:
        create_tenants(server.client())
        with FactCaller(server, ACME) as found:
            yield found


@pytest.fixture
def reviewer(caller: FactCaller) -> Person:
    return person(caller.server, "rita", Role.REVIEWER)


def put(caller: FactCaller, count: int = 1) -> list[str]:
    drafts = [pb.FactDraft(content=TEXT.format(number), source_id="manual") for number in range(count)]
    return list(caller.put(caller.corpus(f"corpus {uuid4()}"), *drafts).fact_ids)


def sign(reviewer: Person, fact: str, kind: SignatureTargetKind = SignatureTargetKind.FACT) -> Signature:
    session: Client = reviewer.log_in()
    prepared = session.prepare_signature(SignatureTarget(kind, UUID(fact)), "reviewed: it is right")
    return session.sign_record(prepared, reviewer.password, login=reviewer.account.login)


def lift(caller: FactCaller, fact: str, signature: str) -> pb.SetFactStatusResponse:
    return caller.set_status(fact, ACTIVE, signature_id=signature, reason="reviewed")


@contextmanager
def review_required(why: str) -> Iterator[None]:
    """Asserts that the block is refused because a review is missing, with this message."""
    with pytest.raises(grpc.RpcError) as caught:
        yield
    assert info_of(caught.value).reason == Reason.REVIEW_REQUIRED.name
    assert (caught.value.details() or "").startswith(f"{why};")


def test_a_quarantined_fact_is_not_found_and_the_operator_is_alerted(caller: FactCaller) -> None:
    first, second = put(caller, 2)
    caller.set_status(first, QUARANTINED, reason=WHY, request_id="once")
    assert [hit.fact.fact_id for hit in caller.search("records").hits] == [second]
    fact = caller.get(first)
    assert (fact.status, fact.status_reason) == (QUARANTINED, WHY)
    caller.set_status(first, QUARANTINED, reason=WHY, request_id="once")
    (told,) = [line for line in caller.server.log_lines() if line["event"] == "facts quarantined"]
    assert (told["level"], told["fact_ids"], told["corpus_id"]) == ("warning", [first], fact.corpus_id)
    assert WHY not in caller.server.log.getvalue()
    registry = caller.server.server.metrics.registry
    assert registry.get_sample_value("drillcore_facts_quarantined_total") == 1


def test_a_quarantine_needs_a_reason_which_is_on_the_record(caller: FactCaller) -> None:
    (fact_id,) = put(caller)
    with refused(Reason.INVALID_ARGUMENT):
        caller.set_status(fact_id, QUARANTINED, reason=" ")
    assert caller.get(fact_id).status == ACTIVE
    caller.set_status(fact_id, QUARANTINED, reason=WHY)
    record = records(caller.server, call="SetFactStatus")[-1]
    assert record["detail"]["status"] == "QUARANTINED"
    assert record["opened"]["status_reason"] == WHY


def test_a_signed_review_of_the_fact_lifts_its_quarantine(caller: FactCaller, reviewer: Person) -> None:
    (fact_id,) = put(caller)
    caller.set_status(fact_id, QUARANTINED, reason=WHY)
    signature = sign(reviewer, fact_id)
    lift(caller, fact_id, str(signature.id))
    assert (caller.get(fact_id).status, caller.get(fact_id).version) == (ACTIVE, 3)
    assert [hit.fact.fact_id for hit in caller.search("records").hits] == [fact_id]
    record = records(caller.server, call="SetFactStatus")[-1]
    assert record["detail"]["signature_id"] == str(signature.id)
    assert (record["detail"]["status"], record["outcome"]) == ("ACTIVE", "OK")


def test_without_a_valid_signature_the_quarantine_stays(caller: FactCaller) -> None:
    (fact_id,) = put(caller)
    caller.set_status(fact_id, QUARANTINED, reason=WHY)
    with refused(Reason.REVIEW_REQUIRED):
        caller.set_status(fact_id, ACTIVE, reason="I say so")
    with refused(Reason.REVIEW_REQUIRED):
        lift(caller, fact_id, str(uuid4()))
    with refused(Reason.ILLEGAL_TRANSITION):
        caller.set_status(fact_id, pb.FACT_STATUS_STALE)
    assert caller.get(fact_id).status == QUARANTINED
    assert [record["outcome"] for record in records(caller.server, call="SetFactStatus")] == [
        "OK",
        "REVIEW_REQUIRED",
        "REVIEW_REQUIRED",
        "ILLEGAL_TRANSITION",
    ]


def test_a_signature_from_before_the_quarantine_does_not_lift_it(caller: FactCaller, reviewer: Person) -> None:
    (fact_id,) = put(caller)
    before = sign(reviewer, fact_id)
    caller.set_status(fact_id, QUARANTINED, reason=WHY)
    with refused(Reason.REVIEW_REQUIRED):
        lift(caller, fact_id, str(before.id))


def test_a_signature_of_an_earlier_quarantine_does_not_lift_this_one(caller: FactCaller, reviewer: Person) -> None:
    (fact_id,) = put(caller)
    caller.set_status(fact_id, QUARANTINED, reason=WHY)
    first = sign(reviewer, fact_id)
    lift(caller, fact_id, str(first.id))
    caller.set_status(fact_id, QUARANTINED, reason="again")
    with refused(Reason.REVIEW_REQUIRED):
        lift(caller, fact_id, str(first.id))


def test_a_signature_of_another_version_does_not_lift(caller: FactCaller, reviewer: Person) -> None:
    (fact_id,) = put(caller)
    caller.set_status(fact_id, QUARANTINED, reason=WHY)
    signature = sign(reviewer, fact_id)
    caller.update(fact_id, content=TEXT.format("twenty"))
    with review_required("the signature is of version 2, the fact is at 3"):
        lift(caller, fact_id, str(signature.id))
    lift(caller, fact_id, str(sign(reviewer, fact_id).id))


def test_a_signature_of_another_fact_does_not_lift(caller: FactCaller, reviewer: Person) -> None:
    first, second = put(caller, 2)
    for fact in (first, second):
        caller.set_status(fact, QUARANTINED, reason=WHY)
    with review_required("the signature is not of this fact"):
        lift(caller, first, str(sign(reviewer, second).id))
    assert caller.get(first).status == QUARANTINED


def tamper(server: Running, signature: UUID, **changes: object) -> None:
    """Changes the stored record of a signature, as a person with access to the database could."""
    key = keyspace(server).signature(ACME_ID, signature)

    def work(tr: Transaction) -> None:
        stored = SIGNATURE.read(tr, key)
        assert stored is not None
        SIGNATURE.write(tr, key, replace(stored, **changes))  # type: ignore[arg-type]

    server.engine.run(work)


@pytest.mark.parametrize("moved", ["target", "version", "hash"])
def test_a_signature_that_was_tampered_with_does_not_lift(caller: FactCaller, reviewer: Person, moved: str) -> None:
    first, second = put(caller, 2)
    for fact in (first, second):
        caller.set_status(fact, QUARANTINED, reason=WHY)
    made = sign(reviewer, second if moved == "target" else first)
    said = made.manifestation
    if moved == "target":
        said = said.replace(second, first)
    elif moved == "version":
        caller.update(first, source_location="page 3")
        said = said.replace('"version":2', '"version":3')
    else:
        said = said.replace(made.content_hash.hex(), bytes(32).hex())
    assert said != made.manifestation
    tamper(caller.server, made.id, manifestation=said)
    with refused(Reason.REVIEW_REQUIRED):
        lift(caller, first, str(made.id))
    tamper(caller.server, made.id, manifestation=made.manifestation)
    if moved == "hash":
        lift(caller, first, str(made.id))


def test_a_valid_signature_of_other_content_does_not_lift(caller: FactCaller, reviewer: Person) -> None:
    """This is as if the fact had been changed in the database while its version stayed."""
    (fact_id,) = put(caller)
    caller.set_status(fact_id, QUARANTINED, reason=WHY)
    made = sign(reviewer, fact_id)
    tamper(caller.server, made.id, sealed_by=made_by_another_key(caller))
    with refused(Reason.REVIEW_REQUIRED):
        lift(caller, fact_id, str(made.id))


def made_by_another_key(caller: FactCaller) -> tuple[int, ...]:
    return tuple(caller.server.server.keyring.numbers(CorpusNumber(1), [SourceId("another")]))


def test_a_quarantine_is_not_lifted_for_several_facts_at_once(caller: FactCaller, reviewer: Person) -> None:
    first, second = put(caller, 2)
    for fact in (first, second):
        caller.set_status(fact, QUARANTINED, reason=WHY)
    request = pb.SetFactStatusRequest(
        fact_ids=[first, second], status=ACTIVE, signature_id=str(sign(reviewer, first).id)
    )
    with refused(Reason.INVALID_ARGUMENT):
        caller.facts.SetFactStatus(request, **caller.options())


def test_a_signature_is_refused_where_there_is_no_quarantine(caller: FactCaller, reviewer: Person) -> None:
    (fact_id,) = put(caller)
    caller.set_status(fact_id, pb.FACT_STATUS_STALE)
    with refused(Reason.INVALID_ARGUMENT):
        lift(caller, fact_id, str(sign(reviewer, fact_id).id))


def test_a_signature_of_a_fact_is_listed_with_its_version(caller: FactCaller, reviewer: Person) -> None:
    (fact_id,) = put(caller)
    made = sign(reviewer, fact_id)
    session = reviewer.log_in()
    target = SignatureTarget(SignatureTargetKind.FACT, UUID(fact_id))
    (listed,) = session.list_signatures(target).items
    assert listed.id == made.id
    assert (listed.target.kind, listed.target.version) == (SignatureTargetKind.FACT, 1)
    with pytest.raises(Exception, match="NODE_NOT_FOUND"):
        sign(reviewer, fact_id, SignatureTargetKind.NODE)
