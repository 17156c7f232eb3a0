"""`drillcore core`: its requests, its output, and the files it leaves on disk."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import msgpack
import pytest
from click.testing import CliRunner, Result

from drillcore.cli import main
from drillcore_formats.audit.notes import make_note
from drillcore_formats.cores import CoreStatement
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import cores_pb2 as pb
from drillcore_proto.v1 import facts_pb2
from tests.support.data.audit_logs import Key, store_key
from tests.support.data.fact_messages import CORPUS, RECORD
from tests.support.processes.children import gone_afterwards
from tests.support.servers.core_peers import NOTE, CoreExporter, CoreImporter
from tests.support.servers.in_memory_server import Peer, because, running

Run = Callable[..., Result]
IN = ("--corpus", str(CORPUS))
CONTENT = bytes(range(256)) * 100
SHA256 = hashlib.sha256(CONTENT).hexdigest()
KEY = store_key()
OTHER = store_key(seed="other")


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running() as peer:
        state = facts_pb2.CorpusState(corpus_id=str(CORPUS), state_revision=7)
        peer.answers["GetState"] = facts_pb2.GetStateResponse(states=[state])
        yield peer


@pytest.fixture
def run(peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command against the peer, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    environment = {"DRILLCORE_CLIENT_ADDRESS": peer.address, "HOME": str(tmp_path), "NO_COLOR": "1"}

    def run(*arguments: str) -> Result:
        return CliRunner(env=environment).invoke(main, arguments)

    return run


def files(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_core_is_exported_at_the_revision_it_began_with(run: Run, peer: Peer, tmp_path: Path) -> None:
    exporter = peer.streams["ExportCore"] = CoreExporter(CONTENT, [2000])
    flags = ["--kind", "plain", "--no-sources", "--retrieval", "--core-id", "urn:mine", "--request-id", "r"]
    result = run("core", "export", *IN, "--output", "rules.core", *flags)
    assert result.stdout.splitlines() == [
        "exported revision 7 to rules.core: 25,600 bytes, 3 records, 2 quads, 1 fact",
        f"SHA-256 {SHA256}, signed in rules.core.sig",
    ]
    assert ((tmp_path / "rules.core").read_bytes(), (tmp_path / "rules.core.sig").read_text()) == (CONTENT, NOTE)
    first, second = exporter.requests
    assert (first.as_of.revision, second.as_of.revision, second.resume_at_bytes) == (7, 7, 2000)
    assert (first.kind, first.include_sources, first.include_retrieval) == (pb.CORE_KIND_PLAIN, False, True)
    assert first.core_id == "urn:mine"
    assert peer.request_ids()[1:] == ["r", "r.1"]


def test_the_same_command_continues_although_the_corpus_has_changed(run: Run, peer: Peer, tmp_path: Path) -> None:
    exporter = peer.streams["ExportCore"] = CoreExporter(CONTENT, [2000], because(Reason.INTERNAL))
    assert run("core", "export", *IN, "--output", "rules.core").exit_code == 1
    assert files(tmp_path) == {".rules.core.7.part"}
    peer.answers["GetState"].states[0].state_revision = 8
    again = run("core", "export", *IN, "--output", "rules.core")
    assert (again.exit_code, again.stderr) == (0, "continuing the export of revision 7\n")
    assert [(request.as_of.revision, request.resume_at_bytes) for request in exporter.requests] == [(7, 0), (7, 2000)]
    assert files(tmp_path) == {"rules.core", "rules.core.sig"}


def test_a_partial_export_of_a_trimmed_revision_is_given_up(run: Run, peer: Peer, tmp_path: Path) -> None:
    (tmp_path / ".rules.core.3.part").write_bytes(b"begun")
    exporter = CoreExporter(CONTENT)

    def trimmed(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        request = next(requests)
        if request.as_of.revision == 3:
            because(Reason.REVISION_TRIMMED)(context)
        yield from exporter(iter([request]), context)

    peer.streams["ExportCore"] = trimmed
    assert run("core", "export", *IN, "--output", "rules.core").exit_code == 0
    assert [request.as_of.revision for request in exporter.requests] == [7]
    assert files(tmp_path) == {"rules.core", "rules.core.sig"}


def test_a_partial_export_that_is_days_old_starts_again(run: Run, peer: Peer, tmp_path: Path) -> None:
    part = tmp_path / ".rules.core.3.part"
    part.write_bytes(CONTENT[:2000])
    os.utime(part, (time.time() - 90_000, time.time() - 90_000))
    exporter = peer.streams["ExportCore"] = CoreExporter(CONTENT)
    assert run("core", "export", *IN, "--output", "rules.core").exit_code == 0
    assert [(request.as_of.revision, request.resume_at_bytes) for request in exporter.requests] == [(7, 0)]
    assert files(tmp_path) == {"rules.core", "rules.core.sig"}


def test_a_stopped_export_says_how_to_continue(peer: Peer, tmp_path: Path) -> None:
    ended = threading.Event()

    def endless(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        context.add_callback(ended.set)
        yield pb.ExportCoreResponse(data=CONTENT)
        ended.wait(30)

    peer.streams["ExportCore"] = endless
    part = tmp_path / ".rules.core.7.part"
    environment = {**os.environ, "DRILLCORE_CLIENT_ADDRESS": peer.address, "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "drillcore", "core", "export", *IN, "--output", "rules.core"]
    started = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    with gone_afterwards(started) as process:
        while not part.exists() or not part.stat().st_size:
            assert not ended.wait(0.01), "the command ended by itself"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said.partition(":")[0]) == (1, "ABORTED")
    assert "run the same command again to continue" in said
    assert part.read_bytes() == CONTENT


def test_an_existing_file_is_replaced_only_with_force(run: Run, peer: Peer, tmp_path: Path) -> None:
    (tmp_path / "rules.core").write_bytes(b"old")
    peer.streams["ExportCore"] = CoreExporter(CONTENT)
    assert "FILE_EXISTS" in run("core", "export", *IN, "--output", "rules.core").stderr
    assert run("core", "export", *IN, "--output", "rules.core", "--force").exit_code == 0
    assert (tmp_path / "rules.core").read_bytes() == CONTENT
    nowhere = run("core", "export", *IN, "--output", "no/rules.core")
    assert nowhere.stderr.startswith("CANNOT_WRITE: no/rules.core: ")


def test_a_core_is_imported_with_the_signature_beside_it(run: Run, peer: Peer, tmp_path: Path) -> None:
    importer = peer.streams["ImportCore"] = CoreImporter([100])
    (tmp_path / "rules.core").write_bytes(CONTENT)
    (tmp_path / "rules.core.sig").write_text(NOTE)
    flags = ["--strict", "--source", "s", "--key", KEY.verifier.encode()]
    lines = run("core", "import", "rules.core", *IN, *flags).stdout.splitlines()
    assert lines[0] == "stored a full core, signed by key: revision 4, 3 records, 2 quads, 1 fact"
    assert lines[1] == "skipped:"
    assert [line.split() for line in lines[3:]] == [["2", "30", "zz", "i", "UNKNOWN_TAG", "no"]]
    target = importer.targets[0]
    assert (target.strict, target.source_id, target.signature) == (True, "s", NOTE)
    assert list(target.verification_keys) == [KEY.verifier.encode()]
    assert (importer.offsets, importer.kept[SHA256]) == ([0, 100], CONTENT)


def test_an_empty_core_is_reported_as_empty(run: Run, peer: Peer, tmp_path: Path) -> None:
    (tmp_path / "empty.core").write_bytes(b"")

    def imported(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        next(requests)
        yield pb.ImportCoreResponse(ready=pb.ImportCoreReady())
        yield pb.ImportCoreResponse(done=pb.ImportCoreDone(revision=3, kind=pb.CORE_KIND_PLAIN))

    peer.streams["ImportCore"] = imported
    assert run("core", "import", "empty.core", *IN).stdout == "stored a plain core: revision 3\n"


def test_an_unsigned_core_is_not_sent_if_it_must_be_signed(run: Run, peer: Peer, tmp_path: Path) -> None:
    (tmp_path / "rules.core").write_bytes(CONTENT)
    result = run("core", "import", "rules.core", *IN, "--key", KEY.verifier.encode())
    assert (result.exit_code, result.stderr.partition(":")[0], peer.seen) == (1, "CORE_UNSIGNED", [])


def triples() -> bytes:
    term = {"s": {"t": "i", "i": "urn:s"}, "p": {"t": "i", "i": "urn:p"}, "o": {"t": "l", "v": "o"}, "g": "urn:g"}
    record = ["t", {"m": {"i": "urn:core", "m": "urn:core", "c": "default"}, "t": [term, term]}]
    packed: bytes = msgpack.packb(record)
    return packed


def test_a_core_is_inspected_without_a_server(run: Run, peer: Peer, tmp_path: Path) -> None:
    (tmp_path / "tg.core").write_bytes(triples())
    shown = [line.split() for line in run("core", "inspect", "tg.core").stdout.splitlines()]
    assert ["core", "urn:core"] in shown
    assert ["kind", "plain"] in shown
    assert ["quads", "2", "urn:g"] in shown
    found = json.loads(run("core", "inspect", "tg.core", "--json").stdout)
    assert (found["core_id"], found["quads"], found["records"]) == ("urn:core", {"urn:g": 2}, {"t": 1})
    (tmp_path / "cut.core").write_bytes(triples()[:-1])
    cut = run("core", "inspect", "cut.core")
    assert (cut.exit_code, cut.stderr.startswith("INVALID_CORE: cut.core: record 1 at byte 0: ")) == (1, True)
    assert peer.seen == []


def signed(content: bytes, key: Key) -> str:
    statement = CoreStatement(
        hashlib.sha256(content).hexdigest(), len(content), CORPUS, 7, "2026-01-02T03:04:05Z", UUID(str(RECORD))
    )
    return make_note(statement.encode(), (key.verifier, key.sign)).encode()


def test_a_core_is_verified_with_only_the_key(run: Run, peer: Peer, tmp_path: Path) -> None:
    (tmp_path / "rules.core").write_bytes(CONTENT)
    (tmp_path / "rules.core.sig").write_text(signed(CONTENT, KEY))
    verify = ["core", "verify", "rules.core", "--key", KEY.verifier.encode()]
    shown = run(*verify)
    assert shown.stdout.splitlines()[0] == "rules.core: core, verified"
    assert ["revision", "7"] in [line.split() for line in shown.stdout.splitlines()]
    found = json.loads(run(*verify, "--json").stdout)
    assert (found["ok"], found["core"]["statement"]["sha256"]) == (True, SHA256)
    refused = run("core", "verify", "rules.core", "--key", OTHER.verifier.encode())
    assert (refused.exit_code, refused.stderr.partition(":")[0]) == (1, "NOT_VERIFIED")
    (tmp_path / "rules.core").write_bytes(CONTENT[:-1] + b"x")
    assert run(*verify).stderr.startswith("NOT_VERIFIED: rules.core: the file is not the signed core")
    (tmp_path / "rules.core.sig").unlink()
    assert (run(*verify).exit_code, run("core", "verify", "rules.core").exit_code) == (2, 2)
    assert peer.seen == []


def in_terminal(directory: Path, address: str, *arguments: str) -> tuple[str, str]:
    """The output of a command, and what a terminal shows of its progress."""
    try:
        terminal, side = pty.openpty()
    except OSError as error:
        pytest.skip(f"this system has no terminal: {error}; is /dev/pts mounted?")
    shown: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # the command closed its side
            while piece := os.read(terminal, 4096):
                shown.append(piece)

    reader = threading.Thread(target=read)
    reader.start()
    environment = {**os.environ, "DRILLCORE_CLIENT_ADDRESS": address, "HOME": str(directory), "TERM": "xterm"}
    command = [sys.executable, "-m", "drillcore", *arguments]
    try:
        done = subprocess.run(command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=side, check=True)
    finally:
        os.close(side)
        reader.join()
        os.close(terminal)
    return done.stdout.decode(), b"".join(shown).decode()


def test_a_terminal_shows_the_progress_of_an_export(peer: Peer, tmp_path: Path) -> None:
    peer.streams["ExportCore"] = CoreExporter(CONTENT)
    printed, shown = in_terminal(tmp_path, peer.address, "core", "export", *IN, "--output", "rules.core")
    assert printed.startswith("exported revision 7 to rules.core")
    assert "receiving" in shown
    assert "25.6/25.6 kB" in shown
    _, silent = in_terminal(tmp_path, peer.address, "core", "export", *IN, "--output", "other.core", "--json")
    assert silent == ""


def test_a_terminal_shows_the_progress_of_an_import(peer: Peer, tmp_path: Path) -> None:
    (tmp_path / "rules.core").write_bytes(CONTENT)
    peer.streams["ImportCore"] = CoreImporter()
    printed, shown = in_terminal(tmp_path, peer.address, "core", "import", "rules.core", *IN)
    assert printed.startswith("stored a full core")
    assert "reading" in shown
    assert "25.6/25.6 kB" in shown
