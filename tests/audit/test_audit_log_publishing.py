"""Checkpoints are published to a sink and cosigned by witnesses. A publication that fails is made up for later."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from drillcore_formats.audit.checkpoints import Checkpoint, check_cosignatures
from drillcore_formats.audit.leaves import SERVER_LOG
from drillcore_formats.audit.notes import Note
from drillcore_formats.settings import SettingsError
from drillcore_server.audit import log_store as audit_log
from drillcore_server.audit.log_keeper import LogKeeper
from drillcore_server.audit.publisher import (
    SINK_FAILED,
    WITNESS_AHEAD,
    DirectorySink,
    FileSink,
    Publisher,
    Sink,
    SinkBehindError,
    Witness,
    open_sink,
)
from drillcore_server.audit.sequencer import Sequencer
from tests.support.servers.witness_server import WitnessServer, witness_server
from tests.support.stores.audited import LOGGER, TENANT, Audited, at_work, audited
from tests.support.stores.stores import wait_until


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Audited]:
    with audited(tmp_path / "store") as opened:
        yield opened


def publishing(
    store: Audited, sink: Sink | None, *witnesses: Witness, every_s: float = 1000.0
) -> tuple[Sequencer, Publisher]:
    sequencer = store.sequencer(alone=True)
    publisher = Publisher(store.engine, store.keys, sequencer, every_s, sink, witnesses, LOGGER, store.alert)
    return sequencer, publisher


def grow(store: Audited, sequencer: Sequencer, publisher: Publisher) -> None:
    store.record()
    sequencer.step()
    publisher.publish()


def in_file(path: Path) -> list[int]:
    """The sizes of the server's log that a file sink has."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(Checkpoint.parse(Note.parse(line["checkpoint"]).text).size == line["size"] for line in lines)
    return [line["size"] for line in lines if line["log"] == str(SERVER_LOG)]


def kept(store: Audited) -> list[int]:
    return [size for size, _ in store.run(lambda tr: audit_log.checkpoints_after(tr, store.keys, SERVER_LOG, 0, 1000))]


def test_each_checkpoint_is_kept_and_in_the_file(store: Audited, tmp_path: Path) -> None:
    path = tmp_path / "out" / "checkpoints.jsonl"
    sequencer, publisher = publishing(store, open_sink(path))
    for _ in range(3):
        grow(store, sequencer, publisher)
    publisher.publish()
    assert in_file(path) == kept(store) == [1, 2, 3]


def test_a_directory_has_a_file_for_each_checkpoint_and_the_latest(store: Audited, tmp_path: Path) -> None:
    sequencer, publisher = publishing(store, open_sink(tmp_path / "out"))
    store.record(TENANT)
    for _ in range(2):
        grow(store, sequencer, publisher)
    names = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert names == [
        f"{SERVER_LOG}/00000000000000000001",
        f"{SERVER_LOG}/00000000000000000002",
        f"{SERVER_LOG}/latest",
        f"{TENANT}/00000000000000000001",
        f"{TENANT}/latest",
    ]
    latest = (tmp_path / "out" / str(SERVER_LOG) / "latest").read_text()
    assert latest == store.head().checkpoint


def test_a_sink_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "file" / "directory", tmp_path / "file" / "checkpoints.jsonl"):
        with pytest.raises(SettingsError, match=r"audit\.sink .*cannot write there"):
            open_sink(path)


def test_checkpoints_that_a_full_sink_missed_are_there_once_it_has_room(store: Audited, tmp_path: Path) -> None:
    path = tmp_path / "checkpoints"
    path.symlink_to("/dev/full")
    sequencer, publisher = publishing(store, open_sink(path))
    for _ in range(3):
        with pytest.raises(SinkBehindError):
            grow(store, sequencer, publisher)
    assert [kind for kind, _ in store.alerts] == [SINK_FAILED], "the failure is reported once"
    assert publisher.figures().totals["sink_failures"] == 3
    assert publisher.figures().gauges["sink_failing"] == 1
    path.unlink()
    path.touch()
    grow(store, sequencer, publisher)
    assert in_file(path) == [1, 2, 3, 4]
    assert publisher.figures().gauges["sink_failing"] == 0


