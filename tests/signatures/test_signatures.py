"""Electronic signatures: who signs, what a signature is bound to, and what is refused."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import grpc
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from drillcore import (
    AccountKind,
    AuditFilter,
    Client,
    Conflict,
    DrillcoreError,
    FailedPrecondition,
    Grant,
    Level,
    NewDocument,
    NotFound,
    PermissionDenied,
    PreparedSignature,
    Reason,
    Role,
    Signature,
    SignatureTarget,
    SignatureTargetKind,
)
from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import REQUEST_ID_HEADER
from drillcore_proto.v1 import signatures_pb2 as pb
from drillcore_proto.v1.signatures_pb2_grpc import SignatureServiceStub
from drillcore_server.identity.credentials import Credentials
from drillcore_server.kernel.access import Principal, PrincipalKind, Proof
from drillcore_server.kernel.account_model import Account as ServerAccount
from drillcore_server.kernel.account_model import Credential
from drillcore_server.kernel.errors import Denied
from drillcore_server.kernel.unit import Call
from drillcore_server.signatures import store as signatures
from drillcore_server.signatures.prepare import check_can_sign, forget_challenges
from drillcore_server.signatures.service import SignatureService
from drillcore_server.storage import audit_keys
from drillcore_server.storage.ids import AccountId, PrincipalId, TenantId
from tests.support.callers.knowledge import refused
from tests.support.data.texts import REGULATIONS
from tests.support.servers.people import age_password
from tests.support.servers.running import ACME, ACME_ID, GLOBEX_ID, Running, create_tenants, running
from tests.support.servers.signatories import QUICK, Person, person
from tests.support.stores.aged import keyspace

MEANING = "reviewed and approved"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "data", auth=QUICK) as found:
        create_tenants(found.client())
        yield found


@pytest.fixture
def writer(server: Running) -> Client:
    return server.client(ACME)


@pytest.fixture
def corpus(writer: Client) -> UUID:
    made = writer.create_corpus("rules")
    writer.add_documents(made.id, [NewDocument("records.txt", REGULATIONS["records.txt"].encode())])
    return made.id


@pytest.fixture
def section(writer: Client, corpus: UUID) -> SignatureTarget:
    return targets(writer, corpus, Level.SECTION)[0]


@pytest.fixture
def reviewer(server: Running) -> Person:
    return person(server, "rita", Role.REVIEWER, name="Rita Reviewer")


def targets(client: Client, corpus: UUID, level: Level) -> list[SignatureTarget]:
    hits = client.iter_query(level=level, corpus_ids=[corpus])
    return [SignatureTarget(SignatureTargetKind.NODE, hit.node.id) for hit in hits]


def sign(client: Client, who: Person, target: SignatureTarget, *, login: bool = True) -> Signature:
    prepared = client.prepare_signature(target, MEANING)
    return client.sign_record(prepared, who.password, login=who.account.login if login else "")


def reason_of(error: pytest.ExceptionInfo[DrillcoreError]) -> Reason | None:
    return error.value.reason


def test_a_signature_says_who_signed_what_when_and_why(reviewer: Person, section: SignatureTarget) -> None:
    client = reviewer.log_in()
    signature = sign(client, reviewer, section)
    assert signature.target == replace(section, version=1)
    assert (signature.signer_name, signature.signer_login) == ("Rita Reviewer", "rita")
    assert signature.signer_id == reviewer.account.id
    assert signature.meaning == MEANING
    assert json.loads(signature.manifestation) == {
        "id": str(signature.id),
        "store": json.loads(signature.manifestation)["store"],
        "tenant": str(ACME_ID),
        "target": {"kind": "node", "id": str(section.id), "version": 1},
        "corpus_id": str(signature.corpus_id),
        "signer_id": str(signature.signer_id),
        "signer_login": "rita",
        "signer_name": "Rita Reviewer",
        "signed_at": signature.signed_at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "meaning": MEANING,
        "content_hash": signature.content_hash.hex(),
        "record_id": str(signature.record_id),
        "key_hash": signature.key_hash.hex(),
    }


def test_the_servers_signature_verifies_for_the_manifestation_and_for_no_other(
    server: Running, reviewer: Person, section: SignatureTarget
) -> None:
    signature = sign(reviewer.log_in(), reviewer, section)
    (key,) = server.engine.run(lambda tr: audit_keys.chain(tr, keyspace(server)))
    public = Ed25519PublicKey.from_public_bytes(key.public_key)
    said = b"drillcore signature 1\n" + signature.manifestation.encode()
    public.verify(signature.signature, said)
    with pytest.raises(InvalidSignature):
        public.verify(signature.signature, said.replace(b'"version":1', b'"version":2'))


@pytest.mark.parametrize("level", list(Level))
def test_the_signed_content_is_the_content_that_was_shown(
    reviewer: Person, writer: Client, corpus: UUID, level: Level
) -> None:
    client = reviewer.log_in()
    prepared = client.prepare_signature(targets(writer, corpus, level)[0], MEANING)
    signature = client.sign_record(prepared, reviewer.password, login="rita")
    content = b"drillcore signed content 1\n" + signature.content_salt + prepared.content.encode()
    assert hashlib.sha256(content).digest() == prepared.content_hash == signature.content_hash
    assert json.loads(prepared.content)["id"] == str(prepared.target.id)


def test_the_first_signature_of_a_session_needs_both_components_and_later_ones_the_password(
    reviewer: Person, section: SignatureTarget
) -> None:
    client = reviewer.log_in()
    first = client.prepare_signature(section, MEANING)
    assert first.needs_login
    with pytest.raises(DrillcoreError) as error:
        client.sign_record(first, reviewer.password)
    assert reason_of(error) is Reason.INVALID_ARGUMENT
    client.sign_record(first, reviewer.password, login="rita")
    second = client.prepare_signature(section, "read again")
    assert not second.needs_login
    client.sign_record(second, reviewer.password)
    assert reviewer.log_in().prepare_signature(section, MEANING).needs_login


def test_signatures_are_shown_with_the_node_in_every_reading(
    writer: Client, reviewer: Person, section: SignatureTarget, corpus: UUID
) -> None:
    signature = sign(reviewer.log_in(), reviewer, section)
    assert writer.get_node(section.id).signatures == (signature,)
    (hit,) = [hit for hit in writer.iter_query(level=Level.SECTION, corpus_ids=[corpus]) if hit.node.id == section.id]
    assert hit.node.signatures == (signature,)
    master = writer.query(level=Level.MASTER, corpus_ids=[corpus]).items[0].node
    below = {node.id: node.signatures for node in writer.iter_drill_down(master.id, Level.SECTION)}
    assert below[section.id] == (signature,)
    chunk = writer.drill_down(section.id, Level.CHUNK).items[0]
    assert chunk.signatures == ()
    above = writer.roll_up([chunk.id], Level.SECTION)
    assert above.nodes[0].signatures == above.common.signatures == (signature,)


def test_a_new_version_of_a_node_is_unsigned_and_the_old_version_stays_signed(
    writer: Client, reviewer: Person, section: SignatureTarget, corpus: UUID
) -> None:
    signature = sign(reviewer.log_in(), reviewer, section)
    before = writer.get_node(section.id)
    change(writer, corpus)
    now = writer.get_node(section.id)
    assert now.version == before.version + 1
    assert now.signatures == ()
    assert writer.get_node(section.id, as_of=before.revision).signatures == (signature,)


def change(writer: Client, corpus: UUID) -> None:
    """Gives every section of the corpus, which has one document, a new version."""
    text = REGULATIONS["records.txt"] + "\nRecords of signatures shall be kept as long as what was signed.\n"
    writer.add_documents(corpus, [NewDocument("records.txt", text.encode())])


def test_a_version_that_is_no_longer_the_current_one_cannot_be_signed(
    writer: Client, reviewer: Person, section: SignatureTarget, corpus: UUID
) -> None:
    client = reviewer.log_in()
    prepared = client.prepare_signature(section, MEANING)
    change(writer, corpus)
    with pytest.raises(Conflict) as error:
        client.sign_record(prepared, reviewer.password, login="rita")
    assert reason_of(error) is Reason.VERSION_MISMATCH
    with pytest.raises(Conflict):
        client.prepare_signature(replace(section, version=1), MEANING)
    assert list(client.iter_signatures()) == []


def test_a_replayed_signature_is_refused_and_a_retry_gets_the_first_outcome(
    reviewer: Person, section: SignatureTarget
) -> None:
    client = reviewer.log_in()
    prepared = client.prepare_signature(section, MEANING)
    request = str(uuid4())
    first = client.sign_record(prepared, reviewer.password, login="rita", request_id=request)
    again = client.sign_record(prepared, reviewer.password, login="rita", request_id=request)
    assert again == first
    with pytest.raises(FailedPrecondition) as error:
        client.sign_record(prepared, reviewer.password, login="rita")
    assert reason_of(error) is Reason.CHALLENGE_REFUSED
    assert list(client.iter_signatures()) == [first]


def test_a_retry_cannot_be_used_to_guess_the_password(reviewer: Person, section: SignatureTarget) -> None:
    client = reviewer.log_in()
    prepared = client.prepare_signature(section, MEANING)
    client.sign_record(prepared, reviewer.password, login="rita", request_id="once")
    reasons = []
    for guess in range(4):
        with pytest.raises(DrillcoreError) as error:
            client.sign_record(prepared, f"guess {guess}", login="rita", request_id="once")
        reasons.append(reason_of(error))
    assert reasons == [Reason.LOGIN_FAILED] * 3 + [Reason.ACCOUNT_LOCKED]


@pytest.mark.parametrize(
    "changed",
    [
        {"meaning": "rejected"},
        {"content_hash": bytes(32)},
        {"challenge": bytes(32)},
        {"target": SignatureTarget(SignatureTargetKind.NODE, UUID(int=1), 1)},
    ],
    ids=["meaning", "content", "challenge", "target"],
)
def test_only_the_prepared_signature_can_be_signed(
    reviewer: Person, section: SignatureTarget, changed: dict[str, object]
) -> None:
    client = reviewer.log_in()
    prepared = client.prepare_signature(section, MEANING)
    altered = replace(prepared, **changed)  # type: ignore[arg-type]  # fields of a prepared signature
    with pytest.raises(FailedPrecondition) as error:
        client.sign_record(altered, reviewer.password, login="rita")
    assert reason_of(error) is Reason.CHALLENGE_REFUSED


def test_a_challenge_is_valid_in_its_own_session_only(
    server: Running, reviewer: Person, section: SignatureTarget
) -> None:
    colleague = person(server, "rolf", Role.REVIEWER)
    prepared = reviewer.log_in().prepare_signature(section, MEANING)
    for client, who in [(reviewer.log_in(), reviewer), (colleague.log_in(), colleague)]:
        with pytest.raises(FailedPrecondition) as error:
            client.sign_record(prepared, who.password, login=who.account.login)
        assert reason_of(error) is Reason.CHALLENGE_REFUSED


def test_a_challenge_expires(server: Running, reviewer: Person, section: SignatureTarget) -> None:
    client = reviewer.log_in()
    prepared = client.prepare_signature(section, MEANING)
    expire(server, prepared)
    with pytest.raises(FailedPrecondition) as error:
        client.sign_record(prepared, reviewer.password, login="rita")
    assert reason_of(error) is Reason.CHALLENGE_REFUSED


def expire(server: Running, prepared: PreparedSignature) -> None:
    keys = keyspace(server)

    def work(tr: Transaction) -> None:
        known = signatures.find_challenge(tr, keys, prepared.challenge)
        assert known is not None
        older = replace(known, expires_at=known.expires_at - timedelta(minutes=5))
        signatures.put_challenge(tr, keys, prepared.challenge, older)

    server.engine.run(work)


def test_expired_challenges_are_forgotten_and_others_are_not(
    server: Running, reviewer: Person, section: SignatureTarget
) -> None:
    client, keys = reviewer.log_in(), keyspace(server)
    old, new = (client.prepare_signature(section, MEANING) for _ in range(2))
    expire(server, old)
    now = client.get_node(section.id).created_at + timedelta(minutes=4)
    assert forget_challenges(server.engine, keys, now) == 1
    client.sign_record(new, reviewer.password, login="rita")


def test_a_wrong_password_is_refused_and_locks_the_account_in_the_end(
    reviewer: Person, section: SignatureTarget
) -> None:
    client = reviewer.log_in()
    prepared = client.prepare_signature(section, MEANING)
    for _ in range(QUICK.failures_max):
        with pytest.raises(DrillcoreError) as error:
            client.sign_record(prepared, "wrong", login="rita")
        assert reason_of(error) is Reason.LOGIN_FAILED
    with pytest.raises(DrillcoreError) as error:
        client.sign_record(prepared, reviewer.password, login="rita")
    assert reason_of(error) is Reason.ACCOUNT_LOCKED
    assert list(client.iter_signatures()) == []


def test_no_caller_can_sign_for_another_person(server: Running, reviewer: Person, section: SignatureTarget) -> None:
    colleague = person(server, "rolf", Role.REVIEWER)
    client = reviewer.log_in()
    prepared = client.prepare_signature(section, MEANING)
    with pytest.raises(PermissionDenied) as error:
        client.sign_record(prepared, colleague.password, login="rolf")
    assert reason_of(error) is Reason.CANNOT_SIGN


def test_service_accounts_and_tokens_cannot_sign(server: Running, section: SignatureTarget, writer: Client) -> None:
    operator = server.client()
    service = operator.create_account(
        "robot", kind=AccountKind.SERVICE, grants=[Grant(Role.REVIEWER)], tenant_id=ACME_ID
    )
    robot = server.client(operator.create_token(service.id, name="batch", tenant_id=ACME_ID).token)
    for client in (robot, writer):
        with pytest.raises(PermissionDenied) as error:
            client.prepare_signature(section, MEANING)
        assert reason_of(error) is Reason.CANNOT_SIGN
        made_up = PreparedSignature(replace(section, version=1), MEANING, bytes(32), "", bytes(32), True)
        with pytest.raises(PermissionDenied) as error:
            client.sign_record(made_up, "password", login="robot")
        assert reason_of(error) is Reason.CANNOT_SIGN


def test_a_role_that_is_taken_away_between_preparing_and_signing_signs_nothing(
    server: Running, reviewer: Person, section: SignatureTarget
) -> None:
    client = reviewer.log_in()
    prepared = client.prepare_signature(section, MEANING)
    server.client().set_grants(reviewer.account.id, [Grant(Role.READER)], tenant_id=ACME_ID)
    with pytest.raises(PermissionDenied) as error:
        client.sign_record(prepared, reviewer.password, login="rita")
    assert reason_of(error) is Reason.PERMISSION_DENIED


class Meanwhile:
    """Runs a function while a call signs: after the password was checked and before anything is written."""

    def __init__(self, credentials: Credentials, deed: Callable[[], object]) -> None:
        self._credentials = credentials
        self._deed = deed
        self.settings = credentials.settings

        self.attempt = credentials.attempt

    def prove(self, call: Call, account: ServerAccount | None, tried: Credential | None, password: str) -> Credential:
        proven = self._credentials.prove(call, account, tried, password)
        self._deed()
        return proven


def meanwhile(server: Running, deed: Callable[[], object]) -> None:
    (service,) = [service for _, service in server.server._services if isinstance(service, SignatureService)]
    held = Meanwhile(service._signer.credentials, deed)
    service._signer = replace(service._signer, credentials=held)  # type: ignore[arg-type]  # has what signing needs


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("the role is taken away", Reason.PERMISSION_DENIED),
        ("the account is disabled", Reason.SESSION_OVER),
        ("the password is changed", Reason.CONFLICT),
        ("the session is ended", Reason.SESSION_OVER),
        ("the node is changed", Reason.VERSION_MISMATCH),
    ],
)
def test_changes_during_the_call_count(
    server: Running,
    writer: Client,
    corpus: UUID,
    reviewer: Person,
    section: SignatureTarget,
    event: str,
    expected: Reason,
) -> None:
    operator, client, who = server.client(), reviewer.log_in(), reviewer.account.id
    deeds: dict[str, Callable[[], object]] = {
        "the role is taken away": lambda: operator.set_grants(who, [Grant(Role.READER)], tenant_id=ACME_ID),
        "the account is disabled": lambda: operator.update_account(who, disabled=True, tenant_id=ACME_ID),
        "the password is changed": lambda: client.set_password(
            "something else altogether", old_password=reviewer.password
        ),
        "the session is ended": client.logout,
        "the node is changed": lambda: change(writer, corpus),
    }
    prepared = client.prepare_signature(section, MEANING)
    meanwhile(server, deeds[event])
    with pytest.raises(DrillcoreError) as error:
        client.sign_record(prepared, reviewer.password, login="rita")
    assert reason_of(error) is expected
    assert list(writer.iter_signatures()) == []


def test_a_refused_signature_is_on_the_record_with_what_was_to_be_signed(
    server: Running, reviewer: Person, section: SignatureTarget
) -> None:
    client, auditor = reviewer.log_in(), person(server, "ann", Role.AUDITOR).log_in()
    prepared = client.prepare_signature(section, MEANING)
    with pytest.raises(DrillcoreError):
        client.sign_record(prepared, "wrong", login="rita", request_id="refused")
    (record,) = auditor.iter_audit(AuditFilter(request_id="refused"))
    assert (record.body["action"], record.body["outcome"]) == ("SIGN", "LOGIN_FAILED")
    assert record.body["operator"] == str(reviewer.account.id)
    assert record.body["detail"] == {"target": {"kind": "node", "id": str(section.id), "version": 1}}
    assert b"wrong" not in json.dumps([record.body, record.private]).encode()


@pytest.mark.parametrize("proof", [proof for proof in Proof if proof is not Proof.SESSION])
def test_only_a_session_that_a_password_opened_can_sign(proof: Proof) -> None:
    with pytest.raises(Denied) as error:
        check_can_sign(principal(PrincipalKind.PERSON, proof))
    assert error.value.reason is Reason.CANNOT_SIGN


def principal(kind: PrincipalKind, proof: Proof) -> Principal:
    return Principal(PrincipalId("rita"), TenantId(ACME_ID), kind, proof, (), AccountId(uuid4()), bytes(32))


def test_only_people_can_sign() -> None:
    check_can_sign(principal(PrincipalKind.PERSON, Proof.SESSION))
    for kind in set(PrincipalKind) - {PrincipalKind.PERSON}:
        with pytest.raises(Denied) as error:
            check_can_sign(principal(kind, Proof.SESSION))
        assert error.value.reason is Reason.CANNOT_SIGN


def test_an_expired_password_does_not_sign(server: Running, reviewer: Person, section: SignatureTarget) -> None:
    client = reviewer.log_in()
    prepared = client.prepare_signature(section, MEANING)
    age_password(server, reviewer.account.id, timedelta(days=91))
    with pytest.raises(FailedPrecondition) as error:
        client.sign_record(prepared, reviewer.password, login="rita")
    assert reason_of(error) is Reason.PASSWORD_EXPIRED


def test_a_reviewer_of_one_level_cannot_sign_another(server: Running, writer: Client, corpus: UUID) -> None:
    client = person(server, "lena", Grant(Role.REVIEWER, levels=(Level.SECTION,))).log_in()
    client.prepare_signature(targets(writer, corpus, Level.SECTION)[0], MEANING)
    with pytest.raises(PermissionDenied):
        client.prepare_signature(targets(writer, corpus, Level.MASTER)[0], MEANING)


def test_an_export_can_be_signed(server: Running, corpus: UUID) -> None:
    who = person(server, "ann", Role.AUDITOR)
    client = who.log_in()
    made = client.export_corpus(corpus, io.BytesIO())
    signature = sign(client, who, SignatureTarget(SignatureTargetKind.EXPORT, made.export_id))
    assert (signature.target.version, signature.corpus_id) == (1, corpus)
    assert list(client.iter_signatures(SignatureTarget(SignatureTargetKind.EXPORT, made.export_id))) == [signature]


def test_a_reviewer_of_one_corpus_cannot_sign_in_another(
    server: Running, writer: Client, section: SignatureTarget
) -> None:
    other_corpus = writer.create_corpus("other")
    who = person(server, "otto", Grant(Role.REVIEWER, corpus_id=other_corpus.id))
    with pytest.raises(NotFound):
        who.log_in().prepare_signature(section, MEANING)


def test_targets_of_another_tenant_are_not_found(server: Running, section: SignatureTarget) -> None:
    stranger = person(server, "gina", Role.AUDITOR, tenant=GLOBEX_ID)
    client = stranger.log_in()
    for kind in SignatureTargetKind:
        with pytest.raises(NotFound):
            client.prepare_signature(SignatureTarget(kind, section.id), MEANING)
    assert list(client.iter_signatures(section)) == []


@pytest.mark.parametrize("meaning", ["", "   ", "x" * 201, "line\nbreak"])
def test_a_signature_must_mean_something(reviewer: Person, section: SignatureTarget, meaning: str) -> None:
    with pytest.raises(DrillcoreError) as error:
        reviewer.log_in().prepare_signature(section, meaning)
    assert reason_of(error) is Reason.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (pb.SignatureTarget(), Reason.INVALID_ARGUMENT),
        (pb.SignatureTarget(kind=9, id=str(uuid4())), Reason.INVALID_ARGUMENT),  # type: ignore[arg-type]
        (pb.SignatureTarget(kind=pb.SIGNATURE_TARGET_KIND_NODE, id="node"), Reason.INVALID_ID),
        (pb.SignatureTarget(kind=pb.SIGNATURE_TARGET_KIND_NODE), Reason.INVALID_ID),
        (
            pb.SignatureTarget(kind=pb.SIGNATURE_TARGET_KIND_NODE, id=str(uuid4()), version=2**63),
            Reason.INVALID_ARGUMENT,
        ),
        (pb.SignatureTarget(kind=pb.SIGNATURE_TARGET_KIND_NODE, id=str(uuid4())), Reason.NODE_NOT_FOUND),
    ],
)
def test_malformed_targets_are_refused(
    server: Running, reviewer: Person, target: pb.SignatureTarget, expected: Reason
) -> None:
    token = server.client(None).login("rita", reviewer.password).token
    with grpc.insecure_channel(server.address) as channel, refused(expected):
        SignatureServiceStub(channel).PrepareSignature(
            pb.PrepareSignatureRequest(target=target, meaning=MEANING),
            metadata=[("authorization", f"Bearer {token}"), (REQUEST_ID_HEADER, str(uuid4()))],
        )


def test_signatures_are_listed_by_target_and_version_and_page_by_page(
    writer: Client, reviewer: Person, corpus: UUID, section: SignatureTarget
) -> None:
    client = reviewer.log_in()
    made = [sign(client, reviewer, section, login=number == 0) for number in range(3)]
    (chunk, *_) = targets(writer, corpus, Level.CHUNK)
    made.append(sign(client, reviewer, chunk))
    assert list(client.iter_signatures(page_size=1)) == made
    assert list(client.iter_signatures(section, page_size=2)) == made[:3]
    assert list(client.iter_signatures(replace(section, version=1))) == made[:3]
    assert list(client.iter_signatures(replace(section, version=2))) == []
    page = client.list_signatures(section, page_size=1)
    with pytest.raises(DrillcoreError) as error:
        client.list_signatures(chunk, page_token=page.next_page_token)
    assert reason_of(error) is Reason.INVALID_PAGE_TOKEN


def test_signatures_of_a_corpus_without_a_grant_are_not_listed(
    server: Running, writer: Client, reviewer: Person, section: SignatureTarget
) -> None:
    sign(reviewer.log_in(), reviewer, section)
    other_corpus = writer.create_corpus("other")
    who = person(server, "otto", Grant(Role.READER, corpus_id=other_corpus.id))
    assert list(who.log_in().iter_signatures()) == []
    assert list(who.log_in().iter_signatures(section)) == []
