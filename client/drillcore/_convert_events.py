"""Protocol messages about events to results, and kinds of them to messages."""

from __future__ import annotations

from uuid import UUID

from drillcore._convert import to_datetime, to_id
from drillcore._event_results import Event, EventKind
from drillcore._fact_results import FactStatus
from drillcore_proto.v1 import events_pb2 as pb


def kind_message(kind: EventKind) -> pb.EventKind.ValueType:
    return pb.EventKind.Value(f"EVENT_KIND_{kind.name}")


def events(message: pb.WatchEventsResponse) -> tuple[Event, ...]:
    """Those whose kind this client knows."""
    return tuple(_event(one) for one in message.events if _name(one.kind) in EventKind.__members__)


def _event(message: pb.Event) -> Event:
    return Event(
        kind=EventKind[_name(message.kind)],
        corpus_id=UUID(message.corpus_id),
        revision=message.revision,
        at=to_datetime(message.at),
        fact_id=to_id(message.fact_id),
        fact_status=FactStatus(message.fact_status) if message.fact_status else None,
        document_id=to_id(message.document_id),
        resume_token=message.resume_token,
    )


def _name(kind: int) -> str:
    known = pb.EventKind.DESCRIPTOR.values_by_number.get(kind)
    return known.name.removeprefix("EVENT_KIND_") if known else ""
