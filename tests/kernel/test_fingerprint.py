"""Fingerprints do not depend on the process, on Python's `repr`, or on the order of a set."""

from __future__ import annotations

import enum
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from drillcore_server.kernel.canonical_json import fingerprint

GOLDEN = "e14d1aa7df0d41146d1ff67d5d6ec49b23c8ce5e453b23563c872491d1f9de1b"
"""Changes only together with `VERSION`."""


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Asked:
    text: str
    ids: frozenset[UUID]
    at: datetime
    share: float
    colour: Colour
    nothing: None = None


ASKED = Asked(
    "deadlines", frozenset(UUID(int=number) for number in range(50)), datetime(2026, 1, 2, tzinfo=UTC), 0.1, Colour.RED
)


def test_a_fingerprint_never_changes() -> None:
    assert fingerprint("test", ASKED).hex() == GOLDEN


def test_a_fingerprint_is_the_same_in_a_process_with_another_hash_seed() -> None:
    """A set of texts comes in another order in each process."""
    program = (
        "from drillcore_server.kernel.canonical_json import fingerprint;"
        "print(fingerprint('test', frozenset('abcdefghij')).hex())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


def test_equal_values_of_different_kinds_have_different_fingerprints() -> None:
    assert fingerprint("facts", 1) != fingerprint("nodes", 1)


def test_values_that_look_alike_have_different_fingerprints() -> None:
    assert fingerprint("test", "1", "2") != fingerprint("test", "12")
    assert fingerprint("test", None) != fingerprint("test", "")
