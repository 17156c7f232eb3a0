"""A write is done exactly once and completely, whatever the engine reports about its commit."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from drillcore_fdb.embedded import EmbeddedEngine
from drillcore_fdb.engine import Engine, Options, Transaction
from drillcore_server.kernel.access import Granted, Rule
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import Refused, Unavailable
from drillcore_server.kernel.journal import Journal
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Outcome, Unit, find_outcome, remember_outcome
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind
from drillcore_server.tenancy.corpora import create_corpus, update_corpus
from drillcore_server.tenancy.tenants import create_tenant
from tests.support.stores.caller import (
    OUTCOME_OPEN,
    Session,
    ask,
    check_session,
    check_whole,
    make_call,
    open_keyspace,
    read_everything,
)
from tests.support.stores.faulty_engine import Fault, Faults, FaultyEngine, rates
from tests.support.stores.journals import open_journal_here

T = TypeVar("T")
G = TypeVar("G", bound=Granted)

SEEDS = range(240)
REQUESTS = 12
MIXED = rates(commit=0.4, read=0.02)
ONLY_UNKNOWN_APPLIED = {Fault.UNKNOWN_APPLIED: 0.5}
ONLY_UNKNOWN_NOT_APPLIED = {Fault.UNKNOWN_NOT_APPLIED: 0.5}


Journals = Callable[[Keyspace], Journal]
Work = Callable[[Transaction, G, Trail], T]


@pytest.fixture
def journals(engine: EmbeddedEngine, tmp_path: Path) -> Journals:
    """Makes the journal for a store's keys. The journal's own work, before a call, meets no faults."""
    return lambda keys: open_journal_here(engine, keys, tmp_path)


def run_seed(
    engine: Engine, journals: Journals, unit_type: type[Unit], seed: int, fault_rates: dict[Fault, float]
) -> Counter[Fault]:
    """Runs a session in keys of its own and checks everything that it left. Returns the injected faults."""
    keys = open_keyspace(engine, f"{unit_type.__name__}-{seed}-{len(fault_rates)}")
    journal = journals(keys)
    faulty = FaultyEngine(engine, Faults(seed, fault_rates))
    session = Session(unit_type(faulty, keys, journal), seed)
    session.run(REQUESTS)
    check_session(engine, keys, session)
    session.end()
    check_session(engine, keys, session)
    return faulty.faults.injected


def test_every_request_is_done_exactly_once_under_every_fault(engine: EmbeddedEngine, journals: Journals) -> None:
    injected: Counter[Fault] = Counter()
    for seed in SEEDS:
        injected += run_seed(engine, journals, Unit, seed, MIXED)
    assert set(injected) == set(Fault), "a fault that never struck proves nothing"
    assert min(injected.values()) > 20


@pytest.mark.parametrize("fault_rates", [ONLY_UNKNOWN_APPLIED, ONLY_UNKNOWN_NOT_APPLIED], ids=["applied", "not"])
def test_a_commit_whose_answer_is_lost_is_neither_repeated_nor_lost(
    engine: EmbeddedEngine, journals: Journals, fault_rates: dict[Fault, float]
) -> None:
    assert sum(run_seed(engine, journals, Unit, seed, fault_rates).total() for seed in range(30)) > 100


class ForgetfulUnit(Unit):
    """A planted bug: runs a write again without checking whether it was committed."""

    def write(
        self,
        call: Call,
        access: Rule[G],
        result: RecordKind[T],
        work: Callable[[Transaction, G, Trail], T],
        *,
        expected: Sequence[bytes] = (),
    ) -> T:
        def attempt(tr: Transaction) -> T:
            granted, trail = self._begin(tr, call, access, expected, writing=True)
            done = work(tr, granted, trail)
            self.journal.append(tr, call.occasion, trail)
            outcome = Outcome(call.fingerprint, result.encode(done), call.at)
            remember_outcome(tr, self.keys, call.principal.id, call.request_id, outcome)
            return done

        return self._run(attempt, Options(timeout_s=call.timeout_s, idempotent=True))


class HalfDoneUnit(Unit):
    """A planted bug: remembers the outcome in a transaction of its own, after that of the work."""

    def write(
        self,
        call: Call,
        access: Rule[G],
        result: RecordKind[T],
        work: Callable[[Transaction, G, Trail], T],
        *,
        expected: Sequence[bytes] = (),
    ) -> T:
        def first(tr: Transaction) -> T:
            known = find_outcome(tr, self.keys, call.principal.id, call.request_id)
            granted, trail = self._begin(tr, call, access, expected, writing=True)
            if known is not None:
                return result.decode(known.result)
            done = work(tr, granted, trail)
            self.journal.append(tr, call.occasion, trail)
            return done

        def second(tr: Transaction) -> None:
            outcome = Outcome(call.fingerprint, result.encode(done), call.at)
            remember_outcome(tr, self.keys, call.principal.id, call.request_id, outcome)

        done = self._run(first, Options(timeout_s=call.timeout_s, idempotent=True))
        self._run(second, Options(timeout_s=call.timeout_s, idempotent=True))
        return done


@pytest.mark.parametrize("broken", [ForgetfulUnit, HalfDoneUnit])
def test_the_check_catches_a_broken_unit(engine: EmbeddedEngine, journals: Journals, broken: type[Unit]) -> None:
    caught = 0
    for seed in range(20):
        try:
            run_seed(engine, journals, broken, seed, MIXED)
        except (AssertionError, pytest.fail.Exception, Refused):
            caught += 1
    assert caught >= 15


def test_broken_units_pass_without_faults_so_only_faults_reveal_them(
    engine: EmbeddedEngine, journals: Journals
) -> None:
    run_seed(engine, journals, ForgetfulUnit, 1, {})


@pytest.fixture
def corpus(engine: EmbeddedEngine, journals: Journals) -> tuple[Unit, Corpus]:
    """A corpus that several callers change at once, through an engine with faults."""
    keys = open_keyspace(engine, "together")
    unit = Unit(FaultyEngine(engine, Faults(7, rates(commit=0.3, read=0.01))), keys, journals(keys))
    dice = random.Random(7)
    tenant = ask(
        make_call(dice, 0, "CreateTenant"), lambda c: create_tenant(unit, c, name="t", metadata={}, tenant_id=None)
    )
    made = ask(
        make_call(dice, 1, "CreateCorpus"),
        lambda c: create_corpus(unit, c, tenant=tenant.id, name="c", description="", metadata={}, corpus_id=None),
    )
    return unit, made


def change(unit: Unit, corpus: Corpus, number: int) -> Corpus:
    call = make_call(random.Random(number), number, "UpdateCorpus")
    return ask(
        call,
        lambda c: update_corpus(
            unit,
            c,
            tenant=corpus.tenant_id,
            corpus_id=corpus.id,
            name=None,
            description=None,
            set_metadata={f"request-{number}": "done"},
            remove_metadata=(),
            expected_version=None,
        ),
    )


def test_concurrent_callers_change_a_record_once_for_each_request(
    engine: EmbeddedEngine, corpus: tuple[Unit, Corpus]
) -> None:
    unit, made = corpus
    numbers = range(2, 82)
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda number: change(unit, made, number), numbers))
    assert sorted(answer.version for answer in answers) == list(range(2, 2 + len(numbers)))
    stored = read_everything(engine, open_keyspace(engine, "together"))
    check_whole(stored)
    assert stored.corpora[made.id].version == 1 + len(numbers)
    assert len(stored.corpora[made.id].metadata) == len(numbers)


@pytest.mark.parametrize("fault", [Fault.TIMED_OUT_APPLIED, Fault.TIMED_OUT_NOT_APPLIED])
def test_a_timeout_during_the_commit_is_reported_and_a_retry_gets_the_outcome(
    engine: EmbeddedEngine, journals: Journals, fault: Fault
) -> None:
    keys = open_keyspace(engine, "timeout")
    journal = journals(keys)
    faulty = FaultyEngine(engine, Faults(1, {fault: 1.0}))
    call = make_call(random.Random(1), 1, "CreateTenant")

    def create(on: Engine) -> None:
        create_tenant(Unit(on, keys, journal), call, name="t", metadata={}, tenant_id=None)

    with pytest.raises(Unavailable) as refused:
        create(faulty)
    assert refused.value.reason in OUTCOME_OPEN
    assert len(read_everything(engine, keys).tenants) == fault.applied
    create(engine)
    stored = read_everything(engine, keys)
    check_whole(stored)
    assert len(stored.tenants) == len(stored.outcomes) == 1
