"""Calls over one large file that go on where a lost connection ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

import grpc

from drillcore._client_settings import ClientSettings
from drillcore._follow import LOST, Patience
from drillcore._upload import Exchange, Listener, Upload
from drillcore.errors import DeadlineExceeded, DrillcoreError

R = TypeVar("R")

_STARTS_MAX: Final = 5
"""How often a file is begun anew, because it has become another one, before that is an error."""


class Transfer(Protocol[R]):
    """A file on its way, which knows how far it is."""

    def begin(self, number: int) -> Upload[R]:
        """The call, the `number`th from 0 on, that goes on from here."""

    def end(self) -> None:
        """The call is over, however it ended: nothing may wait for it any more."""

    def starts_over(self, error: DrillcoreError) -> bool:
        """Whether the next call, after this error, begins anew."""


class Heights:
    """How far each stage of a transfer ever got; `renew` hears of every step beyond it.

    What only repeats itself, call after call, does not count as getting further.
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
    """One file to be carried, in as many calls as it takes."""

    open: Callable[[Callable[[], object], Listener], AbstractContextManager[Transfer[R]]]
    """The file; given what hears that it has got further than ever before, and the listener."""
    on_event: Listener | None
    timeout_s: float | None
    """For all calls together."""


class Carrier(Protocol):
    """What a resumer needs of a client."""

    settings: ClientSettings
    _closed: bool

    def _exchange(self, upload: Upload[R], exchange: Exchange[R]) -> R: ...


class Resumer(Generic[R]):
    """A file that is being carried: `run` in one thread, `cancel` from any."""

    def __init__(self, resumable: Resumable[R], carrier: Carrier, on_event: Listener | None) -> None:
        self._resumable = resumable
        self._carrier = carrier
        self._on_event = on_event or (lambda _event: None)
        self._stopped = threading.Event()
        self._exchange: Exchange[R] | None = None
        self._ends_at = None if resumable.timeout_s is None else time.monotonic() + resumable.timeout_s

    def run(self) -> R:
        """Calls again until the file is whole, or has got no further for the client's timeout.

        Raises DrillcoreError, at once for what another call would not mend, and OSError.
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
        """Ends the call under way, and makes no other."""
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
                "the file did not go through in time", reason_name=code.name, code=code, request_id=""
            )
        return left_s

    def _is_lost(self, error: DrillcoreError) -> bool:
        """Whether another call may go on."""
        timed_out = isinstance(error, DeadlineExceeded) and self._ends_at is not None
        return isinstance(error, LOST) and not timed_out
