"""A corpus whose server has one embedding model or another: the built-in one, whole or cut short. Both are real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from uuid import UUID

import numpy as np

from drillcore_server.documents.ingestion import builtin
from drillcore_server.embeddings.migration import Migrator, Progress
from drillcore_server.embeddings.missing import EmbeddedTexts, Item
from drillcore_server.facts.change import FactPlanner
from drillcore_server.facts.drafts import FactDraft
from drillcore_server.facts.index import FactIndexes
from drillcore_server.facts.model import FactStatus
from drillcore_server.facts.put import put_facts
from drillcore_server.facts.store import FactReader, packed
from drillcore_server.hierarchy.chunk_index import VectorCache
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusReads
from drillcore_server.storage.ids import FactId, NodeId, SourceId
from drillcore_server.vectors.embedding.embedders import Embedder
from drillcore_server.vectors.embedding.static import StaticEmbedder
from drillcore_server.vectors.model import Embeddings
from drillcore_server.vectors.store import embeddings_of
from tests.support.stores.archive import Archive


@cache
def short() -> Embedder:
    """The built-in model without three quarters of its dimensions."""
    whole = builtin.embedder()
    assert isinstance(whole, StaticEmbedder)
    return StaticEmbedder(whole._token_vectors[:, :64].copy(), whole._tokenizer, "short")


def with_model(archive: Archive, embedder: Embedder, *former: Embedder) -> Archive:
    """The same corpus as a server with these models has it."""
    restarted = archive.on(archive.engine)
    preparer = replace(restarted.planner.preparer, embedder=embedder, former=former)
    restarted.planner = replace(restarted.planner, preparer=preparer)
    return restarted


def migrator(archive: Archive, stopping: Callable[[], bool] = lambda: False) -> Migrator:
    indexes = (VectorCache(archive.engine), FactIndexes(archive.engine))
    return Migrator(archive.planner.reviser, archive.planner.embedders, indexes, stopping)


def migrate(archive: Archive, report: Callable[[Progress], None] = lambda _: None) -> Progress:
    """From its beginning to its end."""
    one = migrator(archive)
    return one.run(one.begin(archive.call("MigrateEmbeddings"), archive.target), report)


def fact_planner(archive: Archive) -> FactPlanner:
    planner = archive.planner
    reads = CorpusReads(planner.reviser.unit, archive.sealed, archive.keyring)
    counter = planner.preparer.digester.counter
    return FactPlanner(reads, planner.reviser, planner.embedders, counter, planner.weights)


def put(archive: Archive, texts: Sequence[str], source: str = "handbook") -> tuple[FactId, ...]:
    drafts = [FactDraft(text, SourceId(source)) for text in texts]
    return put_facts(fact_planner(archive), archive.call("PutFacts"), archive.target, drafts).facts


def fact_text(number: int) -> str:
    return f"Rule {number} of the handbook says that every operator signs the log of machine {number} after each shift."


def snapshot(archive: Archive) -> BatchedReads:
    return archive.planner.reviser.batched(archive.corpus, archive.head())


def models(archive: Archive) -> Embeddings:
    found = snapshot(archive).read(embeddings_of)
    assert found is not None
    return found


def items(archive: Archive) -> list[Item]:
    """Every chunk, and every fact that is not deleted."""
    at = snapshot(archive)
    chunks = [Item(False, UUID(bytes=entry.key[-16:])) for entry in at.entries(at.keys.chunks())]
    facts = at.read(lambda view: list(FactReader(view).facts()))
    return [*chunks, *(Item(True, one.id) for one in facts if one.status is not FactStatus.DELETED)]


def check_vectors(archive: Archive, embedder: Embedder) -> None:
    """Each chunk and fact has the vector that the model makes of its text, under the corpus's current number; and there
    is no other vector."""
    at, number = snapshot(archive), models(archive).current.number
    texts = EmbeddedTexts(at).of(items(archive))
    expected = [packed(one) for one in embedder.embed([one.text for one in texts])]
    stored = [
        at.read(
            lambda view, one=one: (
                FactReader(view).vector(number, FactId(one.item.id))
                if one.item.is_fact
                else HierarchyReader(view).vector(number, NodeId(one.item.id))
            )
        )
        for one in texts
    ]
    assert all(vector is not None for vector in stored)
    differing = [
        one.item for one, vector, wanted in zip(texts, stored, expected, strict=True) if not _same(vector, wanted)
    ]
    assert differing == []
    spaces = (at.keys.all_vectors(), at.keys.all_fact_vectors())
    assert sum(1 for space in spaces for _ in at.entries(space)) == len(texts)


def _same(stored: bytes | None, wanted: bytes) -> bool:
    """As precise as a vector that went through 16 bits once or twice."""
    assert stored is not None
    one, other = (np.frombuffer(vector, "<f2").astype(np.float32) for vector in (stored, wanted))
    return one.shape == other.shape and bool(np.allclose(one, other, atol=2e-3))
