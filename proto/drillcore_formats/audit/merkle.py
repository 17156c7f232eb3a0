"""Merkle trees of RFC 6962 (RFC 9162): hashes, inclusion proofs and consistency proofs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from drillcore_formats.audit.findings import ProofFailed

HASH_BYTES: Final = 32
EMPTY_ROOT: Final = hashlib.sha256(b"").digest()


def leaf_hash(leaf: bytes) -> bytes:
    return hashlib.sha256(b"\0" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


class Frontier:
    """A tree that only grows. It keeps the roots of its complete subtrees, largest first, to work out its root."""

    def __init__(self, size: int = 0, subtrees: Sequence[bytes] = ()) -> None:
        if size.bit_count() != len(subtrees):
            raise ValueError(f"a tree of {size} leaves has {size.bit_count()} complete subtrees, not {len(subtrees)}")
        self.size = size
        self.subtrees = list(subtrees)

    def append(self, hashed_leaf: bytes) -> None:
        node, size = hashed_leaf, self.size
        while size & 1:
            node = node_hash(self.subtrees.pop(), node)
            size >>= 1
        self.subtrees.append(node)
        self.size += 1

    def root(self) -> bytes:
        if not self.subtrees:
            return EMPTY_ROOT
        root = self.subtrees[-1]
        for subtree in reversed(self.subtrees[:-1]):
            root = node_hash(subtree, root)
        return root


def check_inclusion(hashed_leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> None:
    """Raises `ProofFailed` unless the leaf is at `index` of the tree of `size` leaves with this root."""
    if not 0 <= index < size:
        raise ProofFailed(f"a tree of {size} leaves has no leaf at index {index}")
    _check_hashes(hashed_leaf, root, *proof)
    node, last, place = hashed_leaf, size - 1, index
    for sibling in proof:
        if last == 0:
            raise ProofFailed("the inclusion proof is too long")
        if place & 1 or place == last:
            node = node_hash(sibling, node)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            node = node_hash(node, sibling)
        place, last = place >> 1, last >> 1
    if last != 0:
        raise ProofFailed("the inclusion proof is too short")
    if node != root:
        raise ProofFailed("the inclusion proof does not lead to the root")


def check_consistency(
    first_size: int, second_size: int, proof: Sequence[bytes], first_root: bytes, second_root: bytes
) -> None:
    """Raises `ProofFailed` unless the second tree continues the first."""
    if not 0 <= first_size <= second_size:
        raise ProofFailed(f"a tree of {second_size} leaves cannot continue one of {first_size}")
    _check_hashes(first_root, second_root, *proof)
    hashes = list(proof)
    if first_size in {0, second_size}:
        if hashes or (first_size == 0 and first_root != EMPTY_ROOT):
            raise ProofFailed("the consistency proof should be empty")
        if first_size == second_size and first_root != second_root:
            raise ProofFailed("two trees of the same size have different roots")
        return
    if first_size.bit_count() == 1:
        hashes.insert(0, first_root)
    if not hashes:
        raise ProofFailed("the consistency proof is empty")
    if _roots_by(first_size, second_size, hashes) != (first_root, second_root):
        raise ProofFailed("the second tree does not continue the first")


def _roots_by(first_size: int, second_size: int, hashes: Sequence[bytes]) -> tuple[bytes, bytes]:
    """The roots of both trees, worked out from a consistency proof."""
    place, last = first_size - 1, second_size - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    first = second = hashes[0]
    for sibling in hashes[1:]:
        if last == 0:
            raise ProofFailed("the consistency proof is too long")
        if place & 1 or place == last:
            first, second = node_hash(sibling, first), node_hash(sibling, second)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            second = node_hash(second, sibling)
        place, last = place >> 1, last >> 1
    if last != 0:
        raise ProofFailed("the consistency proof is too short")
    return first, second


def _check_hashes(*hashes: bytes) -> None:
    if any(len(hashed) != HASH_BYTES for hashed in hashes):
        raise ProofFailed("a hash has the wrong length")
