"""EventService: events as a stream.

The server sends something at least three times within `server.stream_idle_s`, and expects to hear from the caller as
often. A caller that answers each response with a request, however empty, keeps the stream open. A caller that closes
its side after the first request gets what has happened so far, and then the end.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import events_pb2 as pb
from drillcore_server.events.model import Event, EventKind
from drillcore_server.events.watch import EventPage, Wanted, Watch, Watchers, check_wanted
from drillcore_server.kernel.errors import BadInput, Refused
from drillcore_server.kernel.messages import corpus_id, optional_tenant_id, timestamp
from drillcore_server.kernel.read_ahead import Subjects
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.storage.ids import TenantId

_SIGNS_OF_LIFE: Final = 3
"""A stream without events gets this many signs of life within `server.stream_idle_s`."""


class EventService:
    def __init__(self, unit: Unit, watchers: Watchers, stream_idle_s: float) -> None:
        self._unit = unit
        self._watchers = watchers
        self._quiet_s_max = stream_idle_s / _SIGNS_OF_LIFE

    def WatchEvents(
        self, requests: Iterator[pb.WatchEventsRequest], call: Call, emit: Callable[[pb.WatchEventsResponse], None]
    ) -> None:
        request = next(requests, None)
        if request is None:
            raise BadInput(
                Reason.INVALID_ARGUMENT,
                "the first request must say what to watch",
                field="corpus_ids",
            )
        content = request.SerializeToString(deterministic=True)
        wanted = _wanted(request)
        fingerprint = hashlib.sha256(call.action.encode() + b"\0" + content).digest()
        call = replace(call, fingerprint=fingerprint, subjects=Subjects(wanted.tenant, wanted.corpora))
        with self._watchers.place():
            watch = Watch(self._unit, self._watchers, call, wanted, self._quiet_s_max)
            tenant, cursor = watch.begin()
            listener = _CallerListener(requests)
            for page in watch.pages(cursor, listener.closed.is_set, listener.closed.wait):
                if listener.is_gone:
                    return
                emit(_response(tenant, page))


class _CallerListener:
    """Listens to the caller in a thread of its own, because gRPC can only wait for a request."""

    def __init__(self, requests: Iterator[pb.WatchEventsRequest]) -> None:
        self.closed = threading.Event()
        """Set when the caller has closed its side."""
        self.is_gone = False
        """Whether the caller is gone, or has been silent for too long."""
        self._requests = requests
        threading.Thread(target=self._listen, name="drillcore-WatchEvents-listener", daemon=True).start()

    def _listen(self) -> None:
        try:
            for _ in self._requests:
                pass  # further requests change nothing; they only show that the caller is still there
        except Refused:
            self.is_gone = True
        finally:
            self.closed.set()


def _wanted(request: pb.WatchEventsRequest) -> Wanted:
    wanted = Wanted(
        tenant=optional_tenant_id(request.tenant_id),
        corpora=tuple(dict.fromkeys(corpus_id(named, "corpus_ids") for named in request.corpus_ids)),
        kinds=frozenset(map(_kind, request.kinds)),
        token=request.resume_token,
        from_beginning=request.from_beginning,
    )
    check_wanted(wanted)
    return wanted


def _kind(number: int) -> EventKind:
    try:
        return EventKind(number)
    except ValueError as error:
        raise BadInput(Reason.INVALID_ARGUMENT, f"kinds: {number} is not a kind of event", field="kinds") from error


def _response(tenant: TenantId, page: EventPage) -> pb.WatchEventsResponse:
    events = [_event(tenant, event) for event in page.events]
    return pb.WatchEventsResponse(events=events, resume_token=page.after.token(tenant))


def _event(tenant: TenantId, event: Event) -> pb.Event:
    return pb.Event(
        kind=pb.EventKind.ValueType(event.kind),
        corpus_id=str(event.corpus),
        revision=event.revision,
        at=timestamp(event.at),
        fact_id="" if event.fact is None else str(event.fact),
        fact_status="" if event.status is None else event.status.name,
        document_id="" if event.document is None else str(event.document),
        resume_token=event.after.token(tenant),
    )
