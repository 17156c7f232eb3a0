"""Fingerprints of what was asked for: the same in every process and every release, since only plain values go in."""

from __future__ import annotations

import hashlib
from typing import Final

from drillcore_server.kernel.journal import canonical
from drillcore_server.kernel.trail import plain

VERSION: Final = 1
"""Goes up when the encoding changes: fingerprints of two versions never agree."""


def fingerprint(kind: str, *values: object) -> bytes:
    """The SHA-256 of values in canonical JSON. `kind` keeps equal values of different things apart."""
    return hashlib.sha256(canonical([VERSION, kind, plain(values)])).digest()
