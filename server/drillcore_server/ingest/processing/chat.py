"""A client of OpenAI's chat completions protocol: one question, one JSON object back, with limits and retries."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import httpx

from drillcore.settings import secret

ANSWER_BYTES_MAX: Final = 1 << 20
BACKOFF_MAX_S: Final = 30.0
_WORTH_RETRYING: Final = frozenset((408, 409, 425, 429, 500, 502, 503, 504))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    base_url: str
    """Up to and with the version: https://api.openai.com/v1"""
    model: str
    api_key: str | None = secret()
    timeout_s: float = 60.0
    """For one attempt, all of it."""
    attempts: int = 3
    backoff_s: float = 0.5
    """Before the second attempt; doubled before each further one, unless the server says how long."""
    concurrency: int = 4
    failures_in_a_row_max: int = 5
    """After so many questions without an answer none is asked for `pause_s`: a server that is down costs seconds, not
    hours."""
    pause_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("timeout_s", "attempts", "concurrency", "failures_in_a_row_max"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0")
        if not self.base_url.startswith(("http://", "https://")):
            raise ValueError("base_url must begin with http:// or https://")


class NoAnswer(Exception):  # noqa: N818 - says what came back
    """The server gave no usable answer. The message says why, and holds neither content nor secrets."""

    def __init__(self, why: str, *, retry: bool = False, retry_after_s: float | None = None) -> None:
        super().__init__(why)
        self.retry = retry
        self.retry_after_s = retry_after_s


class Chat:
    """Safe to use from several threads. Close it, or use it as a context manager."""

    def __init__(self, settings: ChatSettings) -> None:
        self._settings = settings
        headers = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        limits = httpx.Limits(max_connections=settings.concurrency, max_keepalive_connections=settings.concurrency)
        self._client = httpx.Client(headers=headers, timeout=settings.timeout_s, limits=limits, trust_env=False)
        self._url = f"{settings.base_url.rstrip('/')}/chat/completions"
        self._breaker = _Breaker(settings.failures_in_a_row_max, settings.pause_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def ask(self, instructions: str, question: str) -> Mapping[str, Any]:
        """The JSON object the model answers with. Raises NoAnswer."""
        if self._breaker.is_open():
            raise NoAnswer("not asked: too many failures in a row")
        try:
            answer = self._ask_with_retries(instructions, question)
        except NoAnswer:
            self._breaker.failed()
            raise
        self._breaker.succeeded()
        return answer

    def _ask_with_retries(self, instructions: str, question: str) -> Mapping[str, Any]:
        for attempt in range(1, self._settings.attempts + 1):
            try:
                return self._ask_once(instructions, question)
            except NoAnswer as error:
                if not error.retry or attempt == self._settings.attempts:
                    raise
                time.sleep(self._wait_s(attempt, error.retry_after_s))
        raise AssertionError("attempts is more than 0")

    def _wait_s(self, attempt: int, retry_after_s: float | None) -> float:
        if retry_after_s is not None:
            return min(retry_after_s, BACKOFF_MAX_S)
        return min(self._settings.backoff_s * 2.0 ** (attempt - 1), BACKOFF_MAX_S) * random.uniform(0.5, 1.0)

    def _ask_once(self, instructions: str, question: str) -> Mapping[str, Any]:
        body = {
            "model": self._settings.model,
            "temperature": 0,
            "seed": 0,
            "response_format": {"type": "json_object"},
            "messages": [{"role": "system", "content": instructions}, {"role": "user", "content": question}],
        }
        try:
            with self._client.stream("POST", self._url, json=body) as response:
                _check_status(response)
                return _object_in(self._read(response))
        except httpx.TimeoutException:
            raise NoAnswer("timed out", retry=True) from None
        except httpx.HTTPError as error:
            raise NoAnswer(f"could not be reached: {type(error).__name__}", retry=True) from None

    def _read(self, response: httpx.Response) -> bytes:
        """The whole body, within the size and the time allowed: a server that trickles does not hold us up."""
        deadline = time.monotonic() + self._settings.timeout_s
        body = bytearray()
        for part in response.iter_bytes():
            body += part
            if len(body) > ANSWER_BYTES_MAX:
                raise NoAnswer("answer too long")
            if time.monotonic() > deadline:
                raise NoAnswer("timed out", retry=True)
        return bytes(body)


class _Breaker:
    """Opens after failures in a row, for a while."""

    def __init__(self, failures_max: int, pause_s: float) -> None:
        self._failures_max = failures_max
        self._pause_s = pause_s
        self._lock = threading.Lock()
        self._failures = 0
        self._open_until = 0.0

    def is_open(self) -> bool:
        with self._lock:
            return time.monotonic() < self._open_until

    def failed(self) -> None:
        with self._lock:
            self._failures += 1
            if self._failures >= self._failures_max:
                self._failures = 0
                self._open_until = time.monotonic() + self._pause_s

    def succeeded(self) -> None:
        with self._lock:
            self._failures = 0


def _check_status(response: httpx.Response) -> None:
    if response.status_code == httpx.codes.OK:
        return
    raise NoAnswer(
        f"answered with status {response.status_code}",
        retry=response.status_code in _WORTH_RETRYING,
        retry_after_s=_seconds(response.headers.get("Retry-After", "")),
    )


def _seconds(header: str) -> float | None:
    return float(header) if header.isascii() and header.isdigit() else None


def _object_in(body: bytes) -> Mapping[str, Any]:
    try:
        content = json.loads(body)["choices"][0]["message"]["content"]
        answer = json.loads(content)
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        raise NoAnswer("answer is not what the protocol says") from None
    if not isinstance(answer, dict):
        raise NoAnswer("answer is not a JSON object")
    return answer
