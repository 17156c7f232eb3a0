# ruff: noqa: N818  # named as what was found, for that is what a report says
"""What can be wrong with a core file."""

from __future__ import annotations

from drillcore.audit.failures import Malformed


class InvalidCore(Malformed):
    """The file is no core, or not all of one. Says at which record, and where in the file that begins."""

    def __init__(self, record: int, offset_bytes: int, why: str) -> None:
        super().__init__(f"record {record:,} at byte {offset_bytes:,}: {why}")
        self.record = record
        """Its number in the file, from 1."""
        self.offset_bytes = offset_bytes
        self.why = why


class WrongShape(ValueError):
    """A record, or a part of one, is not made as it should be. `InvalidCore` says where."""


class InvalidTerm(ValueError):
    """A term, or a triple, that is written as one and is none that RDF knows."""
