"""A corpus migrates to another embedding model while it is searched and written. Afterwards it is as if it had always
had that model. The models are the built-in model and MiniLM."""

from __future__ import annotations

import io
import shutil
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import numpy as np
import pytest

from drillcore import Role, SignatureTarget, SignatureTargetKind
from drillcore_formats.audit.bundle import verify_bundle
from drillcore_formats.audit.pins import Pins
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import facts_pb2 as pb
from drillcore_server.embeddings import migration as migrating
from drillcore_server.embeddings.migration import Migrator
from tests.support.callers.hierarchies import put, two_sections, with_vectors
from tests.support.callers.knowledge import CHUNK, File, at_revision, files, refused
from tests.support.data.texts import REGULATIONS, notice
from tests.support.servers.concurrently import concurrently
from tests.support.servers.migrations import (
    MINILM,
    NEW,
    NEW_ALONE,
    OLD,
    STATIC,
    MigrationCaller,
    finished,
    near,
    problems,
    section_sums,
    serving,
)
from tests.support.servers.running import ACME, DUE_COMMUNITIES
from tests.support.servers.signatories import person
from tests.support.stores.trails import records

FACTS = [
    "The qualified person certifies every batch of the medicinal product before it is released for sale.",
    "Training records of all operators are kept for at least five years after they have left the company.",
    "Deviations from the process are recorded within one working day and investigated by the quality unit.",
]
SOUGHT = "who keeps records of training, and for how long"


def fill(caller: MigrationCaller, corpus: str) -> None:
    caller.add(corpus, *files(REGULATIONS))
    caller.put(corpus, *(pb.FactDraft(content=text, source_id="handbook") for text in FACTS))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A store, and its corpus that was embedded with the built-in model. Tests must copy the store, not change it."""
    path = tmp_path_factory.mktemp("old")
    with serving(path, OLD) as caller:
        corpus = caller.corpus()
        fill(caller, corpus)
        assert caller.models(corpus) == {STATIC}
    return path, corpus


@pytest.fixture
def path(stored: tuple[Path, str], tmp_path: Path) -> Path:
    return Path(shutil.copytree(stored[0], tmp_path / "data"))


@pytest.fixture
def corpus(stored: tuple[Path, str]) -> str:
    return stored[1]


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices so small that a migration takes several."""
    monkeypatch.setattr(migrating, "SLICE_MAX", 5)
    monkeypatch.setattr(migrating, "CLEARED_MAX", 5)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """An event: a migration waits for it before its last revision."""
    is_open, flip = threading.Event(), Migrator._flip

    def wait(self: Migrator, *given: object) -> object:
        assert is_open.wait(60)
        return flip(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Migrator, "_flip", wait)
    yield is_open
    is_open.set()


def up_to_the_gate(caller: MigrationCaller, corpus: str) -> Iterator[object]:
    """Begins a migration and waits until everything stored before has its new vector."""
    stream = caller.begin(corpus)
    for told in stream:
        if told.migration.done == told.migration.total:
            return stream
    raise AssertionError("the migration ended before all vectors were there")


@pytest.mark.usefixtures("slices")
def test_a_migrated_corpus_is_as_if_it_had_always_had_the_model(path: Path, corpus: str) -> None:
    with serving(path, NEW) as caller:
        told = caller.migrate(corpus)
        assert [answer.finished for answer in told] == [False] * (len(told) - 1) + [True]
        done = [answer.migration.done for answer in told]
        assert done == sorted(done)
        assert len(set(done)) > 3
        assert told[-1].revision == caller.head(corpus)
        assert caller.models(corpus) == {MINILM}
        assert problems(caller) == []
        other_corpus = caller.corpus("from the start")
        fill(caller, other_corpus)
        migrated, fresh = caller.vectors(corpus), caller.vectors(other_corpus)
        assert migrated.keys() == fresh.keys()
        assert all(near(migrated[text], fresh[text]) for text in fresh)
        for sought in (SOUGHT, "release of a batch", "what is done about deviations"):
            assert caller.found(corpus, sought) == caller.found(other_corpus, sought)


def test_vectors_of_sections_follow_from_the_new_vectors_of_their_chunks(path: Path) -> None:
    """The hierarchy has vectors of a client's own model, which the server does not have."""
    with serving(path, NEW) as caller:
        foreign, own = caller.corpus("foreign"), caller.corpus("own")
        put(caller, own, two_sections())
        put(caller, foreign, with_vectors(two_sections()), embedding_model="theirs-4")
        with refused(Reason.MODEL_MISMATCH):
            caller.query(foreign, level=CHUNK, text="deviation")
        assert caller.migrate(foreign)[-1].finished
        sums, expected = section_sums(caller, foreign), section_sums(caller, own)
        assert sums.keys() == expected.keys()
        assert all(np.allclose(sums[section], expected[section], atol=1e-2) for section in expected)
        assert caller.query(foreign, level=CHUNK, text="deviation")
        assert problems(caller) == []


