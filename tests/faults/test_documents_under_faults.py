"""AddDocuments and RemoveDocuments are done exactly once and completely, whatever their commits report.

DRILLCORE_SOAK=1 runs many more seeds.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drillcore_proto.reasons import Reason
from drillcore_server.documents.add import DocumentBatch, OutcomeKind, Upload
from drillcore_server.kernel import revise, revisions
from drillcore_server.kernel.errors import Unavailable
from drillcore_server.storage.ids import RequestId, Revision
from tests.support.stores.archive import SENTENCES, Archive, opened_archive, text_of
from tests.support.stores.caller import ask
from tests.support.stores.consistent import check
from tests.support.stores.faulty_engine import Fault, Faults, FaultyEngine, rates

SOAK = os.environ.get("DRILLCORE_SOAK") == "1"
SEEDS = range(200 if SOAK else 10)
REQUESTS = 6
MIXED = rates(commit=0.3, read=0.001)
OFTEN = rates(commit=0.7, read=0.004)
"""For revisions of a single commit, which meet fewer occasions for faults."""


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep may fail too. The next sweep removes what it left; short leases keep the test from waiting long."""
    monkeypatch.setattr(revise, "LEASE_S", 0.05)


def set_path(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(revise, "SMALL_BYTES_MAX", {"small": 3_000_000, "large": 0, "either": 25_000}[path])
    monkeypatch.setattr(revise, "BATCH_BYTES_MAX", 8_000)


class Session:
    """Seeded requests of a caller, and a plain model of what they must lead to."""

    def __init__(self, archive: Archive, seed: int) -> None:
        self._archive = archive
        self._dice = random.Random(seed)
        self._prefix = f"caller-{seed}"
        self.texts: dict[str, str] = {}
        self.made: dict[RequestId, Revision] = {}

    def run(self, requests: int) -> None:
        for _ in range(requests):
            if self.texts and self._dice.random() < 0.3:
                self._remove()
            else:
                self._add()

    def _add(self) -> None:
        topics = self._dice.sample(sorted(SENTENCES), self._dice.randint(1, 3))
        new = {f"{self._prefix}-{topic}": text_of(topic, self._dice.randint(1, 3)) for topic in topics}
        call = self._archive.call("AddDocuments")
        added = ask(call, lambda c: self._archive.add(new, c))
        kinds = {outcome.name.removesuffix(".md"): outcome.kind for outcome in added.outcomes}
        assert kinds == {source: self._kind(source, text) for source, text in new.items()}
        if set(kinds.values()) != {OutcomeKind.UNCHANGED}:
            self.made[call.request_id] = added.revision
        self.texts |= new

    def _kind(self, source: str, text: str) -> OutcomeKind:
        if source not in self.texts:
            return OutcomeKind.ADDED
        return OutcomeKind.UNCHANGED if self.texts[source] == text else OutcomeKind.UPDATED

    def _remove(self) -> None:
        sources = self._dice.sample(sorted(self.texts), self._dice.randint(1, len(self.texts)))
        known = self._archive.documents()
        call = self._archive.call("RemoveDocuments")
        removed = ask(call, lambda c: self._archive.remove([known[source] for source in sources], c))
        assert removed.documents == len(sources)
        self.made[call.request_id] = removed.revision
        for source in sources:
            del self.texts[source]


def requests_made(archive: Archive) -> dict[RequestId, Revision]:
    records = archive.engine.run(lambda tr: list(revisions.between(tr, archive.keys, Revision(0), Revision(1_000_000))))
    assert len({record.request_id for record in records}) == len(records), "one revision for each request"
    return {record.request_id: record.revision for record in records}


@pytest.mark.timeout(3600 if SOAK else 120)
@pytest.mark.parametrize("path", ["small", "large", "either"])
def test_every_request_makes_exactly_one_whole_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    set_path(monkeypatch, path)
    injected: Counter[Fault] = Counter()
    for seed in SEEDS:
        with opened_archive(tmp_path / str(seed)) as archive:
            faults = Faults(seed, OFTEN if path == "small" else MIXED)
            session = Session(archive.on(FaultyEngine(archive.engine, faults)), seed)
            session.run(REQUESTS)
            injected += faults.injected
            assert requests_made(archive) == session.made
            sweep_leftovers(archive)
            assert check(archive).texts == session.texts
    assert injected.total() > 5 * len(SEEDS)
    assert {Fault.UNKNOWN_APPLIED, Fault.UNKNOWN_NOT_APPLIED, Fault.CONFLICT} <= set(injected)


def sweep_leftovers(archive: Archive) -> None:
    """Clears a claim that faults left behind, as the next writer does. This writer writes nothing."""
    before = archive.head()
    if archive.engine.run(lambda tr: revisions.get_claim(tr, archive.keys)) is None:
        return
    archive.add({"last": text_of("school", 9)})
    archive.remove([archive.documents()["last"]])
    assert archive.head() == before + 2


@pytest.mark.parametrize("fault", [Fault.UNKNOWN_APPLIED, Fault.UNKNOWN_NOT_APPLIED])
@pytest.mark.parametrize("path", ["small", "large"])
def test_a_lost_answer_neither_repeats_a_revision_nor_loses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, fault: Fault
) -> None:
    set_path(monkeypatch, path)
    seeds, injected = range(6), 0
    for seed in seeds:
        with opened_archive(tmp_path / str(seed)) as archive:
            faults = Faults(seed, {fault: 0.5})
            session = Session(archive.on(FaultyEngine(archive.engine, faults)), seed)
            session.run(REQUESTS)
            injected += faults.injected[fault]
            assert check(archive).texts == session.texts
            assert requests_made(archive) == session.made
    assert injected >= 2 * len(seeds)


