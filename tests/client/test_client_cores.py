"""Knowledge cores through the clients, also over lost connections. Each claim holds for both Client and AsyncClient."""

from __future__ import annotations

import asyncio
import hashlib
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import drillcore
from drillcore import AsyncClient, CoreCounts, CoreExport, CoreImport, CoreKind, CoreProgress, Reason, SkippedRecord
from drillcore_proto.v1 import cores_pb2 as pb
from drillcore_proto.v1 import nodes_pb2
from tests.support.data.fact_messages import CORPUS, RECORD, TENANT
from tests.support.servers.both_clients import asynchronous, sync
from tests.support.servers.core_peers import NOTE, CoreExporter, CoreImporter
from tests.support.servers.in_memory_server import Failure, Peer, because, running

Do = Callable[..., Any]

CONTENT = bytes(range(256)) * 100
COUNTS = CoreCounts(3, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0)


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running() as peer:
        yield peer


@pytest.fixture(params=[sync, asynchronous], ids=["Client", "AsyncClient"])
def do(request: pytest.FixtureRequest, peer: Peer) -> Do:
    return lambda method, *args, **options: request.param(peer.address, method, *args, **options)


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_core_and_its_note_are_written_once_complete(do: Do, peer: Peer, tmp_path: Path) -> None:
    exporter = peer.streams["ExportCore"] = CoreExporter(CONTENT)
    path, heard = tmp_path / "rules.core", []
    result = do(
        "export_core",
        CORPUS,
        path,
        kind=CoreKind.PLAIN,
        as_of=7,
        include_sources=False,
        include_retrieval=True,
        core_id="urn:mine",
        on_event=heard.append,
        request_id="r",
    )
    note = tmp_path / "rules.core.sig"
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    assert result == CoreExport(path, note, "urn:core", 7, len(CONTENT), sha256, RECORD, NOTE, COUNTS)
    assert (path.read_bytes(), note.read_text()) == (CONTENT, NOTE)
    assert names(tmp_path) == {"rules.core", "rules.core.sig"}
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(note.stat().st_mode) == 0o600
    assert heard[0] == CoreProgress("writing", len(CONTENT), 3)
    assert heard[-1] == CoreProgress("receiving", len(CONTENT))
    assert exporter.requests == [
        pb.ExportCoreRequest(
            tenant_id=str(TENANT),
            corpus_id=str(CORPUS),
            as_of=nodes_pb2.AsOf(revision=7),
            kind=pb.CORE_KIND_PLAIN,
            include_sources=False,
            include_retrieval=True,
            core_id="urn:mine",
        )
    ]
    assert peer.request_ids() == ["r"]


@pytest.mark.parametrize(
    "loss", [because(Reason.SHUTTING_DOWN), because(Reason.CANCELLED), None], ids=["stopping", "cancelled", "ended"]
)
def test_an_export_continues_where_the_connection_was_lost(
    do: Do, peer: Peer, tmp_path: Path, loss: Failure | None
) -> None:
    exporter = peer.streams["ExportCore"] = CoreExporter(CONTENT, [2500, 0, 4000], loss)
    do("export_core", CORPUS, tmp_path / "rules.core", request_id="r")
    assert (tmp_path / "rules.core").read_bytes() == CONTENT
    assert [request.resume_at_bytes for request in exporter.requests] == [0, 2500, 2500, 6500]
    assert peer.request_ids() == ["r", "r.1", "r.2", "r.3"]


def test_a_repeated_export_continues_its_partial_file(do: Do, peer: Peer, tmp_path: Path) -> None:
    exporter = peer.streams["ExportCore"] = CoreExporter(CONTENT, [2500], because(Reason.PERMISSION_DENIED))
    with pytest.raises(drillcore.PermissionDenied):
        do("export_core", CORPUS, tmp_path / "rules.core", as_of=7)
    assert names(tmp_path) == {".rules.core.7.part"}
    do("export_core", CORPUS, tmp_path / "rules.core", as_of=7)
    assert [request.resume_at_bytes for request in exporter.requests] == [0, 2500]
    assert (tmp_path / "rules.core").read_bytes() == CONTENT
    assert names(tmp_path) == {"rules.core", "rules.core.sig"}


def test_an_export_of_a_changed_corpus_starts_again(do: Do, peer: Peer, tmp_path: Path) -> None:
    (tmp_path / ".rules.core.part").write_bytes(b"of another core, and longer than it" * 2000)
    exporter = peer.streams["ExportCore"] = CoreExporter(CONTENT)
    do("export_core", CORPUS, tmp_path / "rules.core")
    assert [request.resume_at_bytes for request in exporter.requests] == [70_000, 0]
    assert (tmp_path / "rules.core").read_bytes() == CONTENT


def test_a_core_that_differs_from_its_record_is_thrown_away(do: Do, peer: Peer, tmp_path: Path) -> None:
    peer.streams["ExportCore"] = CoreExporter(CONTENT, said_sha256=b"other")
    with pytest.raises(drillcore.Internal, match="the file is incomplete"):
        do("export_core", CORPUS, tmp_path / "rules.core")
    assert names(tmp_path) == set()


def test_a_refused_export_leaves_nothing_and_is_not_repeated(do: Do, peer: Peer, tmp_path: Path) -> None:
    peer.streams["ExportCore"] = CoreExporter(CONTENT, [0], because(Reason.CORPUS_NOT_FOUND))
    with pytest.raises(drillcore.NotFound):
        do("export_core", CORPUS, tmp_path / "rules.core")
    assert (names(tmp_path), len(peer.seen)) == (set(), 1)


