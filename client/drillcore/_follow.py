"""Calls that are followed: answers come for as long as the caller listens, over lost connections too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from drillcore._call import Call
from drillcore._channel import BACKOFF_MAX_S, FIRST_BACKOFF_S
from drillcore._client_settings import ClientSettings
from drillcore.errors import Cancelled, DeadlineExceeded, DrillcoreError, Unavailable
from drillcore_proto.reasons import Reason

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

KEEP_ALIVE_S: Final = 10.0
"""Between requests that only say that the caller is there. A server waits 30 seconds for one, unless it is set up
otherwise; one that waits for less ends the call, which then goes on like any other that was lost."""
LOST: Final = (Unavailable, DeadlineExceeded, Cancelled)
"""How a call ends whose server stops, dies, or has heard nothing for too long. The caller sets no deadline."""


@dataclass(frozen=True, slots=True)
class Batch(Generic[T_co]):
    """What one answer brought."""

    items: tuple[T_co, ...]
    resume_token: str = ""
    """Goes on after it; empty where the server knows by itself."""
    last: bool = False


@dataclass(frozen=True, slots=True)
class Follow(Generic[T]):
    """One call to follow."""

    begin: Callable[[str], Call[Batch[T]]]
    """The call that goes on after a token; "" begins."""
    on_token: Callable[[str], object] | None = None

    def done_with(self, batch: Batch[T]) -> None:
        """The caller has had all items of the batch."""
        if self.on_token is not None and batch.resume_token:
            self.on_token(batch.resume_token)


class Opener(Protocol):
    """What a follower needs of a client."""

    settings: ClientSettings
    _closed: bool

    def _open(self, call: Call[T], requests: Callable[[Message], Iterator[Message]]) -> tuple[str, Any]:
        """The request id, and the answers as they come."""

    def _error(self, error: grpc.RpcError, request_id: str) -> DrillcoreError: ...


class Follower(Generic[T]):
    """A call that is being followed: `batches` in one thread, `cancel` from any."""

    def __init__(self, follow: Follow[T], opener: Opener) -> None:
        self._follow = follow
        self._opener = opener
        self._token = ""
        self._stopped = threading.Event()
        self._ended = threading.Event()
        self._answers: Any = None

    def batches(self) -> Iterator[Batch[T]]:
        """What the answers bring, each once. Connects again until no server has answered for the client's timeout.

        Raises DrillcoreError, at once for what another connection would not mend.
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
        """Whether another connection may go on. A server may count one that was lost for a while."""
        had_a_place = bool(self._token)
        return isinstance(error, LOST) or (had_a_place and error.reason is Reason.TOO_MANY_WATCHERS)

    def cancel(self) -> None:
        """Ends the call."""
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
            answers.cancel()  # does nothing to a call that has ended by itself


class Patience:
    """How long to go on without any answer, and how long to wait between connections."""

    def __init__(self, settings: ClientSettings) -> None:
        self._left_s = settings.timeout_s if settings.attempts > 1 else 0.0
        self.renew()

    def renew(self) -> None:
        """There was an answer."""
        self._lost_at: float | None = None
        self._pause_s = FIRST_BACKOFF_S

    def is_left(self) -> bool:
        """Whether to connect again, after a connection was lost."""
        self._lost_at = self._lost_at or time.monotonic()
        return time.monotonic() - self._lost_at < self._left_s

    def pause_s(self) -> float:
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, BACKOFF_MAX_S)
        return pause_s


def _requests(first: Message, ended: threading.Event) -> Iterator[Message]:
    """What is sent: what the call is about, then now and then a sign of life."""
    yield first
    while not ended.wait(KEEP_ALIVE_S):
        yield type(first)()


def ended_early(request_id: str) -> Unavailable:
    """The server ended a stream without its last answer: another connection may go on."""
    code = grpc.StatusCode.UNAVAILABLE
    return Unavailable("the server ended the stream", reason_name=code.name, code=code, request_id=request_id)
