"""Exports of a log that grows meanwhile, and of a log with erased records."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest

from drillcore_fdb.engine import Reader
from drillcore_formats.audit import Pins, Report, verify_export
from drillcore_server.audit.ndjson import NdjsonExport, log_now
from drillcore_server.audit.search import EVERYTHING, AuditFilter, LogSearch
from drillcore_server.kernel.trail import Trail
from drillcore_server.storage.ids import CorpusId, CorpusNumber, SourceId
from drillcore_server.storage.keyring import KeyNumber
from tests.support.stores.audited import TENANT, Audited, audited

T = TypeVar("T")
CORPUS = CorpusId(UUID(int=7))
NUMBER, SOURCE = CorpusNumber(1), SourceId("letters/1")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Audited]:
    with audited(tmp_path) as found:
        yield found


def touch(trail: Trail) -> None:
    """Records a read of content of a single source, by a question that is erased with that source."""
    trail.touch_corpus(CORPUS)
    trail.private["query"] = "who wrote the letter"
    trail.sources.add((NUMBER, SOURCE))


def export(
    store: Audited, wanted: AuditFilter = EVERYTHING, meanwhile: Callable[[], object] = lambda: None
) -> tuple[list[dict[str, Any]], Report]:
    search = LogSearch(store.keys, store.opener, store.terms)

    def run(work: Callable[[Reader], T]) -> T:
        return store.run(lambda tr: work(tr.snapshot))

    at = run(lambda tr: log_now(tr, store.keys, store.signing, TENANT))
    meanwhile()
    data = b"".join(NdjsonExport(store.keys, search, at, wanted).lines(run))
    pins = Pins((store.signing.signer(1).verifier,))
    return [json.loads(line) for line in data.splitlines()], verify_export(io.BytesIO(data), pins)


def erase(store: Audited, *, recorded: bool) -> KeyNumber:
    """Destroys the key of the source, as an erasure does. With `recorded`, the log says so, as it must."""
    (number,) = store.keyring.numbers(NUMBER, [SOURCE])
    if recorded:
        store.record(TENANT, lambda trail: trail.detail.update(erased_keys=[number]), store.call("EraseSource"))
    destroy(store, number)
    store.sequence()
    return number


def destroy(store: Audited, number: KeyNumber) -> None:
    store.keyring.destroy(NUMBER, {number: store.keyring.hashed(SOURCE)}, datetime.now(UTC))


def test_before_an_erasure_the_private_part_is_there(store: Audited) -> None:
    store.record(TENANT, touch)
    store.sequence()
    (_, record, _), report = export(store)
    assert record["private"] == {"query": "who wrote the letter"}
    assert (report.ok, report.verified) == (True, 1)


def test_a_whole_log_shows_the_erased_record_and_its_erasure(store: Audited) -> None:
    store.record(TENANT, touch)
    erase(store, recorded=True)
    (_, record, erasure, end), report = export(store)
    assert record["erased"] is True
    assert "private" not in record
    assert erasure["body"]["action"] == "ERASE"
    assert end == {"end": 2}
    assert (report.ok, report.verified, report.erased) == (True, 1, 1)


def test_a_selection_includes_the_erasure_that_explains_it_without_counting_it(store: Audited) -> None:
    store.record(TENANT, touch)
    store.record(TENANT)
    erase(store, recorded=True)
    (_, record, erasure, end), report = export(store, AuditFilter(corpus=CORPUS))
    assert record["erased"] is True
    assert erasure["of"] == "erasure"
    assert end == {"end": 1}
    assert (report.ok, report.erased) == (True, 1)


def test_a_selection_that_contains_the_erasure_includes_it_once(store: Audited) -> None:
    store.record(TENANT, touch)
    erase(store, recorded=True)
    documents, report = export(store, AuditFilter(operator="drillcore"))
    assert not any("of" in document for document in documents)
    assert (report.ok, report.verified, report.erased) == (True, 1, 1)


def test_a_private_part_that_is_gone_without_an_erasure_is_found(store: Audited) -> None:
    store.record(TENANT, touch)
    erase(store, recorded=False)
    for wanted in (EVERYTHING, AuditFilter(corpus=CORPUS)):
        _, report = export(store, wanted)
        assert not report.ok
        assert report.tampered == 1


def test_an_export_ends_where_the_log_ended_when_it_began(store: Audited) -> None:
    for _ in range(3):
        store.record(TENANT, touch)
    store.sequence()

    def grow() -> None:
        for _ in range(300):
            store.record(TENANT, touch)
        store.sequence()

    for wanted in (EVERYTHING, AuditFilter(corpus=CORPUS)):
        before = store.head(TENANT).size
        documents, report = export(store, wanted, grow)
        assert documents[-1] == {"end": before}
        assert (report.ok, report.verified) == (True, before), report.problems
