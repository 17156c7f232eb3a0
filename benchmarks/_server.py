"""Runs a real server in a process of its own, for the benchmarks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_QUIET = {"DRILLCORE_COMMUNITIES_CHECK_EVERY_S": "86400"}
"""No background work starts during a measurement."""


@dataclass(frozen=True)
class Serving:
    address: str
    token: str
    """An operator's token."""
    data: Path
    """The data directory of the server."""
    process_id: int

    @property
    def memory_bytes(self) -> int:
        status = Path(f"/proc/{self.process_id}/status").read_text()
        return 1024 * int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0])


@contextmanager
def real_server(directory: str) -> Iterator[tuple[str, str, Path]]:
    """Yields its address, an operator's token, and its data directory below `directory`."""
    with server_process(directory) as serving:
        yield serving.address, serving.token, serving.data


@contextmanager
def server_process(directory: str, **settings: str) -> Iterator[Serving]:
    """Yields a server that stops at the end. Its store stays below `directory`. Settings are named like environment
    variables."""
    data = Path(directory) / "data"
    flags = ["serve", "--data-dir", str(data), "--listen", "127.0.0.1:0", "--metrics-listen", "", "--json"]
    with (Path(directory) / "server.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "drillcore", *flags],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=os.environ | _QUIET | settings,
        )
        try:
            assert process.stdout is not None
            lines = ""
            while not lines.endswith("\n}\n"):
                assert process.poll() is None, f"the server did not start: see {log.name}"
                lines += process.stdout.readline()
            address = f"127.0.0.1:{json.loads(lines)['serving']['port']}"
            yield Serving(address, (data / "operator.token").read_text().strip(), data, process.pid)
        finally:
            process.terminate()
            process.wait()
