"""What every keeper shares: a round that goes on after a failure, and how a failure is logged."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

import structlog

from drillcore_fdb.errors import EngineError
from drillcore_server.kernel.errors import Refused

_FRAMES: Final = 5


def describe(error: BaseException) -> dict[str, Any]:
    """What the log may say about an exception: its type and where it was raised, never its text.

    The text may quote content. Messages of the engine and reasons of refusals never do, so they are given too.
    """
    said: dict[str, Any] = {"error": type(error).__name__, "at": _place(error)}
    if isinstance(error, EngineError):
        said |= {"message": error.message, "code": error.code}
    elif isinstance(error, Refused):
        said["reason"] = error.reason.name
    return said


def _place(error: BaseException) -> str:
    """The innermost calls, innermost last: `keepers.py:71 trim > trim.py:140 trim_corpora`."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    return " > ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames)


class Round:
    """Work on many corpora, where one that fails does not keep the others from their turn.

    Each failure is logged. At the end of the block the round itself fails with all of them, so that it counts as
    failed and is tried again.

        with Round(log, "corpus not trimmed, will try again") as trims:
            for corpus in corpora:
                with trims.part(corpus_id=str(corpus.id)):
                    trim(corpus)
    """

    def __init__(self, log: structlog.stdlib.BoundLogger, event: str) -> None:
        self._log = log
        self._event = event
        self._failures: list[Exception] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None and self._failures:
            raise ExceptionGroup(self._event, self._failures)

    @contextmanager
    def part(self, **about: str) -> Iterator[None]:
        """Survives every exception in its block; `about` says in the log which part it was."""
        try:
            yield
        except Exception as error:
            self._failures.append(error)
            self._log.warning(self._event, **about, **describe(error))