def test_a_checkpoint_that_fits_only_in_part_leaves_nothing_behind(store: Audited, tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.jsonl"
    sequencer, publisher = publishing(store, open_sink(path))
    grow(store, sequencer, publisher)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    store.record()
    sequencer.step()
    whole = path.read_bytes()
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 100, limits[1]))
        with pytest.raises(OSError, match=r"part|large"):
            FileSink(path).write(SERVER_LOG, 2, store.head().checkpoint)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == whole
    publisher.publish()
    assert in_file(path) == [1, 2]


def test_a_line_that_a_crash_left_half_written_is_removed(store: Audited, tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.jsonl"
    sequencer, publisher = publishing(store, open_sink(path))
    grow(store, sequencer, publisher)
    with path.open("ab") as file:
        file.write(b'{"checkpoint": "drill')
    open_sink(path)
    grow(store, sequencer, publisher)
    assert in_file(path) == [1, 2]


def test_a_directory_that_is_replaced_by_a_file_is_reported_and_made_up_for(store: Audited, tmp_path: Path) -> None:
    sequencer, publisher = publishing(store, open_sink(tmp_path / "out"))
    (tmp_path / "out").rmdir()
    (tmp_path / "out").write_text("in the way")
    with pytest.raises(SinkBehindError):
        grow(store, sequencer, publisher)
    assert [kind for kind, _ in store.alerts] == [SINK_FAILED]
    (tmp_path / "out").unlink()
    grow(store, sequencer, publisher)
    assert {path.name for path in (tmp_path / "out" / str(SERVER_LOG)).iterdir()} == {
        f"{1:020d}",
        f"{2:020d}",
        "latest",
    }


def test_a_log_that_cannot_be_published_does_not_keep_the_others(store: Audited, tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.jsonl"
    sequencer, publisher = publishing(store, open_sink(path))
    for _ in range(2):
        store.record()
        store.record(TENANT)
        sequencer.step()
        if not path.read_text():
            publisher.publish()
    head = store.keys.audit_head(SERVER_LOG)
    whole = store.run(lambda tr: tr.get(head))
    assert whole is not None
    store.run(lambda tr: tr.set(head, b"damaged"))
    with pytest.raises(ExceptionGroup, match="not published"):
        publisher.publish()
    assert path.read_text().count(f'"log":"{TENANT}"') == 2
    assert in_file(path) == [1]
    store.run(lambda tr: tr.set(head, whole))
    publisher.publish()
    assert in_file(path) == [1, 2]


def test_a_checkpoint_not_published_before_a_crash_is_published_by_the_next_server(
    store: Audited, tmp_path: Path
) -> None:
    store.record()
    store.record(TENANT)
    store.sequence()
    path = tmp_path / "checkpoints.jsonl"
    sequencer, publisher = publishing(store, open_sink(path))
    sequencer.step()
    publisher.publish()
    assert in_file(path) == [2 - 1]
    assert {json.loads(line)["log"] for line in path.read_text().splitlines()} == {str(SERVER_LOG), str(TENANT)}


def test_only_the_server_that_puts_records_in_order_publishes(store: Audited, tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.jsonl"
    sequencer = store.sequencer(lease_s=1000)
    store.record()
    sequencer.step()
    idle = store.on(store.engine).sequencer()
    assert idle.step() is None
    publisher = Publisher(store.engine, store.keys, idle, 1000.0, open_sink(path), (), LOGGER, store.alert)
    publisher.publish()
    assert in_file(path) == kept(store) == []


def test_a_checkpoint_is_published_when_the_server_stops(store: Audited, tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.jsonl"
    sequencer, publisher = publishing(store, open_sink(path))
    with at_work(sequencer):
        store.record()
    LogKeeper(sequencer, publisher, LOGGER).finish()
    assert in_file(path) == [1]


def test_checkpoints_are_published_at_intervals(store: Audited, tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.jsonl"
    sequencer, publisher = publishing(store, open_sink(path), every_s=0.05)
    with at_work(sequencer, publisher):
        for number in range(1, 4):
            store.record()
            sequencer.nudge()
            wait_until(lambda number=number: in_file(path)[-1:] == [number], "the checkpoint is published")  # type: ignore[misc]


@pytest.fixture
def server(store: Audited) -> Iterator[WitnessServer]:
    with witness_server(store.signing.signer(1).verifier) as running:
        yield running


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=5.0) as made:
        yield made


def test_a_witness_cosigns_each_checkpoint_that_continues_the_one_before(
    store: Audited, server: WitnessServer, client: httpx.Client, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoints.jsonl"
    witness = Witness(server.url, server.key.encode(), client)
    sequencer, publisher = publishing(store, open_sink(path), witness)
    for _ in range(4):
        store.record()
        grow(store, sequencer, publisher)
    assert in_file(path) == [2, 4, 6, 8]
    for line in path.read_text().splitlines():
        (signed,) = check_cosignatures(Note.parse(json.loads(line)["checkpoint"]), [server.key], required=1)
        assert signed.at == server.now
    again = Witness(server.url, server.key.encode(), client)
    sequencer, publisher = publishing(store, open_sink(path), again)
    grow(store, sequencer, publisher)
    note = store.run(lambda tr: audit_log.checkpoint(tr, store.keys, SERVER_LOG, 9))
    assert note is not None
    assert check_cosignatures(Note.parse(note), [server.key], required=1), "the witness knows its size after a restart"


@pytest.mark.parametrize("how", ["is gone", "fails", "signs with another key", "signs something else", "babbles"])
def test_a_witness_that_fails_does_not_stop_the_log(
    store: Audited, server: WitnessServer, client: httpx.Client, tmp_path: Path, how: str
) -> None:
    url, key = server.url, server.key
    if how == "is gone":
        url = "http://127.0.0.1:1"
    elif how == "fails":
        server.status = 500
    elif how == "signs something else":
        sign_another = server.sign_other
        server.add_checkpoint = lambda _: (200, "text/plain", sign_another())  # type: ignore[method-assign]
    elif how == "babbles":
        server.add_checkpoint = lambda _: (200, "text/plain", "well done\n")  # type: ignore[method-assign]
    else:
        key = type(key)(key.name, bytes(32), key.kind)
    path = tmp_path / "checkpoints.jsonl"
    sequencer, publisher = publishing(store, open_sink(path), Witness(url, key.encode(), client))
    for _ in range(2):
        grow(store, sequencer, publisher)
    assert in_file(path) == [1, 2]
    assert publisher.figures().totals["witness_failures"] == 2
    assert all(
        len(Note.parse(json.loads(line)["checkpoint"]).signatures) == 1 for line in path.read_text().splitlines()
    )


def test_a_witness_that_has_seen_a_larger_log_is_an_alert(
    store: Audited, server: WitnessServer, client: httpx.Client
) -> None:
    """This happens after a store was rolled back to an old backup."""
    sequencer, publisher = publishing(store, None, Witness(server.url, server.key.encode(), client))
    store.record()
    sequencer.step()
    server.seen[Checkpoint.parse(Note.parse(store.head().checkpoint).text).origin] = 7, bytes(32)
    publisher.publish()
    assert [kind for kind, _ in store.alerts] == [WITNESS_AHEAD]


def test_a_directory_sink_accepts_a_checkpoint_that_it_already_has(store: Audited, tmp_path: Path) -> None:
    sink = DirectorySink(tmp_path / "out")
    sink.write(SERVER_LOG, 1, "note\n")
    sink.write(SERVER_LOG, 1, "note\n")
    assert (tmp_path / "out" / str(SERVER_LOG) / f"{1:020d}").read_text() == "note\n"
