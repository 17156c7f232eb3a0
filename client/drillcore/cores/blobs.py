"""The content of library documents, which may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from drillcore.cores.base64_stream import Base64Stream
from drillcore.cores.failures import InvalidCore, WrongShape
from drillcore.cores.heads import BYTES, MAP, TEXT
from drillcore.cores.limits import ID_BYTES_MAX, PAIRS_MAX, PIECE_BYTES
from drillcore.cores.scout import Scout
from drillcore.cores.tags import LIBRARY_BLOB
from drillcore.cores.window import Window

_KEY_BYTES_MAX: Final = 255


class Blob:
    """A record with the content of a library document."""

    __slots__ = ("_reader", "id", "number", "offset")

    def __init__(self, number: int, offset: int, window: Window) -> None:
        self.number = number
        """In the file, from 1."""
        self.offset = offset
        """Where in the file it begins."""
        self.id: str | None = None
        """None until `pieces` has ended, where the file has it after the content."""
        self._reader = self._pieces(window)
        next(self._reader)

    @property
    def tag(self) -> str:
        return LIBRARY_BLOB

    def pieces(self) -> Iterator[bytes]:
        """The content, decoded. Once, and before the next record is asked for. Raises `InvalidCore`."""
        return self._reader

    def _pieces(self, window: Window) -> Iterator[bytes]:
        """Gives an empty piece first, when the content, or the end, is reached."""
        try:
            yield from self._read(window)
        except WrongShape as error:
            raise InvalidCore(self.number, self.offset, str(error)) from None

    def _read(self, window: Window) -> Iterator[bytes]:
        found = False
        for key in _keys(window):
            if key == "i" and self.id is None:
                self.id = _text(window, ID_BYTES_MAX, "its id")
            elif key == "d" and not found:
                found = True
                yield b""
                yield from _content(window)
            elif key in {"i", "d"}:
                raise WrongShape(f"it has {key} twice")
            else:
                _pass_value(window)
        if self.id is None:
            raise WrongShape("it has no id")
        if not found:
            yield b""


def _keys(window: Window) -> Iterator[str]:
    """Each key of the map that comes next, when its value does."""
    head = window.head()
    if head.kind != MAP or head.length > PAIRS_MAX:
        raise WrongShape("what follows its tag is not a map")
    for _ in range(head.length):
        yield _text(window, _KEY_BYTES_MAX, "a key")


def _text(window: Window, bytes_max: int, what: str) -> str:
    head = window.head()
    if head.kind != TEXT or head.length > bytes_max:
        raise WrongShape(f"{what} is not a text of up to {bytes_max:,} bytes")
    try:
        return window.take(head.length).decode()
    except UnicodeDecodeError:
        raise WrongShape(f"{what} is not UTF-8") from None


def _content(window: Window) -> Iterator[bytes]:
    head = window.head()
    if head.kind not in {TEXT, BYTES}:
        raise WrongShape("its content is not a text")
    stream, left = Base64Stream(), head.length
    while left:
        piece = window.some(min(left, PIECE_BYTES))
        left -= len(piece)
        if decoded := stream.decode(piece):
            yield decoded
    stream.end()


def _pass_value(window: Window) -> None:
    window.move_to(Scout(window).end_of_all())
