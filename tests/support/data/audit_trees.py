"""RFC 6962 as the RFC defines it, by recursion: slow, and independent of the code that it tests."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def split(size: int) -> int:
    """The largest power of two below the size."""
    return 1 << (size - 1).bit_length() - 1


def root(leaves: Sequence[bytes]) -> bytes:
    if len(leaves) < 2:
        return hashlib.sha256(b"\0" + leaves[0] if leaves else b"").digest()
    k = split(len(leaves))
    return hashlib.sha256(b"\1" + root(leaves[:k]) + root(leaves[k:])).digest()


def inclusion(index: int, leaves: Sequence[bytes]) -> list[bytes]:
    if len(leaves) == 1:
        return []
    k = split(len(leaves))
    if index < k:
        return [*inclusion(index, leaves[:k]), root(leaves[k:])]
    return [*inclusion(index - k, leaves[k:]), root(leaves[:k])]


def consistency(first: int, leaves: Sequence[bytes]) -> list[bytes]:
    return _subproof(first, leaves, True) if first else []


def _subproof(first: int, leaves: Sequence[bytes], known: bool) -> list[bytes]:
    if first == len(leaves):
        return [] if known else [root(leaves)]
    k = split(len(leaves))
    if first <= k:
        return [*_subproof(first, leaves[:k], known), root(leaves[k:])]
    return [*_subproof(first - k, leaves[k:], False), root(leaves[:k])]
