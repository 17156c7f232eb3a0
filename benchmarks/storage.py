"""How much a store takes for the text in it: ingests regulations and sections of the US Code of Federal Regulations.

`bytes_per_byte` is the file of the embedded engine divided by the text, as the last commit left it, with the audit
trail and everything else; `compacted` is the same after `drillcore engine compact`; `keys_and_values` is what a cluster
stores, once.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks._server import real_server
from benchmarks.hierarchy import DATA, _documents, _filled
from drillcore import Client, Level, NewDocument


def run(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks storage")
    parser.add_argument("--data", type=Path, default=DATA / "regulations", help="folder with regulations")
    parser.add_argument("--scale", type=Path, default=DATA, help="folder with scale/ecfr-sections.jsonl.gz")
    parser.add_argument("--sections", type=int, default=2_000)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=".") as directory:
        with (
            real_server(directory) as (address, token, data),
            Client(address, token=token) as client,
        ):
            tenant = client.create_tenant("benchmark").id
            corpora = [
                _regulations(client, tenant, options.data),
                _filled(client, tenant, "sections", _documents(options.scale, options.sections)),
            ]
            masters = client.query(level=Level.MASTER, corpus_ids=corpora, tenant_id=tenant).items
            figures = [found.node.content.statistics for found in masters]
        return _measured(data, sum(f.characters for f in figures), sum(f.chunks for f in figures))


def _regulations(client: Client, tenant: object, folder: Path) -> object:
    corpus = client.create_corpus("regulations", tenant_id=tenant).id
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    for path in files:
        document = NewDocument(name=path.name, content=path.read_bytes())
        client.add_documents(corpus, [document], tenant_id=tenant, timeout_s=3600)
    return corpus


def _measured(data: Path, text_bytes: int, chunks: int) -> dict[str, object]:
    stored = _file_bytes(data)
    listed = _drillcore("engine", "directories", "--data-dir", str(data))
    directories = {directory["name"]: directory for directory in listed["directories"]}
    tops = [figures for name, figures in directories.items() if "/" not in name]
    keys, size_bytes = (sum(figures[what] for figures in tops) for what in ("keys", "bytes"))
    _drillcore("engine", "compact", "--data-dir", str(data))
    return {
        "benchmark": "storage",
        "text_bytes": text_bytes,
        "chunks": chunks,
        "bytes_per_byte": round(stored / text_bytes, 2),
        "compacted": round(_file_bytes(data) / text_bytes, 2),
        "keys_and_values": round(size_bytes / text_bytes, 2),
        "keys_per_chunk": round(keys / chunks, 2),
        "directories": {
            name: {
                "keys": figures["keys"],
                "bytes": figures["bytes"],
                "per_text_byte": round(figures["bytes"] / text_bytes, 3),
            }
            for name, figures in sorted(directories.items(), key=lambda item: -item[1]["bytes"])
        },
    }


def _file_bytes(data: Path) -> int:
    """The files of the store and of its keyring, by the blocks they take."""
    return sum(path.stat().st_blocks * 512 for path in data.rglob("data.mdb"))


def _drillcore(*command: str) -> dict[str, list[dict[str, int]]]:
    ended = subprocess.run(
        [sys.executable, "-m", "drillcore", *command, "--json"], capture_output=True, text=True, check=True
    )
    found: dict[str, list[dict[str, int]]] = json.loads(ended.stdout)
    return found
