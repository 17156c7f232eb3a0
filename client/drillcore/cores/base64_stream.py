"""Base64, decoded piece by piece. Only the standard alphabet, padded, without line ends."""

from __future__ import annotations

import binascii

from drillcore.cores.failures import WrongShape

_WRONG = "its content is not base64"


class Base64Stream:
    __slots__ = ("_ended", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._ended = False

    def decode(self, piece: bytes) -> bytes:
        """What can be told so far. Raises `WrongShape` if it is no base64."""
        data = self._rest + piece if self._rest else piece
        whole = len(data) & ~3
        self._rest = data[whole:]
        if not whole:
            return b""
        if self._ended:
            raise WrongShape(_WRONG)
        self._ended = data[whole - 1 : whole] == b"="
        try:
            return binascii.a2b_base64(data[:whole], strict_mode=True)
        except binascii.Error:
            raise WrongShape(_WRONG) from None

    def end(self) -> None:
        if self._rest:
            raise WrongShape(_WRONG)
