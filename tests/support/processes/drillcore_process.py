"""The command line and the server, each in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drillcore import Client
from tests.support.processes.children import gone_afterwards

COMMAND = [sys.executable, "-m", "drillcore"]


@dataclass(frozen=True)
class Ended:
    exit_code: int
    output: str
    errors: str

    @property
    def document(self) -> Any:
        """The document that --json printed. Fails if anything else was printed."""
        return json.loads(self.output)

    @property
    def error(self) -> Any:
        return self.document["error"]


def environment(home: Path, **variables: str) -> dict[str, str]:
    """The environment of this process without the Drillcore settings of whoever runs the tests."""
    ours = {key: value for key, value in os.environ.items() if not key.startswith(("DRILLCORE_", "XDG_"))}
    return {**ours, "HOME": str(home), **variables}


def drillcore(directory: Path, *arguments: str, **variables: str) -> Ended:
    """Runs a command to its end, in `directory`."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=directory,
        env=environment(directory, **variables),
        capture_output=True,
        text=True,
        timeout=300,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


@dataclass
class Serving:
    process: subprocess.Popen[str]
    document: Any
    """The document that `drillcore serve --json` printed when it was ready."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.document['serving']['port']}"

    def client(self) -> Client:
        token = Path(self.document["serving"]["token_file"]).read_text().strip()
        return Client(self.address, token=token)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Tells the server to stop and returns its exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=30)


@contextmanager
def serving(directory: Path, *arguments: str, command: Sequence[str] = COMMAND, **variables: str) -> Iterator[Serving]:
    """`drillcore serve` in `directory`, on the store in data/ and a free port. Its log is serve.log."""
    flags = ["--data-dir", str(directory / "data"), "--listen", "127.0.0.1:0", "--metrics-listen", "", *arguments]
    with (
        (directory / "serve.log").open("w") as log,
        gone_afterwards(
            subprocess.Popen(
                [*command, "serve", "--json", *flags],
                cwd=directory,
                env=environment(directory, **variables),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        ) as process,
    ):
        yield Serving(process, _document(process))


def _document(process: subprocess.Popen[str]) -> Any:
    """The document on stdout, as soon as it is complete."""
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line == "}\n":
            return json.loads(text)
    raise AssertionError(f"the server ended with {process.wait()} and printed {text!r}")


def workers_of(pid: int) -> list[int]:
    """The processes that read documents for the server with this id: children of the process they are forked from."""
    return [worker for child in _children(pid) for worker in _children(child)]


def processes_of(pid: int) -> list[int]:
    """All processes that a server has started, directly or indirectly."""
    return [descendant for child in _children(pid) for descendant in (child, *processes_of(child))]


def is_running(pid: int) -> bool:
    """Whether a process runs. A process that has ended, but is listed since nobody waited for it, does not run."""
    return _stat(pid)[:1] not in ([], ["Z"])


def cpu_ticks(pid: int) -> int:
    """Hundredths of a second that a process has worked; 0 if it has gone."""
    return sum(map(int, _stat(pid)[11:13]))


def _children(pid: int) -> list[int]:
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [number for number in numbers if _stat(number)[1:2] == [str(pid)] and is_running(number)]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; none if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
