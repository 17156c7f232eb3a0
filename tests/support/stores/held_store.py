"""A store that makes the next transaction wait, so that a call stays under way for as long as a test needs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from drillcore_fdb.engine import Attempts, Engine, Options


def is_of_a_call() -> bool:
    """Whether this thread serves a call, rather than a background job or the stop of the server."""
    name = threading.current_thread().name
    return name.startswith("drillcore-") and not name.startswith("drillcore-keeper-")


@dataclass
class Hold:
    begun: threading.Event = field(default_factory=threading.Event)
    """Set when a transaction has begun and waits."""
    release: threading.Event = field(default_factory=threading.Event)


@contextmanager
def held(engine: Engine) -> Iterator[Hold]:
    """Every transaction of a call that begins waits for `release`, at most until the end of the block."""
    hold, begin = Hold(), engine.begin

    def wait(options: Options, *more: Any) -> Attempts:
        if is_of_a_call():
            hold.begun.set()
            hold.release.wait(timeout=30)
        return begin(options, *more)

    with mock.patch.object(engine, "begin", wait):
        try:
            yield hold
        finally:
            hold.release.set()
