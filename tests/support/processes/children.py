"""Processes that tests start."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import AnyStr

IGNORING_CTRL_C = ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh"]
"""Before a command: it starts as a shell's background job does, and as `nohup` and many CI systems start one."""


@contextmanager
def gone_afterwards(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """Killed at the end of the block, however that ends: a test that fails leaves nothing that fails another."""
    with process:
        try:
            yield process
        finally:
            process.kill()
