"""A corpus whose server has different embedding models: the built-in model, whole or cut short. Both are real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from uuid import UUID

import numpy as np

from drillcore_server.documents.ingestion.prepared_documents import builtin_embedder
from drillcore_server.embeddings.migration import Migrator, Progress
from drillcore_server.embeddings.missing_vectors import Item, ItemTexts
from drillcore_server.facts.change import FactPlanner
from drillcore_server.facts.index import FactIndexes
from drillcore_server.facts.model import Fact, FactStatus
from drillcore_server.facts.put import FactDraft, put_facts
from drillcore_server.facts.store import FactReader, stored_blocks, stored_vectors
from drillcore_server.hierarchy.chunk_index import VectorCache
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusReads
from drillcore_server.storage.ids import FactId, NodeId, SourceId
from drillcore_server.vectors.corpus_models import embeddings_of
from drillcore_server.vectors.embedding.embedders import Embedder
from drillcore_server.vectors.embedding.static import StaticEmbedder
from drillcore_server.vectors.model import Embeddings
from drillcore_server.vectors.stored_vectors import packed, unpacked
from tests.support.stores.archive import Archive


@cache
def short() -> Embedder:
    """The built-in model with a quarter of its dimensions."""
    whole = builtin_embedder()
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
    """Runs a migration from its beginning to its end."""
    migration = migrator(archive)
    return migration.run(migration.begin(archive.call("MigrateEmbeddings"), archive.target), report)


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
    blocks = stored_blocks(at)
    return [*chunks, *(Item(True, block.id) for block in blocks if any(_has_vector(fact) for fact in block.facts))]


def _has_vector(fact: Fact) -> bool:
    return fact.status is not FactStatus.DELETED


def check_vectors(archive: Archive, embedder: Embedder) -> None:
    """Asserts that each chunk and fact has the vector that the model makes of its text, under the corpus's current
    number, and that there is no other vector."""
    at, number = snapshot(archive), models(archive).current.number
    texts = ItemTexts(at, number).of(items(archive))
    expected = [packed(vector) for vector in embedder.embed([text.text for text in texts])]
    stored = [
        at.read(
            lambda view, text=text: (
                FactReader(view).vector(number, text.fact)
                if text.fact is not None
                else HierarchyReader(view).vector(number, NodeId(text.item.id))
            )
        )
        for text in texts
    ]
    assert all(vector is not None for vector in stored)
    differing = [
        text.item for text, vector, wanted in zip(texts, stored, expected, strict=True) if not _same(vector, wanted)
    ]
    assert differing == []
    chunks = sum(1 for _ in at.entries(at.keys.all_vectors()))
    assert chunks + sum(1 for _ in stored_vectors(at, number)) == len(texts)
    assert list(at.entries(at.keys.all_fact_vectors())) == list(at.entries(at.keys.fact_vectors(number)))


def _same(stored: bytes | None, wanted: bytes) -> bool:
    """Whether two vectors agree within the precision that is left after it was stored once or twice."""
    assert stored is not None
    left, right = unpacked(stored), unpacked(wanted)
    return left.shape == right.shape and bool(np.allclose(left, right, atol=2e-3))
