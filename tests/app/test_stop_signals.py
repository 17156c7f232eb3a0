"""A server hears a stop signal at any time and in any thread."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from drillcore_server.app.stop_signals import StopSignals

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture
def stop() -> Iterator[StopSignals]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield StopSignals()
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.timeout(20)
def test_a_waiting_thread_hears_a_signal(stop: StopSignals, number: int) -> None:
    sender = threading.Timer(0.05, lambda: os.kill(os.getpid(), number))
    sender.start()
    stop.wait()
    sender.join()


@pytest.mark.timeout(20)
def test_a_signal_that_another_thread_received_is_heard(stop: StopSignals) -> None:
    """The system chooses the thread, and that thread does not wake threads that wait for a lock."""
    sender = threading.Timer(0.05, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM))
    sender.start()
    stop.wait()
    sender.join()


@pytest.mark.timeout(20)
def test_a_signal_from_before_the_wait_is_heard(stop: StopSignals) -> None:
    signal.raise_signal(signal.SIGTERM)
    stop.wait()


@pytest.mark.timeout(20)
def test_signals_at_every_step_of_waiting_do_not_hang_it(stop: StopSignals) -> None:
    """The handler must not need a lock that the interrupted code holds."""

    def raise_signal(frame: FrameType, event: str, argument: Any) -> Any:
        sys.settrace(None)
        frame.f_trace = None
        signal.raise_signal(signal.SIGTERM)
        sys.settrace(raise_signal)
        frame.f_trace = raise_signal
        return raise_signal

    traced = sys.gettrace()
    sys.settrace(raise_signal)
    try:
        stop.wait()
    finally:
        sys.settrace(traced)
