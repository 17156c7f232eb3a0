"""Items of several sources in one order: those of no source, then by source, and by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final, Self

from drillcore_server.domain.ids import SourceId
from drillcore_server.exporting.sorted_file import SortedFile

_END: Final = b"\0\0"


class BySource:
    """Add, then go through the groups. What is the same is there once."""

    def __init__(self) -> None:
        self._file = SortedFile()

    def add(self, source: bytes, item: bytes) -> None:
        """The source's id in UTF-8."""
        self._file.add(in_order(source) + item)

    def groups(self) -> Iterator[tuple[SourceId, Iterator[bytes]]]:
        """Each is to be gone through before the next."""
        parted = map(cut, self._file)
        for source, together in groupby(parted, key=lambda one: one[0]):
            yield SourceId(source.decode()), (item for _, item in together)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def in_order(data: bytes) -> bytes:
    """Bytes that others can follow: what they begin with decides first, the shorter before the longer."""
    return (data.replace(b"\0", b"\0\xff") if b"\0" in data else data) + _END


def cut(data: bytes) -> tuple[bytes, bytes]:
    """What `in_order` was given, and what follows it."""
    first, _, rest = data.partition(_END)
    return first.replace(b"\0\xff", b"\0") if b"\0" in first else first, rest
