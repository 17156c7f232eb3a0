"""Caches vectors under a hash of model and text, so that the same text is never embedded twice."""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from drillcore_server.vectors.embedding.embedders import Embedder, EmbeddingCache, Vectors, check_texts
from drillcore_server.vectors.embedding.unit_vectors import pack, unpack_many

ENTRY_OVERHEAD_BYTES: Final = 160
"""The memory that Python needs for a cache entry besides its key and value."""


def embedding_key(model: str, text: str, salt: bytes = b"") -> bytes:
    """Returns 32 bytes. With a secret salt, nobody who sees keys can find out by trial which texts they belong to."""
    name = model.encode("utf-8")
    return hmac.digest(salt, len(name).to_bytes(4, "big") + name + text.encode("utf-8"), hashlib.sha256)


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """Every requested text counts as a hit or as a miss."""

    hits: int
    """Texts answered from the cache, from elsewhere in their batch, or from a call that was already embedding them."""
    misses: int
    """Texts that were embedded."""


class CachingEmbedder:
    """An embedder that asks the cache first.

    Vectors keep full precision: a text gets the same bytes whether its vector was cached or is new.
    """

    def __init__(self, embedder: Embedder, cache: EmbeddingCache, salt: bytes = b"") -> None:
        self._embedder = embedder
        self._cache = cache
        self._salt = salt
        self._lock = threading.Lock()
        self._under_way: dict[bytes, Future[bytes | None]] = {}
        self._texts = self._misses = 0
        self.model = embedder.model
        self.dimensions = embedder.dimensions

    def forget(self) -> None:
        """Drops every cached vector."""
        self._cache.clear()

    @property
    def counts(self) -> CacheCounts:
        with self._lock:
            return CacheCounts(hits=self._texts - self._misses, misses=self._misses)

    def embed(self, texts: Sequence[str]) -> Vectors:
        check_texts(texts)
        keys = [embedding_key(self.model, text, self._salt) for text in texts]
        missing = dict(zip(keys, texts, strict=True))
        found: dict[bytes, bytes] = {}
        while missing:
            found |= self._find_or_embed(missing)
            missing = {key: text for key, text in missing.items() if key not in found}
        with self._lock:
            self._texts += len(texts)
        return unpack_many([found[key] for key in keys], self.dimensions)

    def _find_or_embed(self, wanted: Mapping[bytes, str]) -> dict[bytes, bytes]:
        """Returns all of `wanted` except what another call claimed and failed to embed. Embeds its own texts before it
        waits, so that two calls that wait for each other both finish."""
        mine, others = self._claim(wanted)
        found: dict[bytes, bytes] = {}
        try:
            found = self._kept(mine)
            found |= self._embedded({key: wanted[key] for key in mine if key not in found})
        finally:
            self._release(mine, found)
        answers = ((key, claim.result()) for key, claim in others.items())
        return found | {key: vector for key, vector in answers if vector is not None}

    def _claim(self, keys: Iterable[bytes]) -> tuple[list[bytes], dict[bytes, Future[bytes | None]]]:
        """Returns the keys that this call now has to answer, and those of other calls under way."""
        with self._lock:
            others = {key: self._under_way[key] for key in keys if key in self._under_way}
            mine = [key for key in keys if key not in others]
            self._under_way.update((key, Future()) for key in mine)
        return mine, others

    def _release(self, keys: Iterable[bytes], found: Mapping[bytes, bytes]) -> None:
        with self._lock:
            claims = [(self._under_way.pop(key), found.get(key)) for key in keys]
        for claim, vector in claims:
            claim.set_result(vector)

    def _kept(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Returns what the cache has. A value of the wrong size is damaged; its text is embedded again."""
        answers = zip(keys, self._cache.get_many(keys), strict=True)
        return {key: vector for key, vector in answers if vector is not None and len(vector) == 4 * self.dimensions}

    def _embedded(self, missing: Mapping[bytes, str]) -> dict[bytes, bytes]:
        if not missing:
            return {}
        rows = self._embedder.embed(list(missing.values()))
        made = {key: pack(row) for key, row in zip(missing, rows, strict=True)}
        self._cache.put_many(made.items())
        with self._lock:
            self._misses += len(made)
        return made


class MemoryCache:
    """Drops the least recently used entries once it exceeds `size_bytes_max`, overhead included."""

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._size_bytes = 0
        self._entries: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._lock:
            return [self._get(key) for key in keys]

    def _get(self, key: bytes) -> bytes | None:
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._size_bytes = 0

    def put_many(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        with self._lock:
            for key, value in items:
                self._put(key, value)

    def _put(self, key: bytes, value: bytes) -> None:
        if (replaced := self._entries.pop(key, None)) is not None:
            self._size_bytes -= _entry_size_bytes(key, replaced)
        self._entries[key] = value
        self._size_bytes += _entry_size_bytes(key, value)
        while self._size_bytes > self._size_bytes_max:
            self._size_bytes -= _entry_size_bytes(*self._entries.popitem(last=False))


def _entry_size_bytes(key: bytes, value: bytes) -> int:
    return ENTRY_OVERHEAD_BYTES + len(key) + len(value)
