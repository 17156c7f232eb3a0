"""A mapping that never changes, of which the next state is cheap to make: only the parts that differ are copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Generic, TypeVar

V = TypeVar("V")
_SHARDS: Final = 256
"""Parts of a mapping, by the last byte of an id: of a million entries each has four thousand, soon copied."""


class Sharded(Generic[V]):
    """By 16 bytes of an id."""

    __slots__ = ("_shards", "size")

    def __init__(self, shards: tuple[dict[bytes, V], ...], size: int) -> None:
        self._shards = shards
        self.size = size

    @classmethod
    def of(cls, items: Mapping[bytes, V]) -> Sharded[V]:
        shards: tuple[dict[bytes, V], ...] = tuple({} for _ in range(_SHARDS))
        for key, value in items.items():
            shards[key[-1]][key] = value
        return cls(shards, len(items))

    def get(self, key: bytes) -> V | None:
        return self._shards[key[-1]].get(key)

    def __iter__(self) -> Iterator[bytes]:
        for shard in self._shards:
            yield from shard

    def changed(self, changes: Mapping[bytes, V | None]) -> Sharded[V]:
        """With these values; None for a key that is gone."""
        shards, copied, size = list(self._shards), set[int](), self.size
        for key, value in changes.items():
            place = key[-1]
            if place not in copied:
                shards[place] = dict(shards[place])
                copied.add(place)
            size += (value is not None) - (key in shards[place])
            if value is None:
                shards[place].pop(key, None)
            else:
                shards[place][key] = value
        return Sharded(tuple(shards), size)
