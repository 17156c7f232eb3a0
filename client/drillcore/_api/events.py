"""Events: what changes, as it changes."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore._api.fact_data import FactStatus
from drillcore._api.messages import enum_number, to_datetime, to_id
from drillcore._transport.call import Call, Id, id_text
from drillcore._transport.follow import Batch, Follow
from drillcore_proto.v1 import events_pb2 as pb


class EventKind(enum.Enum):
    FACT_ADDED = "fact_added"
    FACT_CHANGED = "fact_changed"
    """Its content, metadata, weight, ttl or status changed, or it was archived or restored."""
    FACT_QUARANTINED = "fact_quarantined"
    FACT_ERASED = "fact_erased"
    SOURCE_CHANGED = "source_changed"
    """A document was added, updated, removed or erased."""
    COMMUNITIES_RECOMPUTED = "communities_recomputed"
    STATE_CHANGED = "state_changed"
    """The last event of each revision."""


@dataclass(frozen=True, slots=True)
class Event:
    """One change in a corpus. It holds ids, never content."""

    kind: EventKind
    corpus_id: UUID
    revision: int
    at: datetime
    fact_id: UUID | None
    """Set in events about a fact."""
    fact_status: FactStatus | None
    """The status after the change."""
    document_id: UUID | None
    """Set in events about a source: its document."""
    resume_token: str
    """Continues after this event."""


def to_events(message: pb.WatchEventsResponse) -> tuple[Event, ...]:
    """The events whose kind this client knows."""
    return tuple(_to_event(event) for event in message.events if _to_name(event.kind) in EventKind.__members__)


def _to_event(message: pb.Event) -> Event:
    return Event(
        kind=EventKind[_to_name(message.kind)],
        corpus_id=UUID(message.corpus_id),
        revision=message.revision,
        at=to_datetime(message.at),
        fact_id=to_id(message.fact_id),
        fact_status=FactStatus(message.fact_status) if message.fact_status else None,
        document_id=to_id(message.document_id),
        resume_token=message.resume_token,
    )


def _to_name(kind: int) -> str:
    known = pb.EventKind.DESCRIPTOR.values_by_number.get(kind)
    return known.name.removeprefix("EVENT_KIND_") if known else ""


_PATH: Final = "/drillcore_proto.v1.EventService/WatchEvents"


def watch_events(
    corpus_ids: Collection[Id] = (),
    *,
    kinds: Collection[EventKind] = (),
    resume_token: str = "",
    from_beginning: bool = False,
    on_token: Callable[[str], object] | None = None,
    tenant_id: Id | None = None,
) -> Follow[Event]:
    """Events as they happen, in commit order, without end. Without `corpus_ids`: of all corpora the caller may read.

    The watch begins now, after the event with this `resume_token`, or with the first event (`from_beginning`). After a
    lost connection the client reconnects, and every event still appears exactly once. It raises Unavailable if no
    server answers for the client's timeout. To continue later, even in another process, keep the token of the last
    event.

    `on_token` is also called with tokens that come without events. The first one says that the watch has begun; each
    later one says that you have seen all events before it. Stop iterating, or close the iterator, to stop watching.
    """
    if resume_token and from_beginning:
        raise TypeError("give either resume_token= or from_beginning=")

    def begin(token: str) -> Call[Batch[Event]]:
        request = pb.WatchEventsRequest(
            tenant_id=id_text(tenant_id),
            corpus_ids=map(id_text, corpus_ids),
            kinds=[enum_number(pb.EventKind, kind) for kind in kinds],
            resume_token=token or resume_token,
            from_beginning=from_beginning and not token,
        )
        return Call(_PATH, request, _decode, None, None)

    return Follow(begin, on_token)


def _decode(answer: bytes) -> Batch[Event]:
    response = pb.WatchEventsResponse.FromString(answer)
    return Batch(to_events(response), response.resume_token)
