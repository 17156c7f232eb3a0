"""A part of a cluster that one test has for itself: a directory of the cluster, in which the test has a whole store.

To the test it is an engine of its own. Every key gets the directory's prefix on its way to the cluster, and loses it on
its way back; the directories that the test makes are in there too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from drillcore_fdb import directory
from drillcore_fdb.engine import (
    KEYS_END,
    Atomic,
    Attempts,
    Engine,
    Figures,
    KeySelector,
    KeyValue,
    Options,
    RangeRead,
    Reader,
    Streaming,
    Watch,
)
from drillcore_fdb.errors import EngineError
from drillcore_fdb.tuples import Subspace

_IDEMPOTENT: Final = Options(idempotent=True)
_DIRECTORIES_MAX: Final = 16
"""Directories made in one transaction, as on a whole cluster."""


class PartOfCluster(Engine):
    """The keys of another engine that begin with a prefix. Closing it closes the other engine."""

    def __init__(self, cluster: Engine, *path: str) -> None:
        self._cluster = cluster
        self._prefix = cluster.directory(*path).prefix

    def begin(self, options: Options) -> Attempts:
        return _Attempts(self._cluster.begin(options), self._prefix)

    def directories(self, paths: Sequence[tuple[str, ...]]) -> list[Subspace]:
        batches = [paths[start : start + _DIRECTORIES_MAX] for start in range(0, len(paths), _DIRECTORIES_MAX)]
        made = [
            self.run(lambda tr, some=batch: [directory.create_or_open(tr, path) for path in some], _IDEMPOTENT)  # type: ignore[misc]
            for batch in batches
        ]
        return [subspace for batch in made for subspace in batch]

    def list_directories(self, *path: str) -> list[str]:
        return self.run(lambda tr: directory.list_names(tr, path))

    def remove_directory(self, *path: str) -> bool:
        return self.run(lambda tr: directory.remove(tr, path))

    def describe(self) -> dict[str, str | int | float]:
        return self._cluster.describe()

    def figures(self) -> Figures:
        return self._cluster.figures()

    def close(self) -> None:
        self._cluster.close()


class _Reads(Reader):
    def __init__(self, inner: Reader, prefix: bytes) -> None:
        self._reads = inner
        self._prefix = prefix

    def get(self, key: bytes) -> bytes | None:
        return self._reads.get(self._prefix + key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._reads.get_many([self._prefix + key for key in keys])

    def get_key(self, selector: KeySelector) -> bytes:
        found = self._reads.get_key(KeySelector(self._prefix + selector.key, selector.or_equal, selector.offset))
        if found < self._prefix:
            return b""
        return found[len(self._prefix) :] if found.startswith(self._prefix) else KEYS_END

    def range(
        self,
        begin: bytes | KeySelector,
        end: bytes | KeySelector,
        *,
        limit: int = 0,
        reverse: bool = False,
        streaming: Streaming = Streaming.ITERATOR,
    ) -> Iterator[KeyValue]:
        bounds = self._bound(begin), self._bound(end)
        entries = self._reads.range(*bounds, limit=limit, reverse=reverse, streaming=streaming)
        return ((key[len(self._prefix) :], value) for key, value in entries)

    def range_many(
        self, ranges: Sequence[tuple[bytes, bytes]], *, limit: int = 0, reverse: bool = False
    ) -> list[list[KeyValue]]:
        there = [(self._prefix + begin, self._prefix + end) for begin, end in ranges]
        found = self._reads.range_many(there, limit=limit, reverse=reverse)
        return [[(key[len(self._prefix) :], value) for key, value in entries] for entries in found]

    def read_ahead(self, keys: Sequence[bytes], ranges: Sequence[RangeRead]) -> None:
        there = [replace(read, begin=self._prefix + read.begin, end=self._prefix + read.end) for read in ranges]
        self._reads.read_ahead([self._prefix + key for key in keys], there)

    def read_version(self) -> int:
        return self._reads.read_version()

    def _bound(self, bound: bytes | KeySelector) -> bytes:
        """Selectors are looked up first: one that names a key outside of this part would let a range out of it."""
        return self._prefix + (self.get_key(bound) if isinstance(bound, KeySelector) else bound)


class _Attempts(_Reads, Attempts):
    def __init__(self, inner: Attempts, prefix: bytes) -> None:
        super().__init__(inner, prefix)
        self._inner = inner

    @property
    def snapshot(self) -> Reader:
        return _Reads(self._inner.snapshot, self._prefix)

    def set(self, key: bytes, value: bytes) -> None:
        self._inner.set(self._prefix + key, value)

    def clear(self, key: bytes) -> None:
        self._inner.clear(self._prefix + key)

    def clear_range(self, begin: bytes, end: bytes) -> None:
        self._inner.clear_range(self._prefix + begin, self._prefix + end)

    def atomic(self, operation: Atomic, key: bytes, operand: bytes) -> None:
        self._inner.atomic(operation, self._prefix + key, operand)

    def set_versionstamped_key(self, template: bytes, value: bytes) -> None:
        key, (place,) = template[:-4], struct.unpack("<I", template[-4:])
        self._inner.set_versionstamped_key(self._prefix + key + struct.pack("<I", place + len(self._prefix)), value)

    def set_versionstamped_value(self, key: bytes, template: bytes) -> None:
        self._inner.set_versionstamped_value(self._prefix + key, template)

    def add_read_conflict_range(self, begin: bytes, end: bytes) -> None:
        self._inner.add_read_conflict_range(self._prefix + begin, self._prefix + end)

    def add_write_conflict_range(self, begin: bytes, end: bytes) -> None:
        self._inner.add_write_conflict_range(self._prefix + begin, self._prefix + end)

    def approximate_size(self) -> int:
        return self._inner.approximate_size()

    def watch(self, key: bytes) -> Watch:
        return self._inner.watch(self._prefix + key)

    def commit(self) -> tuple[int, bytes | None]:
        return self._inner.commit()

    def recover(self, error: EngineError) -> None:
        self._inner.recover(error)

    def close(self) -> None:
        self._inner.close()
