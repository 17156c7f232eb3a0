"""FoundationDB's tuple encoding: encodes tuples as keys that sort in the order of the tuples.

The encoding is FoundationDB's own (`fdb.tuple`). It works without the native library, except for versionstamps;
`Versionstamp` here removes that exception.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import fdb.tuple

pack = fdb.tuple.pack
unpack = fdb.tuple.unpack
pack_with_versionstamp = fdb.tuple.pack_with_versionstamp


class KeyRange(NamedTuple):
    begin: bytes
    end: bytes


class Versionstamp(fdb.tuple.Versionstamp):
    """A place in the order of commits: ten bytes given by the store, then two of the caller's own.

    Without `tr_version` it is a gap that `pack_with_versionstamp` leaves for the commit to fill.
    """

    def to_bytes(self) -> bytes:
        return struct.pack(">10sH", self.tr_version or b"\xff" * 10, self.user_version)


def prefix_end(prefix: bytes) -> bytes:
    """The first key after every key that starts with `prefix`."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        raise ValueError("a prefix of nothing but 0xff bytes has no end")
    return stripped[:-1] + bytes([stripped[-1] + 1])


class Subspace:
    """The keys that begin with a prefix. Encodes tuples as such keys, and decodes the keys."""

    __slots__ = ("prefix",)

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix

    def __getitem__(self, name: Any) -> Subspace:
        return Subspace(pack((name,), self.prefix))

    def pack(self, values: tuple[Any, ...] = ()) -> bytes:
        return pack(values, self.prefix)

    def pack_with_versionstamp(self, values: tuple[Any, ...]) -> bytes:
        """A template for `Transaction.set_versionstamped_key`; one of `values` is an empty `Versionstamp`."""
        return pack_with_versionstamp(values, self.prefix)

    def unpack(self, key: bytes) -> tuple[Any, ...]:
        if not self.contains(key):
            raise ValueError(f"the key does not begin with the prefix {self.prefix!r}")
        return unpack(key, len(self.prefix))

    def range(self, values: tuple[Any, ...] = ()) -> KeyRange:
        """All keys longer than the tuple `values` that begin with it."""
        prefix = self.pack(values)
        return KeyRange(prefix + b"\x00", prefix + b"\xff")

    def contains(self, key: bytes) -> bool:
        return key.startswith(self.prefix)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subspace) and other.prefix == self.prefix

    def __hash__(self) -> int:
        return hash(self.prefix)

    def __repr__(self) -> str:
        return f"Subspace({self.prefix!r})"
