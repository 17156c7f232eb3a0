"""Messages from one thread to another, in order, with a bound on their bytes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator


class Outbox:
    """Who puts waits while there are more than `bytes_max` unread. Ends when it is closed by either side."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._messages: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._error: BaseException | None = None

    def put(self, message: bytes) -> bool:
        """Whether anybody still wants more."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._bytes <= self._bytes_max)
            if not self._ended:
                self._messages.append(message)
                self._bytes += len(message)
                self._changed.notify_all()
            return not self._ended

    def end(self, error: BaseException | None = None) -> None:
        """What was put is still read, then the error is raised, if there is one. Only the first end counts."""
        with self._changed:
            if not self._ended:
                self._ended, self._error = True, error
                self._changed.notify_all()

    def __iter__(self) -> Iterator[bytes]:
        while (message := self._next()) is not None:
            yield message

    def _next(self) -> bytes | None:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or bool(self._messages))
            if not self._messages:
                if self._error is not None:
                    raise self._error
                return None
            message = self._messages.popleft()
            self._bytes -= len(message)
            self._changed.notify_all()
            return message
