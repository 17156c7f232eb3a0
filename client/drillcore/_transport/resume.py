"""Transfers of one large file that continue after a lost connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

import grpc

from drillcore._transport.client_settings import ClientSettings
from drillcore._transport.follow import LOST, Patience
from drillcore._transport.upload import Exchange, Listener, Upload
from drillcore.errors import DeadlineExceeded, DrillcoreError

R = TypeVar("R")
_STARTS_MAX: Final = 5
"""How often a transfer may start again because the file has changed."""


class Transfer(Protocol[R]):
    """The transfer of a file. It knows how much is done."""

    def begin(self, number: int) -> Upload[R]:
        """The call that continues from here. Calls are numbered from 0."""

    def end(self) -> None:
        """Cleans up after a call, however it ended: nothing may wait for it any more."""

    def starts_over(self, error: DrillcoreError) -> bool:
        """Whether the transfer starts again after this error."""


class FurthestProgress:
    """The furthest point of each stage of a transfer. Calls `renew` whenever a stage gets further.

    A transfer that only repeats the same part in every call makes no progress.
    """

    def __init__(self, renew: Callable[[], object]) -> None:
        self._renew = renew
        self._highest: dict[str, int] = {}

    def reached(self, stage: str, size_bytes: int) -> None:
        if size_bytes > self._highest.get(stage, 0):
            self._highest[stage] = size_bytes
            self._renew()


@dataclass(frozen=True, slots=True)
class Resumable(Generic[R]):
    """The transfer of one file in as many calls as it takes."""

    open: Callable[[Callable[[], object], Listener], AbstractContextManager[Transfer[R]]]
    """Opens the transfer. It gets a function to call when there is progress, and the listener."""
    on_event: Listener | None
    timeout_s: float | None
    """The time for all calls together."""


class Carrier(Protocol):
    """What a resumer needs from a client."""

    settings: ClientSettings
    _closed: bool

    def _exchange(self, upload: Upload[R], exchange: Exchange[R]) -> R: ...


class Resumer(Generic[R]):
    """Runs a transfer. One thread calls `run`; any thread may call `cancel`."""

    def __init__(self, resumable: Resumable[R], carrier: Carrier, on_event: Listener | None) -> None:
        self._resumable = resumable
        self._carrier = carrier
        self._on_event = on_event or (lambda _event: None)
        self._stopped = threading.Event()
        self._exchange: Exchange[R] | None = None
        self._ends_at = None if resumable.timeout_s is None else time.monotonic() + resumable.timeout_s

    def run(self) -> R:
        """Repeats the call until the file is complete, or there was no progress for the client's timeout.

        Raises DrillcoreError, at once if another call would not help, and OSError.
        """
        patience = Patience(self._carrier.settings)
        number = starts = 0
        with self._resumable.open(patience.renew, self._on_event) as transfer:
            while True:
                try:
                    return self._attempt(transfer, number)
                except DrillcoreError as error:
                    if transfer.starts_over(error) and starts < _STARTS_MAX:
                        starts += 1
                    elif self._is_lost(error) and patience.is_left():
                        self._stopped.wait(patience.pause_s())
                    else:
                        raise
                    if self._stopped.is_set() or self._carrier._closed:
                        raise
                number += 1

    def cancel(self) -> None:
        """Ends the running call, and makes no other."""
        self._stopped.set()
        if self._exchange is not None:
            self._exchange.cancel()

    def _attempt(self, transfer: Transfer[R], number: int) -> R:
        upload = replace(transfer.begin(number), timeout_s=self._left_s())
        self._exchange = exchange = Exchange(upload, (), None)
        if self._stopped.is_set():
            exchange.cancel()
        try:
            return self._carrier._exchange(upload, exchange)
        finally:
            transfer.end()

    def _left_s(self) -> float | None:
        if self._ends_at is None:
            return None
        left_s = self._ends_at - time.monotonic()
        if left_s <= 0:
            code = grpc.StatusCode.DEADLINE_EXCEEDED
            raise DeadlineExceeded(
                "the transfer of the file took too long", reason_name=code.name, code=code, request_id=""
            )
        return left_s

    def _is_lost(self, error: DrillcoreError) -> bool:
        """Whether another call may continue."""
        timed_out = isinstance(error, DeadlineExceeded) and self._ends_at is not None
        return isinstance(error, LOST) and not timed_out
