"""AuditService: proofs need only a pinned key, checks find every change, and keys can be rotated."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest

from drillcore_fdb.engine import Transaction
from drillcore_formats.audit.checkpoints import Checkpoint
from drillcore_formats.audit.findings import Report
from drillcore_formats.audit.keys import KeyChain, trust
from drillcore_formats.audit.leaves import SERVER_LOG
from drillcore_formats.audit.merkle import check_consistency
from drillcore_formats.audit.notes import Note, VerifierKey
from drillcore_formats.audit.pins import Pins
from drillcore_formats.audit.proofs import Proof, verify_proof
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import audit_pb2 as pb
from drillcore_server.audit import log_store as audit_log
from drillcore_server.audit.check_log import LogChecker
from drillcore_server.audit.query import AuditLogs
from drillcore_server.audit.reviews import Reviews
from drillcore_server.audit.search import LogSearch
from drillcore_server.audit.service import AuditService
from drillcore_server.kernel.access import NOBODY, Principal
from drillcore_server.kernel.account_model import Grant, Role
from drillcore_server.kernel.errors import BadInput, Denied, Missing, Refused, Unavailable
from drillcore_server.kernel.trail import ACTIONS, Action, Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.storage import audit_keys, audit_records
from drillcore_server.storage.audit_records import RECORD
from drillcore_server.storage.ids import CorpusId, PrincipalId, RecordId
from drillcore_server.storage.sealed import SealedRecords
from drillcore_server.tenancy.corpora import list_corpora
from drillcore_server.tenancy.tenants import create_tenant
from tests.support.stores.audited import OTHER, TENANT, Audited, at_work, audited
from tests.support.stores.stores import wait_until

OPERATOR = Principal(PrincipalId("operator"), None, grants=(Grant(Role.OPERATOR, None),))
AUDITOR = Principal(PrincipalId("auditor"), TENANT, grants=(Grant(Role.AUDITOR, TENANT),))
READER = Principal(PrincipalId("reader"), TENANT, grants=(Grant(Role.READER, TENANT),))
STRANGER = Principal(PrincipalId("stranger"), OTHER, grants=(Grant(Role.AUDITOR, OTHER),))
PARTIAL = Principal(PrincipalId("partial"), TENANT, grants=(Grant(Role.AUDITOR, TENANT, CorpusId(UUID(int=5))),))


class Logs:
    """The service on a store with a running sequencer."""

    def __init__(self, store: Audited) -> None:
        self.store = store
        search = LogSearch(store.keys, store.opener, store.terms)
        checker = LogChecker(store.keys, store.opener, search, store.signing.trusted)
        self.sequencer = store.sequencer(alone=True)
        logs = AuditLogs(store.signing, store.opener, search, checker, self.sequencer.wait)
        self.service = AuditService(store.unit, logs, Reviews(store.unit, store.keyring, SealedRecords(store.keyring)))
        for tenant, name in ((TENANT, "one"), (OTHER, "two")):
            create_tenant(
                store.unit, store.call("CreateTenant", principal=OPERATOR), name=name, metadata={}, tenant_id=tenant
            )
        self.pin = store.signing.signer(1).verifier

    def call(self, action: str, principal: Principal = AUDITOR, **more: Any) -> Call:
        return self.store.call(action, principal=principal, **more)

    def wait_proof(
        self, principal: Principal = AUDITOR, timeout_s: float = 30.0, **request: Any
    ) -> pb.WaitProofResponse:
        return self.service.WaitProof(
            pb.WaitProofRequest(**request), self.call("WaitProof", principal, timeout_s=timeout_s)
        )

    def verify(self, principal: Principal = AUDITOR, **request: Any) -> pb.VerifyAuditResponse:
        return self.service.VerifyAudit(pb.VerifyAuditRequest(**request), self.call("VerifyAudit", principal))

    def rotate(self) -> pb.RotateAuditKeyResponse:
        return self.service.RotateAuditKey(pb.RotateAuditKeyRequest(), self.call("RotateAuditKey", OPERATOR))

    def checkpoint(self, principal: Principal = AUDITOR, **request: Any) -> pb.GetCheckpointResponse:
        return self.service.GetCheckpoint(pb.GetCheckpointRequest(**request), self.call("GetCheckpoint", principal))

    def check(self, proof: str, pin: VerifierKey | None = None) -> Report:
        return verify_proof(proof, Pins([pin or self.pin]))


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    with audited(tmp_path / "store") as store:
        made = Logs(store)
        with at_work(made.sequencer):
            yield made


@pytest.fixture
def still(tmp_path: Path) -> Iterator[Logs]:
    """The service with a sequencer that runs only when a test calls it."""
    with audited(tmp_path / "store") as store:
        yield Logs(store)


def with_query(trail: Trail) -> None:
    trail.private["query"] = "what is the dose?"


def refused(reason: Reason, work: Callable[[], object], kind: type[Refused] = Refused) -> None:
    with pytest.raises(kind) as found:
        work()
    assert found.value.reason is reason


def test_a_proof_says_what_the_record_says_and_needs_only_the_pinned_key(logs: Logs) -> None:
    record = logs.store.record(TENANT, with_query)
    answer = logs.wait_proof(record_id=str(record))
    report = logs.check(answer.proof)
    assert report.ok, report
    assert (answer.index, answer.tree_size >= 1) == (0, True)
    said = Proof.parse(answer.proof).record
    assert said["body"]["id"] == str(record)
    assert said["private"] == {"query": "what is the dose?"}
    assert not logs.check(answer.proof, replace(logs.pin, public_key=bytes(32))).ok


def test_a_proof_without_content_reveals_nothing_of_it(logs: Logs) -> None:
    record = logs.store.record(TENANT, with_query)
    answer = logs.wait_proof(record_id=str(record), without_content=True)
    assert logs.check(answer.proof).ok
    assert Proof.parse(answer.proof).record.keys() == {"leaf"}


def test_a_caller_gets_the_proofs_of_their_own_requests_only(logs: Logs) -> None:
    call = logs.call("ListCorpora", READER, request_id="mine")
    list_corpora(logs.store.unit, call, tenant=None, size=10, token="")
    answer = logs.wait_proof(READER, request_id="mine")
    assert logs.check(answer.proof).ok
    assert Proof.parse(answer.proof).record["body"]["request_id"] == "mine"
    refused(Reason.AUDIT_RECORD_NOT_FOUND, lambda: logs.wait_proof(AUDITOR, request_id="mine"), Missing)
    record = Proof.parse(answer.proof).record["body"]["id"]
    refused(Reason.PERMISSION_DENIED, lambda: logs.wait_proof(READER, record_id=record), Denied)


def test_another_tenants_log_and_the_servers_own_are_not_shown(logs: Logs) -> None:
    record = str(logs.store.record(TENANT))
    refused(Reason.AUDIT_RECORD_NOT_FOUND, lambda: logs.wait_proof(STRANGER, record_id=record), Missing)
    refused(
        Reason.TENANT_NOT_FOUND, lambda: logs.wait_proof(STRANGER, tenant_id=str(TENANT), record_id=record), Missing
    )
    for principal in (AUDITOR, READER, NOBODY):
        with pytest.raises(Denied):
            logs.checkpoint(principal, server_log=True)
        if principal is not AUDITOR:
            with pytest.raises(Denied):
                logs.verify(principal)
    refused(Reason.PERMISSION_DENIED, lambda: logs.verify(PARTIAL), Denied)
    refused(Reason.INVALID_ARGUMENT, lambda: logs.verify(OPERATOR, server_log=True, tenant_id=str(TENANT)), BadInput)
    refused(
        Reason.PERMISSION_DENIED,
        lambda: logs.service.RotateAuditKey(pb.RotateAuditKeyRequest(), logs.call("RotateAuditKey", AUDITOR)),
        Denied,
    )
    wait_until(lambda: logs.store.head().size, "the server's own log has a checkpoint")
    assert logs.checkpoint(OPERATOR, server_log=True).checkpoint


def test_an_unknown_record_is_missing_and_a_record_not_yet_in_the_log_is_late(still: Logs) -> None:
    refused(Reason.AUDIT_RECORD_NOT_FOUND, lambda: still.wait_proof(record_id=str(uuid4())), Missing)
    refused(Reason.INVALID_ARGUMENT, still.wait_proof, BadInput)
    record = still.store.record(TENANT)
    refused(Reason.DEADLINE_EXCEEDED, lambda: still.wait_proof(record_id=str(record), timeout_s=0.3), Unavailable)
    still.store.sequence()
    assert still.check(still.wait_proof(record_id=str(record)).proof).ok


def test_a_checkpoint_is_the_newest_or_a_kept_one_and_later_ones_continue_it(still: Logs) -> None:
    refused(Reason.CHECKPOINT_NOT_FOUND, still.checkpoint, Missing)
    store, sizes = still.store, []
    for count in (3, 4):
        for _ in range(count):
            store.record(TENANT)
        store.sequence()
        head = store.head(TENANT)
        store.run(lambda tr, head=head: audit_log.put_checkpoint(tr, store.keys, TENANT, head.size, head.checkpoint))  # type: ignore[misc]
        sizes.append(head.size)
    first, second = (_parsed(still, still.checkpoint(size=size)) for size in sizes)
    assert (first.size, second.size) == tuple(sizes)
    answer = still.service.GetConsistencyProof(
        pb.GetConsistencyProofRequest(first_size=first.size, second_size=second.size),
        still.call("GetConsistencyProof"),
    )
    check_consistency(first.size, second.size, list(answer.hashes), first.root, second.root)
    store.record(TENANT)
    store.sequence()
    assert _parsed(still, still.checkpoint()).size == store.head(TENANT).size
    refused(Reason.CHECKPOINT_NOT_FOUND, lambda: still.checkpoint(size=1), Missing)
    refused(Reason.CHECKPOINT_NOT_FOUND, lambda: still.checkpoint(size=1000), Missing)
    for sizes_asked in ((2, 1), (1, 1000)):
        request = pb.GetConsistencyProofRequest(first_size=sizes_asked[0], second_size=sizes_asked[1])
        refused(
            Reason.CHECKPOINT_NOT_FOUND,
            lambda request=request: still.service.GetConsistencyProof(request, still.call("GetConsistencyProof")),  # type: ignore[misc]
            Missing,
        )


def _parsed(logs: Logs, answer: pb.GetCheckpointResponse) -> Checkpoint:
    chain = KeyChain.parse(json.loads(answer.keys))
    note = Note.parse(answer.checkpoint)
    trust(logs.store.header.store_id, [logs.pin], chain).check_note(note, "it")
    return Checkpoint.parse(note.text)


def test_the_old_key_signs_its_rotation_and_the_new_key_signs_all_later_records(still: Logs) -> None:
    store = still.store
    before = store.record(TENANT)
    answer = still.rotate()
    after = store.record(TENANT)
    store.sequence()
    chain = KeyChain.parse(json.loads(answer.keys))
    assert [key.number for key in chain.keys] == [1, 2]
    new = VerifierKey.parse(answer.key)
    assert new == chain.verifier(chain.keys[1]) == store.signing.signer(2).verifier
    by_key = {record.id: record.key_hash for _, record in store.stored()}
    assert (by_key[before], by_key[after]) == (still.pin.key_hash, new.key_hash)
    rotation = [record for _, record in store.stored() if record.log == SERVER_LOG][-1]
    assert rotation.key_hash == still.pin.key_hash
    body = orjson.loads(store.opener.body(rotation)[1])
    assert (body["action"], body["detail"]["key_number"]) == ("ROTATE", 2)
    for record in (before, after):
        proof = still.wait_proof(record_id=str(record)).proof
        assert still.check(proof).ok, "the old key vouches for the new one"
    assert still.check(still.wait_proof(record_id=str(after)).proof, new).ok
    assert still.verify(OPERATOR, server_log=True).problems == still.verify().problems == []


def test_a_repeated_rotation_is_done_once_and_a_new_request_rotates_again(still: Logs) -> None:
    call = still.call("RotateAuditKey", OPERATOR)
    first = still.service.RotateAuditKey(pb.RotateAuditKeyRequest(), call)
    assert still.service.RotateAuditKey(pb.RotateAuditKeyRequest(), call) == first
    assert still.rotate().key != first.key
    chain = still.store.run(lambda tr: audit_keys.chain(tr, still.store.keys))
    assert [key.number for key in chain] == [1, 2, 3]


def test_a_failed_rotation_changes_nothing(still: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key file was written but nothing was committed. The record of the refusal must not change the key either."""
    store = still.store

    def fail(*_: object) -> None:
        raise Unavailable(Reason.CONFLICT, "as if the commit failed")

    call = still.call("RotateAuditKey", OPERATOR)
    with monkeypatch.context() as patched:
        patched.setattr("drillcore_server.kernel.unit.remember_outcome", fail)
        refused(Reason.CONFLICT, lambda: still.service.RotateAuditKey(pb.RotateAuditKeyRequest(), call))
    store.unit.record_refusal(call, Unavailable(Reason.CONFLICT, "as if the commit failed"))
    assert store.run(lambda tr: audit_records.state(tr, store.keys)).key_number == 1
    left = store.keeper.find(2)
    assert left is not None
    store.record(TENANT)
    assert VerifierKey.parse(still.rotate().key).public_key == left.public_key


