"""Sealed records are read exactly as they were put, and every change of them is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_fdb.embedded import EmbeddedEngine
from drillcore_fdb.errors import StoreCorruptError
from drillcore_fdb.tuples import Subspace, prefix_end
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import CorpusNumber, Revision, SourceId
from drillcore_server.storage.keyring import KeyErased, KeyLostError, KeyNumber, Keyring
from drillcore_server.storage.sealed import SealedRecords, keys_of, sealed_by
from drillcore_server.storage.versioned import Entry
from tests.support.stores.stores import opened

KEY, OTHER_KEY = b"place/one", b"place/two"
ONE, TWO = Revision(1), Revision(2)
SECRET = b"The subject was born in Utrecht. "


@pytest.fixture(scope="module")
def keyring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyring]:
    with opened(tmp_path_factory.mktemp("keyring")) as engine:
        yield Keyring(engine, Subspace(b"keyring"), bytes(32))


@pytest.fixture(scope="module")
def number(keyring: Keyring) -> KeyNumber:
    return keyring.numbers(CorpusNumber(1), [SourceId("source")])[0]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with opened(tmp_path / "store") as engine:
        yield engine


@pytest.fixture
def sealed(keyring: Keyring) -> SealedRecords:
    return SealedRecords(keyring)


def stored_at(engine: EmbeddedEngine, key: bytes, revision: Revision) -> bytes:
    entry = engine.run(lambda tr: versioned.get(tr, key, revision))
    assert entry is not None
    return entry.value


def test_a_record_is_read_at_its_revision_and_later(
    engine: EmbeddedEngine, sealed: SealedRecords, number: KeyNumber
) -> None:
    values = {ONE: SECRET, TWO: SECRET * 20_000}
    for revision, value in values.items():
        engine.run(lambda tr, r=revision, v=value: sealed.put(tr, KEY, r, number, v))  # type: ignore[misc]
    for revision, value in [(ONE, values[ONE]), (TWO, values[TWO]), (Revision(9), values[TWO])]:
        expected = Entry(KEY, min(revision, TWO), value)
        assert engine.run(lambda tr, r=revision: sealed.get(tr, KEY, r)) == expected  # type: ignore[misc]
        scanned = engine.run(lambda tr, r=revision: list(sealed.scan(tr, KEY, prefix_end(KEY), r)))  # type: ignore[misc]
        assert scanned == [expected]
    assert engine.run(lambda tr: sealed.get(tr, KEY, Revision(0))) is None


@given(
    value=st.one_of(st.binary(max_size=300), st.builds(lambda unit, n: unit * n, st.binary(max_size=9), st.just(99)))
)
def test_any_value_is_read_back_unchanged(keyring: Keyring, number: KeyNumber, value: bytes) -> None:
    sealed = SealedRecords(keyring)
    stored = sealed.seal(KEY, ONE, number, value)
    assert sealed.opened(Entry(KEY, ONE, stored)).value == value
    assert sealed.seal(KEY, ONE, number, value) != stored, "a nonce is never used twice"


def test_text_is_compressed_and_incompressible_bytes_are_not(sealed: SealedRecords, number: KeyNumber) -> None:
    overhead_bytes = 4 + 12 + 16 + 1
    assert len(sealed.seal(KEY, ONE, number, SECRET * 100)) < len(SECRET * 100) // 10
    incompressible = random.Random(1).randbytes(1_000)
    assert len(sealed.seal(KEY, ONE, number, incompressible)) == 1_000 + overhead_bytes
    assert len(sealed.seal(KEY, ONE, number, SECRET)) < len(SECRET) + overhead_bytes, (
        "a single sentence gets shorter too"
    )


@pytest.mark.parametrize("is_dense", [False, True])
def test_a_record_is_stored_without_a_second_checksum(
    engine: EmbeddedEngine, sealed: SealedRecords, number: KeyNumber, is_dense: bool
) -> None:
    value = random.Random(1).randbytes(512)
    engine.run(lambda tr: sealed.put(tr, KEY, ONE, number, value, is_dense=is_dense))
    ((_, stored),) = engine.run(lambda tr: list(tr.range(b"", b"\xff")))
    assert len(stored) == 1 + 4 + 12 + 16 + 1 + len(value)
    assert engine.run(lambda tr: sealed.get(tr, KEY, ONE)) == Entry(KEY, ONE, value)


def test_a_bit_flipped_in_the_store_is_found(engine: EmbeddedEngine, sealed: SealedRecords, number: KeyNumber) -> None:
    engine.run(lambda tr: sealed.put(tr, KEY, ONE, number, SECRET))
    ((key, good),) = engine.run(lambda tr: list(tr.range(b"", b"\xff")))
    for place in range(len(good)):
        bad = good[:place] + bytes([good[place] ^ (1 << (place % 8))]) + good[place + 1 :]
        engine.run(lambda tr, v=bad: tr.set(key, v))  # type: ignore[misc]
        with pytest.raises(StoreCorruptError):
            engine.run(lambda tr: sealed.get(tr, KEY, ONE))


@pytest.mark.parametrize("times", [1, 50])
def test_nothing_of_the_content_is_stored(
    engine: EmbeddedEngine, sealed: SealedRecords, number: KeyNumber, times: int
) -> None:
    engine.run(lambda tr: sealed.put(tr, KEY, ONE, number, SECRET * times))
    everything = b"".join(value for _, value in engine.run(lambda tr: list(tr.range(b"", b"\xff"))))
    assert b"Utrecht" not in everything


@pytest.mark.parametrize(("key", "revision"), [(OTHER_KEY, ONE), (KEY, TWO), (OTHER_KEY, TWO)])
def test_a_record_copied_to_another_place_is_refused(
    engine: EmbeddedEngine, sealed: SealedRecords, number: KeyNumber, key: bytes, revision: Revision
) -> None:
    engine.run(lambda tr: sealed.put(tr, KEY, ONE, number, SECRET))
    copied = stored_at(engine, KEY, ONE)
    engine.run(lambda tr: versioned.put(tr, key, revision, copied))
    with pytest.raises(StoreCorruptError, match="not what was written there"):
        engine.run(lambda tr: sealed.get(tr, key, revision))
    with pytest.raises(StoreCorruptError, match="not what was written there"):
        engine.run(lambda tr: list(sealed.scan(tr, key, prefix_end(key), revision)))


def test_a_flipped_bit_anywhere_is_refused(engine: EmbeddedEngine, sealed: SealedRecords, number: KeyNumber) -> None:
    """The checksum is made anew, so the seal must refuse the record."""
    good = sealed.seal(KEY, ONE, number, SECRET)
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 1 << (place % 8)
        engine.run(lambda tr, v=bytes(bad): versioned.put(tr, KEY, ONE, v))  # type: ignore[misc]
        with pytest.raises(StoreCorruptError):
            engine.run(lambda tr: sealed.get(tr, KEY, ONE))


@pytest.mark.parametrize("size", [0, 3, 4, 15, 16, 20, 31])
def test_a_record_cut_short_is_refused(
    engine: EmbeddedEngine, sealed: SealedRecords, number: KeyNumber, size: int
) -> None:
    cut = sealed.seal(KEY, ONE, number, SECRET)[:size]
    engine.run(lambda tr: versioned.put(tr, KEY, ONE, cut))
    with pytest.raises(StoreCorruptError):
        engine.run(lambda tr: sealed.get(tr, KEY, ONE))


def test_a_refusal_names_the_lost_key_of_a_record(engine: EmbeddedEngine, sealed: SealedRecords) -> None:
    engine.run(lambda tr: versioned.put(tr, KEY, ONE, (4711).to_bytes(4, "big") + bytes(60)))
    with pytest.raises(KeyLostError, match="4711"):
        engine.run(lambda tr: sealed.get(tr, KEY, ONE))


def test_a_record_sealed_under_another_source_is_refused(
    engine: EmbeddedEngine, sealed: SealedRecords, keyring: Keyring, number: KeyNumber
) -> None:
    (other_key,) = keyring.numbers(CorpusNumber(1), [SourceId("other")])
    stored = sealed.seal(KEY, ONE, number, SECRET)
    engine.run(lambda tr: versioned.put(tr, KEY, ONE, other_key.to_bytes(4, "big") + stored[4:]))
    with pytest.raises(StoreCorruptError):
        engine.run(lambda tr: sealed.get(tr, KEY, ONE))


def test_a_record_sealed_under_several_keys_is_erased_with_any_of_them(
    engine: EmbeddedEngine, sealed: SealedRecords, keyring: Keyring
) -> None:
    sources = [SourceId("first"), SourceId("second"), SourceId("third")]
    first, second, third = keyring.numbers(CorpusNumber(2), sources)
    engine.run(lambda tr: sealed.put(tr, KEY, ONE, [third, first, third], SECRET))
    engine.run(lambda tr: sealed.put(tr, OTHER_KEY, ONE, [second, third], SECRET))
    assert sealed_by(stored_at(engine, KEY, ONE)) == keys_of(stored_at(engine, KEY, ONE)) == (first, third)
    assert engine.run(lambda tr: sealed.get(tr, KEY, ONE)) == Entry(KEY, ONE, SECRET)
    keyring.destroy(CorpusNumber(2), {first: keyring.hashed(sources[0])}, datetime(2026, 11, 16, tzinfo=UTC))
    with pytest.raises(KeyErased, match=f"key {first} "):
        engine.run(lambda tr: sealed.get(tr, KEY, ONE))
    with pytest.raises(KeyErased):
        sealed.seal(KEY, TWO, [first, second], SECRET)
    left = engine.run(lambda tr: list(sealed.scan(tr, b"place/", prefix_end(b"place/"), ONE)))
    assert left == [Entry(OTHER_KEY, ONE, SECRET)]


def test_a_list_of_keys_that_was_changed_is_refused(
    engine: EmbeddedEngine, sealed: SealedRecords, keyring: Keyring, number: KeyNumber
) -> None:
    (other_key,) = keyring.numbers(CorpusNumber(1), [SourceId("other")])
    stored = sealed.seal(KEY, ONE, [number, other_key], SECRET)
    fewer = stored[:4] + (1).to_bytes(4, "big") + stored[8:12] + stored[16:]
    none = stored[:4] + bytes(4) + stored[16:]
    for changed in (fewer, none, stored[:6]):
        engine.run(lambda tr, value=changed: versioned.put(tr, KEY, ONE, value))  # type: ignore[misc]
        with pytest.raises(StoreCorruptError):
            engine.run(lambda tr: sealed.get(tr, KEY, ONE))
