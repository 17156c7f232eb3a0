"""Prepares tests: keys of their own, a filled store, a commit that comes in between."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from drillcore_fdb.engine import Engine, KeyValue, Options, Transaction
from drillcore_fdb.errors import ConflictError
from drillcore_fdb.tuples import KeyRange, Subspace, prefix_end

Work = Callable[[Transaction], Any]

NO_RETRY = Options(retry_limit=0)


class Space(Subspace):
    """The keys of a test: all keys that begin with its prefix."""

    __slots__ = ()

    @classmethod
    def fresh(cls) -> Space:
        return cls(b"conformance/" + uuid.uuid4().hex.encode() + b"/")

    def key(self, suffix: bytes) -> bytes:
        return self.prefix + suffix

    def key_of_length(self, length: int, ending: bytes = b"") -> bytes:
        """A key of `length` bytes. Keys with different `ending` share all other bytes."""
        return self.prefix + b"p" * (length - len(self.prefix) - len(ending)) + ending

    @property
    def whole(self) -> KeyRange:
        return KeyRange(self.prefix, prefix_end(self.prefix))


def fill(engine: Engine, pairs: Mapping[bytes, bytes]) -> None:
    def work(tr: Transaction) -> None:
        for key, value in pairs.items():
            tr.set(key, value)

    engine.run(work)


def fill_letters(engine: Engine, space: Space, letters: str) -> None:
    """A key for each letter, with the letter as its value."""
    fill(engine, {space.key(letter.encode()): letter.encode() for letter in letters})


def value_at(engine: Engine, key: bytes) -> bytes | None:
    return engine.run(lambda tr: tr.get(key))


def contents(engine: Engine, space: Space) -> list[KeyValue]:
    return engine.run(lambda tr: list(tr.range(*space.whole)))


def letters_of(space: Space, pairs: Iterable[KeyValue]) -> str:
    """The keys of a scan without their prefix, joined."""
    return b"".join(key.removeprefix(space.prefix) for key, _ in pairs).decode()


def commits_despite(engine: Engine, work: Work, interference: Work) -> bool:
    """Whether `work` commits although `interference` commits after its reads and before its own commit."""

    def staged(tr: Transaction) -> None:
        tr.read_version()
        work(tr)
        engine.run(interference)

    try:
        engine.run(staged, NO_RETRY)
    except ConflictError:
        return False
    return True


def versionstamp_template(before: bytes, after: bytes = b"") -> bytes:
    """A template with the versionstamp between `before` and `after`."""
    return before + b"\xff" * 10 + after + struct.pack("<L", len(before))
