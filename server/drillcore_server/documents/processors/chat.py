"""Asks a model over OpenAI's chat completions protocol. Each question gets a JSON object as its answer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from drillcore_formats.settings import secret
from drillcore_server.kernel.model_server import Attempts, ModelServer, NoAnswer

ANSWER_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    base_url: str
    """Includes the version, as in `https://api.openai.com/v1`."""
    model: str
    api_key: str | None = secret()
    timeout_s: float = 60.0
    """The limit for one attempt, from the request to the last byte of the answer."""
    attempts: int = 3
    backoff_s: float = 0.5
    """The pause before the second attempt. It doubles with each further attempt, unless the server names a pause."""
    concurrency: int = 4
    failures_in_a_row_max: int = 5
    """After so many failed questions in a row, no question is asked for `pause_s`. A server that is down then costs
    seconds, not hours."""
    pause_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("timeout_s", "attempts", "concurrency", "failures_in_a_row_max"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0")
        if not self.base_url.startswith(("http://", "https://")):
            raise ValueError("base_url must begin with http:// or https://")


class Chat:
    """Safe to use from several threads. Close it, or use it in a `with` statement."""

    def __init__(self, settings: ChatSettings) -> None:
        self._model = settings.model
        self._server = ModelServer(
            f"{settings.base_url.rstrip('/')}/chat/completions",
            settings.api_key,
            Attempts(count_max=settings.attempts, timeout_s=settings.timeout_s, backoff_s=settings.backoff_s),
            connections_max=settings.concurrency,
        )
        self._breaker = _Breaker(settings.failures_in_a_row_max, settings.pause_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.close()

    def ask(self, instructions: str, question: str) -> Mapping[str, Any]:
        """Returns the JSON object that the model answers with. Raises `NoAnswer`."""
        if self._breaker.is_open():
            raise NoAnswer("not asked: too many failures in a row")
        try:
            answer = _object_in(self._server.post(self._request(instructions, question), ANSWER_BYTES_MAX))
        except NoAnswer:
            self._breaker.failed()
            raise
        self._breaker.succeeded()
        return answer

    def _request(self, instructions: str, question: str) -> bytes:
        request = {
            "model": self._model,
            "temperature": 0,
            "seed": 0,
            "response_format": {"type": "json_object"},
            "messages": [{"role": "system", "content": instructions}, {"role": "user", "content": question}],
        }
        return json.dumps(request, ensure_ascii=False).encode()


class _Breaker:
    """Opens for a while after several failures in a row."""

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


def _object_in(body: bytes) -> Mapping[str, Any]:
    try:
        content = json.loads(body)["choices"][0]["message"]["content"]
        answer = json.loads(content)
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        raise NoAnswer("answer is not what the protocol says") from None
    if not isinstance(answer, dict):
        raise NoAnswer("answer is not a JSON object")
    return answer
