"""The root and the parts of a full core. Other programs see them as library documents.

The root describes the core. Parts hold records as msgpack arrays, each with its kind first. The last record of the
last part is the end; without it, the core is not whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from drillcore_formats.cores.format import (
    DIMENSIONS_MAX,
    ITEM_BYTES_MAX,
    MODEL_CHARACTERS_MAX,
    PART_CONTAINERS_MAX,
    PART_LENGTH_MAX,
    ROOT_BYTES_MAX,
    WrongShape,
)
from drillcore_formats.cores.records import Containers, LibraryDocument

ROOT_KIND: Final = "application/vnd.drillcore.core+json"
ROOT_TYPE: Final = "drillcore-core"
PART_KIND: Final = "application/vnd.drillcore.records"
PART_TYPE: Final = "drillcore-part"
FORMAT: Final = "drillcore-core"
VERSION: Final = 1
END: Final = "end"
_LARGE: Final = ("document", "community")
"""Kinds of records whose size has no limit, because they name any number of others."""


@dataclass(frozen=True, slots=True)
class CoreModel:
    """The model that made the vectors of a core."""

    name: str
    dimensions: int


@dataclass(frozen=True, slots=True)
class CoreRoot:
    sources: bool
    """Whether the core has documents, chunks, sections and the master."""
    model: CoreModel | None

    def encode(self) -> bytes:
        """The root as JSON. Equal roots have equal bytes."""
        model = self.model and {"name": self.model.name, "dimensions": self.model.dimensions}
        said = {"format": FORMAT, "version": VERSION, "sources": self.sources, "model": model}
        return json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def parse(cls, data: bytes) -> CoreRoot:
        """Raises `WrongShape`."""
        said = _object(data)
        if said.get("format") != FORMAT or said.get("version") != VERSION:
            raise WrongShape(f"the core is not of version {VERSION}, the only version that this program reads")
        if not isinstance(said.get("sources"), bool):
            raise WrongShape("the root does not say whether the core has sources")
        return cls(said["sources"], _model(said.get("model")))


def root_document(core_id: str) -> LibraryDocument:
    return LibraryDocument(core_id, ROOT_KIND, "", "", ROOT_TYPE)


def part_document(core_id: str, name: str, number: int, parent: str) -> LibraryDocument:
    return LibraryDocument(f"{core_id}/part/{name}/{number}", PART_KIND, name, parent, PART_TYPE)


def part_arrays(data: bytes) -> Iterator[list[Any]]:
    """The records of a part, each with its kind first. Raises `WrongShape`."""
    containers = Containers(PART_CONTAINERS_MAX)
    unpacker = _unpacker(data, containers)
    begin = 0
    while begin < len(data):
        containers.begin()
        array = _next(unpacker)
        if not isinstance(array, list) or not array or not isinstance(array[0], str):
            raise WrongShape("a part contains something that is not a record")
        end = unpacker.tell()
        if end - begin > ITEM_BYTES_MAX and array[0] not in _LARGE:
            raise WrongShape(f"a record of a part has more than {ITEM_BYTES_MAX:,} bytes")
        begin = end
        yield array


def _unpacker(data: bytes, containers: Containers) -> msgpack.Unpacker:
    unpacker = msgpack.Unpacker(
        max_buffer_size=0,
        read_size=len(data) or 1,
        list_hook=containers.count,
        object_hook=containers.count,
        max_array_len=PART_LENGTH_MAX,
        max_map_len=PART_LENGTH_MAX,
    )
    unpacker.feed(data)
    return unpacker


def _next(unpacker: msgpack.Unpacker) -> object:
    try:
        return unpacker.unpack()
    except WrongShape:
        raise
    except (ValueError, msgpack.OutOfData):
        raise WrongShape("a part is not msgpack, or is cut off") from None


def _object(data: bytes) -> dict[str, Any]:
    try:
        said = json.loads(data) if len(data) <= ROOT_BYTES_MAX else None
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise WrongShape("the root is not a JSON object")
    return said


def _model(said: object) -> CoreModel | None:
    if said is None:
        return None
    match said:
        case {"name": str(name), "dimensions": int(dimensions)} if _is_model(name, dimensions):
            return CoreModel(name, dimensions)
        case _:
            raise WrongShape("the root does not name the model that made its vectors")


def _is_model(name: str, dimensions: int) -> bool:
    is_number = not isinstance(dimensions, bool) and 0 < dimensions <= DIMENSIONS_MAX
    return is_number and 0 < len(name) <= MODEL_CHARACTERS_MAX
