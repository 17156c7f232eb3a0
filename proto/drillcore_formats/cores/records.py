"""Decodes records: their descriptions, their items one at a time, and descriptions of library documents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgpack

from drillcore_formats.cores.format import (
    ITEM_BYTES_MAX,
    ITEM_CONTAINERS_MAX,
    LIBRARY_BYTES_MAX,
    LISTS,
    PAIRS_MAX,
    WrongShape,
)
from drillcore_formats.cores.framing import Record
from drillcore_formats.cores.terms import PlainTerm, read_term

_READ_BYTES: Final = 64 << 10
_SMALL_BYTES: Final = 64 << 10
"""A value of this size cannot have too many lists and maps."""


class Meta(NamedTuple):
    """The description of a record of triples or vectors."""

    core: str = ""
    """The core's id."""
    root: str = ""
    collection: str = ""
    source: str = ""
    """The id of the source, in cores that Drillcore wrote."""
    triples: tuple[object, ...] = ()
    """Triples about the core, for `read_triple`. Only older files of TrustGraph have them, in place of the root."""


class Entity(NamedTuple):
    term: PlainTerm
    vectors: list[list[float]]
    """One vector; older files may have several or none."""


class EmbeddedChunk(NamedTuple):
    id: str
    vectors: list[list[float]]


@dataclass(frozen=True, slots=True)
class LibraryDocument:
    """The description of a document in a core. Its content follows in a blob with the same id."""

    id: str
    kind: str = ""
    """The media type."""
    title: str = ""
    parent: str = ""
    type: str = ""
    comments: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """A record with a list of triples, entities or chunks."""

    meta: Meta
    record: Record
    items_at: int
    """Where the list begins in the record; 0 if there is none."""

    def items(self) -> Iterator[dict[str, Any]]:
        """The items, for `read_triple`, `read_entity` or `read_chunk`. Raises `WrongShape`."""
        if not self.items_at:
            return
        unpacker = _unpacker(self.record.data, self.items_at)
        try:
            length = unpacker.read_array_header()
        except ValueError:
            raise WrongShape("its list is not an array") from None
        for _ in range(length):
            item = _value(self.record.data, self.items_at, unpacker)
            if not isinstance(item, dict):
                raise WrongShape("an item of its list is not a map")
            yield item


def read_listing(record: Record) -> Listing:
    """Reads a record `t`, `ge` or `de`. Raises `WrongShape`."""
    at, data = record.payload_at, record.data
    unpacker = _unpacker(data, at)
    meta, items_at = Meta(), 0
    for key in _keys(unpacker, data, at):
        if key == LISTS[record.tag]:
            items_at = at + unpacker.tell()
            unpacker.skip()
        elif key == "m":
            meta = _meta(_value(data, at, unpacker))
        else:
            unpacker.skip()
    return Listing(meta, record, items_at)


def read_entity(item: dict[str, Any]) -> Entity:
    """Raises the same errors as `read_triple`."""
    return Entity(read_term(item.get("e")), _vectors(item.get("v")))


def read_chunk(item: dict[str, Any]) -> EmbeddedChunk:
    """Raises `WrongShape`."""
    return EmbeddedChunk(_text(item, "i"), _vectors(item.get("v")))


def read_library(record: Record) -> LibraryDocument:
    """Reads a record `lm`. Raises `WrongShape`."""
    if len(record.data) > LIBRARY_BYTES_MAX:
        raise WrongShape(f"it has more than {LIBRARY_BYTES_MAX:,} bytes")
    item = _decoded(memoryview(record.data)[record.payload_at :])
    if not isinstance(item, dict) or not isinstance(item.get("i"), str):
        raise WrongShape("it has no id")
    tags = item.get("g") or []
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise WrongShape("its tags are not a list of texts")
    document_id, kind, title, parent, type_, comments = (_text(item, key) for key in ("i", "k", "t", "p", "d", "c"))
    return LibraryDocument(document_id, kind, title, parent, type_, comments, tuple(tags))


class Containers:
    """Counts lists and maps while msgpack makes them: a few bytes may stand for a hundred times as many in memory."""

    __slots__ = ("_count", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0

    def begin(self) -> None:
        """Starts the count again, for the next value."""
        self._count = 0

    def count(self, made: Any) -> Any:
        """A hook for msgpack. Raises `WrongShape` when there are too many."""
        self._count += 1
        if self._count > self._most:
            raise WrongShape(f"a part of it has more than {self._most:,} lists and maps")
        return made


def _decoded(data: memoryview) -> object:
    """One value. Raises `WrongShape`, also if the value would take too much memory."""
    try:
        if len(data) <= _SMALL_BYTES:
            return msgpack.unpackb(data)
        count = Containers(ITEM_CONTAINERS_MAX).count
        return msgpack.unpackb(data, list_hook=count, object_hook=count, max_ext_len=0)
    except WrongShape:
        raise
    except ValueError:
        raise WrongShape("a text is not UTF-8, or a key is not a text") from None


def _keys(unpacker: msgpack.Unpacker, data: bytes, at: int) -> Iterator[str]:
    """The keys of a map. After each key, the unpacker is at its value."""
    try:
        length = unpacker.read_map_header()
    except ValueError:
        raise WrongShape("its payload is not a map") from None
    if length > PAIRS_MAX:
        raise WrongShape(f"it has more than {PAIRS_MAX} keys")
    seen = set()
    for _ in range(length):
        key = _value(data, at, unpacker)
        if not isinstance(key, str):
            raise WrongShape("a key is not a text")
        if key in seen:
            raise WrongShape("it has the same key twice")
        seen.add(key)
        yield key


def _meta(item: object) -> Meta:
    if item is None:
        return Meta()
    if not isinstance(item, dict):
        raise WrongShape("its description is not a map")
    root = item.get("m")
    triples = tuple(root) if isinstance(root, list) else ()
    texts = {**item, "m": "" if isinstance(root, list) else root}
    core, said_root, collection, source = (_text(texts, key) for key in ("i", "m", "c", "s"))
    return Meta(core, said_root, collection, source, triples)


def _text(item: dict[str, Any], key: str) -> str:
    value = item.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise WrongShape(f"{key} is not a text")
    return value


def _vectors(value: object) -> list[list[float]]:
    """One vector or several. Does not check that the numbers are finite."""
    if not isinstance(value, list):
        raise WrongShape("a vector is not a list")
    if not value:
        return []
    found: list[list[float]] = value if isinstance(value[0], list) else [value]
    for vector in found:
        if not isinstance(vector, list) or not set(map(type, vector)) <= {float, int}:
            raise WrongShape("a vector is not a list of numbers")
    return found


def _unpacker(data: bytes, at: int) -> msgpack.Unpacker:
    unpacker = msgpack.Unpacker(max_buffer_size=0, read_size=_READ_BYTES)
    unpacker.feed(memoryview(data)[at:])
    return unpacker


def _value(data: bytes, at: int, unpacker: msgpack.Unpacker) -> object:
    """The next value. Its size is checked before it is decoded, because it is many times as large in memory."""
    begin = at + unpacker.tell()
    unpacker.skip()
    end = at + unpacker.tell()
    if end - begin > ITEM_BYTES_MAX:
        raise WrongShape(f"a part of it has more than {ITEM_BYTES_MAX:,} bytes")
    return _decoded(memoryview(data)[begin:end])
