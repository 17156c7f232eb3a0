"""Processes that tests start."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import AnyStr

IGNORING_CTRL_C = ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh"]
"""Put before a command, so that it starts as a shell's background job does, and as `nohup` and many CI systems do."""


@contextmanager
def gone_afterwards(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """Kills the process at the end of the block, however it ends, so that a failed test does not fail another."""
    with process:
        try:
            yield process
        finally:
            process.kill()
