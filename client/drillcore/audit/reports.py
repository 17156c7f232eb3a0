"""What a verification found."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

PROBLEMS_MAX: Final = 100
"""Told in full; further ones are counted."""


class Evidence(enum.Enum):
    """What was verified."""

    PROOF = "proof of a record"
    EXPORT = "audit export"
    BUNDLE = "export bundle"
    CHECKPOINTS = "pair of checkpoints"


class Outcome(enum.Enum):
    """Of one record."""

    VERIFIED = "verified"
    ERASED = "erased with proof"
    """The record is verified; its private part was erased, and a verified record says so."""
    TAMPERED = "tampered"


@dataclass(frozen=True, slots=True)
class RecordOutcome:
    index: int
    record: UUID | None
    """None if not even that can be read."""
    outcome: Outcome
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    problem: str
    index: int | None = None
    """Of the record that it is about; None if it is about the whole."""
    record: UUID | None = None


@dataclass(frozen=True, slots=True)
class Report:
    evidence: Evidence
    verified: int
    """Records, of these outcomes."""
    erased: int
    tampered: int
    problems: tuple[Problem, ...]
    """The first of them."""
    problems_count: int
    remarks: tuple[str, ...]
    """What it does not show, or what was not checked and why."""
    details: dict[str, str | int]
    """What it is about: store, log, size of the tree and so on, as far as the evidence itself is sound."""

    @property
    def ok(self) -> bool:
        return self.problems_count == 0


OnRecord = Callable[[RecordOutcome], object]


@dataclass(slots=True)
class Findings:
    """Collects what is found, in bounded memory."""

    evidence: Evidence
    on_record: OnRecord | None = None
    outcomes: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    problems: list[Problem] = field(default_factory=list)
    problems_count: int = 0
    remarks: list[str] = field(default_factory=list)
    details: dict[str, str | int] = field(default_factory=dict)

    def settle(self, index: int, record: UUID | None, outcome: Outcome, problem: str = "") -> None:
        self.outcomes[outcome] += 1
        if problem:
            self.blame(problem, index, record)
        if self.on_record is not None:
            self.on_record(RecordOutcome(index, record, outcome, problem))

    def blame(self, problem: str, index: int | None = None, record: UUID | None = None) -> None:
        self.problems_count += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(problem, index, record))

    def report(self) -> Report:
        return Report(
            self.evidence,
            self.outcomes[Outcome.VERIFIED],
            self.outcomes[Outcome.ERASED],
            self.outcomes[Outcome.TAMPERED],
            tuple(self.problems),
            self.problems_count,
            tuple(self.remarks),
            dict(self.details),
        )