def test_old_revisions_are_searched_with_the_model_they_had(path: Path, corpus: str) -> None:
    with serving(path, NEW) as caller:
        head = caller.head(corpus)
        before, vectors = caller.answers(corpus, SOUGHT), caller.vectors(corpus)
        caller.migrate(corpus)
        assert caller.answers(corpus, SOUGHT) != before
        earlier = {"as_of": at_revision(head)}
        assert caller.answers(corpus, SOUGHT, **earlier) == before
        assert caller.vectors(corpus, **earlier) == vectors
        assert caller.models(corpus, **earlier) == {STATIC}
    with serving(path, NEW_ALONE) as caller:
        assert caller.answers(corpus, SOUGHT)
        with refused(Reason.MODEL_MISMATCH):
            caller.answers(corpus, SOUGHT, **earlier)


@pytest.mark.usefixtures("slices")
def test_the_old_model_serves_until_all_new_vectors_are_there(path: Path, corpus: str, gate: threading.Event) -> None:
    with serving(path, NEW) as caller:
        before = caller.answers(corpus, SOUGHT)
        stream = up_to_the_gate(caller, corpus)
        assert caller.answers(corpus, SOUGHT) == before
        assert caller.models(corpus) == {STATIC}
        now = caller.migration(corpus)
        assert (now.current.name[:9], now.next.name[:10], now.HasField("finished_at")) == (STATIC, MINILM, False)
        assert problems(caller) == []
        caller.add(corpus, File("late.txt", notice(5)))
        caller.put(corpus, pb.FactDraft(content=f"{FACTS[0]} It says so in writing.", source_id="handbook"))
        assert any(place.startswith("late.txt") for place, _ in caller.answers(corpus, "inspector"))
        gate.set()
        assert list(stream)[-1].finished  # type: ignore[attr-defined]
        assert caller.models(corpus) == {MINILM}
        assert any(place.startswith("late.txt") for place, _ in caller.answers(corpus, "inspector"))
        now = caller.migration(corpus)
        assert now.HasField("finished_at")
        assert not now.HasField("next")
        assert problems(caller) == []


def test_additions_to_a_corpus_of_a_former_model_use_that_model(path: Path, corpus: str) -> None:
    with serving(path, NEW) as caller:
        caller.add(corpus, File("late.txt", notice(5)))
        caller.put(corpus, pb.FactDraft(content=f"{FACTS[0]} It says so in writing.", source_id="handbook"))
        caller.update(caller.list(corpus)[0].fact_id, content=f"{FACTS[1]} And then they are destroyed.")
        assert caller.models(corpus) == {STATIC}
        assert problems(caller) == []
    with serving(path, NEW_ALONE) as caller:
        with refused(Reason.MODEL_MISMATCH):
            caller.add(corpus, File("later.txt", notice(6)))
        with refused(Reason.MODEL_MISMATCH):
            caller.put(corpus, pb.FactDraft(content=FACTS[2] + " Always.", source_id="handbook"))
        with refused(Reason.MODEL_MISMATCH):
            caller.search(SOUGHT, corpus)


def test_corpora_of_different_models_are_searched_together(path: Path, corpus: str) -> None:
    with serving(path, NEW) as caller:
        other_corpus = caller.corpus("other")
        caller.put(other_corpus, pb.FactDraft(content=FACTS[1], source_id="handbook"))
        hits = caller.search(FACTS[1], corpus, other_corpus).hits
        assert {hit.fact.corpus_id for hit in hits if hit.score > 0.99} == {corpus, other_corpus}
        caller.add(other_corpus, File("late.txt", notice(5)))
        found = caller.query(corpus, other_corpus, level=CHUNK, text="inspector")
        assert {node.corpus_id for node in found} == {corpus, other_corpus}


def test_a_source_erased_during_a_migration_has_no_vector_of_any_model(
    path: Path, corpus: str, gate: threading.Event
) -> None:
    with serving(path, NEW) as caller:
        stream = up_to_the_gate(caller, corpus)
        caller.server.client(ACME).erase_source(corpus, "handbook", reason="asked for")
        assert problems(caller) == []
        gate.set()
        assert list(stream)[-1].finished  # type: ignore[attr-defined]
        assert caller.models(corpus) == {MINILM}
        assert not {fact.source_id for fact in caller.list(corpus)} & {"handbook"}
        assert problems(caller) == []


