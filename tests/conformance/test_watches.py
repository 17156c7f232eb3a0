"""Watches fire once, after a commit that changed the key, and never without a change."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from drillcore_fdb.engine import Engine, Transaction, Watch
from drillcore_fdb.errors import EngineError, TransactionCancelledError
from tests.conformance.staging import Space, commits_despite, fill, fill_letters, versionstamp_template

LONG_S = 20.0
"""Enough time for any change to be noticed. A test that waits this long has failed."""
SHORT_S = 0.15
"""How long a test watches a key whose watch must not fire."""

CHANGES: dict[str, Callable[[Transaction, Space], None]] = {
    "set": lambda tr, space: tr.set(space.key(b"a"), b"other"),
    "clear": lambda tr, space: tr.clear(space.key(b"a")),
    "clear_range": lambda tr, space: tr.clear_range(*space.whole),
    "atomic": lambda tr, space: tr.add(space.key(b"a"), 1),
    "versionstamped value": lambda tr, space: tr.set_versionstamped_value(space.key(b"a"), versionstamp_template(b"")),
}


def watch(engine: Engine, key: bytes) -> Watch:
    return engine.run(lambda tr: tr.watch(key))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_watch_fires_on_every_kind_of_change(
    engine: Engine, space: Space, change: Callable[[Transaction, Space], None]
) -> None:
    fill_letters(engine, space, "a")
    watching = watch(engine, space.key(b"a"))
    engine.run(lambda tr: change(tr, space))
    assert watching.wait(LONG_S)


def test_a_watch_fires_when_a_missing_key_appears(engine: Engine, space: Space) -> None:
    watching = watch(engine, space.key(b"a"))
    fill_letters(engine, space, "a")
    assert watching.wait(LONG_S)


def test_a_waiting_thread_is_woken_by_the_commit(engine: Engine, space: Space) -> None:
    watching = watch(engine, space.key(b"a"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(watching.wait, LONG_S)
        fill_letters(engine, space, "a")
        assert waiting.result()


def test_a_watch_that_has_fired_stays_fired(engine: Engine, space: Space) -> None:
    watching = watch(engine, space.key(b"a"))
    fill_letters(engine, space, "a")
    assert watching.wait(LONG_S)
    assert watching.wait(LONG_S)


def test_every_watch_of_a_key_fires(engine: Engine, space: Space) -> None:
    watching = [watch(engine, space.key(b"a")) for _ in range(5)]
    fill_letters(engine, space, "a")
    assert all(watched.wait(LONG_S) for watched in watching)


def test_a_wait_without_a_change_ends_with_false(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "a")
    watching = watch(engine, space.key(b"a"))
    assert watching.wait(SHORT_S) is False
    assert watching.wait(0) is False
    watching.cancel()


def test_a_watch_can_be_waited_for_again_after_a_timeout(engine: Engine, space: Space) -> None:
    watching = watch(engine, space.key(b"a"))
    assert watching.wait(SHORT_S) is False
    fill_letters(engine, space, "a")
    assert watching.wait(LONG_S)


def test_a_change_of_another_key_does_not_fire(engine: Engine, space: Space) -> None:
    watching = watch(engine, space.key(b"b"))
    fill(engine, {space.key(b"a"): b"1", space.key(b"b\0"): b"1", space.key(b"c"): b"1"})
    assert watching.wait(SHORT_S) is False
    watching.cancel()


def test_a_change_does_not_fire_before_it_is_committed(engine: Engine, space: Space) -> None:
    watching = watch(engine, space.key(b"a"))

    def work(tr: Transaction) -> bool:
        tr.set(space.key(b"a"), b"1")
        return watching.wait(SHORT_S)

    assert engine.run(work) is False
    assert watching.wait(LONG_S)


def test_a_change_that_was_not_committed_does_not_fire(engine: Engine, space: Space) -> None:
    watching = watch(engine, space.key(b"a"))

    def fail(tr: Transaction) -> None:
        tr.set(space.key(b"a"), b"1")
        raise LookupError

    with pytest.raises(LookupError):
        engine.run(fail)
    assert watching.wait(SHORT_S) is False
    watching.cancel()


def test_a_watch_of_a_transaction_that_did_not_commit_never_fires(engine: Engine, space: Space) -> None:
    handed_out: list[Watch] = []

    def fail(tr: Transaction) -> None:
        handed_out.append(tr.watch(space.key(b"a")))
        raise LookupError

    with pytest.raises(LookupError):
        engine.run(fail)
    fill_letters(engine, space, "a")
    assert not fired(handed_out[0])


def fired(watching: Watch) -> bool:
    try:
        return watching.wait(SHORT_S)
    except EngineError:
        return False


def test_a_watch_compares_with_what_its_own_transaction_wrote(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> Watch:
        tr.set(space.key(b"a"), b"mine")
        return tr.watch(space.key(b"a"))

    watching = engine.run(work)
    assert watching.wait(SHORT_S) is False
    fill(engine, {space.key(b"a"): b"other"})
    assert watching.wait(LONG_S)


def test_a_change_between_the_read_version_and_the_commit_fires(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> Watch:
        watching = tr.watch(space.key(b"a"))
        tr.get(space.key(b"a"))
        fill_letters(engine, space, "a")
        return watching

    assert engine.run(work).wait(LONG_S)


def test_watching_a_key_is_reading_it(engine: Engine, space: Space) -> None:
    held: list[Watch] = []  # a watch without references is cancelled, together with its read

    def work(tr: Transaction) -> None:
        held.append(tr.watch(space.key(b"a")))
        tr.set(space.key(b"result"), b"1")

    assert not commits_despite(engine, work, lambda tr: tr.set(space.key(b"a"), b"1"))


def test_a_cancelled_watch_raises(engine: Engine, space: Space) -> None:
    watching = watch(engine, space.key(b"a"))
    watching.cancel()
    watching.cancel()
    with pytest.raises(TransactionCancelledError):
        watching.wait(LONG_S)


def test_cancelling_ends_a_wait_in_another_thread(engine: Engine, space: Space) -> None:
    watching = watch(engine, space.key(b"a"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(watching.wait, LONG_S)
        watching.cancel()
        with pytest.raises(TransactionCancelledError):
            waiting.result()