def test_an_export_without_progress_gives_up_and_keeps_its_partial_file(do: Do, peer: Peer, tmp_path: Path) -> None:
    peer.streams["ExportCore"] = CoreExporter(CONTENT, [2500, *[0] * 100])
    with pytest.raises(drillcore.Unavailable):
        do("export_core", CORPUS, tmp_path / "rules.core", client_timeout_s=0.5)
    assert (tmp_path / ".rules.core.part").read_bytes() == CONTENT[:2500]


def test_a_timeout_covers_all_calls_together(do: Do, peer: Peer, tmp_path: Path) -> None:
    peer.streams["ExportCore"] = CoreExporter(CONTENT, [0] * 100)
    with pytest.raises(drillcore.DeadlineExceeded):
        do("export_core", CORPUS, tmp_path / "rules.core", timeout_s=0.5)


def test_two_exports_do_not_write_the_same_file(do: Do, peer: Peer, tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()
    exporter = CoreExporter(CONTENT)

    def held(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        begun.set()
        assert go_on.wait(30)
        yield from exporter(requests, context)

    peer.streams["ExportCore"] = held
    first = threading.Thread(target=do, args=("export_core", CORPUS, tmp_path / "rules.core"))
    first.start()
    assert begun.wait(30)
    with pytest.raises(BlockingIOError):
        do("export_core", CORPUS, tmp_path / "rules.core")
    go_on.set()
    first.join()
    assert (tmp_path / "rules.core").read_bytes() == CONTENT


def test_an_import_sends_the_file_and_returns_the_outcome(do: Do, peer: Peer, tmp_path: Path) -> None:
    path, heard = tmp_path / "rules.core", []
    path.write_bytes(CONTENT)
    importer = peer.streams["ImportCore"] = CoreImporter()
    result = do(
        "import_core",
        CORPUS,
        path,
        strict=True,
        source_id="s",
        signature=NOTE,
        verification_keys=["key+1+x"],
        on_event=heard.append,
        request_id="r",
    )
    skipped = (
        SkippedRecord(2, 30, "zz", "i", "UNKNOWN_TAG", "no"),
        SkippedRecord(3, 40, "t", "", "DERIVED", "made anew"),
    )
    assert result == CoreImport(4, CoreKind.FULL, COUNTS, skipped, 9, "key")
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    assert importer.targets == [
        pb.ImportCoreTarget(
            tenant_id=str(TENANT),
            corpus_id=str(CORPUS),
            upload_id=sha256,
            strict=True,
            source_id="s",
            signature=NOTE,
            verification_keys=["key+1+x"],
        )
    ]
    assert importer.kept == {sha256: CONTENT}
    assert heard == [CoreProgress("sending", 0), CoreProgress("reading", len(CONTENT))]


def test_an_import_continues_after_the_last_byte_that_the_server_received(do: Do, peer: Peer, tmp_path: Path) -> None:
    path = tmp_path / "rules.core"
    path.write_bytes(CONTENT * 30)
    importer = peer.streams["ImportCore"] = CoreImporter([1000, 300_000])
    do("import_core", CORPUS, path)
    assert importer.offsets == [0, 1000, 301_000]
    assert list(importer.kept.values()) == [CONTENT * 30]
    assert len({*peer.request_ids()}) == 1, "under the same request id the server does the work once"


def test_an_import_whose_outcome_was_lost_is_asked_for_again(do: Do, peer: Peer, tmp_path: Path) -> None:
    (tmp_path / "rules.core").write_bytes(CONTENT)
    importer = peer.streams["ImportCore"] = CoreImporter(unsaid=2)
    assert do("import_core", CORPUS, tmp_path / "rules.core").revision == 4
    assert importer.offsets == [0, len(CONTENT), len(CONTENT)]


def test_a_refused_import_ends_its_sending_thread(do: Do, peer: Peer, tmp_path: Path) -> None:
    (tmp_path / "rules.core").write_bytes(CONTENT)
    peer.streams["ImportCore"] = CoreImporter(refusal=because(Reason.CORPUS_NOT_EMPTY))
    before = set(threading.enumerate())
    with pytest.raises(drillcore.FailedPrecondition):
        do("import_core", CORPUS, tmp_path / "rules.core")
    senders = [thread for thread in threading.enumerate() if thread not in before and "Executor" not in thread.name]
    for sender in senders:
        sender.join(10)
    assert (len(peer.seen), [sender for sender in senders if sender.is_alive()]) == (1, [])


def test_a_missing_file_makes_no_call(do: Do, peer: Peer, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        do("import_core", CORPUS, tmp_path / "none.core")
    with pytest.raises(FileNotFoundError):
        do("export_core", CORPUS, tmp_path / "no" / "rules.core")
    assert peer.seen == []


def test_cancelling_an_async_export_ends_its_call(peer: Peer, tmp_path: Path) -> None:
    begun, ended = threading.Event(), threading.Event()

    def endless(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        context.add_callback(ended.set)
        begun.set()
        yield pb.ExportCoreResponse(data=b"x")
        ended.wait(30)

    peer.streams["ExportCore"] = endless

    async def run() -> None:
        async with AsyncClient(peer.address) as client:
            task = asyncio.create_task(client.export_core(CORPUS, tmp_path / "rules.core"))
            assert await asyncio.to_thread(begun.wait, 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(ended.wait, 30)

    asyncio.run(run())
    assert len(peer.seen) == 1


def test_a_large_core_is_not_held_in_memory(peer: Peer, tmp_path: Path) -> None:
    """Measured by the peak of a process that does nothing else."""
    with (tmp_path / "large.core").open("wb") as file:
        file.truncate(64_000_000)
    peer.streams["ImportCore"] = CoreImporter()
    program = f"""
import resource
from drillcore import Client
with Client({peer.address!r}) as client:
    client.server_info()
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    client.import_core("{CORPUS}", "large.core")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert int(done.stdout) < 16_000
