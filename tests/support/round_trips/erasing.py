"""Measures what erasures of small sources read in a store with some documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from drillcore_fdb.engine import Engine
from tests.support.round_trips.calls import Call, Fields
from tests.support.round_trips.measured import Measured
from tests.support.round_trips.world import World, fill
from tests.support.servers.running import OPERATOR, running
from tests.support.stores.counting_engine import CountingEngine, Counts
from tests.support.stores.held_store import is_of_a_call


@dataclass(frozen=True, slots=True)
class ErasureCost:
    """What one erasure with its purge took."""

    keys: int
    ranges: int
    entries: int
    """The entries of the ranges."""
    round_trips: int

    @property
    def reads(self) -> int:
        return self.keys + self.ranges


def _new_fact(world: World) -> Fields:
    """A source of one fact."""
    source = f"letter {uuid4()}"
    world.new_fact(source_id=source)
    return _erasure(world, source)


def _new_document(world: World) -> Fields:
    """A source of one document, added last."""
    return _erasure(world, _source_of(world, world.new_document()))


def _old_document(world: World) -> Fields:
    """A source of one document that was added at the beginning: its facts are in communities."""
    return _erasure(world, _source_of(world, world.document_ids.pop()))


def _source_of(world: World, document: str) -> str:
    return str(world.person("GetDocument", corpus_id=world.corpus, id=document).document.source_id)


def _erasure(world: World, source: str) -> Fields:
    return {"corpus_id": world.corpus, "source_id": source, "reason": "asked for", "purge_now": True}


NOTHING_MADE_ANEW: Final = "a fact"
CASES: Final[dict[str, Callable[[World], Fields]]] = {
    NOTHING_MADE_ANEW: _new_fact,
    "a new document": _new_document,
    "an old document": _old_document,
}


def erasure_costs(path: Path, documents: int, cases: Sequence[str] = tuple(CASES)) -> dict[str, ErasureCost]:
    """What the erasure of each kind of source takes in a store with so many documents."""
    engines: list[CountingEngine] = []

    def counting(engine: Engine) -> Engine:
        engines.append(CountingEngine(engine, is_of_a_call))
        return engines[-1]

    with running(path, wrap=counting) as server:
        world = fill(server.address, OPERATOR, documents)
        try:
            measured = Measured(server, world)
            return {case: _cost(measured, engines[0], CASES[case]) for case in cases}
        finally:
            world.close()


def _cost(measured: Measured, engine: CountingEngine, fields: Callable[[World], Fields]) -> ErasureCost:
    """Erases twice, and returns what the second time took. The first time fills caches."""

    def prepared(world: World) -> Fields:
        found = fields(world)
        engine.counts = Counts()
        return found

    cost = measured.cost(Call("EraseSource", 0, prepared))
    found = engine.counts
    return ErasureCost(found.keys, found.ranges, found.entries, cost.round_trips)
