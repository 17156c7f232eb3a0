# ruff: noqa: N818  # errors are named after what was found, because that is what a report says
"""What a verification can find: errors as a tree of exceptions, and outcomes as a report.

VerificationFailed
├── Malformed       the evidence does not have the form it should: a note, a leaf, a line, a file
├── Untrusted       no trusted key signed it
├── WrongSignature  the key signed something else
├── ProofFailed     a proof does not lead to the root
└── Mismatch        two things that should agree do not
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID


class VerificationFailed(ValueError):
    """A piece of evidence does not prove what it claims."""


class Malformed(VerificationFailed):
    """The evidence does not have the form it should."""


class Untrusted(VerificationFailed):
    """No trusted key signed the evidence."""


class WrongSignature(VerificationFailed):
    """The key signed something else."""


class ProofFailed(VerificationFailed):
    """A proof does not lead to the root."""


class Mismatch(VerificationFailed):
    """Two things that should agree do not."""


PROBLEMS_MAX: Final = 100
"""Problems listed in a report. Further ones are only counted."""


class Evidence(enum.Enum):
    """What was verified."""

    PROOF = "proof of a record"
    EXPORT = "audit export"
    BUNDLE = "export bundle"
    CHECKPOINTS = "pair of checkpoints"


class Outcome(enum.Enum):
    """What was found about one record."""

    VERIFIED = "verified"
    ERASED = "erased with proof"
    """The record is verified. Its private part was erased, and another verified record says so."""
    TAMPERED = "tampered"


@dataclass(frozen=True, slots=True)
class RecordOutcome:
    index: int
    record: UUID | None
    """None if the id cannot be read."""
    outcome: Outcome
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    problem: str
    index: int | None = None
    """The index of the record; None if the problem is not about one record."""
    record: UUID | None = None


@dataclass(frozen=True, slots=True)
class Report:
    evidence: Evidence
    verified: int
    """Number of records with this outcome, and likewise below."""
    erased: int
    tampered: int
    problems: tuple[Problem, ...]
    """The first problems, up to `PROBLEMS_MAX`."""
    problems_count: int
    remarks: tuple[str, ...]
    """What the evidence does not prove, and what was not checked and why."""
    details: dict[str, str | int]
    """What the evidence is about: store, log, size of the tree and so on. Only what could be verified."""

    @property
    def ok(self) -> bool:
        return self.problems_count == 0


OnRecord = Callable[[RecordOutcome], object]


@dataclass(slots=True)
class Findings:
    """Collects findings in bounded memory."""

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