def test_an_untouched_log_is_verified_page_by_page(still: Logs) -> None:
    store = still.store
    for _ in range(600):
        store.record(TENANT)
    store.sequence()
    size, start, verified = store.head(TENANT).size, 0, 0
    while start < size:
        answer = still.verify(start=start, records_max=250)
        assert not answer.problems
        assert answer.next_start > start
        start, verified = answer.next_start, verified + answer.verified
    assert verified == size
    assert answer.tree_size == size
    assert answer.checkpoint == store.head(TENANT).checkpoint


def key_of(store: Audited, index: int) -> bytes:
    entry = store.run(lambda tr: audit_log.entry(tr, store.keys, TENANT, index))
    assert entry is not None
    return store.keys.audit_record(entry.position.incarnation, entry.position.bucket, entry.position.versionstamp)


def change(store: Audited, index: int, **fields: Any) -> Callable[[Transaction], None]:
    key = key_of(store, index)

    def work(tr: Transaction) -> None:
        stored = tr.get(key)
        assert stored is not None
        tr.set(key, RECORD.encode(replace(RECORD.decode(stored), **fields)))

    return work


def stored_at(store: Audited, index: int) -> audit_records.StoredRecord:
    value = store.run(lambda tr: tr.get(key_of(store, index)))
    assert value is not None
    return RECORD.decode(value)