def test_concurrent_callers_make_one_revision_for_each_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each caller is on a server of its own. Some revisions are small and some large, all with faults."""
    set_path(monkeypatch, "either")
    monkeypatch.setattr(revise, "LEASE_S", 1.0)
    with opened_archive(tmp_path) as archive:
        sessions = [Session(archive.on(FaultyEngine(archive.engine, Faults(seed, MIXED))), seed) for seed in range(3)]
        with ThreadPoolExecutor(len(sessions)) as threads:
            list(threads.map(lambda session: session.run(4), sessions))
        made = {request: revision for session in sessions for request, revision in session.made.items()}
        assert requests_made(archive) == made
        expected = {source: text for session in sessions for source, text in session.texts.items()}
        sweep_leftovers(archive)
        assert check(archive).texts == expected


class Forgetful(revise.Reviser):
    """A planted bug: does not sweep what was staged when it takes over a claim."""

    def _sweep(self, keys: revisions.CorpusKeys, claim: revisions.Claim) -> None:  # noqa: ARG002 - forgotten
        self.engine.run(lambda tr: revisions.clear_claim(tr, keys))


def test_the_check_catches_a_sweep_that_leaves_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_path(monkeypatch, "large")
    monkeypatch.setattr(revise.Reviser, "_sweep", Forgetful._sweep)
    caught = 0
    for seed in range(6):
        with opened_archive(tmp_path / str(seed)) as archive:
            session = Session(archive.on(FaultyEngine(archive.engine, Faults(seed, MIXED))), seed)
            try:
                session.run(REQUESTS)
                check(archive)
            except AssertionError:
                caught += 1
    assert caught >= 3


def test_an_unchanged_document_that_was_removed_meanwhile_is_a_conflict_and_nothing_is_written(tmp_path: Path) -> None:
    with opened_archive(tmp_path) as archive:
        archive.add({"x": text_of("fishing", 1)})
        call = archive.call("AddDocuments")
        with DocumentBatch(archive.planner, call, archive.target, lambda _: None) as batch:
            batch.take(Upload("x.md", "", "x", {}, text_of("fishing", 1).encode()))
            batch.take(Upload("y.md", "", "y", {}, text_of("school", 1).encode()))
            batch._queue.finish()
            archive.remove([archive.documents()["x"]])
            with pytest.raises(Unavailable) as refused:
                batch.commit(call)
        assert refused.value.reason is Reason.CONFLICT
        assert (archive.head(), archive.documents()) == (2, {})
