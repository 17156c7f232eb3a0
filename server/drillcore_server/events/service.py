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
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.storage.ids import TenantId

_HEARD_OF_WITHIN: Final = 3
"""A quiet stream gets a sign of life after this part of the time after which a silent one is ended."""


class EventService:
    def __init__(self, unit: Unit, watchers: Watchers, stream_idle_s: float) -> None:
        self._unit = unit
        self._watchers = watchers
        self._quiet_s_max = stream_idle_s / _HEARD_OF_WITHIN

    def WatchEvents(
        self, requests: Iterator[pb.WatchEventsRequest], call: Call, emit: Callable[[pb.WatchEventsResponse], None]
    ) -> None:
        request = next(requests, None)
        if request is None:
            raise BadInput(Reason.INVALID_ARGUMENT, "send a request: what to watch", field="corpus_ids")
        content = request.SerializeToString(deterministic=True)
        call = replace(call, fingerprint=hashlib.sha256(call.action.encode() + b"\0" + content).digest())
        wanted = _wanted(request)
        with self._watchers.place():
            watch = Watch(self._unit, self._watchers, call, wanted, self._quiet_s_max)
            tenant, cursor = watch.begin()
            line = _Line(requests)
            for page in watch.pages(cursor, line.hung_up.is_set, line.hung_up.wait):
                if line.is_dead:
                    return
                emit(_response(tenant, page))


class _Line:
    """Listens to the caller in a thread of its own, because gRPC can only wait for a request."""

    def __init__(self, requests: Iterator[pb.WatchEventsRequest]) -> None:
        self.hung_up = threading.Event()
        """The caller has closed its side."""
        self.is_dead = False
        """The caller is gone, or has been silent for too long."""
        self._requests = requests
        threading.Thread(target=self._listen, name="drillcore-WatchEvents-line", daemon=True).start()

    def _listen(self) -> None:
        try:
            for _ in self._requests:
                pass  # what is watched does not change: a further request only says that the caller is there
        except Refused:
            self.is_dead = True
        finally:
            self.hung_up.set()


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
        raise BadInput(Reason.INVALID_ARGUMENT, "there is no such kind of event", field="kinds") from error


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
