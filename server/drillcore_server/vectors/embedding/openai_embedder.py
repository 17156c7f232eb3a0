"""Embeddings from any server that speaks OpenAI's protocol: `POST {base_url}/embeddings`."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx
import numpy as np
import orjson

from drillcore_formats.settings import secret
from drillcore_server.kernel.model_server import Attempts, ModelServer, NoAnswer
from drillcore_server.vectors.embedding.embedders import ProviderFailed, VectorRefused, Vectors, check_texts, portions
from drillcore_server.vectors.embedding.unit_vectors import checked_vectors

COMPONENT_BYTES_MAX: Final = 40
"""More than any number in JSON takes. We stop reading an answer that is longer than its vectors can be."""
ENVELOPE_BYTES_MAX: Final = 1 << 16
REQUEST_CHARACTERS_MAX: Final = 400_000
"""About 100,000 tokens; OpenAI accepts 300,000 in a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAISettings:
    base_url: str
    """Includes the version, as in `https://api.openai.com/v1`."""
    model: str
    dimensions: int
    """The length that every vector in an answer must have."""
    request_dimensions: bool = False
    """Whether requests ask for this length. Only models that can shorten their vectors accept it."""
    api_key: str | None = secret()
    revision: str | None = None
    """Names the weights that the server runs, if known. Without it the address stands in for the weights, so a server
    that moves counts as another model."""
    batch_texts_max: int = 128
    timeout_s: float = 60.0
    """The limit for one attempt, from the request to the last byte of the answer."""
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
    """Close it, or use it in a `with` statement. It keeps its connections open between calls.

    The server decides whether a text gets the same bytes every time; many round differently from batch to batch. A
    cache in front keeps the first answer.
    """

    def __init__(self, settings: OpenAISettings, sleep: Callable[[float], None] = time.sleep) -> None:
        self._settings = settings
        self._server = ModelServer(
            f"{settings.base_url.rstrip('/')}/embeddings",
            settings.api_key,
            Attempts(count_max=settings.attempts_max, timeout_s=settings.timeout_s),
            trust_env=True,
            sleep=sleep,
        )
        self.dimensions = settings.dimensions
        self.model = _model_name(settings)

    def __enter__(self) -> OpenAIEmbedder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.close()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Raises `ProviderFailed` when no attempt gets a usable answer."""
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
        try:
            return self._server.post(request, answer_bytes_max)
        except NoAnswer as error:
            last = f", in the last of {self._settings.attempts_max} attempts" if error.retryable else ""
            raise ProviderFailed(f"{self._server.url} {error}{last}", retryable=error.retryable) from error


def read_answer(content: bytes, count: int, dimensions: int) -> Vectors:
    """Returns the vectors in the order of the texts, each checked and of length 1. Raises `ProviderFailed`."""
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
        raise ProviderFailed(f"in the answer, {error}", retryable=False) from error


def _model_name(settings: OpenAISettings) -> str:
    address = hashlib.sha256(settings.base_url.rstrip("/").encode()).hexdigest()[:16]
    return f"openai/{settings.model}/{settings.dimensions}@{settings.revision or address}"
