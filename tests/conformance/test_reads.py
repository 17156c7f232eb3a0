"""Reads that follow one another share a transaction while it is young, on both engines."""

import pytest

from drillcore_fdb import engine as contract
from drillcore_fdb.engine import Engine, Reader
from drillcore_fdb.errors import InvalidUseError, from_code
from drillcore_fdb.round_trips import counted
from tests.conformance.staging import Space


def test_only_the_first_waits_for_a_read_version(engine: Engine, space: Space) -> None:
    with counted() as total, engine.reads() as reads:
        for key in map(space.key, (b"a", b"b", b"a")):
            reads.run(lambda tr, key=key: tr.get(key))  # type: ignore[misc]
    assert (total.transactions, total.count) == (1, 3)


def test_all_read_one_version_while_it_is_young(engine: Engine, space: Space) -> None:
    with engine.reads() as reads:
        assert reads.run(lambda tr: tr.get(space.key(b"a"))) is None
        engine.run(lambda tr: tr.set(space.key(b"b"), b"new"))
        assert reads.run(lambda tr: tr.get(space.key(b"b"))) is None


def test_an_old_transaction_is_replaced(engine: Engine, space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "SHARED_AGE_S_MAX", 0.0)
    with engine.reads() as reads:
        assert reads.run(lambda tr: tr.get(space.key(b"a"))) is None
        engine.run(lambda tr: tr.set(space.key(b"a"), b"new"))
        assert reads.run(lambda tr: tr.get(space.key(b"a"))) == b"new"


def test_work_that_fails_is_run_again_in_a_new_transaction(engine: Engine, space: Space) -> None:
    found: list[bytes | None] = []

    def work(tr: Reader) -> bytes | None:
        found.append(tr.get(space.key(b"a")))
        if len(found) == 1:
            engine.run(lambda tr: tr.set(space.key(b"a"), b"new"))
            raise from_code(1007, "too old")
        return found[-1]

    with engine.reads() as reads:
        assert reads.run(work) == b"new"
        assert reads.run(lambda tr: tr.get(space.key(b"a"))) == b"new"
    assert found == [None, b"new"]


def test_an_error_of_the_work_leaves_the_reads_usable(engine: Engine, space: Space) -> None:
    def work(_tr: Reader) -> None:
        raise InvalidUseError(2000, "of the work")

    with engine.reads() as reads:
        with pytest.raises(InvalidUseError):
            reads.run(work)
        assert reads.run(lambda tr: tr.get(space.key(b"a"))) is None


def test_work_inside_other_work_shares_its_transaction(engine: Engine, space: Space) -> None:
    with counted() as total, engine.reads() as reads:
        reads.run(lambda tr: (tr.get(space.key(b"a")), reads.run(lambda inner: inner.get(space.key(b"b")))))
    assert (total.transactions, total.count) == (1, 3)


def test_work_inside_old_work_gets_a_transaction_of_its_own(
    engine: Engine, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "SHARED_AGE_S_MAX", 0.0)
    engine.run(lambda tr: tr.set(space.key(b"b"), b"1"))
    with counted() as total, engine.reads() as reads:
        inner = reads.run(lambda tr: (tr.get(space.key(b"a")), reads.run(lambda tr: tr.get(space.key(b"b")))))
    assert inner == (None, b"1")
    assert total.transactions == 2
