"""A corpus is migrated to another embedding model, whatever happens meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drillcore_fdb.round_trips import counted
from drillcore_proto.reasons import Reason
from drillcore_server.documents.ingestion.prepared_documents import builtin_embedder
from drillcore_server.embeddings import migration as migrating
from drillcore_server.embeddings import missing_vectors
from drillcore_server.embeddings.migration import Migrator
from drillcore_server.embeddings.missing_vectors import ItemTexts, MissingVectors
from drillcore_server.facts.index import FactIndexes, FactVectors
from drillcore_server.facts.update import FactUpdate, update_fact
from drillcore_server.hierarchy.chunk_index import ChunkVectors, VectorCache
from drillcore_server.hierarchy.search_text import SoughtText
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel import revise
from drillcore_server.kernel.errors import NotReady, Unavailable
from drillcore_server.storage.ids import FactId
from drillcore_server.vectors.corpus_models import embeddings_at
from drillcore_server.vectors.embedding.cache import CachingEmbedder, MemoryCache
from drillcore_server.vectors.embedding.embedders import Embedders, ProviderFailed, model_of
from drillcore_server.vectors.model import EmbeddingModel, Model
from tests.support.stores.archive import SENTENCES, Archive, opened_archive, text_of
from tests.support.stores.archive_migrations import (
    check_vectors,
    fact_planner,
    fact_text,
    items,
    migrate,
    migrator,
    models,
    put,
    short,
    snapshot,
    with_model,
)
from tests.support.stores.consistent import check


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Archive]:
    """A corpus of the built-in model with facts and overlapping chunks. It is migrated in small slices."""
    monkeypatch.setattr(migrating, "SLICE_MAX", 7)
    monkeypatch.setattr(migrating, "CLEARED_MAX", 9)
    monkeypatch.setattr(migrating, "LAST_MAX", 2)
    monkeypatch.setattr(missing_vectors, "_PAGE", 5)
    monkeypatch.setattr(missing_vectors, "_FEED_PAGE", 4)
    with opened_archive(tmp_path) as archive:
        archive.add({topic: text_of(topic, 1, 4) for topic in SENTENCES})
        put(archive, [fact_text(number) for number in range(20)])
        check_vectors(archive, builtin_embedder())
        yield archive


@pytest.fixture
def new(archive: Archive) -> Archive:
    """The same corpus on a server with another model."""
    return with_model(archive, short(), builtin_embedder())


def agree(archive: Archive) -> None:
    """Asserts that the store agrees with itself."""
    check(archive)
    assert archive.fsck().problems == ()


def once(monkeypatch: pytest.MonkeyPatch, step: str, happens: Callable[[], None], after: int = 0) -> list[int]:
    """Calls `happens` once, before a migration plans a step for the `after` + 1st time. Returns the count of plans."""
    planned, plan = [0], getattr(Migrator, step)

    def before(self: Migrator, *given: Any) -> Any:
        planned[0] += 1
        if planned[0] == after + 1:
            happens()
        return plan(self, *given)

    monkeypatch.setattr(Migrator, step, before)
    return planned


def test_every_chunk_and_fact_gets_the_vector_of_its_text(new: Archive) -> None:
    told: list[tuple[int, int]] = []
    done = migrate(new, lambda progress: told.append((progress.migration.done, progress.migration.total)))  # type: ignore[union-attr]
    assert done.is_finished
    assert (models(new).current.number, models(new).current.name, models(new).others) == (2, "short", ())
    check_vectors(new, short())
    agree(new)
    counts = [count for count, _ in told]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, told[0][1])
    assert len(set(counts)) > 4, "progress is reported for every slice"


def test_texts_and_missing_vectors_take_as_many_round_trips_for_all_items_as_for_few(
    new: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing_vectors, "_PAGE", 500)
    at, every = snapshot(new), items(new)
    missing = MissingVectors(at, replace(models(new), next=EmbeddingModel(99, "next", 64)))

    def trips(work: Callable[[], object]) -> int:
        with counted() as total:
            work()
        return total.count

    texts = ItemTexts(at, models(new).current.number)
    assert len(every) > 15
    assert len(missing.from_key(b"", len(every) + 1).missing) == len(every)
    assert trips(lambda: texts.of(every)) <= 15
    assert trips(lambda: missing.from_key(b"", len(every) + 1)) <= 8


def test_chunks_are_read_with_the_end_of_the_chunk_before_them(archive: Archive) -> None:
    at = snapshot(archive)
    found = [
        chunk for document in at.read(lambda view: list(HierarchyReader(view).documents())) for chunk in document.chunks
    ]
    overlaps = [chunk.overlap for chunk in at.each(found, lambda view, chunk: HierarchyReader(view).chunk(chunk))]
    assert any(overlaps), "without overlaps, this test would prove nothing"


@pytest.mark.parametrize(("step", "after"), [("_slice", 3), ("_flip", 0)])
def test_documents_added_during_a_migration_get_both_vectors_and_stay(
    new: Archive, monkeypatch: pytest.MonkeyPatch, step: str, after: int
) -> None:
    def write() -> None:
        new.add({"banking-2": text_of("banking", 2, 3), "school": text_of("school", 2, 3)})
        new.remove([new.documents()["fishing"]])
        put(new, [fact_text(number) for number in range(100, 110)])

    once(monkeypatch, step, write, after)
    migrate(new)
    assert new.documents().keys() == (SENTENCES.keys() | {"banking-2"}) - {"fishing"}
    check_vectors(new, short())
    agree(new)


def test_a_fact_that_changes_during_a_migration_gets_the_vector_of_its_new_content(
    new: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change() -> None:
        (fact,) = changed
        content = "The supervisor looks at every entry of the log at the end of each month and signs it."
        update, tenant = FactUpdate(content), new.corpus.tenant_id
        update_fact(fact_planner(new), new.call("UpdateFact"), tenant=tenant, fact=fact, update=update)

    changed = [FactId(entry) for entry in sorted(put(new, [fact_text(500)]))]
    once(monkeypatch, "_flip", change)
    migrate(new)
    check_vectors(new, short())
    agree(new)


def test_writes_before_the_flip_is_committed_become_part_of_it(new: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if writers are always faster, in the end the flip itself brings their vectors."""
    written = iter(range(12))

    def write(self: Any, *given: Any, plan: Any = revise.Reviser._write) -> Any:
        call = given[0]
        if call.action == "MigrateEmbeddings" and (number := next(written, None)) is not None:
            monkeypatch.setattr(revise.Reviser, "_write", plan)
            put(new, [fact_text(1_000 + number)])
            monkeypatch.setattr(revise.Reviser, "_write", write)
        return plan(self, *given)

    monkeypatch.setattr(migrating, "SLICE_MAX", 1_000)
    monkeypatch.setattr(revise.Reviser, "_write", write)
    migrate(new)
    check_vectors(new, short())
    agree(new)


