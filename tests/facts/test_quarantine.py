"""Quarantines: what they keep from being found, who hears of them, and that only a signed review lifts them."""

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
    """The block must be refused for want of a review, and say so."""
    with pytest.raises(grpc.RpcError) as caught:
        yield
    assert info_of(caught.value).reason == Reason.REVIEW_REQUIRED.name
    assert (caught.value.details() or "").startswith(f"{why};")


def test_a_quarantined_fact_is_not_found_and_the_operator_hears_of_it(caller: FactCaller) -> None:
    one, other = put(caller, 2)
    caller.set_status(one, QUARANTINED, reason=WHY, request_id="once")
    assert [hit.fact.fact_id for hit in caller.search("records").hits] == [other]
    fact = caller.get(one)
    assert (fact.status, fact.status_reason) == (QUARANTINED, WHY)
    caller.set_status(one, QUARANTINED, reason=WHY, request_id="once")
    (told,) = [line for line in caller.server.log_lines() if line["event"] == "facts quarantined"]
    assert (told["level"], told["fact_ids"], told["corpus_id"]) == ("warning", [one], fact.corpus_id)
    assert WHY not in caller.server.log.getvalue()
    registry = caller.server.server.metrics.registry
    assert registry.get_sample_value("drillcore_facts_quarantined_total") == 1


def test_a_quarantine_needs_a_reason_which_is_on_the_record(caller: FactCaller) -> None:
    (one,) = put(caller)
    with refused(Reason.INVALID_ARGUMENT):
        caller.set_status(one, QUARANTINED, reason=" ")
    assert caller.get(one).status == ACTIVE
    caller.set_status(one, QUARANTINED, reason=WHY)
    record = records(caller.server, call="SetFactStatus")[-1]
    assert record["detail"]["status"] == "QUARANTINED"
    assert record["opened"]["status_reason"] == WHY


def test_a_signed_review_of_the_fact_lifts_its_quarantine(caller: FactCaller, reviewer: Person) -> None:
    (one,) = put(caller)
    caller.set_status(one, QUARANTINED, reason=WHY)
    signature = sign(reviewer, one)
    lift(caller, one, str(signature.id))
    assert (caller.get(one).status, caller.get(one).version) == (ACTIVE, 3)
    assert [hit.fact.fact_id for hit in caller.search("records").hits] == [one]
    record = records(caller.server, call="SetFactStatus")[-1]
    assert record["detail"]["signature_id"] == str(signature.id)
    assert (record["detail"]["status"], record["outcome"]) == ("ACTIVE", "OK")


def test_without_a_signature_or_with_one_that_is_none_it_stays(caller: FactCaller) -> None:
    (one,) = put(caller)
    caller.set_status(one, QUARANTINED, reason=WHY)
    with refused(Reason.REVIEW_REQUIRED):
        caller.set_status(one, ACTIVE, reason="I say so")
    with refused(Reason.REVIEW_REQUIRED):
        lift(caller, one, str(uuid4()))
    with refused(Reason.ILLEGAL_TRANSITION):
        caller.set_status(one, pb.FACT_STATUS_STALE)
    assert caller.get(one).status == QUARANTINED
    assert [record["outcome"] for record in records(caller.server, call="SetFactStatus")] == [
        "OK",
        "REVIEW_REQUIRED",
        "REVIEW_REQUIRED",
        "ILLEGAL_TRANSITION",
    ]


def test_a_signature_from_before_the_quarantine_does_not_lift_it(caller: FactCaller, reviewer: Person) -> None:
    (one,) = put(caller)
    before = sign(reviewer, one)
    caller.set_status(one, QUARANTINED, reason=WHY)
    with refused(Reason.REVIEW_REQUIRED):
        lift(caller, one, str(before.id))


def test_a_signature_of_an_earlier_quarantine_does_not_lift_this_one(caller: FactCaller, reviewer: Person) -> None:
    (one,) = put(caller)
    caller.set_status(one, QUARANTINED, reason=WHY)
    first = sign(reviewer, one)
    lift(caller, one, str(first.id))
    caller.set_status(one, QUARANTINED, reason="again")
    with refused(Reason.REVIEW_REQUIRED):
        lift(caller, one, str(first.id))


