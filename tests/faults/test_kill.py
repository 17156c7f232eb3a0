"""Kill -9 at any moment: whatever was acknowledged is stored completely, and nothing is half done.

DRILLCORE_SOAK=1 kills 200 times instead of a few.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from drillcore import Client, DrillcoreError
from drillcore_fdb.embedded import Durability, EmbeddedEngine, EmbeddedSettings, verify
from drillcore_fdb.engine import Transaction
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.store import open_store
from tests.support.processes.killed import process
from tests.support.processes.writer import COUNTER, LOG, RECORDS
from tests.support.stores.caller import Stored, check_whole, read_everything

SOAK = os.environ.get("DRILLCORE_SOAK") == "1"
ROUNDS = 200 if SOAK else 6
SERVER_ROUNDS = 50 if SOAK else 2
THREADS = 6

Acknowledged = dict[tuple[int, int], bytes]


def write_and_be_killed(store: Path, durability: Durability, round_number: int, kill_after: int) -> Acknowledged:
    """Everything that a writing process acknowledged before it was killed: thread and sequence, to versionstamp."""
    acknowledged: Acknowledged = {}
    arguments = ("-m", "tests.support.processes.writer", str(store), durability.value, str(THREADS), str(round_number))
    with process(*arguments) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if not line.endswith(b"\n"):
                break
            thread, sequence, versionstamp = line.split()
            acknowledged[int(thread), int(sequence)] = bytes.fromhex(versionstamp.decode())
            if len(acknowledged) == kill_after:
                writer.kill()
    return acknowledged


@dataclass(frozen=True)
class Written:
    counter: int
    records: set[tuple[int, int]]
    log: list[tuple[bytes, int, int, int]]
    """Versionstamp, thread, sequence and round, in the order of versionstamps."""


def read_written(tr: Transaction) -> Written:
    log = []
    for key, value in tr.range(*LOG.range()):
        thread, sequence, round_number = map(int, value.split())
        log.append((LOG.unpack(key)[0].tr_version, thread, sequence, round_number))
    return Written(
        counter=int.from_bytes(tr.get(COUNTER) or b"", "little"),
        records={RECORDS.unpack(key) for key, _ in tr.range(*RECORDS.range())},  # type: ignore[misc]
        log=log,
    )


def reopen(store: Path) -> Written:
    assert verify(store) == []
    engine = EmbeddedEngine.open(EmbeddedSettings(path=store))
    try:
        return engine.run(read_written)
    finally:
        engine.close()


def check_written(written: Written, acknowledged: Acknowledged) -> None:
    logged = {(thread, sequence): stamp for stamp, thread, sequence, _ in written.log}
    assert acknowledged.items() <= logged.items(), "an acknowledged commit is lost or moved"
    assert written.counter == len(written.log) == len(logged), "a transaction is half done"
    assert written.records == set(logged), "a transaction is half done"
    for thread in range(THREADS):
        sequences = sorted(sequence for writer, sequence in logged if writer == thread)
        assert sequences == list(range(1, len(sequences) + 1)), "a commit is there without its predecessor"
    rounds = [round_number for _, _, _, round_number in written.log]
    assert rounds == sorted(rounds), "a versionstamp after a restart is not above the earlier ones"


def kill_repeatedly(store: Path, durability: Durability, rounds: int, seed: int) -> Acknowledged:
    dice = random.Random(seed)
    acknowledged: Acknowledged = {}
    for round_number in range(rounds):
        acknowledged |= write_and_be_killed(store, durability, round_number, dice.randint(1, 400))
        check_written(reopen(store), acknowledged)
    return acknowledged


@pytest.mark.timeout(3600 if SOAK else 120)
def test_every_acknowledged_commit_survives_kill_9_and_nothing_is_half_done(tmp_path: Path) -> None:
    acknowledged = kill_repeatedly(tmp_path / "store", Durability.FULL, ROUNDS, seed=20)
    assert len(acknowledged) > ROUNDS


def test_relaxed_durability_survives_the_death_of_the_process(tmp_path: Path) -> None:
    acknowledged = kill_repeatedly(tmp_path / "store", Durability.RELAXED, 1, seed=21)
    assert acknowledged


def test_the_check_catches_lost_half_done_and_moved_commits() -> None:
    log = [(b"%010d" % number, 0, number, 0) for number in range(1, 5)]
    records = {(0, number) for number in range(1, 5)}
    acknowledged = {(0, number): b"%010d" % number for number in range(1, 4)}
    check_written(Written(4, records, log), acknowledged)
    for broken in (
        Written(3, records - {(0, 2)}, [log[0], *log[2:]]),
        Written(4, records - {(0, 4)}, log),
        Written(3, records, log),
        Written(4, records, [*log[:2], (b"%010d" % 9, 0, 3, 0), log[3]]),
        Written(4, records, [(*log[0][:3], 1), *log[1:]]),
    ):
        with pytest.raises(AssertionError):
            check_written(broken, acknowledged)


@dataclass(frozen=True)
class Serving:
    process: subprocess.Popen[bytes]
    address: str
    token: str

    def client(self) -> Client:
        return Client(self.address, token=self.token, timeout_s=10.0)


@contextmanager
def serving(data_dir: Path) -> Iterator[Serving]:
    """`drillcore serve`, killed at the end of the block at the latest."""
    arguments = ("-m", "drillcore", "serve", "--json", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0")
    with process(*arguments, "--metrics-listen", "", stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        ready = json.loads(_document(server.stdout))["serving"]
        token = Path(ready["token_file"]).read_text("ascii").strip()
        yield Serving(server, f"127.0.0.1:{ready['port']}", token)


def _document(lines: Iterator[bytes]) -> bytes:
    """The first JSON document of a stream that continues."""
    document = b""
    for line in lines:
        document += line
        if line == b"}\n":
            break
    return document


class Creator:
    """Threads that create corpora until the server is killed. Each remembers what was acknowledged."""

    def __init__(self, server: Serving, tenant: uuid.UUID, kill_after: int) -> None:
        self._server = server
        self._tenant = tenant
        self._kill_after = kill_after
        self._lock = threading.Lock()
        self.acknowledged: dict[str, uuid.UUID] = {}
        self.unanswered: dict[str, str] = {}
        """The names of requests that were under way when the server died, by request id."""

    def run(self) -> None:
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(self._create_until_killed, range(THREADS)))

    def _create_until_killed(self, thread: int) -> None:
        with self._server.client() as client:
            while True:
                name, request_id = f"corpus-{thread}-{uuid.uuid4()}", str(uuid.uuid4())
                try:
                    made = client.create_corpus(name, tenant_id=self._tenant, request_id=request_id)
                except DrillcoreError:
                    self.unanswered[request_id] = name
                    return
                self._note(name, made.id)

    def _note(self, name: str, made: uuid.UUID) -> None:
        with self._lock:
            self.acknowledged[name] = made
            if len(self.acknowledged) == self._kill_after:
                self._server.process.kill()


def retry(client: Client, tenant: uuid.UUID, unanswered: dict[str, str]) -> dict[str, uuid.UUID]:
    return {
        name: client.create_corpus(name, tenant_id=tenant, request_id=request_id).id
        for request_id, name in unanswered.items()
    }


def read_store(data_dir: Path) -> Stored:
    assert verify(data_dir) == []
    engine = EmbeddedEngine.open(EmbeddedSettings(path=data_dir))
    try:
        return read_everything(engine, Keyspace(open_store(engine)[0]))
    finally:
        engine.close()


@pytest.mark.timeout(1800 if SOAK else 120)
def test_every_acknowledged_call_survives_kill_9_of_the_server_and_a_retry_is_done_once(tmp_path: Path) -> None:
    dice = random.Random(22)
    with serving(tmp_path) as server, server.client() as client:
        tenant = client.create_tenant("sponsor").id
    known: dict[str, uuid.UUID] = {}
    for _ in range(SERVER_ROUNDS):
        with serving(tmp_path) as server:
            creator = Creator(server, tenant, dice.randint(1, 150))
            creator.run()
            assert len(creator.unanswered) == THREADS
        known |= creator.acknowledged
        with serving(tmp_path) as server, server.client() as client:
            retried = retry(client, tenant, creator.unanswered)
            assert retry(client, tenant, creator.unanswered) == retried
            known |= retried
            assert {corpus.name: corpus.id for corpus in client.iter_corpora(tenant_id=tenant)} == known
            for name, made in creator.acknowledged.items():
                assert client.get_corpus(made, tenant_id=tenant).name == name
                assert client.get_corpus(name=name, tenant_id=tenant).id == made
        stored = read_store(tmp_path)
        check_whole(stored)
        assert {corpus.name: corpus.id for corpus in stored.corpora.values()} == known
