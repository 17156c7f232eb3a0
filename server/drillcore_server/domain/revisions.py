"""Revisions: the states of a corpus, one after the other. Every level moves from one to the next together."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from drillcore_server.domain.ids import DocumentId, NodeId, PrincipalId, RecordId, RequestId, Revision


@dataclass(frozen=True, slots=True)
class RevisionRecord:
    """What made a revision."""

    revision: Revision
    at: datetime
    by: PrincipalId
    request_id: RequestId
    action: str
    documents_added: tuple[DocumentId, ...]
    documents_removed: tuple[DocumentId, ...]
    sections: tuple[NodeId, ...]
    """The sections it changed, made or removed: what followers have to read again."""
    audit_id: RecordId
    """Of the audit record, which commits to everything the revision wrote."""
    facts: int = 0
    """How many facts it changed; the feed of changes names them."""
    communities: bool = False
    """Whether communities were computed anew."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write the next revision in several transactions. Whoever else wants to write waits."""

    id: UUID
    revision: Revision
    lease_until: datetime

    def is_expired(self, now: datetime) -> bool:
        return now > self.lease_until
