"""A read has exactly one record, of what the caller was given, whatever the engine reports about its commit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from drillcore_fdb.engine import Reader
from drillcore_server.kernel.access import Granted, as_server
from drillcore_server.kernel.errors import Unavailable
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Unit
from drillcore_server.storage import audit_records
from drillcore_server.storage.audit_records import BUCKETS
from tests.support.stores.audited import TENANT, Audited, audited
from tests.support.stores.faulty_engine import Fault, Faults, FaultyEngine

READS = 60


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Audited]:
    with audited(tmp_path) as made:
        yield made


def bodies(store: Audited) -> list[bytes]:
    def work(tr: Reader) -> list[bytes]:
        stored = [value for bucket in range(BUCKETS) for _, value in tr.range(*store.keys.audit_records(0, bucket))]
        return [store.opener.body(audit_records.RECORD.decode(value))[1] for value in stored]

    return store.engine.run(work)


@pytest.mark.parametrize("fault", [Fault.UNKNOWN_APPLIED, Fault.UNKNOWN_NOT_APPLIED], ids=["applied", "not applied"])
def test_a_read_with_an_unknown_commit_result_has_one_record_of_the_given_answer(store: Audited, fault: Fault) -> None:
    """Every run of the work finds something different, as if the store had changed in between."""
    faulty = FaultyEngine(store.engine, Faults(5, {fault: 0.5}))
    unit, runs = Unit(faulty, store.keys, store.unit.journal), count(1)

    def work(_tr: Reader, _granted: Granted, trail: Trail) -> int:
        trail.detail["run"] = next(runs)
        return int(trail.detail["run"])

    given = [unit.read(store.call("GetCorpus", f"read-{number}"), as_server(TENANT), work) for number in range(READS)]
    assert faulty.faults.injected.total() > READS / 4
    found = bodies(store)
    assert len(found) == READS
    for number, run in enumerate(given):
        (own,) = [body for body in found if b'"request_id":"read-%d"' % number in body]
        assert b'"run":%d}' % run in own, "the record is of the run whose answer the caller got"


def test_a_read_without_an_answer_is_not_recorded(store: Audited) -> None:
    faulty = FaultyEngine(store.engine, Faults(5, {Fault.TIMED_OUT_NOT_APPLIED: 1.0}))
    unit = Unit(faulty, store.keys, store.unit.journal)
    with pytest.raises(Unavailable):
        unit.read(store.call(), as_server(TENANT), lambda _tr, _granted, _trail: None)
    assert bodies(store) == []
