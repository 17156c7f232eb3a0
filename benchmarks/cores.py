"""Imports and exports knowledge cores through the real server: speed beside bare msgpack, and memory.

One core is as TrustGraph writes it, of any size; the other is a full core of a corpus of real documents.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import grpc

from benchmarks._core_files import bare, write_core
from benchmarks._measure import seconds
from benchmarks._server import Serving, server_process
from benchmarks.hierarchy import DATA, _documents, _filled
from drillcore import Client
from drillcore_proto.v1 import cores_pb2 as pb
from drillcore_proto.v1.cores_pb2_grpc import CoreServiceStub
from tests.support.processes.memory import own_bytes, peak_of

_PIECE_BYTES = 256 << 10
_TIMEOUT_S = 4 * 3600.0


def run(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks cores")
    parser.add_argument("--size-mb", type=int, default=50, help="size of the other system's core")
    parser.add_argument("--documents", type=int, default=500, help="documents in the corpus of the full core")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with scale/ecfr-sections.jsonl.gz")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=".") as directory:
        return {
            "benchmark": "cores",
            **_foreign(Path(directory) / "foreign", options.size_mb),
            **_full(Path(directory) / "full", _documents(options.data, options.documents)),
        }


def _foreign(directory: Path, size_mb: int) -> dict[str, object]:
    """Imports another system's core, then exports it again."""
    directory.mkdir()
    core, again = directory / "given.core", directory / "again.core"
    write_core(core, size_mb * 1_000_000)
    with _serving(directory) as calls:
        corpus = calls.corpus("foreign")
        imported = calls.measured("import", core, lambda: calls.import_core(corpus, core))
        exported = calls.measured("export", again, lambda: calls.export_core(corpus, again, pb.CORE_KIND_PLAIN))
    return {**imported, **exported}


def _full(directory: Path, documents: list[tuple[str, str]]) -> dict[str, object]:
    """Exports a corpus, imports it into another server, and exports it there: the bytes must be the same."""
    core, again = directory / "first.core", directory / "second.core"
    (directory / "from").mkdir(parents=True)
    (directory / "to").mkdir()
    with _serving(directory / "from") as calls:
        corpus = calls.filled(documents)
        exported = calls.measured("full_export", core, lambda: calls.export_core(corpus, core, pb.CORE_KIND_FULL))
    with _serving(directory / "to") as calls:
        corpus = calls.corpus("full")
        imported = calls.measured("full_import", core, lambda: calls.import_core(corpus, core))
        calls.export_core(corpus, again, pb.CORE_KIND_FULL)
    return {**exported, **imported, "full_identical": core.read_bytes() == again.read_bytes()}


@contextmanager
def _serving(directory: Path) -> Iterator[_Calls]:
    with server_process(str(directory)) as server, Client(server.address, token=server.token) as client:
        channel = grpc.insecure_channel(server.address)
        try:
            yield _Calls(server, client, CoreServiceStub(channel), client.create_tenant("benchmark").id)
        finally:
            channel.close()


@dataclass(frozen=True)
class _Calls:
    server: Serving
    client: Client
    cores: CoreServiceStub
    tenant: UUID

    def corpus(self, name: str) -> UUID:
        return self.client.create_corpus(name, tenant_id=self.tenant).id

    def filled(self, documents: list[tuple[str, str]]) -> UUID:
        corpus = _filled(self.client, self.tenant, "full", documents)
        assert isinstance(corpus, UUID)
        return corpus

    def measured(self, name: str, core: Path, work: Callable[[], object]) -> dict[str, object]:
        """Measures an import or export: MB a second, that as a share of msgpack alone, and memory above idle."""
        idle = own_bytes(self.server.process_id)
        with peak_of(self.server.process_id) as peak:
            taken_s = seconds(work)
        size_mb, alone = core.stat().st_size / 1e6, bare(core)
        alone_s = alone.unpack_s if "import" in name else alone.pack_s
        return {
            f"{name}_core_mb": round(size_mb, 1),
            f"{name}_mb_per_s": round(size_mb / taken_s, 2),
            f"{name}_msgpack_mb_per_s": round(size_mb / alone_s, 1),
            f"{name}_ratio": round(alone_s / taken_s, 4),
            f"{name}_memory_more_mib": round((peak.own - idle) / 2**20),
        }

    def export_core(self, corpus: UUID, path: Path, kind: pb.CoreKind.ValueType) -> None:
        request = pb.ExportCoreRequest(tenant_id=str(self.tenant), corpus_id=str(corpus), kind=kind)
        with path.open("wb") as file:
            for answer in self.cores.ExportCore(iter([request]), **self._options):
                file.write(answer.data)

    def import_core(self, corpus: UUID, path: Path) -> None:
        ready = threading.Event()
        answers = self.cores.ImportCore(self._sent(corpus, path, ready), **self._options)
        next(answers)
        ready.set()
        *_, last = answers
        assert last.WhichOneof("part") == "done"

    def _sent(self, corpus: UUID, path: Path, ready: threading.Event) -> Iterator[pb.ImportCoreRequest]:
        target = pb.ImportCoreTarget(tenant_id=str(self.tenant), corpus_id=str(corpus), upload_id="benchmark")
        yield pb.ImportCoreRequest(target=target)
        ready.wait()
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
                yield pb.ImportCoreRequest(data=piece)
        end = pb.ImportCoreEnd(size_bytes=path.stat().st_size, sha256=digest.digest())
        yield pb.ImportCoreRequest(end=end)

    @property
    def _options(self) -> dict[str, Any]:
        return {"metadata": [("authorization", f"Bearer {self.server.token}")], "timeout": _TIMEOUT_S}
