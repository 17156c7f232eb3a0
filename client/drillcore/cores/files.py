"""Files, in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO

from drillcore.cores.limits import PIECE_BYTES


def file_pieces(file: Path | str | IO[bytes]) -> Iterator[bytes]:
    """The rest of an open file, or all of the one at this path."""
    if isinstance(file, Path | str):
        with Path(file).open("rb") as opened:
            yield from file_pieces(opened)
        return
    while piece := file.read(PIECE_BYTES):
        yield piece
