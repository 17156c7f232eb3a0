"""An erasure removes the source from what a server keeps in memory and in files outside the store."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest

from drillcore_server.app.config import EmbedderKind, FormerSettings, IngestSettings
from drillcore_server.documents.ingestion.prepared_documents import builtin_preparer
from drillcore_server.documents.ingestion.reader_process import TASK, Task, WorkerMessage, work_on
from drillcore_server.documents.processors import extractive, summaries
from drillcore_server.facts.state_hash import STATE, StateHashes
from drillcore_server.graphs.turn_graph import TurnGraphs
from drillcore_server.hierarchy.sections import SectionCache, SectionIndexes
from drillcore_server.kernel import corpus_store as corpora
from drillcore_server.storage.ids import CorpusId, CorpusNumber, TenantId
from drillcore_server.vectors.embedding.cache import CachingEmbedder
from drillcore_server.vectors.index_snapshots import IndexName
from drillcore_server.vectors.settings import VectorSettings
from tests.support.callers.erasures import MARKED, OTHER, ErasingCaller
from tests.support.callers.graphs import GraphCaller, turn
from tests.support.callers.knowledge import SECTION, File
from tests.support.servers.running import ACME, ACME_ID, Running, create_tenants, running
from tests.support.stores.aged import keys_of, keyspace

T = TypeVar("T")
TWO_MODELS = IngestSettings(workers=0, former=(FormerSettings(embedder=EmbedderKind.STATIC),))
KINDS = (CachingEmbedder, SectionCache, SectionIndexes, StateHashes, TurnGraphs)
WITH_GRAPHS = VectorSettings(exact_below=1, tail_max=1, build_threads=1)


class Kept:
    """Instances created since this object: those of the server that a test starts, not of servers of earlier tests."""

    def __init__(self) -> None:
        self._earlier = [instance for instance in gc.get_objects() if isinstance(instance, KINDS)]

    def every(self, kind: type[T]) -> list[T]:
        gc.collect()
        earlier = set(map(id, self._earlier))
        return [instance for instance in gc.get_objects() if isinstance(instance, kind) and id(instance) not in earlier]


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def server(tmp_path: Path, kept: Kept) -> Iterator[Running]:
    with running(tmp_path / "data", ingest=TWO_MODELS, vectors=WITH_GRAPHS) as found:
        create_tenants(found.client())
        yield found


@pytest.fixture
def caller(server: Running) -> Iterator[ErasingCaller]:
    with ErasingCaller(server, ACME) as found:
        yield found


@pytest.fixture
def corpus(caller: ErasingCaller) -> str:
    made = caller.corpus()
    caller.add(made, File("marked.md", MARKED, "marked"), File("other.md", OTHER, "other"))
    return made


def number_of(server: Running, corpus: str) -> CorpusNumber:
    keys, found = keyspace(server), CorpusId(UUID(corpus))
    return server.engine.run(lambda tr: corpora.get(tr, keys, TenantId(ACME_ID), found)).number


def slice_a_turn(server: Running, corpus: str, number: int) -> None:
    with GraphCaller(server, ACME) as caller:
        caller.put_turns(corpus, [turn(number)], source_id="marked")
        caller.slice(number)


def test_vectors_of_every_model_are_forgotten(caller: ErasingCaller, corpus: str, kept: Kept) -> None:
    models: list[Any] = kept.every(CachingEmbedder)
    for model in models:
        model.embed([MARKED])
    assert len(models) >= 2
    caller.erase(corpus, "marked")
    assert [len(model._cache._entries) for model in models] == [0] * len(models)


def test_passages_are_forgotten(caller: ErasingCaller, corpus: str) -> None:
    assert summaries._measured.cache_info().currsize
    assert extractive._heading_words.cache_info().currsize
    caller.erase(corpus, "marked")
    assert summaries._measured.cache_info().currsize == extractive._heading_words.cache_info().currsize == 0


def test_outlines_and_hashes_of_the_erased_corpus_are_forgotten_and_no_others(
    server: Running, caller: ErasingCaller, corpus: str, kept: Kept
) -> None:
    other_corpus = caller.corpus("other")
    caller.add(other_corpus, File("other.md", OTHER, "other"))
    for place, target in enumerate((corpus, other_corpus)):
        caller.query(target, level=SECTION, text="register of birds")
        caller.state(target)
        slice_a_turn(server, target, place)
    numbers = [number_of(server, target) for target in (corpus, other_corpus)]
    found: list[Any] = [cache for kind in (SectionCache, SectionIndexes, TurnGraphs) for cache in kept.every(kind)]
    found += [state_hashes._follower for state_hashes in kept.every(StateHashes)]
    assert [[number in cache._kept for number in numbers] for cache in found] == [[True, True]] * 4
    caller.erase(corpus, "marked")
    assert [[number in cache._kept for number in numbers] for cache in found] == [[False, True]] * 4


def test_the_stored_state_hash_is_removed_and_made_anew(server: Running, caller: ErasingCaller, corpus: str) -> None:
    """For a corpus with a single fact, the hash would confirm a guess of its content."""
    before, key = caller.state(corpus), keys_of(server, corpus).state_hash()
    caller.erase(corpus, "marked")
    assert server.engine.run(lambda tr: STATE.read(tr, key)) is None
    after = caller.state(corpus)
    assert after.states[0].state_hash != before.states[0].state_hash
    stored = server.engine.run(lambda tr: STATE.read(tr, key))
    assert stored is not None
    assert (stored.revision, stored.state_hash) == (after.states[0].state_revision, after.states[0].state_hash)


def test_saved_indexes_of_the_erased_corpus_are_removed_and_no_others(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data, vectors=WITH_GRAPHS) as server, ErasingCaller(server, ACME) as caller:
        create_tenants(server.client())
        made = [caller.corpus(name) for name in ("one", "two")]
        for target in made:
            caller.add(target, File("marked.md", MARKED, "marked"), File("other.md", OTHER, "other"))
            caller.search("register of birds", target)
        numbers = [number_of(server, target) for target in made]
        for number in numbers:
            server.server.indexes.facts.tend(IndexName(number, "facts", 1), lambda: False)
        assert saved(data) == set(numbers)
        caller.erase(made[0], "marked")
        assert saved(data) == {numbers[1]}


def saved(data: Path) -> set[int]:
    return {int(path.name.split("-")[0]) for path in (data / "indexes").iterdir()}


def test_a_worker_keeps_nothing_of_the_documents_it_has_read() -> None:
    parent_end, child_end = Pipe()
    worker = threading.Thread(target=lambda: _until_closed(child_end))
    worker.start()
    parent_end.send_bytes(TASK.encode(Task("marked.md", "", None)))
    parent_end.send_bytes(MARKED.encode())
    while parent_end.recv_bytes()[:1] != WorkerMessage.END.value:
        continue
    parent_end.close()
    worker.join()
    assert extractive._heading_words.cache_info().currsize == 0


def _until_closed(connection: Any) -> None:
    with suppress(EOFError):
        work_on(connection, builtin_preparer().digester)
