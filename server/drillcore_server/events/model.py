"""Events: what a revision changed, as watchers see it.

The events of a revision have a fixed order, so that a token can say how far a watcher is: first documents, then facts
by id, then communities, and last that the state has changed.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore_proto.reasons import Reason
from drillcore_server.facts.model import FactChange, FactStatus
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.pages import make_token, read_token
from drillcore_server.storage.ids import CorpusId, DocumentId, FactId, Revision, TenantId

VERSIONSTAMP_BYTES: Final = 10
_INCARNATION_BYTES: Final = 4
_POSITION_BYTES: Final = 16
_SIZE_BYTES: Final = _INCARNATION_BYTES + VERSIONSTAMP_BYTES + 1 + _POSITION_BYTES
_NO_EVENT: Final = FactChange.VECTOR
"""A change without an event of its own: a migration made a new vector. The event of the state covers it."""


class EventKind(enum.IntEnum):
    """The numbers are those of the protocol."""

    FACT_ADDED = 1
    FACT_CHANGED = 2
    FACT_QUARANTINED = 3
    FACT_ERASED = 4
    SOURCE_CHANGED = 5
    COMMUNITIES_RECOMPUTED = 6
    STATE_CHANGED = 7


CHUNK_EVENTS: Final = frozenset(
    {
        EventKind.FACT_ADDED,
        EventKind.FACT_CHANGED,
        EventKind.FACT_QUARANTINED,
        EventKind.FACT_ERASED,
        EventKind.SOURCE_CHANGED,
    }
)
"""Events that name facts and documents. Only callers who may read the chunks of the corpus get them."""


class Stage(enum.IntEnum):
    """The kinds of events in a revision, in their order. Resume tokens contain these numbers."""

    SOURCES = 0
    FACTS = 1
    COMMUNITIES = 2
    STATE = 3
    """All events of the revision were sent."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The place of the last event that was sent: of its revision in the feed, and of the event in the revision."""

    incarnation: int = 0
    versionstamp: bytes = bytes(VERSIONSTAMP_BYTES)
    stage: Stage = Stage.STATE
    position: bytes = bytes(_POSITION_BYTES)
    """The number of a document, or the id of a fact."""

    def token(self, tenant: TenantId) -> str:
        place = self.incarnation.to_bytes(_INCARNATION_BYTES, "big") + self.versionstamp
        return make_token(_listing(tenant), place + bytes([self.stage]) + self.position)


@dataclass(frozen=True, slots=True)
class Event:
    kind: EventKind
    corpus: CorpusId
    revision: Revision
    at: datetime
    after: Cursor
    fact: FactId | None = None
    status: FactStatus | None = None
    document: DocumentId | None = None


def read_cursor(tenant: TenantId, token: str) -> Cursor:
    """Returns the place at which a token continues.

    Raises `BadInput` for a token of another tenant, and for a token that no server of this store made.
    """
    try:
        raw = read_token(_listing(tenant), token)
    except BadInput:
        raw = None
    if raw is None or len(raw) != _SIZE_BYTES or raw[-_POSITION_BYTES - 1] > Stage.STATE:
        message = "resume_token is not a token of this tenant's events; leave it out, or set from_beginning instead"
        raise BadInput(Reason.INVALID_PAGE_TOKEN, message, field="resume_token")
    stamped = _INCARNATION_BYTES + VERSIONSTAMP_BYTES
    return Cursor(
        int.from_bytes(raw[:_INCARNATION_BYTES], "big"),
        raw[_INCARNATION_BYTES:stamped],
        Stage(raw[stamped]),
        raw[stamped + 1 :],
    )


def document_position(number: int) -> bytes:
    return number.to_bytes(_POSITION_BYTES, "big")


def next_document(position: bytes) -> int:
    return int.from_bytes(position, "big") + 1


def fact_at(position: bytes) -> FactId:
    return FactId(UUID(bytes=position))


def kind_of(change: FactChange, status: FactStatus) -> EventKind | None:
    """Returns the kind of event for a change of a fact; None if the change has no event."""
    if change & FactChange.ERASED:
        return EventKind.FACT_ERASED
    if change & FactChange.STATUS and status is FactStatus.QUARANTINED:
        return EventKind.FACT_QUARANTINED
    if change & FactChange.ADDED:
        return EventKind.FACT_ADDED
    return None if change in {_NO_EVENT, FactChange(0)} else EventKind.FACT_CHANGED


def _listing(tenant: TenantId) -> str:
    return f"events in {tenant}"
