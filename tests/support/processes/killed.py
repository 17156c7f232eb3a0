"""Processes that are killed, not stopped, as the operating system does when it is out of memory."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from tests.support.paths import ROOT
from tests.support.processes.children import gone_afterwards


@contextlib.contextmanager
def process(*arguments: str, stderr: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """`python ARGUMENTS` in the repository, killed with SIGKILL at the end of the block at the latest."""
    started = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
    )
    with gone_afterwards(started):
        yield started
