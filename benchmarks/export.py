"""Makes signed exports through the real server: the speed of each format, and the additional memory it takes."""

from __future__ import annotations

import argparse
import os
import tempfile
import zipfile
from pathlib import Path

import pypdfium2

from benchmarks._measure import seconds
from benchmarks._server import real_server
from benchmarks.hierarchy import DATA, _documents, _filled
from drillcore import Client, ExportFormat
from tests.support.processes.memory import own_bytes, peak_of


def run(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks export")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with scale/ecfr-sections.jsonl.gz")
    parser.add_argument("--documents", type=int, default=3_000)
    options = parser.parse_args(arguments)
    documents = _documents(options.data, options.documents)
    with (
        tempfile.TemporaryDirectory(dir=".") as directory,
        real_server(directory) as (address, token, _),
        Client(address, token=token) as client,
    ):
        tenant = client.create_tenant("benchmark").id
        corpus = _filled(client, tenant, "exported", documents)
        figures: dict[str, object] = {"benchmark": "export", "documents": len(documents)}
        for kind in ExportFormat:
            figures |= _export(client, tenant, corpus, kind, _server_pid())
        return figures


def _export(client: Client, tenant: object, corpus: object, kind: ExportFormat, server: int) -> dict[str, object]:
    """Returns seconds, bytes of content, and the additional memory of the server."""
    before, cpu_before_s = own_bytes(server), _cpu_s(server)
    with tempfile.TemporaryFile(dir=".") as file:
        with peak_of(server) as peak:
            taken_s = seconds(lambda: client.export_corpus(corpus, file, format=kind, tenant_id=tenant, timeout_s=3600))
        archive = zipfile.ZipFile(file)
        contents = [member for member in archive.infolist() if member.filename.startswith("content")]
        size_bytes = sum(member.file_size for member in contents)
        figures: dict[str, object] = {
            f"{kind.value}_s": round(taken_s, 1),
            f"{kind.value}_cpu_s": round(_cpu_s(server) - cpu_before_s, 1),
            f"{kind.value}_content_mb": round(size_bytes / 1e6, 1),
            f"{kind.value}_mb_per_s": round(size_bytes / 1e6 / taken_s, 2),
            f"{kind.value}_memory_more_mib": round((peak.own - before) / 2**20),
        }
        if kind is ExportFormat.PDF:
            pages = sum(len(pypdfium2.PdfDocument(archive.read(member))) for member in contents)
            figures |= {"pdf_pages": pages, "pdf_volumes": len(contents), "pdf_pages_per_s": round(pages / taken_s, 1)}
    return figures


def _cpu_s(pid: int) -> float:
    """Returns the processor time of its own work, which is comparable on a busy machine."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _server_pid() -> int:
    """Returns the only process that this one has started."""
    (pid,) = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return int(pid)