def swap(store: Audited, first_index: int, second_index: int) -> Callable[[Transaction], None]:
    def work(tr: Transaction) -> None:
        keys = [store.keys.audit_entry(TENANT, index) for index in (first_index, second_index)]
        values = tr.get_many(keys)
        for key, value in zip(keys, reversed(values), strict=True):
            assert value is not None
            tr.set(key, value)

    return work


def flip(key: bytes, place: int = -1) -> Callable[[Transaction], None]:
    def work(tr: Transaction) -> None:
        value = bytearray(tr.get(key) or b"")
        value[place] ^= 1
        tr.set(key, bytes(value))

    return work


EDITS: dict[str, tuple[Callable[[Audited], Callable[[Transaction], None]], str]] = {
    "a body": (lambda s: change(s, 5, body=stored_at(s, 6).body), "is not what was written there"),
    "a signature": (lambda s: change(s, 5, signature=stored_at(s, 6).signature), "does not match its leaf in the tree"),
    "a commitment": (lambda s: change(s, 5, commitment=bytes(32)), "does not match its leaf in the tree"),
    "a private part that is gone": (lambda s: change(s, 5, private=None), "missing without an erasure"),
    "a private part of another": (lambda s: change(s, 5, private=stored_at(s, 6).private), "is not what was written"),
    "a record that is gone": (lambda s: lambda tr: tr.clear(key_of(s, 5)), "the store does not have the record"),
    "a record that is cut": (lambda s: lambda tr: tr.set(key_of(s, 5), b"\x97"), "cannot be read"),
    "a record in another's place": (
        lambda s: lambda tr: tr.set(key_of(s, 5), RECORD.encode(stored_at(s, 6))),
        "another record is in its place",
    ),
    "an entry that is gone": (lambda s: lambda tr: tr.clear(s.keys.audit_entry(TENANT, 5)), "no entry here"),
    "an entry that is cut": (lambda s: lambda tr: tr.set(s.keys.audit_entry(TENANT, 5), b"x"), "cannot be read"),
    "entries that are swapped": (lambda s: swap(s, 5, 6), "does not match its leaf in the tree"),
    "a place": (lambda s: lambda tr: tr.clear(s.keys.audit_place(RecordId(stored_at(s, 5).id))), "elsewhere"),
    "a tile": (lambda s: flip(s.keys.audit_tile(TENANT, 0, 0), 5 * 32), "does not match its leaf in the tree"),
    "a full tile": (lambda s: flip(s.keys.audit_tile(TENANT, 0, 0), 32 * 200), "the tree above it"),
    "the last tile": (lambda s: flip(s.keys.audit_tile(TENANT, 0, 1), 3), "does not lead to the root"),
    "a tile above": (lambda s: flip(s.keys.audit_tile(TENANT, 1, 0), 3), "does not lead to the root"),
    "a tile that is gone": (lambda s: lambda tr: tr.clear(s.keys.audit_tile(TENANT, 0, 0)), "lacks hashes"),
    "the head's root": (
        lambda s: lambda tr: audit_log.set_head(tr, s.keys, TENANT, replace(s.head(TENANT), root=bytes(32))),
        "not of this log at this size",
    ),
    "the head's checkpoint": (
        lambda s: lambda tr: audit_log.set_head(tr, s.keys, TENANT, replace(s.head(TENANT), checkpoint="x\n\ny\n")),
        "the checkpoint of",
    ),
    "the head": (lambda s: flip(s.keys.audit_head(TENANT)), "the head of the log"),
    "a kept checkpoint": (
        lambda s: lambda tr: audit_log.put_checkpoint(tr, s.keys, TENANT, 7, s.head(TENANT).checkpoint),
        "the checkpoint of 7 records",
    ),
    "the log shortened": (
        lambda s: lambda tr: audit_log.set_head(tr, s.keys, TENANT, replace(s.head(TENANT), size=100)),
        "the checkpoint of 100 records",
    ),
    "the key's public half": (
        lambda s: lambda tr: audit_keys.put(tr, s.keys, replace(audit_keys.chain(tr, s.keys)[0], public_key=bytes(32))),
        "signed by",
    ),
}


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logs]:
    with audited(tmp_path_factory.mktemp("edited") / "store") as store:
        made = Logs(store)
        for _ in range(300):
            store.record(TENANT, with_query)
        store.sequence()
        yield made


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_of_the_database_is_found_and_described(edited: Logs, name: str) -> None:
    store = edited.store
    edit, said = EDITS[name]
    before = store.run(lambda tr: dict(tr.range(b"", b"\xff")))
    assert not edited.store.run(lambda tr: _check(edited, tr)).problems
    store.run(edit(store))
    found = store.run(lambda tr: _check(edited, tr)).problems
    after = store.run(lambda tr: dict(tr.range(b"", b"\xff")))
    store.run(lambda tr: _undo(tr, before, after))
    assert any(said in problem.problem for problem in found), found


