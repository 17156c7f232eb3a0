"""The sequencer: whatever fails, and however many servers try, every record is in its log once, in order."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from drillcore_fdb.engine import Options, Transaction
from drillcore_fdb.errors import EngineError
from drillcore_fdb.round_trips import counted
from drillcore_formats.audit.checkpoints import Checkpoint, log_origin
from drillcore_formats.audit.leaves import SERVER_LOG
from drillcore_formats.audit.merkle import Frontier, leaf_hash
from drillcore_formats.audit.notes import Note
from drillcore_server.audit import log_store as audit_log
from drillcore_server.storage import audit_records
from tests.support.stores.audited import OTHER, TENANT, Audited, at_work, audited
from tests.support.stores.faulty_engine import Fault, Faults, FaultyEngine, rates
from tests.support.stores.stores import wait_until

LOGS = {None: SERVER_LOG, TENANT: TENANT, OTHER: OTHER}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Audited]:
    with audited(tmp_path / "store") as opened:
        yield opened


def check_logs(store: Audited) -> int:
    """Checks that each log and its tree have exactly their records, once, in commit order. Returns their number."""
    leaves: dict[UUID, list[tuple[UUID, bytes]]] = {log: [] for log in LOGS.values()}
    for position, record in store.stored():
        leaves[record.log].append((record.id, leaf_hash(store.opener.leaf(record, position).encode())))
    for log, expected in leaves.items():
        assert store.ids(log) == [record for record, _ in expected]
        frontier = Frontier()
        for _, leaf in expected:
            frontier.append(leaf)
        head = store.head(log)
        assert (head.size, head.root, head.problem) == (len(expected), frontier.root(), "")
        if expected:
            note = Note.parse(head.checkpoint)
            store.run(lambda tr, note=note: store.signing.trusted(tr).check_note(note, "it"))  # type: ignore[misc]
            assert Checkpoint.parse(note.text) == Checkpoint(
                log_origin(store.header.store_id, log), head.size, head.root
            )
        places = store.run(
            lambda tr, ids=[record for record, _ in expected]: [  # type: ignore[misc]
                audit_log.place_of(tr, store.keys, record) for record in ids
            ]
        )
        assert places == [audit_log.RecordPlace(log, index) for index in range(len(expected))]
    return sum(map(len, leaves.values()))


def write(store: Audited, count: int, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(count):
        store.record(dice.choice([None, TENANT, OTHER]))


def test_a_batch_takes_the_same_few_round_trips_however_many_records_and_logs_it_has(store: Audited) -> None:
    sequencer = store.sequencer()

    def trips(per_log: int) -> int:
        for log in LOGS:
            for _ in range(per_log):
                store.record(log)
        with counted() as total:
            done = sequencer.step()
        assert done is not None
        assert done.records == per_log * len(LOGS)
        return total.count

    trips(1)  # the first one takes the lease, and reads the signing key
    assert trips(1) == trips(40) == 6
    assert check_logs(store) == 42 * len(LOGS)


def test_looking_for_records_in_vain_takes_three_round_trips(store: Audited) -> None:
    sequencer = store.sequencer()
    store.record()
    sequencer.step()
    with counted() as total:
        sequencer.step()
    assert total.count == 3


def test_records_of_many_writers_are_in_their_logs_in_the_order_of_their_commits(store: Audited) -> None:
    sequencer = store.sequencer()
    with at_work(sequencer), ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda seed: write(store, 60, seed), range(8)))
    assert check_logs(store) == 480


@pytest.mark.parametrize(
    "fault_rates",
    [rates(commit=0.5, read=0.002), {Fault.UNKNOWN_APPLIED: 0.6}, {Fault.UNKNOWN_NOT_APPLIED: 0.6}],
    ids=["all", "applied", "not applied"],
)
def test_a_fault_neither_loses_nor_doubles_nor_moves_a_leaf(store: Audited, fault_rates: dict[Fault, float]) -> None:
    faulty = FaultyEngine(store.engine, Faults(5, fault_rates))
    sequencer = store.on(faulty).sequencer()
    for seed in range(60):
        write(store, 5, seed)
        try:
            sequencer.step()
        except EngineError as error:
            assert error.message.startswith("injected")  # noqa: PT017 - the call may or may not fail
    assert faulty.faults.injected.total() > 20
    while True:
        try:
            if not sequencer.step():
                break
        except EngineError:
            continue
        if store.head().size + store.head(TENANT).size + store.head(OTHER).size == 300:
            break
    assert check_logs(store) == 300


@pytest.mark.parametrize("waiting", [20, 0], ids=["with records to write", "with only its lease to renew"])
def test_a_server_that_paused_beyond_its_lease_cannot_write(store: Audited, waiting: int) -> None:
    """The server stops in the middle of its transaction while another takes over and writes."""
    first, second = store.sequencer(lease_s=0.05), store.on(store.engine).sequencer(lease_s=10.0)
    write(store, 20, 1)
    assert first.step() is not None
    write(store, waiting, 2)
    paused, go_on = threading.Event(), threading.Event()
    append = first._writer.append

    def stand_still(tr: Transaction, lease: audit_log.Lease) -> object:
        done = append(tr, lease)
        paused.set()
        assert go_on.wait(30)
        return done

    first._writer.append = stand_still  # type: ignore[method-assign, assignment]
    wait_until(lambda: datetime.now(UTC) > _lease(store).until, "the lease runs out, so that it is renewed")
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(first.step)
        assert paused.wait(30)
        assert second.step() is not None
        write(store, 5, 3)
        second.step()
        go_on.set()
        assert result.result() is None, "the paused server found out"
    assert first.epoch is None
    assert second.epoch == _lease(store).epoch == 2
    second.step()
    assert check_logs(store) == 25 + waiting


def _lease(store: Audited) -> audit_log.Lease:
    lease = store.run(lambda tr: audit_log.lease(tr, store.keys))
    assert lease is not None
    return lease


def test_a_past_epoch_is_refused_even_if_its_holder_thinks_it_still_holds_the_lease(store: Audited) -> None:
    first, second = store.sequencer(lease_s=0.01), store.on(store.engine).sequencer()
    write(store, 3, 1)
    first.step()
    wait_until(lambda: second.step() is not None, "the lease runs out")
    write(store, 3, 2)
    assert first.step() is None
    assert store.head().size + store.head(TENANT).size + store.head(OTHER).size == 3
    second.step()
    assert check_logs(store) == 6


def test_a_server_that_stops_releases_its_lease_at_once(store: Audited) -> None:
    first, second = store.sequencer(lease_s=1000), store.on(store.engine).sequencer()
    write(store, 3, 1)
    with at_work(first):
        wait_until(lambda: first.epoch == 1, "it has the lease")
        assert second.step() is None
    first.release()
    write(store, 3, 2)
    assert second.step() is not None
    assert check_logs(store) == 6


def test_two_servers_at_once_order_every_record_once(store: Audited) -> None:
    """The leases are so short that the servers keep losing them."""
    servers = [store.on(store.engine).sequencer(lease_s=0.002) for _ in range(2)]
    with at_work(servers[0]), at_work(servers[1]), ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda seed: write(store, 50, seed), range(4)))
    store.sequence()
    assert check_logs(store) == 200
    lease = store.run(lambda tr: audit_log.lease(tr, store.keys))
    assert lease is not None
    assert lease.epoch > 2, "the servers took turns"


def test_many_records_are_put_in_order_in_batches(store: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drillcore_server.audit.log_writer.RECORDS_MAX", 7)
    write(store, 40, 1)
    sequencer = store.sequencer()
    steps = 0
    while (done := sequencer.step()) is not None and done.records:
        assert done.records <= 7
        steps += 1
    assert steps == 6
    assert check_logs(store) == 40


def test_a_damaged_record_stops_its_own_log_until_it_is_repaired(store: Audited) -> None:
    write(store, 10, 1)
    store.record(TENANT)
    position, _ = store.stored()[-1]
    key = store.keys.audit_record(position.incarnation, position.bucket, position.versionstamp)
    whole = store.run(lambda tr: tr.get(key))
    assert whole is not None
    store.run(lambda tr: tr.set(key, whole[:100]))
    write(store, 10, 2)
    sequencer = store.sequencer()
    for _ in range(2):
        assert sequencer.step() is not None
    before = store.head(TENANT)
    assert "versionstamp" in before.problem
    assert [kind for kind, _ in store.alerts] == ["audit log stopped"]
    assert store.head().problem == store.head(OTHER).problem == ""
    assert store.head().size + store.head(OTHER).size + sum(r.log == TENANT for _, r in _sound(store)) >= 20
    sequencer.mend()
    assert store.head(TENANT) == before
    assert len(store.alerts) == 1
    store.run(lambda tr: tr.set(key, whole))
    write(store, 5, 3)
    sequencer.step()
    sequencer.mend()
    write(store, 5, 4)
    sequencer.step()
    assert check_logs(store) == 31


def _sound(store: Audited) -> list[tuple[audit_log.Position, audit_records.StoredRecord]]:
    found = []
    for position, value in store.run(lambda tr: list(audit_log.records_after(tr, store.keys, audit_log.BEGINNING, 9))):
        try:
            found.append((position, audit_records.RECORD.decode(value)))
        except EngineError:
            continue
    return found


def test_a_record_of_no_log_stops_every_log_until_it_is_repaired(store: Audited) -> None:
    write(store, 10, 1)
    position, _ = store.stored()[4]
    key = store.keys.audit_record(position.incarnation, position.bucket, position.versionstamp)
    whole = store.run(lambda tr: tr.get(key))
    assert whole is not None
    store.run(lambda tr: tr.set(key, b"nonsense"))
    sequencer = store.sequencer()
    for _ in range(3):
        sequencer.step()
    assert sum(store.head(log).size for log in LOGS.values()) == 4
    lease = store.run(lambda tr: audit_log.lease(tr, store.keys))
    assert lease is not None
    assert "versionstamp" in lease.problem
    assert len(store.alerts) == 1
    store.run(lambda tr: tr.set(key, whole))
    sequencer.step()
    assert check_logs(store) == 10


def test_a_second_copy_of_a_record_is_not_taken(store: Audited) -> None:
    write(store, 10, 1)
    store.sequence()
    position, record = store.stored()[-1]
    key = store.keys.audit_record(position.incarnation, position.bucket, position.versionstamp)
    template = store.keys.audit_record_template(position.incarnation, position.bucket)
    value = store.run(lambda tr: tr.get(key))
    assert value is not None
    store.run(lambda tr: tr.set_versionstamped_key(template, value))
    size = store.head(record.log).size
    store.sequence()
    assert store.head(record.log).size == size
    assert "stored twice" in store.head(record.log).problem


def test_a_record_that_cannot_be_unsealed_stays_in_the_log_since_its_leaf_is_signed(store: Audited) -> None:
    store.record()
    position, record = store.stored()[0]
    key = store.keys.audit_record(position.incarnation, position.bucket, position.versionstamp)
    changed = replace(record, body=record.body[:-1] + bytes([record.body[-1] ^ 1]))
    store.run(lambda tr: tr.set(key, audit_records.RECORD.encode(changed)))
    store.sequence()
    assert store.ids() == [record.id]
    forged = replace(changed, commitment=bytes(32), id=UUID(int=77))
    template = store.keys.audit_record_template(0, 0)
    store.run(lambda tr: tr.set_versionstamped_key(template, audit_records.RECORD.encode(forged)))
    store.sequence()
    assert store.ids() == [record.id]
    assert store.head().problem


def test_a_changed_tile_stops_its_log(store: Audited) -> None:
    write(store, 10, 1)
    store.sequence()
    store.run(lambda tr: tr.set(store.keys.audit_tile(SERVER_LOG, 0, 0), bytes(32 * store.head().size)))
    store.record()
    store.sequence()
    assert "do not lead to the root" in store.head().problem


def test_a_restored_store_continues_its_logs_in_a_new_incarnation(store: Audited) -> None:
    write(store, 5, 1)
    store.sequence()
    assert not store.run(lambda tr: audit_log.is_restored(tr, store.keys))
    lease = store.run(lambda tr: audit_log.lease(tr, store.keys))
    assert lease is not None
    ahead = replace(lease, versionstamp=b"\x00\xff" + bytes(8))
    store.run(lambda tr: audit_log.set_lease(tr, store.keys, ahead))
    assert store.run(lambda tr: audit_log.is_restored(tr, store.keys))
    store.engine.run(lambda tr: audit_log.begin_incarnation(tr, store.keys), Options(idempotent=False))
    assert not store.run(lambda tr: audit_log.is_restored(tr, store.keys))
    write(store, 5, 2)
    store.sequence()
    assert check_logs(store) == 10
    assert {position.incarnation for position, _ in store.stored()} == {0, 1}


def test_the_thread_survives_a_failing_store(store: Audited) -> None:
    faulty = FaultyEngine(store.engine, Faults(5, {Fault.TIMED_OUT_NOT_APPLIED: 1.0}))
    sequencer = store.on(faulty).sequencer()
    write(store, 5, 1)
    with at_work(sequencer):
        wait_until(lambda: sequencer.figures().totals["failures"] >= 2, "it fails")
        faulty.faults.rates = {}
        sequencer.nudge()
        wait_until(lambda: sum(store.head(log).size for log in LOGS.values()) == 5, "it goes on")
    assert check_logs(store) == 5


def test_a_nudge_is_answered_at_once(store: Audited) -> None:
    sequencer = store.sequencer()
    waits = []
    with at_work(sequencer):
        wait_until(lambda: sequencer.epoch is not None, "it has the lease")
        for number in range(10):
            store.record()
            began = datetime.now(UTC)
            sequencer.nudge()
            wait_until(lambda number=number: store.head().size == number + 1, "the record is in its log")  # type: ignore[misc]
            waits.append((datetime.now(UTC) - began).total_seconds())
    assert sorted(waits)[5] < 0.1, "polling alone takes 0.2 s"
