"""The keyring: numbers are given once, keys are stored before they are used, and missing keys are reported."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from drillcore_fdb.embedded import Durability, EmbeddedEngine, EmbeddedSettings
from drillcore_fdb.errors import UnavailableError
from drillcore_fdb.round_trips import counted
from drillcore_fdb.tuples import Subspace
from drillcore_server.app.config import EngineSettings
from drillcore_server.app.factories import open_engine, open_keyring
from drillcore_server.storage.ids import CorpusNumber, SourceId
from drillcore_server.storage.keyring import (
    CORPUS_SCOPE,
    KeyErased,
    KeyLostError,
    KeyNumber,
    Keyring,
    read_or_make_master_key,
)
from tests.support.stores.faulty_engine import Fault, Faults, FaultyEngine, rates
from tests.support.stores.stores import opened

CORPUS, OTHER = CorpusNumber(1), CorpusNumber(2)
ROOT = Subspace(b"keyring")
MASTER_KEY = bytes(range(32))
AT = datetime(2026, 11, 16, tzinfo=UTC)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with opened(tmp_path / "keyring") as engine:
        yield engine


@pytest.fixture
def keyring(engine: EmbeddedEngine) -> Keyring:
    return Keyring(engine, ROOT, MASTER_KEY)


def sources(count: int) -> list[SourceId]:
    return [SourceId(f"source-{number}") for number in range(count)]


def secret(keyring: Keyring, number: KeyNumber) -> bytes:
    return keyring.derived(number, b"test")


def test_a_source_keeps_its_own_key_for_ever(keyring: Keyring) -> None:
    first = keyring.numbers(CORPUS, [CORPUS_SCOPE, *sources(3)])
    others = keyring.numbers(OTHER, [CORPUS_SCOPE, *sources(3)])
    assert keyring.numbers(CORPUS, [CORPUS_SCOPE, *sources(3)]) == first
    assert len({*first, *others}) == 8
    assert len({secret(keyring, number) for number in (*first, *others)}) == 8


def test_numbers_come_in_the_requested_order_even_for_a_source_named_twice(keyring: Keyring) -> None:
    first, second = sources(2)
    (known,) = keyring.numbers(CORPUS, [second])
    numbers = keyring.numbers(CORPUS, [first, second, first])
    assert numbers[1] == known
    assert numbers[0] == numbers[2] != known


def test_the_keyring_survives_being_opened_again(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        keyring = Keyring(engine, ROOT, MASTER_KEY)
        numbers = keyring.numbers(CORPUS, sources(3))
        secrets = [secret(keyring, number) for number in numbers]
    with opened(tmp_path) as engine:
        again = Keyring(engine, ROOT, MASTER_KEY)
        assert [secret(again, number) for number in numbers] == secrets
        assert again.numbers(CORPUS, sources(3)) == numbers
        assert again.numbers(CORPUS, [SourceId("another")])[0] not in numbers


def test_concurrent_callers_get_one_number_for_a_source_and_no_number_twice(engine: EmbeddedEngine) -> None:
    """Each caller has its own keyring, as servers on a cluster have."""
    asked = [random.Random(seed).sample(sources(40), 15) for seed in range(8)]
    start = threading.Barrier(len(asked))

    def ask(wanted: Sequence[SourceId]) -> dict[SourceId, tuple[KeyNumber, bytes]]:
        keyring = Keyring(engine, ROOT, MASTER_KEY)
        start.wait()
        numbers = [keyring.numbers(CORPUS, [source])[0] for source in wanted]
        return {source: (number, secret(keyring, number)) for source, number in zip(wanted, numbers, strict=True)}

    with ThreadPoolExecutor(len(asked)) as threads:
        answers = list(threads.map(ask, asked))
    agreed: dict[SourceId, tuple[KeyNumber, bytes]] = {}
    for answer in answers:
        for source, found in answer.items():
            assert agreed.setdefault(source, found) == found
    assert len({number for number, _ in agreed.values()}) == len(agreed)
    assert len({key for _, key in agreed.values()}) == len(agreed)


def test_making_keys_takes_one_transaction_and_using_them_none(keyring: Keyring) -> None:
    with counted() as total:
        numbers = keyring.numbers(CORPUS, sources(20))
    assert (total.transactions, total.count) == (1, 3)
    with counted() as total:
        for number in numbers:
            keyring.cipher(number)
    assert total.count == 0


def test_a_key_is_in_the_store_before_its_number_is_known(keyring: Keyring, engine: EmbeddedEngine) -> None:
    for source in sources(3):
        (number,) = keyring.numbers(CORPUS, [source])
        assert engine.run(lambda tr, n=number: tr.get(ROOT.pack((1, n)))) is not None  # type: ignore[misc]


@pytest.mark.parametrize("fault", [Fault.UNKNOWN_NOT_APPLIED, Fault.UNKNOWN_APPLIED, Fault.CONFLICT])
def test_no_key_is_used_that_a_failed_or_uncertain_commit_did_not_store(engine: EmbeddedEngine, fault: Fault) -> None:
    faulty = FaultyEngine(engine, Faults(5, {fault: 0.5}))
    keyring = Keyring(faulty, ROOT, MASTER_KEY)
    numbers = [keyring.numbers(CORPUS, [source])[0] for source in sources(20)]
    assert faulty.faults.injected[fault] > 5
    again = Keyring(engine, ROOT, MASTER_KEY)
    assert again.numbers(CORPUS, sources(20)) == numbers
    assert [secret(again, number) for number in numbers] == [secret(keyring, number) for number in numbers]
    assert len(set(numbers)) == 20


def test_reads_that_fail_are_tried_again(engine: EmbeddedEngine) -> None:
    keyring = Keyring(FaultyEngine(engine, Faults(6, rates(read=0.2))), ROOT, MASTER_KEY)
    numbers = keyring.numbers(CORPUS, sources(5))
    assert len({secret(keyring, number) for number in numbers}) == 5


def test_a_lost_key_is_reported_with_its_number(keyring: Keyring, engine: EmbeddedEngine) -> None:
    (number,) = keyring.numbers(CORPUS, sources(1))
    engine.run(lambda tr: tr.clear(ROOT.pack((1, number))))
    other = Keyring(engine, ROOT, MASTER_KEY)
    with pytest.raises(KeyLostError, match=rf"\bkey {number} is not in the keyring"):
        other.cipher(number)
    with pytest.raises(KeyLostError, match=r"\bkey 77 is not in the keyring"):
        other.cipher(KeyNumber(77))


def test_another_master_key_is_refused_with_an_explanation(keyring: Keyring, engine: EmbeddedEngine) -> None:
    (number,) = keyring.numbers(CORPUS, sources(1))
    with pytest.raises(KeyLostError, match=rf"\bkey {number} cannot be unwrapped: .*master key is not the one"):
        Keyring(engine, ROOT, bytes(32)).cipher(number)


def test_a_key_put_under_another_number_is_refused(keyring: Keyring, engine: EmbeddedEngine) -> None:
    first, second = keyring.numbers(CORPUS, sources(2))
    engine.run(lambda tr: tr.set(ROOT.pack((1, first)), tr.get(ROOT.pack((1, second))) or b""))
    other = Keyring(engine, ROOT, MASTER_KEY)
    with pytest.raises(KeyLostError):
        other.cipher(first)
    assert other.cipher(second)


def test_keys_are_kept_wrapped(keyring: Keyring, engine: EmbeddedEngine) -> None:
    (number,) = keyring.numbers(CORPUS, sources(1))
    key = keyring._key(number)[0]
    assert all(key not in value for _, value in engine.run(lambda tr: list(tr.range(b"", b"\xff"))))


def test_the_name_of_a_source_may_be_of_any_length(keyring: Keyring) -> None:
    """Names of sources come from callers; FoundationDB's keys have 10,000 bytes at most."""
    (number,) = keyring.numbers(CORPUS, [SourceId("s" * 20_000)])
    assert keyring.cipher(number)


