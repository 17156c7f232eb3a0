"""A log's Merkle tree as tiles (c2sp.org/tlog-tiles): 256 hashes each, eight levels of the tree high.

    tile (level, index) has the hashes of the complete subtrees of 256^level leaves, from number 256 * index on

The last tile of a level may have fewer hashes and is rewritten as it grows. The root of any size up to the present, and
all proofs, are worked out from tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from drillcore_fdb.errors import StoreCorruptError
from drillcore_formats.audit.merkle import EMPTY_ROOT, HASH_BYTES, node_hash

TILE_HEIGHT: Final = 8
TILE_HASHES: Final = 1 << TILE_HEIGHT

Coordinates = tuple[int, int]
"""Level and index of a tile."""
Load = Callable[[Sequence[Coordinates]], list[bytes | None]]
"""Reads tiles, in one round trip."""
Range = tuple[int, int]
"""A range of leaves: the first, and the one behind the last."""


class GrowingTree:
    """The end of a tree, for appending. It needs only the last tile of each level, which `edge` names."""

    def __init__(self, size: int, tiles: Sequence[bytes | None]) -> None:
        """`tiles` are those of `edge(size)`. Raises `StoreCorruptError` if one is too short."""
        self.size = size
        self._hashes: list[list[bytes]] = [[] for _ in range(_levels(size))]
        self._written: dict[Coordinates, bytes] = {}
        self._changed: set[int] = set()
        for (level, _), tile in zip(edge(size), tiles, strict=True):
            self._hashes[level] = split(tile, _count(size, level) % TILE_HASHES)

    def append(self, hashed_leaf: bytes) -> None:
        level, node = 0, hashed_leaf
        while True:
            if level == len(self._hashes):
                self._hashes.append([])
            hashes = self._hashes[level]
            hashes.append(node)
            self._changed.add(level)
            if len(hashes) < TILE_HASHES:
                break
            self._written[level, self.size >> TILE_HEIGHT * (level + 1)] = b"".join(hashes)
            node = subtree_root(hashes)
            hashes.clear()
            level += 1
        self.size += 1

    def root(self) -> bytes:
        subtrees = [node for hashes in reversed(self._hashes) for node in _subtree_roots(hashes)]
        return fold(subtrees)

    def tiles(self) -> dict[Coordinates, bytes]:
        """The tiles to write: those that became full, and the last tile of each level that has grown."""
        last = [(level, index) for level, index in edge(self.size) if level in self._changed]
        return self._written | {(level, index): b"".join(self._hashes[level]) for level, index in last}


class Tree:
    """A tree of `size` leaves, for reading. Raises `StoreCorruptError` if a tile lacks hashes."""

    def __init__(self, size: int, load: Load) -> None:
        self.size = size
        self._load = load
        self._tiles: dict[Coordinates, bytes] = {}

    def root(self, size: int | None = None) -> bytes:
        """The root of this tree, or of the smaller one that it continues."""
        return self._roots([(0, self.size if size is None else size)])[0]

    def expect_roots(self, sizes: Sequence[int]) -> None:
        """Reads the tiles for the roots of these sizes together. Missing ones are reported by `root`."""
        self._expect([(0, size)] for size in sizes)

    def expect_inclusions(self, indexes: Sequence[int], size: int) -> None:
        """Reads the tiles for the proofs of these leaves together. Missing ones are reported by `inclusion`."""
        self._expect(_inclusion_ranges(index, 0, size) for index in indexes)

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """The proof of RFC 6962, 2.1.1 that the leaf at `index` is in the tree of `size`."""
        assert 0 <= index < size <= self.size
        return self._roots(_inclusion_ranges(index, 0, size))

    def consistency(self, first: int, second: int) -> list[bytes]:
        """The proof of RFC 6962, 2.1.2 that the tree of size `second` continues the tree of size `first`."""
        assert 0 <= first <= second <= self.size
        if first in {0, second}:
            return []
        return self._roots(_consistency_ranges(first, 0, second, whole=True))

    def leaves(self, begin: int, end: int) -> list[bytes]:
        """The hashes of the leaves from `begin` up to, not including, `end`."""
        self._fetch((0, index) for index in range(begin >> TILE_HEIGHT, (end - 1 >> TILE_HEIGHT) + 1))
        return [self._hash(0, place) for place in range(begin, end)]

    def check_tiles(self, coordinates: Iterable[Coordinates]) -> list[Coordinates]:
        """The full tiles among these whose root is not in the tile above."""
        full = list(coordinates)
        self._fetch([*full, *((level + 1, index >> TILE_HEIGHT) for level, index in full)])
        return [
            (level, index)
            for level, index in full
            if subtree_root(split(self._tiles[level, index], TILE_HASHES)) != self._hash(level + 1, index)
        ]

    def _expect(self, many: Iterable[Sequence[Range]]) -> None:
        with suppress(StoreCorruptError):
            self._fetch(tile for ranges in many for tile in _tiles_of(ranges))

    def _roots(self, ranges: Sequence[Range]) -> list[bytes]:
        nodes = [list(_complete(begin, end)) for begin, end in ranges]
        self._fetch(_tiles_of(ranges))
        return [fold([self._node(*node) for node in subtrees]) for subtrees in nodes]

    def _node(self, level: int, index: int) -> bytes:
        """The root of the complete subtree with 2^level leaves and this index among its level."""
        (tile_level, tile), first, count = _tile_of(level, index)
        return subtree_root([self._hash(tile_level, (tile << TILE_HEIGHT) + first + place) for place in range(count)])

    def _hash(self, level: int, place: int) -> bytes:
        tile, offset = self._tiles[level, place >> TILE_HEIGHT], place % TILE_HASHES * HASH_BYTES
        found = tile[offset : offset + HASH_BYTES]
        if len(found) != HASH_BYTES:
            raise _damaged(level, place >> TILE_HEIGHT)
        return found

    def _fetch(self, coordinates: Iterable[Coordinates]) -> None:
        wanted = sorted(set(coordinates) - self._tiles.keys())
        for place, tile in zip(wanted, self._load(wanted), strict=True):
            if tile is None:
                raise _damaged(*place)
            self._tiles[place] = tile


def edge(size: int) -> list[Coordinates]:
    """The tiles at the end of a tree that are not full, at most one for each level."""
    counts = ((level, _count(size, level)) for level in range(_levels(size)))
    return [(level, count >> TILE_HEIGHT) for level, count in counts if count % TILE_HASHES]


def full_tiles(size: int, level: int) -> int:
    """How many full tiles a level has."""
    return size >> TILE_HEIGHT * (level + 1)


def split(tile: bytes | None, count: int) -> list[bytes]:
    """The first `count` hashes of a tile."""
    if tile is None or len(tile) < count * HASH_BYTES:
        raise StoreCorruptError("a tile of an audit log lacks hashes; run VerifyAudit, and restore it from a backup")
    return [tile[start : start + HASH_BYTES] for start in range(0, count * HASH_BYTES, HASH_BYTES)]


def subtree_root(hashes: Sequence[bytes]) -> bytes:
    """The root of a complete subtree. The number of hashes must be a power of two."""
    while len(hashes) > 1:
        hashes = [node_hash(left, right) for left, right in zip(hashes[::2], hashes[1::2], strict=True)]
    return hashes[0]


def fold(subtrees: Sequence[bytes]) -> bytes:
    """The root over complete subtrees, largest first."""
    if not subtrees:
        return EMPTY_ROOT
    root = subtrees[-1]
    for subtree in reversed(subtrees[:-1]):
        root = node_hash(subtree, root)
    return root


def _levels(size: int) -> int:
    return -(-size.bit_length() // TILE_HEIGHT)


def _count(size: int, level: int) -> int:
    return size >> TILE_HEIGHT * level


def _subtree_roots(hashes: Sequence[bytes]) -> list[bytes]:
    """The roots of the complete subtrees that these hashes of one level form, largest first."""
    return [subtree_root(hashes[index << level : index + 1 << level]) for level, index in _complete(0, len(hashes))]


def _complete(begin: int, end: int) -> Iterable[tuple[int, int]]:
    """The complete subtrees, as level and index, that a range of leaves forms, from left to right."""
    while begin < end:
        level = (end - begin).bit_length() - 1
        yield level, begin >> level
        begin += 1 << level


def _tile_of(level: int, index: int) -> tuple[Coordinates, int, int]:
    """The tile with a subtree's hashes, the place of the first hash, and how many there are."""
    first = index << level % TILE_HEIGHT
    return (level // TILE_HEIGHT, first >> TILE_HEIGHT), first % TILE_HASHES, 1 << level % TILE_HEIGHT


def _tiles_of(ranges: Iterable[Range]) -> Iterable[Coordinates]:
    """The tiles with the hashes that the roots of these ranges of leaves are made of."""
    return (_tile_of(*node)[0] for begin, end in ranges for node in _complete(begin, end))


def _half(begin: int, end: int) -> int:
    """Where RFC 6962 splits a range: after the largest power of two that is smaller than its length."""
    return begin + (1 << (end - begin - 1).bit_length() - 1)


def _inclusion_ranges(index: int, begin: int, end: int) -> list[Range]:
    if end - begin == 1:
        return []
    half = _half(begin, end)
    if index < half:
        return [*_inclusion_ranges(index, begin, half), (half, end)]
    return [*_inclusion_ranges(index, half, end), (begin, half)]


def _consistency_ranges(first: int, begin: int, end: int, *, whole: bool) -> list[Range]:
    """`whole` means that the part up to `first` is the old tree itself, whose root the verifier has."""
    if first == end:
        return [] if whole else [(begin, end)]
    half = _half(begin, end)
    if first <= half:
        return [*_consistency_ranges(first, begin, half, whole=whole), (half, end)]
    return [*_consistency_ranges(first, half, end, whole=False), (begin, half)]


def _damaged(level: int, index: int) -> StoreCorruptError:
    return StoreCorruptError(
        f"the tile {index} of level {level} of an audit log lacks hashes; restore it from a backup"
    )