def _check(logs: Logs, tr: Transaction) -> Any:
    return logs.service._logs.checker.check(tr, TENANT, 0, 10_000, 60.0)


def _undo(tr: Transaction, before: dict[bytes, bytes], after: dict[bytes, bytes]) -> None:
    for key in after.keys() - before.keys():
        tr.clear(key)
    for key, value in before.items():
        if after.get(key) != value:
            tr.set(key, value)


def test_a_record_counts_as_erased_only_if_the_log_has_its_erasure(still: Logs) -> None:
    store = still.store
    store.record(TENANT, with_query)
    store.sequence()
    position, record = next((p, r) for p, r in store.stored() if r.private is not None and r.log == TENANT)
    assert record.private is not None
    # No key has this number, as if the key had been destroyed.
    lost = 999_999
    unreadable = lost.to_bytes(4, "big") + record.private[4:]
    key = store.keys.audit_record(position.incarnation, position.bucket, position.versionstamp)
    store.run(lambda tr: tr.set(key, RECORD.encode(replace(record, private=unreadable))))
    body = orjson.loads(store.opener.body(record)[1])
    answer = still.verify()
    assert [problem.problem for problem in answer.problems] == ["its private part is missing without an erasure"]
    assert answer.problems[0].record_id == str(record.id)

    def erase(trail: Trail) -> None:
        trail.detail["erased_keys"] = [body["private"]["key"]]

    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(ACTIONS, "Erase", Action.ERASE)  # type: ignore[arg-type]
        store.record(TENANT, erase, store.call("Erase"))
    store.sequence()
    answer = still.verify()
    assert (len(answer.problems), answer.erased) == (0, 1)
    proof = still.wait_proof(record_id=str(record.id)).proof
    assert still.check(proof).ok
    assert "private" not in Proof.parse(proof).record


def test_every_call_about_a_log_is_recorded_in_that_log(still: Logs) -> None:
    still.store.record(TENANT)
    still.store.sequence()
    still.checkpoint()
    still.verify()
    still.checkpoint(OPERATOR, server_log=True)
    still.store.sequence()
    calls = {
        log: [
            orjson.loads(still.store.opener.body(record)[1])["call"]
            for _, record in still.store.stored()
            if record.log == log
        ]
        for log in (TENANT, SERVER_LOG)
    }
    assert calls[TENANT][-2:] == ["GetCheckpoint", "VerifyAudit"]
    assert calls[SERVER_LOG][-1] == "GetCheckpoint"
