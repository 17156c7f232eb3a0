"""Looks ahead for the end of a record, with msgpack's own `skip`."""

from __future__ import annotations

from typing import Final

import msgpack

from drillcore.cores.failures import WrongShape
from drillcore.cores.limits import RECORD_BYTES_MAX
from drillcore.cores.window import Window

_READ_BYTES: Final = 64 << 10


class Scout:
    """Begins where the window is. `end` is asked once for each value, in turn."""

    __slots__ = ("_begin", "_heard_to", "_unpacker", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._unpacker = msgpack.Unpacker(max_buffer_size=0, read_size=_READ_BYTES)
        self._begin = self._heard_to = window.offset

    def end(self) -> int | None:
        """Where in the file the value ends; None if it is not all at hand: go on with `end_of_all`, or begin anew.

        Raises `WrongShape` if it is no msgpack.
        """
        self._hear()
        try:
            self._unpacker.skip()
        except msgpack.OutOfData:
            return None
        except msgpack.StackError:
            raise WrongShape("it is nested too deeply") from None
        except ValueError:
            raise WrongShape("it is not msgpack") from None
        return self._begin + int(self._unpacker.tell())

    def end_of_all(self) -> int:
        """Likewise, after taking as much of the file as it needs. Raises `WrongShape` if that is too much."""
        while (end := self.end()) is None:
            self._check_size(self._window.offset + self._window.at_hand)
            self._window.need_more()
        self._check_size(end)
        return end

    def _check_size(self, end: int) -> None:
        if end - self._window.offset > RECORD_BYTES_MAX:
            raise WrongShape(f"it has more than {RECORD_BYTES_MAX:,} bytes")

    def _hear(self) -> None:
        window = self._window
        heard = self._heard_to - window.offset + window.at
        if heard < len(window.data):
            self._unpacker.feed(memoryview(window.data)[heard:])
            self._heard_to = window.offset + window.at_hand
