"""A real server in a process of its own, for the benchmarks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def real_server(directory: str) -> Iterator[tuple[str, str, Path]]:
    """Its address, an operator's token, and its data directory below `directory`."""
    data = Path(directory) / "data"
    flags = ["serve", "--data-dir", str(data), "--listen", "127.0.0.1:0", "--metrics-listen", "", "--json"]
    with (Path(directory) / "server.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "drillcore", *flags], stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            assert process.stdout is not None
            lines = ""
            while not lines.endswith("\n}\n"):
                lines += process.stdout.readline()
            address = f"127.0.0.1:{json.loads(lines)['serving']['port']}"
            yield address, (data / "operator.token").read_text().strip(), data
        finally:
            process.terminate()
            process.wait()
