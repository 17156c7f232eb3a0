"""Embeddings from any server that speaks OpenAI's protocol: `POST {base_url}/embeddings`."""

from __future__ import annotations

import hashlib
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx
import numpy as np
import orjson

from drillcore.settings import secret
from drillcore_server.ingest.embedding.errors import ProviderFailed, VectorRefused
from drillcore_server.ingest.embedding.ports import Vectors
from drillcore_server.ingest.embedding.texts import check_texts, portions
from drillcore_server.ingest.embedding.vectors import checked_vectors

BACKOFF_FIRST_S: Final = 0.5
BACKOFF_MAX_S: Final = 30.0
COMPONENT_BYTES_MAX: Final = 40
"""A number in JSON, with room to spare. An answer that is longer than its vectors can be is not read to the end."""
ENVELOPE_BYTES_MAX: Final = 1 << 16
REQUEST_CHARACTERS_MAX: Final = 400_000
"""Some 100,000 tokens; OpenAI takes 300,000 in a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAISettings:
    base_url: str
    """With the version, as in `https://api.openai.com/v1`."""
    model: str
    dimensions: int
    """What the answers must have."""
    request_dimensions: bool = False
    """Whether to ask for that many. Only models that can shorten their vectors accept it."""
    api_key: str | None = secret()
    revision: str | None = None
    """Which weights the server runs, if known. Without it the address stands in for them, and moving the server makes
    another model of it."""
    batch_texts_max: int = 128
    timeout_s: float = 60.0
    """For one attempt, from the request to the last byte of the answer."""
    attempts_max: int = 4

    def __post_init__(self) -> None:
        for name in ("dimensions", "batch_texts_max", "timeout_s", "attempts_max"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0")
        url = httpx.URL(self.base_url)
        if url.scheme not in {"http", "https"} or not url.host or url.userinfo or url.query:
            raise ValueError("base_url must be http(s)://HOST/PATH, with no credentials in it; those go into api_key")
        if self.api_key is not None and not re.fullmatch("[!-~]+", self.api_key):
            raise ValueError("api_key has a character that no HTTP header can carry")


class OpenAIEmbedder:
    """Close it, or use it in a `with` statement. An instance keeps its connections open between calls.

    Whether a text gets the same bytes every time is up to the server; many round differently from batch to batch. With
    a cache in front the first answer stays.
    """

    def __init__(self, settings: OpenAISettings, sleep: Callable[[float], None] = time.sleep) -> None:
        self._settings = settings
        self._sleep = sleep
        headers = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        self._client = httpx.Client(headers=headers, timeout=settings.timeout_s)
        self._url = f"{settings.base_url.rstrip('/')}/embeddings"
        self.dimensions = settings.dimensions
        self.model = _model_name(settings)

    def __enter__(self) -> OpenAIEmbedder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Raises ProviderFailed when the server gives no usable answer in the attempts there are."""
        check_texts(texts)
        batches = portions(texts, self._settings.batch_texts_max, REQUEST_CHARACTERS_MAX)
        rows = [self._embed_batch(batch) for batch in batches]
        return np.concatenate(rows) if rows else np.empty((0, self.dimensions), np.float32)

    def _embed_batch(self, texts: Sequence[str]) -> Vectors:
        request: dict[str, object] = {"model": self._settings.model, "input": list(texts), "encoding_format": "float"}
        if self._settings.request_dimensions:
            request["dimensions"] = self.dimensions
        content = self._post(orjson.dumps(request), self._answer_bytes_max(len(texts)))
        return read_answer(content, len(texts), self.dimensions)

    def _answer_bytes_max(self, texts: int) -> int:
        return ENVELOPE_BYTES_MAX + texts * (ENVELOPE_BYTES_MAX // 64 + self.dimensions * COMPONENT_BYTES_MAX)

    def _post(self, request: bytes, answer_bytes_max: int) -> bytes:
        for attempt in range(1, self._settings.attempts_max + 1):
            try:
                return self._attempt(request, answer_bytes_max)
            except _Again as again:
                if attempt == self._settings.attempts_max:
                    message = f"{self._url} {again.problem}, in the last of {attempt} attempts"
                    raise ProviderFailed(message, retryable=True) from again
                self._sleep(again.delay_s if again.delay_s is not None else _backoff_s(attempt))
        raise AssertionError("attempts_max is at least 1")

    def _attempt(self, request: bytes, answer_bytes_max: int) -> bytes:
        headers = {"Content-Type": "application/json"}
        try:
            with self._client.stream("POST", self._url, content=request, headers=headers) as response:
                content = self._read(response, answer_bytes_max)
        except httpx.RequestError as error:
            raise _Again(f"cannot be reached ({type(error).__name__})") from error
        if response.status_code in {408, 429} or response.status_code >= 500:
            raise _Again(_told(response, content), _retry_after_s(response.headers))
        if response.status_code != 200:
            raise ProviderFailed(f"{self._url} {_told(response, content)}", retryable=False)
        return content

    def _read(self, response: httpx.Response, bytes_max: int) -> bytes:
        """The client's own timeout starts again with each byte; this one does not."""
        deadline = time.monotonic() + self._settings.timeout_s
        content = bytearray()
        for piece in response.iter_bytes():
            content += piece
            if len(content) > bytes_max:
                raise ProviderFailed(f"{self._url} answered with over {bytes_max} bytes", retryable=False)
            if time.monotonic() > deadline:
                raise _Again(f"did not finish its answer in {self._settings.timeout_s} s")
        return bytes(content)


class _Again(Exception):  # noqa: N818 - a message to the loop above
    def __init__(self, problem: str, delay_s: float | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.delay_s = delay_s


def read_answer(content: bytes, count: int, dimensions: int) -> Vectors:
    """The vectors in the order of the texts, each checked and of length 1. Raises ProviderFailed."""
    try:
        entries = orjson.loads(content)["data"]
        by_index: dict[int, Any] = {entry["index"]: entry["embedding"] for entry in entries}
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise ProviderFailed("the answer is not in the form of OpenAI's embeddings", retryable=False) from error
    if len(entries) != count or by_index.keys() != set(range(count)):
        message = f"the answer has {len(entries)} vectors for {count} texts, or not one for each"
        raise ProviderFailed(message, retryable=False)
    try:
        return checked_vectors([by_index[index] for index in range(count)], dimensions)
    except VectorRefused as error:
        raise ProviderFailed(f"in the answer {error}", retryable=False) from error


def _model_name(settings: OpenAISettings) -> str:
    address = hashlib.sha256(settings.base_url.rstrip("/").encode()).hexdigest()[:16]
    return f"openai/{settings.model}/{settings.dimensions}@{settings.revision or address}"


def _told(response: httpx.Response, content: bytes) -> str:
    """Status and error code. Not the message: servers quote the text in it."""
    match = re.search(rb'"code"\s*:\s*"([\w.-]{1,64})"', content)
    code = f" ({match[1].decode()})" if match else ""
    return f"answered {response.status_code}{code}"


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Only the form in seconds; a date falls back to our own delays."""
    told = headers.get("Retry-After", "")
    return min(float(told), BACKOFF_MAX_S) if re.fullmatch(r"\d{1,9}(\.\d+)?", told) else None


def _backoff_s(attempt: int) -> float:
    return min(BACKOFF_FIRST_S * 2.0 ** (attempt - 1), BACKOFF_MAX_S) * random.uniform(0.5, 1.0)
