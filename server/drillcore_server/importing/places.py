"""Places in a core file, to go on from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from drillcore.cores.blobs import Blob
from drillcore.cores.failures import InvalidCore
from drillcore.cores.framing import Record, read_core
from drillcore_server.exporting.sealed_file import SealedFile


class Place(NamedTuple):
    """Of a record."""

    number: int
    """From 1."""
    offset: int
    tag: str = ""


def records_from(file: SealedFile, place: Place) -> Iterator[Record | Blob]:
    """The records from one on. Raises `InvalidCore`."""
    before = place.number - 1
    try:
        for part in read_core(file.pieces_from(place.offset)):
            number, offset = part.number + before, part.offset + place.offset
            if isinstance(part, Record):
                yield replace(part, number=number, offset=offset)
            else:
                part.number, part.offset = number, offset
                yield part
    except InvalidCore as error:
        if isinstance(error, _Placed):
            raise
        raise _Placed(error.record + before, error.offset_bytes + place.offset, error.why) from None


class _Placed(InvalidCore):
    """That says where in the whole file it is."""
