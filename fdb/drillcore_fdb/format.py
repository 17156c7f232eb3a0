"""Opens a store: its directories and its header, which says what this software must find and whether it may read it.

A format is a layout of keys and values. The header is in the store's own directory, where every format has had it.

1 to 5  before the first release, and no longer read
6       every kind of record below a number, all in one directory
7       every kind of record in a directory of its own, by name; the header lists them
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID, uuid4

from drillcore_fdb import codec, directory
from drillcore_fdb.engine import DEFAULT_OPTIONS, Engine, Options, Reader, Transaction
from drillcore_fdb.errors import StoreCorruptError, UnavailableError
from drillcore_fdb.tuples import Subspace, prefix_end

FORMAT_VERSION: Final = 7
STORE_PATH: Final = ("drillcore",)
_HEADER: Final = 0


@dataclass(frozen=True, slots=True)
class StoreHeader:
    format_version: int
    store_id: UUID
    """A random id, made once. No two stores have the same id."""
    directories: Mapping[str, bytes]
    """The prefix of each directory of the store, by its path below the store's own."""


Opened = tuple[dict[str, Subspace], StoreHeader]


def open_store(engine: Engine, names: Sequence[str], path: Sequence[str] = STORE_PATH) -> Opened:
    """The store in the directory `path`: its directories of these names, such as "indexes/members", and its header.

    What does not exist is made, in the order of `names`. Raises, and changes nothing, if the store cannot be used:
    `UnavailableError` for one of another format, `StoreCorruptError` if a directory is gone or not the one it was.
    """
    own = tuple(path)
    found = engine.run(lambda tr: _Found.read(tr, own, names))
    if found.header is None or found.missing:
        engine.directories([own, *((*own, *name.split("/")) for name in names)])
        new = uuid4()
        found = engine.run(lambda tr: _register(tr, own, names, new), Options(idempotent=True))
    assert found.header is not None
    return {name: Subspace(found.header.directories[name]) for name in names}, found.header


def find_header(
    engine: Engine, path: Sequence[str] = STORE_PATH, options: Options = DEFAULT_OPTIONS
) -> StoreHeader | None:
    """The header of the store in the directory `path`, None if there is no store. Changes nothing.

    Raises as `open_store` does if the store cannot be used.
    """
    return engine.run(lambda tr: _Found.read(tr, tuple(path), ()), options).header


def read_header(tr: Reader, root: Subspace) -> StoreHeader | None:
    """Raises as `open_store` does if the store has another format, or its header cannot be read."""
    stored = codec.read(tr, root.pack((_HEADER,)))
    if stored is None:
        return None
    record = codec.decode(stored)
    try:
        format_version, store_id = record["format"], UUID(record["store"])
        if type(format_version) is not int or format_version < 1:
            raise ValueError(f"format {format_version!r}")
        _check_format(format_version)
        directories = record["directories"]
        if not all(isinstance(prefix, bytes) for prefix in directories.values()):
            raise ValueError("a prefix is not bytes")
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise StoreCorruptError(f"the store's header cannot be read: {error!r}; restore a backup") from error
    return StoreHeader(format_version, store_id, directories)


def _check_format(version: int) -> None:
    if version > FORMAT_VERSION:
        raise UnavailableError(
            f"the store has format {version}, this Drillcore knows up to {FORMAT_VERSION}; "
            "upgrade Drillcore, the store was not touched"
        )
    if version < FORMAT_VERSION:
        raise UnavailableError(
            f"the store has format {version}, this Drillcore reads {FORMAT_VERSION}. To move it, export a core of each "
            "corpus with the release that made the store (drillcore core export), and import the cores into a new "
            "store (drillcore core import); the store was not touched"
        )


@dataclass(frozen=True, slots=True)
class _Found:
    """What there is of a store, checked."""

    root: Subspace | None
    header: StoreHeader | None
    directories: Mapping[str, bytes]
    """Those of the directory layer, also if the header does not list them."""
    missing: Collection[str]
    """Wanted directories that the header does not list."""

    @classmethod
    def read(cls, tr: Reader, path: tuple[str, ...], names: Sequence[str]) -> _Found:
        tree = directory.tree(tr, path)
        if not tree:
            return cls(None, None, {}, names)
        root = Subspace(tree[()])
        found = {"/".join(place): prefix for place, prefix in tree.items()}
        header = read_header(tr, root)
        if header is None:
            _check_empty(tr, found, path)
            return cls(root, None, found, names)
        _check_directories(header, found, path)
        missing = [name for name in names if name not in header.directories]
        _check_empty(tr, {name: found[name] for name in missing if name in found}, path)
        return cls(root, header, found, missing)


def _register(tr: Transaction, path: tuple[str, ...], names: Sequence[str], new: UUID) -> _Found:
    """Writes into the header which directories the store has, unless somebody else just did. They exist."""
    found = _Found.read(tr, path, names)
    if not found.missing:
        return found
    header = StoreHeader(FORMAT_VERSION, new, {}) if found.header is None else found.header
    if found.root is None or not found.directories.keys() >= set(found.missing):
        raise UnavailableError("directories of the store were removed while it was opened; open it again")
    header = replace(header, directories={**header.directories, **{n: found.directories[n] for n in found.missing}})
    record = {"format": FORMAT_VERSION, "store": str(header.store_id), "directories": header.directories}
    codec.write(tr, found.root.pack((_HEADER,)), codec.encode(record))
    return _Found(found.root, header, found.directories, ())


def _check_directories(header: StoreHeader, found: Mapping[str, bytes], path: tuple[str, ...]) -> None:
    """Raises `StoreCorruptError` if the directory layer does not have what the header lists.

    To make such a directory again would hide that its keys are lost, or out of reach.
    """
    wrong = [name for name, prefix in header.directories.items() if found.get(name) != prefix]
    if wrong:
        first, others = "/".join((*path, wrong[0])), len(wrong) - 1
        more = f" (and {others} more)" if others else ""
        was = "not the one that the store was made with" if wrong[0] in found else "gone: it was removed or renamed"
        raise StoreCorruptError(
            f"the directory {first}{more} is {was}. If it was renamed, move it back; otherwise restore a backup of "
            "the store. Nothing was changed"
        )


def _check_empty(tr: Reader, prefixes: Mapping[str, bytes], path: tuple[str, ...]) -> None:
    """Raises `StoreCorruptError` if keys are stored in a directory that the store's header does not list."""
    ranges = [(prefix, prefix_end(prefix)) for prefix in prefixes.values()]
    for name, entries in zip(prefixes, tr.range_many(ranges, limit=1), strict=True):
        if entries:
            place = "/".join(filter(None, (*path, name)))
            raise StoreCorruptError(
                f"the directory {place} holds keys, but the store's header is gone or does not list it; restore a "
                "backup of the store. Nothing was changed"
            )
