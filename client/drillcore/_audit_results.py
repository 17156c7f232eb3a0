"""The audit trail as calls return it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from drillcore._signature_results import Signature


class AuditFormat(enum.Enum):
    """Of an export of the audit trail."""

    NDJSON = "ndjson"
    """Complete, and verifiable offline."""
    OCSF = "ocsf"
    """Events in the Open Cybersecurity Schema Framework, for other tools."""


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which records: all that is given must match."""

    corpus_id: UUID | str | None = None
    node_id: UUID | str | None = None
    """A node, or a document."""
    operator: str = ""
    """Who called: the id in the record."""
    action: str = ""
    """Such as ACCESS or UPDATE."""
    since: datetime | None = None
    until: datetime | None = None
    """Not included."""
    request_id: str = ""
    record_id: UUID | str | None = None


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """The record of one call."""

    id: UUID
    index: int | None
    """Its place in the log; None until the log has it, moments after the call."""
    body: Mapping[str, Any]
    """What it says."""
    private: Mapping[str, Any] | None
    """Its part that may be erased: query text, reason, values before and after."""
    erased: bool
    """That part was erased."""
    leaf: bytes
    """What the log's tree is made of; see `drillcore.audit.leaves`."""
    salt: bytes
    private_salt: bytes


@dataclass(frozen=True, slots=True)
class RecordProof:
    """That a record is in the log."""

    proof: str
    """A file that can be verified with nothing but the server's public key (c2sp.org/tlog-proof)."""
    index: int
    tree_size: int


@dataclass(frozen=True, slots=True)
class LogCheckpoint:
    """A log at one size, signed."""

    checkpoint: str
    """A C2SP signed note."""
    keys: str
    """JSON: the chain of signing keys."""


@dataclass(frozen=True, slots=True)
class AuditProblem:
    """What is wrong with a record as the server has it."""

    index: int
    record_id: UUID | None
    problem: str


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """What a server found when it checked some of its records."""

    verified: int
    erased: int
    problems: tuple[AuditProblem, ...]
    next_start: int
    """Where to go on; `tree_size` when all is checked."""
    tree_size: int
    checkpoint: str

    @property
    def finished(self) -> bool:
        return self.next_start >= self.tree_size


@dataclass(frozen=True, slots=True)
class Review:
    """An auditor has looked at a range of the log. It counts once it is signed."""

    id: UUID
    first: int
    """Index of the first record."""
    last: int
    """And of the last, included."""
    root: bytes
    """Of the tree that ends with the last record."""
    findings: str
    created_by: str
    created_at: datetime
    signed: bool
    signatures: tuple[Signature, ...]


@dataclass(frozen=True, slots=True)
class RotatedKey:
    """The key that signs from now on."""

    key: str
    """As a verifier key of C2SP signed notes: what to pin."""
    keys: str
    """JSON: the chain of signing keys."""
