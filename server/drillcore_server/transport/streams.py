"""Calls that stream in both directions, and the watch that ends those whose caller stands still.

Two threads serve such a call: gRPC's worker sends the responses; a thread of ours runs the stages and the handler. Both
wait for the caller: ours for the next request, the worker until the caller takes what was sent. gRPC does not limit
these waits, so callers that only wait could hold every worker. A third thread, which runs while there are streams,
therefore checks all of them regularly and ends those that have waited for too long.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import grpc
from google.protobuf.message import Message

from drillcore_proto.reasons import Reason
from drillcore_server.kernel.errors import Refused, Unavailable
from drillcore_server.kernel.messages import check_known_fields
from drillcore_server.transport.exchange import Answer, Exchange, abort

OUTBOX_MAX: Final = 100
"""The most responses that wait to be sent. Then the handler waits, so that a slow reader does not fill the memory."""


class Stream:
    """One call. The handler uses `emit` and the requests, gRPC uses `responses`, the watch uses `end_if_stalled`."""

    def __init__(self, exchange: Exchange) -> None:
        assert not isinstance(exchange.request, Message)
        self._exchange = exchange
        self._received = exchange.request
        exchange.request = self._requests()
        exchange.emit = self.emit
        self._changed = threading.Condition()
        self._outbox: deque[Message | BaseException | None] = deque()
        self._over = False
        self._stalled: Refused | None = None
        self._receiving_since: float | None = None
        self._sending_since: float | None = None

    def responses(self, answer: Answer) -> Iterator[Message]:
        """Runs the stages in a thread of their own, and yields the responses that they emit."""
        if not self._exchange.context.add_callback(self._end):
            self._end()
        name = f"drillcore-{self._exchange.method}"
        threading.Thread(target=self._run, args=(answer,), name=name, daemon=True).start()
        while (item := self._take()) is not None:
            if isinstance(item, BaseException):
                raise item
            self._sending_since = time.monotonic()
            yield item
            self._sending_since = None

    def emit(self, response: Message) -> None:
        """Sends a response. Waits while the caller does not read. Drops the response if the caller is gone."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or len(self._outbox) < OUTBOX_MAX)
            if not self._over:
                self._outbox.append(response)
                self._changed.notify_all()

    def end_if_stalled(self, before: float, idle_s: float) -> None:
        """Ends the call if it has been waiting for its caller for longer than that."""
        with self._changed:
            sending = self._sending_since is not None and self._sending_since < before
            receiving = self._receiving_since is not None and self._receiving_since < before
            if sending or receiving:
                self._stalled = _stalled(idle_s, receiving=receiving)
                self._changed.notify_all()
        if sending:
            self._exchange.context.cancel()  # a caller that takes nothing cannot be told anything

    def _run(self, answer: Answer) -> None:
        try:
            answer(self._exchange)
            self._put_last(None)
        except BaseException as error:  # raised again in gRPC's own thread, which can handle it
            self._put_last(error)

    def _put_last(self, item: BaseException | None) -> None:
        with self._changed:
            self._outbox.append(item)
            self._changed.notify_all()

    def _take(self) -> Message | BaseException | None:
        with self._changed:
            self._changed.wait_for(lambda: self._stalled or self._outbox)
            if self._stalled is not None:
                # The handler waits for a request and cannot end the call; it notices when gRPC has ended it.
                abort(self._exchange.context, self._stalled, self._exchange.request_id)
            self._changed.notify_all()
            return self._outbox.popleft()

    def _requests(self) -> Iterator[Message]:
        while (request := self._receive()) is not None:
            check_known_fields(request)
            yield request

    def _receive(self) -> Message | None:
        """The next request; None after the last. Raises `Refused` if the caller is gone or has stalled."""
        self._receiving_since = time.monotonic()
        try:
            return next(self._received, None)
        except grpc.RpcError as error:
            raise Unavailable(Reason.CANCELLED, "the caller gave up; nothing was written") from error
        finally:
            with self._changed:
                self._receiving_since = None
                if self._stalled is not None:
                    raise self._stalled

    def _end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()


class StallWatch:
    """Ends streams whose caller sends nothing, or takes nothing, for `idle_s` seconds."""

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._streams: set[Stream] = set()
        self._runs = False

    @contextmanager
    def over(self, stream: Stream) -> Iterator[None]:
        with self._lock:
            self._streams.add(stream)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._watch, name="drillcore-stalls", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:
                self._streams.discard(stream)

    def _watch(self) -> None:
        while True:
            time.sleep(min(self._idle_s / 10, 1.0))
            with self._lock:
                if not self._streams:
                    self._runs = False
                    return
                streams = list(self._streams)
            for stream in streams:
                with suppress(Exception):  # a call that cannot be ended does not keep the others from being watched
                    stream.end_if_stalled(time.monotonic() - self._idle_s, self._idle_s)


def _stalled(idle_s: float, *, receiving: bool) -> Refused:
    message = f"the caller sent or took nothing for {idle_s:g} seconds (server.stream_idle_s)"
    outcome = "nothing was written" if receiving else "a retry with the same request id tells the outcome"
    return Unavailable(Reason.STREAM_IDLE, f"{message}; {outcome}")
