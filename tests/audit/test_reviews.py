"""Reviews: an auditor marks a range of the log as reviewed and signs the review."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from drillcore import (
    AuditFilter,
    Client,
    DrillcoreError,
    PermissionDenied,
    Reason,
    Role,
    SignatureTarget,
    SignatureTargetKind,
)
from drillcore_formats.audit.checkpoints import Checkpoint
from drillcore_formats.audit.merkle import check_consistency
from drillcore_formats.audit.notes import Note
from tests.support.servers.running import ACME, GLOBEX_ID, Running, create_tenants, running
from tests.support.servers.signatories import QUICK, Person, person

MEANING = "reviewed, nothing to object to"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "data", auth=QUICK) as found:
        create_tenants(found.client())
        yield found


@pytest.fixture
def who(server: Running) -> Person:
    return person(server, "ann", Role.AUDITOR, name="Ann Auditor")


@pytest.fixture
def auditor(server: Running, who: Person) -> Client:
    """A client of the auditor, after at least five calls that are in the log."""
    writer = server.client(ACME)
    for number in range(5):
        writer.create_corpus(f"corpus {number}", request_id=f"request {number}")
    client = who.log_in()
    record = next(client.iter_audit(AuditFilter(request_id="request 4")))
    client.wait_proof(record.id)
    return client


def test_a_review_names_the_tree_that_ends_with_its_last_record(auditor: Client) -> None:
    review = auditor.review_audit(1, 3, findings="all in order")
    assert (review.first, review.last, review.findings, review.signed) == (1, 3, "all in order", False)
    now = Checkpoint.parse(Note.parse(auditor.get_checkpoint().checkpoint).text)
    proof = auditor.consistency_proof(4, now.size)
    check_consistency(4, now.size, proof, review.root, now.root)


def test_a_review_counts_once_it_is_signed_and_names_its_signer(auditor: Client, who: Person) -> None:
    review = auditor.review_audit(0, 2, findings="one late entry")
    unsigned = auditor.review_audit(0, 3)
    prepared = auditor.prepare_signature(SignatureTarget(SignatureTargetKind.REVIEW, review.id), MEANING)
    content = json.loads(prepared.content)
    assert (content["first"], content["last"], content["findings"]) == (0, 2, "one late entry")
    assert content["root"] == review.root.hex()
    signature = auditor.sign_record(prepared, who.password, login="ann")
    listed = {found.id: found for found in auditor.iter_reviews(page_size=1)}
    assert list(listed) == [review.id, unsigned.id]
    assert listed[review.id].signed
    assert listed[review.id].signatures == (signature,)
    assert listed[review.id].signatures[0].signer_name == "Ann Auditor"
    assert not listed[unsigned.id].signed


def test_a_review_and_its_signing_are_on_the_record(auditor: Client, who: Person) -> None:
    review = auditor.review_audit(0, 2, findings="one late entry", request_id="reviewed")
    (record,) = auditor.iter_audit(AuditFilter(request_id="reviewed"))
    assert record.body["action"] == "REVIEW"
    assert record.body["detail"] == {"review_id": str(review.id), "first": 0, "last": 2, "root": review.root.hex()}
    assert record.private == {"findings": "one late entry"}


def test_a_repeated_review_is_one_review(auditor: Client) -> None:
    first = auditor.review_audit(0, 1, findings="fine", request_id="once")
    assert auditor.review_audit(0, 1, findings="fine", request_id="once") == first
    assert [review.id for review in auditor.iter_reviews()] == [first.id]


@pytest.mark.parametrize(
    ("first", "last", "findings", "expected"),
    [
        (2, 1, "", Reason.INVALID_ARGUMENT),
        (0, 100_000, "", Reason.AUDIT_RECORD_NOT_FOUND),
        (0, 2**63, "", Reason.INVALID_ARGUMENT),
        (0, 1, "x" * 10_001, Reason.INVALID_ARGUMENT),
        (0, 1, "zero \0", Reason.INVALID_ARGUMENT),
    ],
)
def test_an_invalid_review_is_refused(auditor: Client, first: int, last: int, findings: str, expected: Reason) -> None:
    with pytest.raises(DrillcoreError) as error:
        auditor.review_audit(first, last, findings=findings)
    assert error.value.reason is expected
    assert list(auditor.iter_reviews()) == []


def test_the_last_record_of_the_log_can_be_reviewed_and_no_record_after_it(server: Running, auditor: Client) -> None:
    server.server._log_background.stop()
    server.server._keeper.sequencer.drain()
    size = Checkpoint.parse(Note.parse(auditor.get_checkpoint().checkpoint).text).size
    with pytest.raises(DrillcoreError) as error:
        auditor.review_audit(0, size)
    assert error.value.reason is Reason.AUDIT_RECORD_NOT_FOUND
    assert auditor.review_audit(0, size - 1).last == size - 1


def test_signatures_of_reviews_are_shown_to_auditors_only(server: Running, auditor: Client, who: Person) -> None:
    review = auditor.review_audit(0, 1)
    prepared = auditor.prepare_signature(SignatureTarget(SignatureTargetKind.REVIEW, review.id), MEANING)
    signature = auditor.sign_record(prepared, who.password, login="ann")
    assert list(auditor.iter_signatures()) == [signature]
    assert list(person(server, "rob", Role.READER).log_in().iter_signatures()) == []


def test_only_auditors_review(server: Running, auditor: Client) -> None:
    for role in (Role.READER, Role.WRITER, Role.REVIEWER):
        client = person(server, f"p-{role.value}", role).log_in()
        with pytest.raises(PermissionDenied):
            client.review_audit(0, 1)
        with pytest.raises(PermissionDenied):
            client.list_reviews()


def test_a_reviewer_cannot_sign_a_review_of_the_log(server: Running, auditor: Client) -> None:
    review = auditor.review_audit(0, 1)
    client = person(server, "rita", Role.REVIEWER).log_in()
    with pytest.raises(PermissionDenied):
        client.prepare_signature(SignatureTarget(SignatureTargetKind.REVIEW, review.id), MEANING)


def test_another_tenants_reviews_are_not_found(server: Running, auditor: Client) -> None:
    review = auditor.review_audit(0, 1)
    stranger = person(server, "gina", Role.AUDITOR, tenant=GLOBEX_ID).log_in()
    assert list(stranger.iter_reviews()) == []
    for target in (review.id, uuid4()):
        with pytest.raises(DrillcoreError) as error:
            stranger.prepare_signature(SignatureTarget(SignatureTargetKind.REVIEW, target), MEANING)
        assert error.value.reason is Reason.SIGNATURE_NOT_FOUND


def test_operators_review_and_sign_the_servers_own_log(server: Running) -> None:
    who = person(server, "olga", Role.OPERATOR, tenant=None, name="Olga Operator")
    operator = who.log_in()
    record = next(operator.iter_audit(server_log=True))
    operator.wait_proof(record.id, server_log=True)
    review = operator.review_audit(0, 1, server_log=True)
    prepared = operator.prepare_signature(SignatureTarget(SignatureTargetKind.REVIEW, review.id), MEANING)
    signature = operator.sign_record(prepared, who.password, login="olga")
    (listed,) = operator.iter_reviews(server_log=True)
    assert listed.signatures == (signature,)
    assert list(operator.iter_signatures()) == [signature]