def test_a_migration_has_one_audit_record_for_the_call_and_one_for_each_revision(path: Path, corpus: str) -> None:
    with serving(path, NEW) as caller:
        head, request_id = caller.head(corpus), str(uuid4())
        last = caller.migrate(corpus, request_id)[-1]
        (record,) = records(caller.server, request_id=request_id)
        assert (record["call"], record["outcome"], record["after"]["revision"]) == ("MigrateEmbeddings", "OK", head + 1)
        own = [
            record for record in records(caller.server, call="MigrateEmbeddings") if record["operator"] == "drillcore"
        ]
        assert [record["after"]["revision"] for record in own] == list(range(head + 2, last.revision + 1))
        assert {entry.action for entry in caller.history(corpus_id=corpus) if entry.revision > head} == {
            "MigrateEmbeddings"
        }
        again = caller.migrate(corpus, request_id)
        assert (again[-1].finished, again[-1].revision) == (True, last.revision)
        assert len(records(caller.server, request_id=request_id)) == 1
        other_request = str(uuid4())
        assert caller.migrate(corpus, other_request)[-1].revision == last.revision, "there is nothing left to do"
        (record,) = records(caller.server, request_id=other_request)
        assert record["detail"]["unchanged"]


def test_communities_are_computed_anew_after_a_week_though_no_fact_has_changed(path: Path, corpus: str) -> None:
    """The vectors of the facts have changed."""
    with serving(path, NEW, communities=DUE_COMMUNITIES) as caller:
        keeper, now = caller.server.server.communities, datetime.now(UTC)
        assert keeper.run_due(now + timedelta(days=8)) == 1
        assert keeper.run_due(now + timedelta(days=16)) == 0
        caller.migrate(corpus)
        assert keeper.run_due(now + timedelta(days=6)) == 0
        assert keeper.run_due(now + timedelta(days=16)) == 1
        assert keeper.run_due(now + timedelta(days=24)) == 0


def test_two_migrations_at_once_do_no_harm(path: Path, corpus: str) -> None:
    with serving(path, NEW) as caller:
        ends = concurrently(2, lambda _: caller.migrate(corpus)[-1])
        assert [end.finished for end in ends] == [True, True]
        assert caller.models(corpus) == {MINILM}
        assert problems(caller) == []


def test_an_empty_corpus_has_nothing_to_migrate(path: Path) -> None:
    with serving(path, NEW) as caller:
        empty = caller.corpus("empty")
        (told,) = caller.migrate(empty)
        assert (told.finished, told.revision, told.migration.total) == (True, 0, 0)
        assert not caller.migration(empty).HasField("current")


@pytest.mark.usefixtures("slices")
def test_a_migration_that_a_stop_interrupts_goes_on_by_itself_at_the_next_start(path: Path, corpus: str) -> None:
    with serving(path, NEW) as caller:
        stream = caller.begin(corpus)
        next(stream)
        caller.server.server._stopping.set()
        with refused(Reason.SHUTTING_DOWN):
            list(stream)
        assert caller.models(corpus) == {STATIC}
        assert problems(caller) == []
    with serving(path, NEW) as caller:
        finished(caller, corpus)
        assert caller.models(corpus) == {MINILM}
        assert problems(caller) == []


def test_a_signature_of_a_chunk_holds_whatever_model_made_its_vector(path: Path, corpus: str) -> None:
    with serving(path, NEW) as caller:
        reviewer = person(caller.server, "rita", Role.REVIEWER, name="Rita Reviewer")
        chunk = caller.query(corpus, level=CHUNK)[0].id
        client = reviewer.log_in()
        prepared = client.prepare_signature(SignatureTarget(SignatureTargetKind.NODE, UUID(chunk)), "approved")
        client.sign_record(prepared, reviewer.password, login="rita")
        caller.migrate(corpus)
        signed = caller.node(chunk)
        assert len(signed.signatures) == 1
        again = client.prepare_signature(SignatureTarget(SignatureTargetKind.NODE, UUID(chunk)), "approved")
        assert again.content_hash == prepared.content_hash
        bundle = io.BytesIO()
        person(caller.server, "ada", Role.AUDITOR).log_in().export_corpus(UUID(corpus), bundle)
        pinned = caller.server.server.logs.signing.signer(1).verifier
        report = verify_bundle(bundle, Pins((pinned,)))
        assert (report.problems, report.details["signatures"]) == ((), 1)
