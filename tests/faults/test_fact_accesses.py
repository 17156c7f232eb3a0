"""Each answered call counts its accesses of facts once, whatever the engine reports about its commit."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest

from drillcore_fdb.embedded import EmbeddedEngine
from drillcore_fdb.engine import Engine, Reader
from drillcore_proto.reasons import Reason
from drillcore_server.facts.store import Access, note_accesses_later, read_accesses
from drillcore_server.kernel import access
from drillcore_server.kernel.access import Granted
from drillcore_server.kernel.errors import Missing, Refused
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Notes, Unit
from drillcore_server.storage.ids import CorpusNumber, FactId
from drillcore_server.storage.keyspace import Keyspace
from tests.support.stores.caller import ask, make_call, open_keyspace
from tests.support.stores.faulty_engine import Fault, Faults, FaultyEngine, rates
from tests.support.stores.journals import open_journal_here

CORPUS = CorpusNumber(7)
FACTS = [FactId(UUID(int=number)) for number in range(5)]
APPLIED, NOT_APPLIED = {Fault.UNKNOWN_APPLIED: 0.5}, {Fault.UNKNOWN_NOT_APPLIED: 0.5}


def make_unit(engine: EmbeddedEngine, path: Path, name: str, faults: Faults) -> tuple[Unit, Keyspace, Engine]:
    keys = open_keyspace(engine, name)
    journal = open_journal_here(engine, keys, path)
    faulty = FaultyEngine(engine, faults)
    return Unit(faulty, keys, journal), keys, faulty


def get(unit: Unit, call: Call, facts: list[FactId], *, fails: bool = False) -> None:
    """Reads facts as GetFacts does."""

    def work(_tr: Reader, _granted: Granted, _trail: Trail, notes: Notes) -> None:
        note_accesses_later(notes, unit.keys.of_corpus(CORPUS), facts, call.at)
        if fails:
            raise Missing(Reason.FACT_NOT_FOUND, "there is no such fact")

    unit.read_with_notes(call, access.operator, work)


def counts(engine: Engine, keys: Keyspace) -> list[Access]:
    return engine.run(lambda tr: read_accesses(tr, keys.of_corpus(CORPUS), FACTS))


@pytest.mark.parametrize(
    "fault_rates", [APPLIED, NOT_APPLIED, rates(commit=0.4, read=0.02)], ids=["applied", "not", "all"]
)
def test_an_access_is_counted_once_however_often_the_call_is_run(
    engine: EmbeddedEngine, tmp_path: Path, fault_rates: dict[Fault, float]
) -> None:
    faults = Faults(3, fault_rates)
    unit, keys, _ = make_unit(engine, tmp_path, "accesses", faults)
    dice, expected = random.Random(3), Counter[FactId]()
    last = {}
    for number in range(60):
        wanted = dice.sample(FACTS, dice.randint(1, len(FACTS)))
        call = make_call(dice, number, "GetFacts")
        ask(call, lambda c, w=wanted: get(unit, c, w))  # type: ignore[misc]
        get(unit, call, wanted)  # the same request again
        expected.update(wanted)
        last |= dict.fromkeys(wanted, call.at)
    assert faults.injected.total() > 20
    found = counts(engine, keys)
    assert [access.count for access in found] == [expected[fact] for fact in FACTS]
    assert all(
        access.last_at is not None and access.last_at >= last[fact] for access, fact in zip(found, FACTS, strict=True)
    )


def test_a_refused_call_counts_nothing(engine: EmbeddedEngine, tmp_path: Path) -> None:
    unit, keys, _ = make_unit(engine, tmp_path, "refused", Faults(1, {}))
    call = make_call(random.Random(1), 1, "GetFacts")
    with pytest.raises(Refused) as refused:
        get(unit, call, FACTS, fails=True)
    unit.record_refusal(call, refused.value)
    assert counts(engine, keys) == [Access()] * len(FACTS)


def test_readers_of_the_same_facts_never_conflict(engine: EmbeddedEngine, tmp_path: Path) -> None:
    unit, keys, faulty = make_unit(engine, tmp_path, "readers", Faults(1, {}))
    calls = [make_call(random.Random(number), number, "GetFacts") for number in range(80)]
    before = engine.figures().totals
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda call: get(unit, call, FACTS), calls))
    assert [access.count for access in counts(faulty, keys)] == [80] * len(FACTS)
    assert engine.figures().totals["conflicts"] == before["conflicts"]
