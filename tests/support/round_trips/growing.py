"""What adding and removing one small document costs in a corpus of some size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Final

from drillcore_fdb.round_trips import counted
from tests.support.round_trips.world import document
from tests.support.stores.archive import opened_archive
from tests.support.stores.counting_engine import CountingEngine, Counts

Costs = dict[str, float]
_CALLS: Final = 20
"""How many documents are added, and then removed, to get a mean: some change more sections than others."""
_AT_ONCE: Final = 500
_WARM_UP: Final = 3
"""Calls before, which fill caches."""


def change_costs(path: Path, documents: int) -> dict[str, Costs]:
    """The mean costs of adding and of removing a document, in a corpus with this many."""
    with opened_archive(path) as plain:
        engine = CountingEngine(plain.engine)
        archive = plain.on(engine)
        for start in range(0, documents, _AT_ONCE):
            archive.add(_texts(range(start, min(start + _AT_ONCE, documents))))
        numbers = range(documents, documents + _WARM_UP + _CALLS)
        texts = [_texts(range(number, number + 1)) for number in numbers]
        added = [_cost(engine, lambda one=one: archive.add(one)) for one in texts]  # type: ignore[misc]
        known = archive.documents()
        ids = [known[name] for one in texts for name in one]
        removed = [_cost(engine, lambda id_=id_: archive.remove([id_])) for id_ in ids]  # type: ignore[misc]
    return {"add": _mean(added), "remove": _mean(removed)}


def _texts(numbers: range) -> dict[str, str]:
    """Small documents by their sources."""
    return {made.name: str(made.content) for made in map(document, numbers)}


def _cost(engine: CountingEngine, call: Callable[[], object]) -> Costs:
    engine.counts = Counts()
    with counted() as total:
        call()
    counts = engine.counts
    return {
        "reads": counts.reads,
        "entries": counts.entries,
        "written": counts.written,
        "bytes": counts.bytes,
        "round_trips": total.count,
        "transactions": total.transactions,
    }


def _mean(costs: list[Costs]) -> Costs:
    return {what: round(mean(cost[what] for cost in costs[_WARM_UP:]), 1) for what in costs[0]}
