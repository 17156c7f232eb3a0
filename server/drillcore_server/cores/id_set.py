"""Many ids in little memory."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import numpy as np

_ID_BYTES: Final = 16
_ID: Final = "S16"
"""Whose zeros at the end numpy leaves out, which makes no two the same: all are of one length."""


class IdSet:
    """Add in order, then ask."""

    def __init__(self) -> None:
        self._ids = bytearray()

    def add(self, one: UUID) -> None:
        assert one.bytes > self._ids[-_ID_BYTES:], "they are added in order"
        self._ids += one.bytes

    def __contains__(self, one: UUID) -> bool:
        return bool(self.among(one.bytes))

    def among(self, ids: bytes) -> bytes:
        """Those of the ids, packed one behind the other, that are in it."""
        if not self._ids:
            return b""
        known, asked = np.frombuffer(self._ids, _ID), np.frombuffer(ids, _ID)
        places = np.minimum(np.searchsorted(known, asked), len(known) - 1)
        rows = np.frombuffer(ids, np.uint8).reshape(-1, _ID_BYTES)
        return bytes(rows[known[places] == asked])