def test_a_signature_of_another_version_does_not_lift(caller: FactCaller, reviewer: Person) -> None:
    (one,) = put(caller)
    caller.set_status(one, QUARANTINED, reason=WHY)
    signature = sign(reviewer, one)
    caller.update(one, content=TEXT.format("twenty"))
    with review_required("the signature is of version 2, the fact is at 3"):
        lift(caller, one, str(signature.id))
    lift(caller, one, str(sign(reviewer, one).id))


def test_a_signature_of_another_fact_does_not_lift(caller: FactCaller, reviewer: Person) -> None:
    one, other = put(caller, 2)
    for fact in (one, other):
        caller.set_status(fact, QUARANTINED, reason=WHY)
    with review_required("the signature is not of this fact"):
        lift(caller, one, str(sign(reviewer, other).id))
    assert caller.get(one).status == QUARANTINED


def tamper(server: Running, signature: UUID, **changes: object) -> None:
    """Changes what is stored of a signature, as somebody with the database could."""
    key = keyspace(server).signature(ACME_ID, signature)

    def work(tr: Transaction) -> None:
        stored = SIGNATURE.read(tr, key)
        assert stored is not None
        SIGNATURE.write(tr, key, replace(stored, **changes))  # type: ignore[arg-type]

    server.engine.run(work)


@pytest.mark.parametrize("moved", ["target", "version", "hash"])
def test_a_signature_that_was_tampered_with_does_not_lift(caller: FactCaller, reviewer: Person, moved: str) -> None:
    one, other = put(caller, 2)
    for fact in (one, other):
        caller.set_status(fact, QUARANTINED, reason=WHY)
    made = sign(reviewer, other if moved == "target" else one)
    said = made.manifestation
    if moved == "target":
        said = said.replace(other, one)
    elif moved == "version":
        caller.update(one, source_location="page 3")
        said = said.replace('"version":2', '"version":3')
    else:
        said = said.replace(made.content_hash.hex(), bytes(32).hex())
    assert said != made.manifestation
    tamper(caller.server, made.id, manifestation=said)
    with refused(Reason.REVIEW_REQUIRED):
        lift(caller, one, str(made.id))
    tamper(caller.server, made.id, manifestation=made.manifestation)
    if moved == "hash":
        lift(caller, one, str(made.id))


def test_a_signature_that_is_whole_but_of_other_content_does_not_lift(caller: FactCaller, reviewer: Person) -> None:
    """As if the fact had been changed in the database while its version stayed."""
    (one,) = put(caller)
    caller.set_status(one, QUARANTINED, reason=WHY)
    made = sign(reviewer, one)
    tamper(caller.server, made.id, sealed_by=made_by_another_key(caller))
    with refused(Reason.REVIEW_REQUIRED):
        lift(caller, one, str(made.id))


def made_by_another_key(caller: FactCaller) -> tuple[int, ...]:
    return tuple(caller.server.server.keyring.numbers(CorpusNumber(1), [SourceId("another")]))


def test_a_quarantine_is_not_lifted_for_several_facts_at_once(caller: FactCaller, reviewer: Person) -> None:
    one, other = put(caller, 2)
    for fact in (one, other):
        caller.set_status(fact, QUARANTINED, reason=WHY)
    request = pb.SetFactStatusRequest(fact_ids=[one, other], status=ACTIVE, signature_id=str(sign(reviewer, one).id))
    with refused(Reason.INVALID_ARGUMENT):
        caller.facts.SetFactStatus(request, **caller.options())


def test_a_signature_says_nothing_where_there_is_no_quarantine(caller: FactCaller, reviewer: Person) -> None:
    (one,) = put(caller)
    caller.set_status(one, pb.FACT_STATUS_STALE)
    with refused(Reason.INVALID_ARGUMENT):
        lift(caller, one, str(sign(reviewer, one).id))


def test_a_signature_of_a_fact_is_listed_and_of_its_version(caller: FactCaller, reviewer: Person) -> None:
    (one,) = put(caller)
    made = sign(reviewer, one)
    session = reviewer.log_in()
    target = SignatureTarget(SignatureTargetKind.FACT, UUID(one))
    (listed,) = session.list_signatures(target).items
    assert listed.id == made.id
    assert (listed.target.kind, listed.target.version) == (SignatureTargetKind.FACT, 1)
    with pytest.raises(Exception, match="NODE_NOT_FOUND"):
        sign(reviewer, one, SignatureTargetKind.NODE)
