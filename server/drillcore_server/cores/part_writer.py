"""The parts of a full core while they are written: its records, as library documents that are cut now and then."""

from __future__ import annotations

from collections import Counter
from typing import Final

from drillcore.cores.parts import part_document
from drillcore_server.cores.core_file import CoreFile
from drillcore_server.cores.packing import pack

PART_BYTES: Final = 1 << 20
"""Where a part is cut."""


class PartWriter:
    """Close it at the end: what is not cut yet is written then."""

    def __init__(self, core: CoreFile, name: str, parent: str, counts: Counter[str]) -> None:
        """`counts` hears of each record, by kind."""
        self._core = core
        self._name = name
        self._parent = parent
        self._counts = counts
        self._number = 0
        self._open = bytearray()

    def add(self, kind: str, *values: object) -> None:
        self._open += pack([kind, *values])
        self._counts[kind] += 1
        if len(self._open) >= PART_BYTES:
            self.close()

    def close(self) -> None:
        if not self._open:
            return
        self._number += 1
        document = part_document(self._core.core_id, self._name, self._number, self._parent)
        self._core.describe(document)
        self._core.blob(document.id, len(self._open), [bytes(self._open)])
        self._open.clear()
