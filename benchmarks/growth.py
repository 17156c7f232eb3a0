"""What adding and removing one small document costs in a large corpus, compared with a small one.

Counts reads, keys, bytes and round trips of each call, on the embedded engine. `add_growth` and `remove_growth` are the
largest of these four ratios.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Final

from drillcore_fdb.round_trips import counted
from tests.support.round_trips.world import document
from tests.support.stores.archive import Archive, opened_archive
from tests.support.stores.metered_engine import Counts, MeteredEngine

Costs = dict[str, float]
CALLS: Final = 20
"""How many documents are added, and then removed, to get a mean: most documents change one section, some more."""
_AT_ONCE: Final = 500
_WARM_UP: Final = 3


def run(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks growth")
    parser.add_argument("--small", type=int, default=100, help="documents in the small corpus")
    parser.add_argument("--large", type=int, default=10_000, help="documents in the large corpus")
    options = parser.parse_args(arguments)
    small, large = (costs_with(count) for count in (options.small, options.large))
    growth = {call: {what: round(large[call][what] / small[call][what], 2) for what in small[call]} for call in small}
    return {
        "benchmark": "growth",
        "documents": [options.small, options.large],
        "costs": [small, large],
        "growth": growth,
        "add_growth": max(growth["add"].values()),
        "remove_growth": max(growth["remove"].values()),
    }


def costs_with(documents: int) -> dict[str, Costs]:
    """The mean costs of adding and of removing a document, in a corpus with this many."""
    with _filled(documents) as (archive, engine):
        numbers = range(documents, documents + _WARM_UP + CALLS)
        texts = [_texts(range(number, number + 1)) for number in numbers]
        added = [_cost(engine, lambda one=one: archive.add(one)) for one in texts]  # type: ignore[misc]
        known = archive.documents()
        ids = [known[name] for one in texts for name in one]
        removed = [_cost(engine, lambda id_=id_: archive.remove([id_])) for id_ in ids]  # type: ignore[misc]
    return {"add": _mean(added), "remove": _mean(removed)}


@contextmanager
def _filled(documents: int) -> Iterator[tuple[Archive, MeteredEngine]]:
    with tempfile.TemporaryDirectory() as directory, opened_archive(Path(directory)) as plain:
        engine = MeteredEngine(plain.engine)
        archive = plain.on(engine)
        for start in range(0, documents, _AT_ONCE):
            archive.add(_texts(range(start, min(start + _AT_ONCE, documents))))
        yield archive, engine


def _texts(numbers: range) -> dict[str, str]:
    """Small documents by their sources."""
    return {made.name: str(made.content) for made in map(document, numbers)}


def _cost(engine: MeteredEngine, call: Callable[[], object]) -> Costs:
    engine.counts = Counts()
    with counted() as total:
        call()
    counts = engine.counts
    return {"reads": counts.reads, "keys": counts.keys, "bytes": counts.bytes, "round_trips": total.count}


def _mean(costs: list[Costs]) -> Costs:
    """The means without the first calls, which fill caches."""
    return {what: round(mean(cost[what] for cost in costs[_WARM_UP:]), 1) for what in costs[0]}
