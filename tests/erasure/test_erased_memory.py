"""What a server keeps beside the store, in memory and in files, is let go of when something is erased."""

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
from drillcore_server.documents.ingestion import builtin
from drillcore_server.documents.ingestion.reader_process import TASK, Said, Task, work_on
from drillcore_server.documents.processing import extractive, summaries
from drillcore_server.facts.state_hash import STATE, StateHashes
from drillcore_server.graphs.conversation import TurnGraphs
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
    """What came to be in this process since: of the server that a test starts, and of none that another has left."""

    def __init__(self) -> None:
        self._earlier = [one for one in gc.get_objects() if isinstance(one, KINDS)]

    def every(self, kind: type[T]) -> list[T]:
        gc.collect()
        earlier = set(map(id, self._earlier))
        return [one for one in gc.get_objects() if isinstance(one, kind) and id(one) not in earlier]


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


def test_outlines_and_hashes_of_its_corpus_are_forgotten_and_no_others(
    server: Running, caller: ErasingCaller, corpus: str, kept: Kept
) -> None:
    other = caller.corpus("other")
    caller.add(other, File("other.md", OTHER, "other"))
    for place, one in enumerate((corpus, other)):
        caller.query(one, level=SECTION, text="register of birds")
        caller.state(one)
        slice_a_turn(server, one, place)
    numbers = [number_of(server, one) for one in (corpus, other)]
    found: list[Any] = [one for kind in (SectionCache, SectionIndexes, TurnGraphs) for one in kept.every(kind)]
    found += [one._follower for one in kept.every(StateHashes)]
    assert [[number in one._kept for number in numbers] for one in found] == [[True, True]] * 4
    caller.erase(corpus, "marked")
    assert [[number in one._kept for number in numbers] for one in found] == [[False, True]] * 4


def test_the_stored_state_hash_is_removed_and_made_anew(server: Running, caller: ErasingCaller, corpus: str) -> None:
    """Of a corpus with one fact it would tell whether a guess of what that said is right."""
    before, key = caller.state(corpus), keys_of(server, corpus).state_hash()
    caller.erase(corpus, "marked")
    assert server.engine.run(lambda tr: STATE.read(tr, key)) is None
    after = caller.state(corpus)
    assert after.states[0].state_hash != before.states[0].state_hash
    stored = server.engine.run(lambda tr: STATE.read(tr, key))
    assert stored is not None
    assert (stored.revision, stored.state_hash) == (after.states[0].state_revision, after.states[0].state_hash)


def test_saved_indexes_of_its_corpus_are_removed_and_no_others(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data, vectors=WITH_GRAPHS) as server, ErasingCaller(server, ACME) as caller:
        create_tenants(server.client())
        made = [caller.corpus(name) for name in ("one", "two")]
        for one in made:
            caller.add(one, File("marked.md", MARKED, "marked"), File("other.md", OTHER, "other"))
            caller.search("register of birds", one)
        numbers = [number_of(server, one) for one in made]
        for number in numbers:
            server.server.indexes.facts.tend(IndexName(number, "facts", 1), lambda: False)
        assert saved(data) == set(numbers)
        caller.erase(made[0], "marked")
        assert saved(data) == {numbers[1]}


def saved(data: Path) -> set[int]:
    return {int(path.name.split("-")[0]) for path in (data / "indexes").iterdir()}


def test_a_worker_keeps_nothing_of_what_it_has_read() -> None:
    here, there = Pipe()
    worker = threading.Thread(target=lambda: _until_closed(there))
    worker.start()
    here.send_bytes(TASK.encode(Task("marked.md", "", None)))
    here.send_bytes(MARKED.encode())
    while here.recv_bytes()[:1] != Said.END.value:
        continue
    here.close()
    worker.join()
    assert extractive._heading_words.cache_info().currsize == 0


def _until_closed(connection: Any) -> None:
    with suppress(EOFError):
        work_on(connection, builtin.preparer().digester)
