"""Atomic operations give FoundationDB's results byte by byte (fdbclient/Atomic.h) on every engine."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from drillcore_fdb.engine import VALUE_BYTES_MAX, Atomic, Engine, Transaction
from tests.conformance.plain_store import combine
from tests.conformance.staging import Space, fill, value_at

FULL = b"x" * VALUE_BYTES_MAX

RESULTS = [
    # operation, stored (None: missing), operand, result (None: missing)
    (Atomic.ADD, None, b"\x01", b"\x01"),
    (Atomic.ADD, b"", b"\x05", b"\x05"),
    (Atomic.ADD, b"\x01\x00", b"\x02\x00", b"\x03\x00"),
    (Atomic.ADD, b"\xff\x00", b"\x01\x00", b"\x00\x01"),
    (Atomic.ADD, b"\xff\xff", b"\x01\x00", b"\x00\x00"),
    (Atomic.ADD, b"\x01\x02\x03", b"\x01", b"\x02"),
    (Atomic.ADD, b"\xff", b"\x01\x00", b"\x00\x01"),
    (Atomic.ADD, b"\x01", b"", b""),
    (Atomic.BIT_AND, None, b"\x0f", b"\x0f"),
    (Atomic.BIT_AND, b"", b"\x0f", b"\x00"),
    (Atomic.BIT_AND, b"\x3c", b"\x0f", b"\x0c"),
    (Atomic.BIT_AND, b"\xff", b"\x0f\x0f", b"\x0f\x00"),
    (Atomic.BIT_AND, b"\xff\xff", b"\x0f", b"\x0f"),
    (Atomic.BIT_AND, b"\xff", b"", b""),
    (Atomic.BIT_OR, None, b"\x0f", b"\x0f"),
    (Atomic.BIT_OR, b"", b"\x0f", b"\x0f"),
    (Atomic.BIT_OR, b"\x30", b"\x03", b"\x33"),
    (Atomic.BIT_OR, b"\x01", b"\x02\x04", b"\x03\x04"),
    (Atomic.BIT_OR, b"\x01\xff", b"\x02", b"\x03"),
    (Atomic.BIT_XOR, None, b"\x0f", b"\x0f"),
    (Atomic.BIT_XOR, b"", b"\x0f", b"\x0f"),
    (Atomic.BIT_XOR, b"\x3c", b"\x0f", b"\x33"),
    (Atomic.BIT_XOR, b"\x01", b"\x03\x04", b"\x02\x04"),
    (Atomic.BIT_XOR, b"\x01\xff", b"\x03", b"\x02"),
    (Atomic.MAX, None, b"\x05", b"\x05"),
    (Atomic.MAX, b"", b"\x05", b"\x05"),
    (Atomic.MAX, b"\x01\x00", b"\x00\x01", b"\x00\x01"),
    (Atomic.MAX, b"\x00\x01", b"\xff\x00", b"\x00\x01"),
    (Atomic.MAX, b"\x09\x00\x01", b"\x05", b"\x09"),
    (Atomic.MAX, b"\x00\x00\x01", b"\x05", b"\x05"),
    (Atomic.MAX, b"\x09", b"\x05\x00", b"\x09\x00"),
    (Atomic.MAX, b"\xff", b"\x00\x01", b"\x00\x01"),
    (Atomic.MAX, b"\x09", b"", b""),
    (Atomic.MIN, None, b"\x05", b"\x05"),
    (Atomic.MIN, b"", b"\x05", b"\x00"),
    (Atomic.MIN, b"\x01\x00", b"\x00\x01", b"\x01\x00"),
    (Atomic.MIN, b"\x00\x01", b"\xff\x00", b"\xff\x00"),
    (Atomic.MIN, b"\x09\x00\x01", b"\x05", b"\x05"),
    (Atomic.MIN, b"\x03\x00\x01", b"\x05", b"\x03"),
    (Atomic.MIN, b"\x09", b"\x00\x01", b"\x09\x00"),
    (Atomic.MIN, b"\x09", b"\x05\x00", b"\x05\x00"),
    (Atomic.MIN, b"\x09", b"", b""),
    (Atomic.BYTE_MAX, None, b"b", b"b"),
    (Atomic.BYTE_MAX, b"", b"b", b"b"),
    (Atomic.BYTE_MAX, b"ab", b"b", b"b"),
    (Atomic.BYTE_MAX, b"abc", b"ab", b"abc"),
    (Atomic.BYTE_MAX, b"a", b"", b"a"),
    (Atomic.BYTE_MIN, None, b"b", b"b"),
    (Atomic.BYTE_MIN, b"", b"b", b""),
    (Atomic.BYTE_MIN, b"ab", b"b", b"ab"),
    (Atomic.BYTE_MIN, b"abc", b"ab", b"ab"),
    (Atomic.BYTE_MIN, b"a", b"", b""),
    (Atomic.APPEND_IF_FITS, None, b"c", b"c"),
    (Atomic.APPEND_IF_FITS, b"", b"c", b"c"),
    (Atomic.APPEND_IF_FITS, b"ab", b"c", b"abc"),
    (Atomic.APPEND_IF_FITS, b"ab", b"", b"ab"),
    (Atomic.APPEND_IF_FITS, FULL[1:], b"c", FULL[1:] + b"c"),
    (Atomic.APPEND_IF_FITS, FULL, b"c", FULL),
    (Atomic.COMPARE_AND_CLEAR, None, b"a", None),
    (Atomic.COMPARE_AND_CLEAR, b"a", b"a", None),
    (Atomic.COMPARE_AND_CLEAR, b"a", b"b", b"a"),
    (Atomic.COMPARE_AND_CLEAR, b"ab", b"a", b"ab"),
    (Atomic.COMPARE_AND_CLEAR, b"", b"", None),
]

Case = tuple[Atomic, bytes | None, bytes, bytes | None]


def describe(case: Case) -> str:
    operation, stored, operand, _ = case
    return f"{operation.value} {shown(operand)} on {shown(stored)}"


def shown(value: bytes | None) -> str:
    if value is None:
        return "missing"
    return value.hex() if 0 < len(value) < 20 else f"{len(value)} bytes"


every_result = pytest.mark.parametrize("case", RESULTS, ids=describe)


@every_result
def test_an_atomic_combines_with_the_stored_value(engine: Engine, space: Space, case: Case) -> None:
    operation, stored, operand, result = case
    key = space.key(b"a")
    if stored is not None:
        fill(engine, {key: stored})
    engine.run(lambda tr: tr.atomic(operation, key, operand))
    assert value_at(engine, key) == result


@every_result
def test_an_atomic_is_read_back_before_it_is_committed(engine: Engine, space: Space, case: Case) -> None:
    operation, stored, operand, result = case
    key = space.key(b"a")
    if stored is not None:
        fill(engine, {key: stored})

    def work(tr: Transaction) -> tuple[bytes | None, list[bytes]]:
        tr.atomic(operation, key, operand)
        return tr.get(key), [value for _, value in tr.range(*space.whole)]

    assert engine.run(work) == (result, [] if result is None else [result])


@every_result
def test_an_atomic_combines_with_an_own_write(engine: Engine, space: Space, case: Case) -> None:
    operation, own, operand, result = case
    key = space.key(b"a")
    fill(engine, {key: b"\x77overwritten"})

    def work(tr: Transaction) -> bytes | None:
        if own is None:
            tr.clear(key)
        else:
            tr.set(key, own)
        tr.atomic(operation, key, operand)
        return tr.get(key)

    assert engine.run(work) == result
    assert value_at(engine, key) == result


@every_result
def test_the_plain_store_of_these_tests_agrees(case: Case) -> None:
    operation, stored, operand, result = case
    assert combine(operation, stored, operand) == result


def test_atomics_of_one_transaction_apply_in_their_order(engine: Engine, space: Space) -> None:
    key = space.key(b"a")
    fill(engine, {key: b"\x02"})

    def work(tr: Transaction) -> bytes | None:
        tr.atomic(Atomic.ADD, key, b"\x03")
        tr.atomic(Atomic.MAX, key, b"\x04")
        tr.atomic(Atomic.APPEND_IF_FITS, key, b"!")
        tr.atomic(Atomic.ADD, key, b"\x01\x00\x00")
        return tr.snapshot.get(key)

    assert engine.run(work) == b"\x06!\x00"
    assert value_at(engine, key) == b"\x06!\x00"


def test_an_atomic_after_a_cleared_range_starts_from_nothing(engine: Engine, space: Space) -> None:
    key = space.key(b"a")
    fill(engine, {key: b"\x07"})

    def work(tr: Transaction) -> None:
        tr.clear_range(*space.whole)
        tr.atomic(Atomic.ADD, key, b"\x01")

    engine.run(work)
    assert value_at(engine, key) == b"\x01"


def test_a_set_after_an_atomic_wins(engine: Engine, space: Space) -> None:
    key = space.key(b"a")

    def work(tr: Transaction) -> None:
        tr.add(key, 1)
        tr.set(key, b"plain")

    engine.run(work)
    assert value_at(engine, key) == b"plain"


def test_add_takes_negative_amounts(engine: Engine, space: Space) -> None:
    key = space.key(b"a")
    engine.run(lambda tr: tr.add(key, 5))
    engine.run(lambda tr: tr.add(key, -7))
    assert int.from_bytes(value_at(engine, key) or b"", "little", signed=True) == -2


def test_a_counter_loses_nothing_under_contention_and_never_retries(engine: Engine, space: Space) -> None:
    key = space.key(b"counter")
    runs: list[None] = []

    def increment(tr: Transaction) -> None:
        runs.append(None)
        tr.add(key, 1)

    def increments() -> None:
        for _ in range(40):
            engine.run(increment)

    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(increments) for _ in range(8)]:
            future.result()
    assert value_at(engine, key) == (320).to_bytes(8, "little")
    assert len(runs) == 320


def test_a_counter_by_read_and_write_loses_nothing_under_contention(engine: Engine, space: Space) -> None:
    key = space.key(b"counter")

    def increment(tr: Transaction) -> None:
        tr.set(key, str(int(tr.get(key) or b"0") + 1).encode())

    def increments() -> None:
        for _ in range(20):
            engine.run(increment)

    with ThreadPoolExecutor(6) as pool:
        for future in [pool.submit(increments) for _ in range(6)]:
            future.result()
    assert value_at(engine, key) == b"120"
