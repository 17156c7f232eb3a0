"""How much each directory of a store holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from drillcore_fdb import directory
from drillcore_fdb.engine import Engine, Streaming, Transaction
from drillcore_fdb.format import read_header
from drillcore_fdb.tuples import Subspace, prefix_end

_PAGE_KEYS: Final = 10_000
_PAGE_BYTES: Final = 4_000_000
"""What is read in one transaction, which may take no longer than five seconds."""


@dataclass(frozen=True, slots=True)
class DirectorySize:
    """The figures include those of the directories below."""

    path: tuple[str, ...]
    """The path below the store's directory, which is () itself."""
    prefix: bytes
    keys: int
    size_bytes: int
    """Bytes of keys and values."""


def directory_sizes(engine: Engine, path: tuple[str, ...]) -> list[DirectorySize]:
    """The directories of the store at `path`, in the order of their paths, the store's own first. Writes nothing.

    Empty if there is no store. Reads every key, in many transactions: while servers write, the figures are of
    different moments. Raises `UnavailableError` for a store of another format.
    """

    def read_tree(tr: Transaction) -> dict[tuple[str, ...], bytes]:
        tree = directory.tree(tr, path)
        return tree if tree and read_header(tr, Subspace(tree[()])) is not None else {}

    tree = engine.run(read_tree)
    own = {place: _count(engine, prefix) for place, prefix in tree.items()}
    sizes = []
    for place, prefix in sorted(tree.items()):
        within = [figures for other, figures in own.items() if other[: len(place)] == place]
        sizes.append(DirectorySize(place, prefix, sum(keys for keys, _ in within), sum(size for _, size in within)))
    return sizes


def _count(engine: Engine, prefix: bytes) -> tuple[int, int]:
    """The number of keys that begin with a prefix, and the bytes of these keys and their values."""
    begin, end = prefix, prefix_end(prefix)
    keys = size_bytes = 0
    while True:
        page_keys, page_bytes, last = engine.run(lambda tr, b=begin: _count_page(tr, b, end))  # type: ignore[misc]
        keys, size_bytes = keys + page_keys, size_bytes + page_bytes
        if last is None:
            return keys, size_bytes
        begin = last + b"\0"


def _count_page(tr: Transaction, begin: bytes, end: bytes) -> tuple[int, int, bytes | None]:
    """Keys, bytes, and the last key if there may be more behind it."""
    keys = size_bytes = 0
    for key, value in tr.snapshot.range(begin, end, streaming=Streaming.WANT_ALL):
        keys, size_bytes = keys + 1, size_bytes + len(key) + len(value)
        if keys == _PAGE_KEYS or size_bytes >= _PAGE_BYTES:
            return keys, size_bytes, key
    return keys, size_bytes, None