def lacking(archive: Archive) -> int:
    """How many chunks and blocks of facts have no vector of the next model yet."""
    now = models(archive)
    return len(MissingVectors(snapshot(archive), now).from_key(b"", 1_000).missing) if now.next else 0


@pytest.mark.parametrize("step", ["_slice", "_flip", "_clear"])
def test_a_migration_that_dies_continues_where_it_was(new: Archive, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def die() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        once(patch, step, die, after=0 if step == "_flip" else 2)
        with pytest.raises(KeyboardInterrupt):
            migrate(new)
    agree(new)
    done = migrator(new).progress(new.corpus).migration
    assert done is not None
    assert done.finished_at is None
    assert done.done > 0
    left = -(-lacking(new) // migrating.SLICE_MAX)
    again = once(monkeypatch, "_slice", lambda: None)
    assert migrate(with_model(new, short())).is_finished
    assert again[0] in ({left, left + 1} if step == "_slice" else {0}), "finished slices are not repeated"
    check_vectors(new, short())
    agree(new)


def test_two_migrations_at_once_do_no_harm(new: Archive) -> None:
    servers = [with_model(new, short()), with_model(new, short())]
    ends: list[Any] = []
    threads = [threading.Thread(target=lambda server=server: ends.append(migrate(server))) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [end.is_finished for end in ends] == [True, True]
    assert models(new).current.number == 2, "one migration was enough"
    check_vectors(new, short())
    agree(new)


def test_after_the_new_model_fails_the_old_one_stays_in_use_and_progress_is_kept(
    new: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = type(short()).embed
    calls = [0]

    def failing(self: Any, texts: Any) -> Any:
        calls[0] += self is short()
        if calls[0] > 2 and self is short():
            raise ProviderFailed("the provider is gone", retryable=True)
        return embed(self, texts)

    with monkeypatch.context() as patch:
        patch.setattr(type(short()), "embed", failing)
        with pytest.raises(Unavailable) as caught:
            migrate(new)
        assert caught.value.reason is Reason.MODEL_UNAVAILABLE
        new.add({"banking": text_of("banking", 9, 3)})
        put(new, [fact_text(7_000)])
    assert models(new).current.name == builtin_embedder().model
    agree(new)
    assert migrate(new).is_finished
    check_vectors(new, short())
    agree(new)


def test_a_migration_to_another_model_replaces_an_unfinished_one(
    archive: Archive, new: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = migrator(new, lambda: True)
    corpus = begun.begin(new.call("MigrateEmbeddings"), new.target)
    with pytest.raises(Unavailable) as caught:
        begun.run(corpus, lambda _: None)
    assert caught.value.reason is Reason.SHUTTING_DOWN
    with pytest.raises(NotReady) as refused:
        migrator(archive).run(corpus, lambda _: None)
    assert refused.value.reason is Reason.MODEL_MISMATCH
    assert migrate(archive).is_finished, "a return to the present model only removes the new vectors"
    assert (models(archive).current.number, models(archive).others) == (1, ())
    check_vectors(archive, builtin_embedder())
    agree(archive)
    migrate(new)
    assert models(new).current.number == 3, "numbers are not used again, since a server may still have an old index"


def test_migrating_there_and_back_gives_the_first_state_again(archive: Archive, new: Archive) -> None:
    migrate(new)
    migrate(archive)
    assert models(archive).current.number == 3
    check_vectors(archive, builtin_embedder())
    agree(archive)
    archive.add({"consent-2": text_of("consent", 1, 4)})
    check_vectors(archive, builtin_embedder())


def test_a_corpus_that_needs_no_migration_gets_no_revision(archive: Archive) -> None:
    head = archive.head()
    assert migrate(archive).is_finished
    assert archive.head() == head


def test_a_large_flip_is_as_atomic_as_a_small_one(new: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revise, "SMALL_BYTES_MAX", 0)
    monkeypatch.setattr(revise, "BATCH_BYTES_MAX", 1_500)
    migrate(new)
    check_vectors(new, short())
    agree(new)


def test_earlier_revisions_keep_their_model(archive: Archive, new: Archive) -> None:
    head = archive.head()
    before = check(archive, head).records
    migrate(new)
    assert check(archive, head).records == before
    found = archive.engine.run(lambda tr: embeddings_at(tr, archive.keys, head))
    assert found is not None
    assert found.current.name == builtin_embedder().model


def test_a_caller_must_resend_a_document_if_the_model_changes_while_it_is_read(
    archive: Archive, new: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = type(archive.planner).plan
    done: list[bool] = []

    def planned(self: Any, *given: Any) -> Any:
        if not done:
            done.append(True)
            migrate(new)
        return plan(self, *given)

    monkeypatch.setattr(type(archive.planner), "plan", planned)
    with pytest.raises(Unavailable) as caught:
        archive.add({"late": text_of("school", 5)})
    assert caught.value.reason is Reason.CONFLICT
    new.add({"late": text_of("school", 5)})
    check_vectors(new, short())
    agree(new)


def test_removing_documents_while_the_model_changes_leaves_sums_of_the_new_model(
    archive: Archive, new: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan was made with the old vectors and then overtaken, so its sums must not be used."""
    write = revise.Reviser._write
    done: list[bool] = []

    def overtaken(self: Any, call: Any, *given: Any) -> Any:
        if call.action == "RemoveDocuments" and not done:
            done.append(True)
            migrate(new)
        return write(self, call, *given)

    monkeypatch.setattr(revise.Reviser, "_write", overtaken)
    archive.add({"school-2": text_of("school", 2, 3)})
    archive.remove([archive.documents()["school-2"]])
    check_vectors(new, short())
    agree(new)


def test_indexes_of_the_next_model_are_loaded_before_searches_use_it(
    new: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks, facts = VectorCache(new.engine), FactIndexes(new.engine)
    migration = Migrator(new.planner.reviser, new.planner.embedders, (chunks, facts))
    migration.run(migration.begin(new.call("MigrateEmbeddings"), new.target), lambda _: None)

    def load(*_: object) -> None:
        raise AssertionError("the index is read from the store")

    monkeypatch.setattr(ChunkVectors, "load", load)
    monkeypatch.setattr(FactVectors, "load", load)
    at = snapshot(new)
    found = at.read(lambda view: (chunks.at(view), facts.at(view)))
    assert {index.dimensions for index in found} == {short().dimensions}
    assert sum(map(len, found)) == len(ItemTexts(at, models(new).current.number).of(items(new)))


def test_a_text_is_embedded_once_for_each_model_of_the_corpora(archive: Archive, new: Archive) -> None:
    counted = [CachingEmbedder(embedder, MemoryCache(0)) for embedder in (short(), builtin_embedder())]
    old = models(archive).current.model
    sought = SoughtText(Embedders(counted[0], (counted[1],)), "who signs the log")
    tries: list[None] = []

    def search() -> list[int]:
        tries.append(None)
        return [len(sought.of(archive.corpus.id, model)) for model in (model_of(short()), old, old, model_of(short()))]

    assert sought.run(search) == [64, 256, 256, 64]
    assert [embedder.counts.misses for embedder in counted] == [1, 1]
    assert len(tries) == 2, "the search starts again only when it meets another model"
    with pytest.raises(NotReady) as refused:
        sought.of(archive.corpus.id, Model("nobody's", 3))
    assert "[[ingest.former]]" in refused.value.message
    assert "MigrateEmbeddings" in refused.value.message


def test_fsck_finds_missing_vectors_and_vectors_of_no_model(new: Archive) -> None:
    migrate(new)
    at = snapshot(new)
    first = next(iter(at.entries(at.keys.vectors(2)))).key
    new.engine.run(lambda tr: tr.clear_range(first, first + b"\xff"))
    assert any("has no vector" in problem for problem in new.fsck().problems)
    stray = new.keys.vectors(77).begin + first[-16:]
    new.engine.run(lambda tr: new.sealed.put(tr, stray, at.revision, 1, b"12"))  # type: ignore[arg-type]
    assert any("is of no model" in problem for problem in new.fsck().problems)


@pytest.mark.parametrize("kind", ["facts", "chunks"])
def test_fsck_does_not_mistake_vectors_of_the_next_model_for_those_in_use(
    new: Archive, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def die() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        once(patch, "_flip", die)
        with pytest.raises(KeyboardInterrupt):
            migrate(new)
    at = snapshot(new)
    current, following = map(at.keys.fact_vectors if kind == "facts" else at.keys.vectors, (1, 2))
    lost = next(iter(at.entries(current))).key
    assert next(iter(at.entries(following))).key[-16:] == lost[-16:], "the record has a vector of the next model"
    new.engine.run(lambda tr: tr.clear_range(lost, lost + b"\xff"))
    assert any("has no vector" in problem for problem in new.fsck().problems)
