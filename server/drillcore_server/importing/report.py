"""What an import leaves out, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from drillcore.cores import InvalidCore

SKIPPED_MAX: Final = 1_000
"""That are told of one by one; the others are counted."""
TOLD_CHARACTERS_MAX: Final = 200
"""Of an id or a message: a thousand of them have to fit into an answer."""
UNKNOWN_TAG: Final = "UNKNOWN_TAG"
BLOB_WITHOUT_METADATA: Final = "BLOB_WITHOUT_METADATA"
DUPLICATE: Final = "DUPLICATE"
OTHER_DIMENSION: Final = "OTHER_DIMENSION"
INVALID_TERM: Final = "INVALID_TERM"
DERIVED: Final = "DERIVED"
"""Made anew from the records of a full core: nothing is lost with it."""


class Placed(Protocol):
    """A record of the file."""

    @property
    def number(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def tag(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Skipped:
    record: int
    """Its number in the file, from 1."""
    offset_bytes: int
    tag: str
    id: str
    """Of what was skipped, if it has one; its beginning, if that is long."""
    reason: str
    message: str


@dataclass(slots=True)
class Skips:
    strict: bool
    told: list[Skipped] = field(default_factory=list)
    count: int = 0

    def copy(self) -> Skips:
        """What a plan adds is forgotten with the plan."""
        return Skips(self.strict, list(self.told), self.count)

    def skip(self, record: Placed, reason: str, message: str, of: str = "", times: int = 1) -> None:
        """Raises `InvalidCore` where nothing is to be skipped."""
        if self.strict and reason != DERIVED:
            raise InvalidCore(record.number, record.offset, f"{reason}: {message}")
        self.count += times
        if len(self.told) < SKIPPED_MAX:
            said, why = of[:TOLD_CHARACTERS_MAX], message[:TOLD_CHARACTERS_MAX]
            self.told.append(Skipped(record.number, record.offset, record.tag, said, reason, why))
