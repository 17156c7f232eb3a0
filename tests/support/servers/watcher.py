"""Watches events without the client's help: it answers each response, as the protocol requires."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import grpc

from drillcore_proto.v1 import events_pb2 as pb
from drillcore_proto.v1 import events_pb2_grpc


class Watcher:
    """One stream. `next` waits for the next event; `drained` takes all events there are and ends the stream."""

    def __init__(self, address: str, token: str, *, answers: bool = True, **wanted: Any) -> None:
        self._channel = grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0)])
        self._requests: queue.SimpleQueue[pb.WatchEventsRequest | None] = queue.SimpleQueue()
        self._requests.put(pb.WatchEventsRequest(**wanted))
        self._answers = answers
        metadata = [("authorization", f"Bearer {token}")]
        stub = events_pb2_grpc.EventServiceStub(self._channel)
        self.stream: Any = stub.WatchEvents(iter(self._requests.get, None), metadata=metadata)
        self.token = ""
        self._events: list[pb.Event] = []
        self.take()

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.hang_up()
        self.stream.cancel()
        self._channel.close()

    def hang_up(self) -> None:
        """Sends nothing more."""
        self._requests.put(None)

    def take(self) -> list[pb.Event]:
        """The events of the next response."""
        response: pb.WatchEventsResponse = next(self.stream)
        if self._answers:
            self._requests.put(pb.WatchEventsRequest())
        self.token = response.resume_token
        self._events.extend(response.events)
        return list(response.events)

    def next(self) -> pb.Event:
        while not self._events:
            self.take()
        return self._events.pop(0)

    def up_to(self, revision: int) -> list[pb.Event]:
        """All events up to the end of a revision."""
        found = [self.next()]
        while not (found[-1].kind == pb.EVENT_KIND_STATE_CHANGED and found[-1].revision >= revision):
            found.append(self.next())
        return found

    def drained(self) -> list[pb.Event]:
        self.hang_up()
        return list(self._rest())

    def _rest(self) -> Iterator[pb.Event]:
        yield from self._events
        for response in self.stream:
            self.token = response.resume_token
            yield from response.events


def all_events(address: str, token: str, **wanted: Any) -> list[pb.Event]:
    """All events there are now, from a token or from the beginning."""
    with Watcher(address, token, **wanted) as watcher:
        return watcher.drained()