def test_the_keyring_does_not_reveal_the_names_of_sources(keyring: Keyring, engine: EmbeddedEngine) -> None:
    """Names may name a person. If the keyring kept them, they would outlive an erasure."""
    keyring.numbers(CORPUS, [SourceId("patient-4711-MARKER")])
    stored = engine.run(lambda tr: list(tr.range(b"", b"\xff")))
    assert not any(b"4711" in part for pair in stored for part in pair)


def test_the_master_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "keyring" / "master.key"
    key = read_or_make_master_key(path)
    assert len(key) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_or_make_master_key(path) == key
    assert os.listdir(path.parent) == ["master.key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_master_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "master.key"
    read_or_make_master_key(path)
    path.chmod(mode)
    with pytest.raises(UnavailableError, match="chmod 600"):
        read_or_make_master_key(path)


@pytest.mark.parametrize("content", [b"", b"short", bytes(33)])
def test_a_file_that_is_no_master_key_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "master.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(UnavailableError, match="not a master key"):
        read_or_make_master_key(path)


def test_the_keyring_of_a_store_is_a_store_of_its_own_beside_it(tmp_path: Path) -> None:
    settings = EngineSettings(data_dir=tmp_path)
    engine = open_engine(settings)
    with open_keyring(settings, engine) as keyring:
        (number,) = keyring.numbers(CORPUS, sources(1))
        before = secret(keyring, number)
    assert not engine.run(lambda tr: [value for _, value in tr.range(b"", b"\xff") if len(value) > 32])
    with open_keyring(settings, engine) as keyring:
        assert secret(keyring, number) == before
    engine.close()
    assert (tmp_path / "keyring" / "master.key").stat().st_mode & 0o077 == 0


def test_a_keyring_whose_master_key_is_missing_does_not_get_a_new_one(tmp_path: Path) -> None:
    engine = EmbeddedEngine.open(EmbeddedSettings(tmp_path / "keyring", Durability.RELAXED))
    root, file = engine.directory("keyring"), tmp_path / "master.key"
    Keyring.open(engine, root, file)
    kept = file.read_bytes()
    file.unlink()
    with pytest.raises(KeyLostError, match="gone"):
        Keyring.open(engine, root, file)
    assert not file.exists()
    file.write_bytes(bytes(32))
    file.chmod(0o600)
    with pytest.raises(KeyLostError, match="not the one"):
        Keyring.open(engine, root, file)
    file.write_bytes(kept)
    Keyring.open(engine, root, file)
    engine.close()


def test_a_destroyed_key_is_erased_not_lost(keyring: Keyring, engine: EmbeddedEngine) -> None:
    first, second = keyring.numbers(CORPUS, sources(2))
    keyring.cipher(first)
    keyring.destroy(CORPUS, {first: keyring.hashed(sources(2)[0])}, AT)
    for ring in (keyring, Keyring(engine, ROOT, MASTER_KEY)):
        with pytest.raises(KeyErased, match=rf"\bkey {first} was destroyed"):
            ring.cipher(first)
        with pytest.raises(KeyErased):
            ring.composite([first, second], b"test")
        assert ring.cipher(second)
    engine.run(lambda tr: tr.clear(ROOT.pack((1, second))))
    with pytest.raises(KeyLostError, match="not destroyed by an erasure"):
        Keyring(engine, ROOT, MASTER_KEY).cipher(second)


def test_a_source_whose_key_was_destroyed_gets_a_new_one(keyring: Keyring, engine: EmbeddedEngine) -> None:
    (source,) = sources(1)
    (old,) = keyring.numbers(CORPUS, [source])
    keyring.destroy(CORPUS, {old: keyring.hashed(source)}, AT)
    (new,) = keyring.numbers(CORPUS, [source])
    assert new > old
    keyring.destroy(CORPUS, {old: keyring.hashed(source)}, AT)
    assert Keyring(engine, ROOT, MASTER_KEY).numbers(CORPUS, [source]) == [new], "destroying again spares the new key"


def test_a_key_marked_as_erased_is_not_used_though_it_still_exists(engine: EmbeddedEngine) -> None:
    """This is the state between the commit of an erasure and the destruction of the key, or on another server."""
    keyring, other_keyring = Keyring(engine, ROOT, MASTER_KEY), Keyring(engine, ROOT, MASTER_KEY)
    (source,) = sources(1)
    (old,) = keyring.numbers(CORPUS, [source])
    assert other_keyring.numbers(CORPUS, [source]) == [old]
    other_keyring.cipher(old)
    other_keyring.forget([old])
    with pytest.raises(KeyErased):
        other_keyring.cipher(old)
    (new,) = other_keyring.numbers(CORPUS, [source])
    assert new != old
    keyring.destroy(CORPUS, {old: keyring.hashed(source)}, AT)
    assert Keyring(engine, ROOT, MASTER_KEY).numbers(CORPUS, [source]) == [new]


def test_a_composite_secret_depends_on_its_keys_but_not_on_their_order(keyring: Keyring) -> None:
    first, second, third = keyring.numbers(CORPUS, sources(3))
    both = keyring.composite([first, second], b"test")
    assert keyring.composite([second, first, second], b"test") == both
    others = [[first], [second], [first, third], [first, second, third]]
    assert both not in {keyring.composite(numbers, b"test") for numbers in others}


def test_the_bytes_of_a_destroyed_key_are_nowhere_in_the_keyrings_directory(tmp_path: Path) -> None:
    """This holds for the wrapped and the plain bytes, which LMDB would leave in free pages."""
    settings = EngineSettings(data_dir=tmp_path)
    engine = open_engine(settings)
    with open_keyring(settings, engine) as keyring:
        first, *others = keyring.numbers(CORPUS, sources(50))
        wrapped = keyring._engine.run(lambda tr: tr.get(keyring._root.pack((1, first)))) or b""
        assert _scan(tmp_path, wrapped) == ["data.mdb"]
        keyring.destroy(CORPUS, {first: keyring.hashed(sources(1)[0])}, AT)
        assert _scan(tmp_path, wrapped) == _scan(tmp_path, wrapped[12:]) == []
        assert all(keyring.cipher(number) for number in others)
    engine.close()


def test_keys_are_made_and_read_while_others_are_destroyed(tmp_path: Path) -> None:
    settings = EngineSettings(data_dir=tmp_path, durability=Durability.RELAXED)
    engine = open_engine(settings)
    with open_keyring(settings, engine) as keyring, ThreadPoolExecutor(4) as threads:
        made = threads.map(lambda source: keyring.cipher(keyring.numbers(OTHER, [source])[0]), sources(200))
        for source in sources(10):
            (number,) = keyring.numbers(CORPUS, [source])
            keyring.destroy(CORPUS, {number: keyring.hashed(source)}, AT)
        assert len(list(made)) == 200
    engine.close()


def _scan(directory: Path, sought: bytes) -> list[str]:
    return [path.name for path in directory.rglob("*") if path.is_file() and sought in path.read_bytes()]
