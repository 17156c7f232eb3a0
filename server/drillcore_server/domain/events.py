"""Events: what followers hear of a revision, in a fixed order, so that each can say how far it has heard.

a revision: its documents, then its facts by id, then its communities, and last that the state has changed
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.facts import FactChange, FactStatus
from drillcore_server.domain.ids import CorpusId, DocumentId, FactId, Revision, TenantId
from drillcore_server.domain.pages import make_token, read_token

VERSIONSTAMP_BYTES: Final = 10
_INCARNATION_BYTES: Final = 4
_POSITION_BYTES: Final = 16
_SIZE_BYTES: Final = _INCARNATION_BYTES + VERSIONSTAMP_BYTES + 1 + _POSITION_BYTES
_QUIET: Final = FactChange.VECTOR
"""A vector that another model made anew: of that the state's own event tells."""


class EventKind(enum.IntEnum):
    """Numbers are those of the protocol."""

    FACT_ADDED = 1
    FACT_CHANGED = 2
    FACT_QUARANTINED = 3
    FACT_ERASED = 4
    SOURCE_CHANGED = 5
    COMMUNITIES_RECOMPUTED = 6
    STATE_CHANGED = 7


OF_CHUNKS: Final = frozenset(
    {
        EventKind.FACT_ADDED,
        EventKind.FACT_CHANGED,
        EventKind.FACT_QUARANTINED,
        EventKind.FACT_ERASED,
        EventKind.SOURCE_CHANGED,
    }
)
"""For those only who may read the chunks of the corpus: these name facts and documents."""


class Stage(enum.IntEnum):
    """How far a follower is in a revision. Numbers are in tokens."""

    SOURCES = 0
    FACTS = 1
    COMMUNITIES = 2
    STATE = 3
    """The revision is told."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last event that was told: the place of its revision in the feed, and its place in the revision."""

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
    """Where a token says to go on. Raises `BadInput` for one of another tenant, or none of ours."""
    try:
        raw = read_token(_listing(tenant), token)
    except BadInput:
        raw = None
    if raw is None or len(raw) != _SIZE_BYTES or raw[-_POSITION_BYTES - 1] > Stage.STATE:
        message = "the token is not one of an event of this tenant; watch from now on, or from the beginning"
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
    """What a change of a fact is told as; None for what is not told."""
    if change & FactChange.ERASED:
        return EventKind.FACT_ERASED
    if change & FactChange.STATUS and status is FactStatus.QUARANTINED:
        return EventKind.FACT_QUARANTINED
    if change & FactChange.ADDED:
        return EventKind.FACT_ADDED
    return None if change in {_QUIET, FactChange(0)} else EventKind.FACT_CHANGED


def _listing(tenant: TenantId) -> str:
    return f"events in {tenant}"
