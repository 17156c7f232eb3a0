"""The same text is never embedded twice."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from drillcore_server.vectors.embedding.cache import (
    ENTRY_OVERHEAD_BYTES,
    CacheCounts,
    CachingEmbedder,
    MemoryCache,
    embedding_key,
)
from drillcore_server.vectors.embedding.embedders import ProviderFailed, TextRefused, Vectors
from drillcore_server.vectors.embedding.static import StaticEmbedder, load_static

MIB = 1 << 20


class Recording:
    """The built-in model with a list of the texts it was given. Tests can hold it at a gate and make it fail."""

    def __init__(self, inner: StaticEmbedder, model: str | None = None) -> None:
        self.inner = inner
        self.model = model or inner.model
        self.dimensions = inner.dimensions
        self.batches: list[list[str]] = []
        self.started = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        self.failures = 0

    @property
    def texts(self) -> list[str]:
        return [text for batch in self.batches for text in batch]

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.batches.append(list(texts))
        self.started.set()
        assert self.gate.wait(20)
        if self.failures:
            self.failures -= 1
            raise ProviderFailed("down", retryable=True)
        return self.inner.embed(texts)


@pytest.fixture(scope="module")
def static() -> StaticEmbedder:
    return load_static()


@pytest.fixture
def recording(static: StaticEmbedder) -> Recording:
    return Recording(static)


@pytest.fixture
def caching(recording: Recording) -> CachingEmbedder:
    return CachingEmbedder(recording, MemoryCache(MIB))


def test_a_text_seen_before_is_not_embedded_again(recording: Recording, caching: CachingEmbedder) -> None:
    caching.embed(["a", "b"])
    caching.embed(["b", "c", "a"])
    assert recording.batches == [["a", "b"], ["c"]]
    assert caching.counts == CacheCounts(hits=2, misses=3)


def test_a_text_twice_in_one_batch_is_embedded_once(recording: Recording, caching: CachingEmbedder) -> None:
    rows = caching.embed(["a", "b", "a", "a"])
    assert recording.batches == [["a", "b"]]
    assert rows.tobytes() == recording.inner.embed(["a", "b", "a", "a"]).tobytes()
    assert caching.counts == CacheCounts(hits=2, misses=2)


def test_a_kept_vector_has_the_bytes_of_a_fresh_one(recording: Recording, caching: CachingEmbedder) -> None:
    fresh, kept = caching.embed(["x", "y"]), caching.embed(["y", "x"])
    assert fresh.tobytes() == kept[::-1].tobytes() == recording.inner.embed(["x", "y"]).tobytes()


def test_writing_into_an_answer_does_not_change_the_cache(recording: Recording, caching: CachingEmbedder) -> None:
    caching.embed(["a"])[:] = 7
    caching.embed(["a"])[:] = 7
    assert caching.embed(["a"]).tobytes() == recording.inner.embed(["a"]).tobytes()


def test_a_batch_of_known_texts_does_not_call_the_model(recording: Recording, caching: CachingEmbedder) -> None:
    caching.embed(["a"])
    caching.embed(["a"])
    assert caching.embed([]).shape == (0, recording.dimensions)
    assert len(recording.batches) == 1


def test_two_models_never_share_a_vector(static: StaticEmbedder) -> None:
    cache = MemoryCache(MIB)
    first, second = Recording(static, "m@1"), Recording(static, "m@2")
    CachingEmbedder(first, cache).embed(["a"])
    CachingEmbedder(second, cache).embed(["a"])
    assert first.texts == second.texts == ["a"]


def test_two_salts_never_share_a_vector(static: StaticEmbedder) -> None:
    cache, recording = MemoryCache(MIB), Recording(static)
    CachingEmbedder(recording, cache, salt=b"tenant 1").embed(["a"])
    CachingEmbedder(recording, cache, salt=b"tenant 2").embed(["a"])
    assert recording.texts == ["a", "a"]


def test_a_damaged_entry_is_embedded_again_and_replaced(recording: Recording) -> None:
    cache = MemoryCache(MIB)
    key = embedding_key(recording.model, "a")
    cache.put_many([(key, b"short")])
    rows = CachingEmbedder(recording, cache).embed(["a"])
    assert rows.tobytes() == recording.inner.embed(["a"]).tobytes()
    assert cache.get_many([key]) == [rows.tobytes()]


def test_a_text_that_another_call_is_embedding_is_waited_for(recording: Recording, caching: CachingEmbedder) -> None:
    recording.gate.clear()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(caching.embed, ["a", "b"])
        assert recording.started.wait(20)
        second = pool.submit(caching.embed, ["b", "a"])
        recording.gate.set()
        assert first.result(20).tobytes() == second.result(20)[::-1].tobytes()
    assert recording.texts == ["a", "b"]


def test_many_threads_embed_each_text_once(recording: Recording, caching: CachingEmbedder) -> None:
    texts = [f"clause {number}" for number in range(60)]

    def some(start: int) -> Vectors:
        return caching.embed(texts[start:] + texts[:start])

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(some, range(60)))
    expected = recording.inner.embed(texts)
    assert all(np.array_equal(np.roll(rows, start, axis=0), expected) for start, rows in enumerate(results))
    assert sorted(recording.texts) == sorted(texts)
    assert caching.counts == CacheCounts(hits=60 * 59, misses=60)


def test_a_failure_reaches_its_caller_only_and_others_try_again(recording: Recording, caching: CachingEmbedder) -> None:
    recording.gate.clear()
    recording.failures = 1
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(caching.embed, ["a"])
        assert recording.started.wait(20)
        second = pool.submit(caching.embed, ["a"])
        recording.gate.set()
        outcomes = [first.exception(20), second.exception(20)]
    assert isinstance(outcomes[0], ProviderFailed)
    assert outcomes[1] is None
    assert caching.counts == CacheCounts(hits=0, misses=1)


def test_after_a_failure_the_same_call_works(recording: Recording, caching: CachingEmbedder) -> None:
    recording.failures = 1
    with pytest.raises(ProviderFailed):
        caching.embed(["a"])
    assert caching.embed(["a"]).tobytes() == recording.inner.embed(["a"]).tobytes()


def test_a_refused_text_keeps_its_place_in_the_callers_batch(recording: Recording, caching: CachingEmbedder) -> None:
    caching.embed(["a"])
    with pytest.raises(TextRefused) as refused:
        caching.embed(["a", "a", ""])
    assert refused.value.position == 2


def test_keys_are_fixed() -> None:
    """Stored caches are found under these keys."""
    assert embedding_key("m@1", "text").hex() == "e9f2526b5e9b0d0207b81ff27c6666c64f58c74b41df0e2900b45450d9bb75f7"


def test_keys_separate_the_model_from_the_text() -> None:
    assert embedding_key("m", "xtext") != embedding_key("mx", "text")


def test_the_memory_cache_forgets_the_least_recently_used_entry() -> None:
    cache = MemoryCache(3 * (ENTRY_OVERHEAD_BYTES + 1 + 4))
    cache.put_many((bytes([key]), b"1234") for key in b"abc")
    cache.get_many([b"a"])
    cache.put_many([(b"d", b"1234")])
    assert cache.get_many([b"a", b"b", b"c", b"d"]) == [b"1234", None, b"1234", b"1234"]


def test_putting_an_entry_again_takes_no_more_room() -> None:
    cache = MemoryCache(2 * (ENTRY_OVERHEAD_BYTES + 1 + 4))
    for _ in range(10):
        cache.put_many([(b"a", b"1234"), (b"b", b"1234")])
    assert cache.get_many([b"a", b"b"]) == [b"1234", b"1234"]


def test_an_entry_larger_than_the_memory_cache_is_not_kept() -> None:
    cache = MemoryCache(10)
    cache.put_many([(b"a", b"1234")])
    assert cache.get_many([b"a"]) == [None]
