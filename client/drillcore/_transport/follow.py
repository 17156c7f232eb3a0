"""Streams of answers that continue after a lost connection, for as long as the caller listens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from drillcore._transport.call import Call
from drillcore._transport.channel import BACKOFF_MAX_S, FIRST_BACKOFF_S
from drillcore._transport.client_settings import ClientSettings
from drillcore.errors import Cancelled, DeadlineExceeded, DrillcoreError, Unavailable
from drillcore_proto.reasons import Reason

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
KEEP_ALIVE_S: Final = 10.0
"""Time between requests that only show that the caller is still there. By default a server waits 30 seconds for one. If
it waits for less, it ends the call, and the client reconnects."""
LOST: Final = (Unavailable, DeadlineExceeded, Cancelled)
"""How a call ends if its server stops, crashes, or has heard nothing for too long. The caller sets no deadline."""


@dataclass(frozen=True, slots=True)
class Batch(Generic[T_co]):
    """The items of one answer."""

    items: tuple[T_co, ...]
    resume_token: str = ""
    """Continues after this batch; empty if the server needs no token."""
    last: bool = False


@dataclass(frozen=True, slots=True)
class Follow(Generic[T]):
    """A stream of items to follow."""

    begin: Callable[[str], Call[Batch[T]]]
    """Makes the call that continues after a token. An empty token begins the stream."""
    on_token: Callable[[str], object] | None = None

    def done_with(self, batch: Batch[T]) -> None:
        """Tells the listener that the caller has seen all items of the batch."""
        if self.on_token is not None and batch.resume_token:
            self.on_token(batch.resume_token)


class Opener(Protocol):
    """What a follower needs from a client."""

    settings: ClientSettings
    _closed: bool

    def _open(self, call: Call[T], requests: Callable[[Message], Iterator[Message]]) -> tuple[str, Any]:
        """Returns the request id and an iterator over the answers."""

    def _error(self, error: grpc.RpcError, request_id: str) -> DrillcoreError: ...


class Follower(Generic[T]):
    """Follows a stream. One thread uses `batches`; any thread may call `cancel`."""

    def __init__(self, follow: Follow[T], opener: Opener) -> None:
        self._follow = follow
        self._opener = opener
        self._token = ""
        self._stopped = threading.Event()
        self._ended = threading.Event()
        self._answers: Any = None

    def batches(self) -> Iterator[Batch[T]]:
        """Every batch, exactly once. Reconnects until no server has answered for the client's timeout.

        Raises DrillcoreError, at once if another connection would not help.
        """
        patience = Patience(self._opener.settings)
        while not self._stopped.is_set():
            try:
                for batch in self._connection():
                    patience.renew()
                    yield batch
                    if batch.last:
                        return
                    self._token = batch.resume_token or self._token
            except DrillcoreError as error:
                if not self._is_lost(error) or not patience.is_left():
                    raise
                self._stopped.wait(patience.pause_s())
                if self._opener._closed:
                    raise

    def _is_lost(self, error: DrillcoreError) -> bool:
        """Whether another connection may continue. A server may still count the lost connection for a while."""
        had_begun = bool(self._token)
        return isinstance(error, LOST) or (had_begun and error.reason is Reason.TOO_MANY_WATCHERS)

    def cancel(self) -> None:
        """Ends the stream."""
        self._stopped.set()
        self._ended.set()
        if self._answers is not None:
            self._answers.cancel()

    def _connection(self) -> Iterator[Batch[T]]:
        call = self._follow.begin(self._token)
        self._ended = ended = threading.Event()
        request_id, answers = self._opener._open(call, lambda first: _requests(first, ended))
        self._answers = answers
        try:
            for answer in answers:
                yield call.decode(answer)
            raise ended_early(request_id)
        except grpc.RpcError as error:
            raise self._opener._error(error, request_id) from error
        finally:
            ended.set()
            answers.cancel()  # has no effect on a call that has ended


class Patience:
    """How long to retry without any answer, and how long to wait between connections."""

    def __init__(self, settings: ClientSettings) -> None:
        self._left_s = settings.timeout_s if settings.attempts > 1 else 0.0
        self.renew()

    def renew(self) -> None:
        """Starts again, because there was an answer."""
        self._lost_at: float | None = None
        self._pause_s = FIRST_BACKOFF_S

    def is_left(self) -> bool:
        """Whether to reconnect after a lost connection."""
        self._lost_at = self._lost_at or time.monotonic()
        return time.monotonic() - self._lost_at < self._left_s

    def pause_s(self) -> float:
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, BACKOFF_MAX_S)
        return pause_s


def _requests(first: Message, ended: threading.Event) -> Iterator[Message]:
    """The first request, and then empty ones that show that the caller is still there."""
    yield first
    while not ended.wait(KEEP_ALIVE_S):
        yield type(first)()


def ended_early(request_id: str) -> Unavailable:
    """The error for a stream that ended without its last answer. Another connection may continue it."""
    code = grpc.StatusCode.UNAVAILABLE
    return Unavailable("the server ended the stream", reason_name=code.name, code=code, request_id=request_id)
