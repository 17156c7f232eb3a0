"""Directories for engines without a directory layer of their own: a path of names owns a short key prefix.

What is stored is what FoundationDB's directory layer (version 1.0.0) stores: nodes below `\\xfe`, prefixes from its
allocator's windows. So a store that moves to a cluster keeps its directories, and the layer there goes on from them.
"""

from __future__ import annotations

import struct

from drillcore_fdb.engine import Reader, Transaction
from drillcore_fdb.errors import EngineError, InvalidUseError
from drillcore_fdb.tuples import Subspace, pack, prefix_end

_NODES = Subspace(b"\xfe")
_ROOT = _NODES[_NODES.prefix]
_VERSION = (1, 0, 0)
_VERSION_KEY = _ROOT.pack((b"version",))
_SUBDIRECTORIES = 0
_COUNTERS, _RECENT = _ROOT[b"hca"][0], _ROOT[b"hca"][1]


def create_or_open(tr: Transaction, path: tuple[str, ...]) -> Subspace:
    """The prefix of a path. Makes every directory of the path that does not exist."""
    if not path:
        raise InvalidUseError(2255, "The root directory has no keys of its own: name a path")
    _check_version(tr)
    node, prefix = _ROOT, b""
    for name in path:
        entry = node[_SUBDIRECTORIES].pack((name,))
        stored = tr.get(entry)
        prefix = stored if stored is not None else _create(tr, entry)
        node = _NODES[prefix]
    return Subspace(prefix)


def list_names(tr: Transaction, path: tuple[str, ...]) -> list[str]:
    node = _find(tr, path)
    if node is None:
        raise KeyError("/".join(path))
    subdirectories = node[_SUBDIRECTORIES]
    return [subdirectories.unpack(key)[0] for key, _ in tr.range(*subdirectories.range())]


def tree(tr: Reader, path: tuple[str, ...]) -> dict[tuple[str, ...], bytes]:
    """The prefixes of a directory and of all below it, by their paths from there: its own is at `()`.

    Empty if there is no such directory. Takes a round trip for each level, however many directories it has.
    """
    _check_version(tr)
    node = _find(tr, path)
    if node is None:
        return {}
    level: dict[tuple[str, ...], bytes] = {(): _prefix_of(node)}
    found: dict[tuple[str, ...], bytes] = {}
    while level:
        found |= level
        subdirectories = [_NODES[prefix][_SUBDIRECTORIES] for prefix in level.values()]
        entries = tr.range_many([names.range() for names in subdirectories])
        level = {
            (*place, names.unpack(key)[0]): prefix
            for place, names, listed in zip(level, subdirectories, entries, strict=True)
            for key, prefix in listed
        }
    return found


def remove(tr: Transaction, path: tuple[str, ...]) -> bool:
    if not path:
        raise InvalidUseError(2267, "The root directory cannot be removed: name a path")
    parent, node = _find(tr, path[:-1]), _find(tr, path)
    if parent is None or node is None:
        return False
    _remove_node(tr, node)
    tr.clear(parent[_SUBDIRECTORIES].pack((path[-1],)))
    return True


def _find(tr: Reader, path: tuple[str, ...]) -> Subspace | None:
    node = _ROOT
    for name in path:
        prefix = tr.get(node[_SUBDIRECTORIES].pack((name,)))
        if prefix is None:
            return None
        node = _NODES[prefix]
    return node


def _create(tr: Transaction, entry: bytes) -> bytes:
    _check_version(tr, writing=True)
    if tr.get(_VERSION_KEY) is None:
        tr.set(_VERSION_KEY, struct.pack("<III", *_VERSION))
    prefix = _allocate(tr)
    if any(True for _ in tr.range(prefix, prefix_end(prefix), limit=1)):
        raise EngineError(2000, f"keys are stored at the prefix {prefix!r}, which no directory owns")
    tr.set(entry, prefix)
    tr.set(_NODES[prefix].pack((b"layer",)), b"")
    return prefix


def _check_version(tr: Reader, *, writing: bool = False) -> None:
    """Raises if this code cannot use the layout: another major version, or for writing also a later minor version."""
    stored = tr.get(_VERSION_KEY)
    known = 2 if writing else 1
    if stored is not None and (len(stored) != 12 or struct.unpack("<III", stored)[:known] > _VERSION[:known]):
        raise EngineError(2000, "the directories were written by a newer directory layer")


def _allocate(tr: Transaction) -> bytes:
    """Makes a prefix that was never used. Allocations from the same window conflict, so no two get the same prefix."""
    start = next((_COUNTERS.unpack(key)[0] for key, _ in tr.range(*_COUNTERS.range(), limit=1, reverse=True)), 0)
    while ((count := _count(tr, start)) + 1) * 2 >= _window(start):
        tr.clear_range(_COUNTERS.prefix, _COUNTERS.pack((start,)) + b"\0")
        tr.clear_range(_RECENT.prefix, _RECENT.pack((start + _window(start),)))
        start += _window(start)
    tr.set(_COUNTERS.pack((start,)), (count + 1).to_bytes(8, "little"))
    taken = {_RECENT.unpack(key)[0] for key, _ in tr.range(*_RECENT.range())}
    candidate = next(number for number in range(start, start + _window(start)) if number not in taken)
    tr.set(_RECENT.pack((candidate,)), b"")
    return pack((candidate,))


def _count(tr: Transaction, start: int) -> int:
    stored = tr.get(_COUNTERS.pack((start,)))
    return 0 if stored is None else int.from_bytes(stored, "little")


def _window(start: int) -> int:
    if start < 255:
        return 64
    return 1024 if start < 65535 else 8192


def _remove_node(tr: Transaction, node: Subspace) -> None:
    for _, prefix in list(tr.range(*node[_SUBDIRECTORIES].range())):
        _remove_node(tr, _NODES[prefix])
    prefix = _prefix_of(node)
    tr.clear_range(prefix, prefix_end(prefix))
    tr.clear_range(*node.range())


def _prefix_of(node: Subspace) -> bytes:
    (prefix,) = _NODES.unpack(node.prefix)
    assert isinstance(prefix, bytes)
    return prefix
