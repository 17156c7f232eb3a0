"""An HTTP client for servers that run models: posts JSON, limits the time and size of an answer, and retries."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

import httpx

BACKOFF_MAX_S: Final = 30.0
_RETRYABLE_STATUSES: Final = frozenset((408, 409, 425, 429))
"""Besides every status from 500 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    count_max: int
    timeout_s: float
    """The limit for one attempt, from the request to the last byte of the answer."""
    backoff_s: float = 0.5
    """The pause before the second attempt. It doubles with each further attempt, unless the server names a pause."""


class NoAnswer(Exception):  # noqa: N818 - says what came back
    """The server gave no usable answer. The message says why; it contains neither content nor secrets."""

    def __init__(self, why: str, *, retryable: bool = False, retry_after_s: float | None = None) -> None:
        super().__init__(why)
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class ModelServer:
    """Posts to one URL and keeps its connections open between calls. Close it, or use it in a `with` statement.

    Safe to use from several threads.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None,
        attempts: Attempts,
        *,
        connections_max: int = 100,
        trust_env: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`trust_env` makes the client use the proxies that the environment names."""
        headers = {"Content-Type": "application/json"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        limits = httpx.Limits(max_connections=connections_max, max_keepalive_connections=min(connections_max, 20))
        self._client = httpx.Client(headers=headers, timeout=attempts.timeout_s, limits=limits, trust_env=trust_env)
        self._attempts = attempts
        self._sleep = sleep
        self.url = url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def post(self, request: bytes, answer_bytes_max: int) -> bytes:
        """Returns the body of the answer. Raises `NoAnswer` when no attempt gets a usable one."""
        for attempt in range(1, self._attempts.count_max + 1):
            try:
                return self._attempt(request, answer_bytes_max)
            except NoAnswer as error:
                if not error.retryable or attempt == self._attempts.count_max:
                    raise
                self._sleep(self._pause_s(attempt, error.retry_after_s))
        raise AssertionError("count_max is at least 1")

    def _pause_s(self, attempt: int, retry_after_s: float | None) -> float:
        if retry_after_s is not None:
            return min(retry_after_s, BACKOFF_MAX_S)
        return min(self._attempts.backoff_s * 2.0 ** (attempt - 1), BACKOFF_MAX_S) * random.uniform(0.5, 1.0)

    def _attempt(self, request: bytes, answer_bytes_max: int) -> bytes:
        try:
            with self._client.stream("POST", self.url, content=request) as response:
                _check_status(response)
                return self._read(response, answer_bytes_max)
        except httpx.TimeoutException:
            raise NoAnswer("timed out", retryable=True) from None
        except httpx.HTTPError as error:
            raise NoAnswer(f"could not be reached: {type(error).__name__}", retryable=True) from None

    def _read(self, response: httpx.Response, bytes_max: int) -> bytes:
        """Reads the whole body. httpx restarts its timeout with each byte; this deadline also stops a slow trickle."""
        deadline = time.monotonic() + self._attempts.timeout_s
        body = bytearray()
        for piece in response.iter_bytes():
            body += piece
            if len(body) > bytes_max:
                raise NoAnswer("answer too long")
            if time.monotonic() > deadline:
                raise NoAnswer("timed out", retryable=True)
        return bytes(body)


def _check_status(response: httpx.Response) -> None:
    status = response.status_code
    if status == httpx.codes.OK:
        return
    raise NoAnswer(
        f"answered with status {status}{_error_code(response)}",
        retryable=status in _RETRYABLE_STATUSES or status >= 500,
        retry_after_s=_seconds(response.headers.get("Retry-After", "")),
    )


def _error_code(response: httpx.Response) -> str:
    """Returns the code in the body, but not the message: servers quote the text they were sent in it."""
    match = re.search(rb'"code"\s*:\s*"([\w.-]{1,64})"', next(response.iter_bytes(), b""))
    return f" ({match[1].decode()})" if match else ""


def _seconds(retry_after: str) -> float | None:
    """Reads only the form in seconds; for a date we use our own pauses."""
    return float(retry_after) if re.fullmatch(r"\d{1,9}(\.\d+)?", retry_after, re.ASCII) else None
