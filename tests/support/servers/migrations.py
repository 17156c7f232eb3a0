"""Servers with different embedding models on one store, and what a corpus says about its vectors."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from drillcore_fdb.engine import Transaction
from drillcore_proto.v1 import embeddings_pb2 as pb
from drillcore_proto.v1 import embeddings_pb2_grpc
from drillcore_server.app.config import EmbedderKind, FormerSettings, IngestSettings
from drillcore_server.fsck.check_store import Fsck
from drillcore_server.hierarchy.model import Section
from drillcore_server.hierarchy.sections import sum_of_bytes
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel import corpus_store as corpora
from drillcore_server.kernel import revisions
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.storage.ids import CorpusId, TenantId
from drillcore_server.storage.sealed import SealedRecords
from tests.support.callers.facts import FactCaller
from tests.support.callers.knowledge import CHUNK, SECTION
from tests.support.servers.running import ACME, ACME_ID, OPERATOR, Running, create_tenants, running

STATIC, MINILM = "wordllama", "all-minilm"
"""The beginnings of the models' names."""
OLD = IngestSettings(workers=0)
NEW = IngestSettings(workers=0, embedder=EmbedderKind.MINILM, former=(FormerSettings(embedder=EmbedderKind.STATIC),))
NEW_ALONE = IngestSettings(workers=0, embedder=EmbedderKind.MINILM)


class MigrationCaller(FactCaller):
    """Calls of EmbeddingService beside those for facts, documents and nodes."""

    def __init__(self, server: Running, token: str = ACME) -> None:
        super().__init__(server, token)
        self.embeddings = embeddings_pb2_grpc.EmbeddingServiceStub(self._channel)

    def begin(self, corpus: str, request_id: str | None = None, timeout_s: float = 120.0) -> Any:
        """Begins a migration and returns its stream."""
        request = pb.MigrateEmbeddingsRequest(corpus_id=corpus)
        return self.embeddings.MigrateEmbeddings(iter([request]), **self.options(request_id, timeout_s))

    def migrate(self, corpus: str, request_id: str | None = None) -> list[pb.MigrateEmbeddingsResponse]:
        """All messages of a migration, until it is finished."""
        return list(self.begin(corpus, request_id))

    def migration(self, corpus: str) -> pb.Migration:
        request = pb.GetMigrationRequest(corpus_id=corpus)
        return self.embeddings.GetMigration(request, **self.options()).migration

    def vectors(self, corpus: str, **fields: Any) -> dict[str, Sequence[float]]:
        """Vectors of chunks by their text's place, and of facts by their content: the same keys in any corpus."""
        found: dict[str, Sequence[float]] = {}
        for node in self.query(corpus, level=CHUNK, **fields):
            chunk = self.node(node.id, with_embedding=True, **fields).chunk
            found[f"{chunk.source_id} {chunk.span.start}"] = tuple(chunk.embedding)
        for fact in self.list(corpus, **fields):
            found[fact.content] = tuple(self.get(fact.fact_id, with_embedding=True, **fields).embedding)
        return found

    def models(self, corpus: str, **fields: Any) -> set[str]:
        """The models with which chunks and facts say they were embedded, without what follows the name."""
        chunks = {node.chunk.embedding_model for node in self.query(corpus, level=CHUNK, **fields)}
        facts = {fact.embedding_model for fact in self.list(corpus, **fields)}
        return {model.partition("-l")[0] for model in chunks | facts}

    def answers(self, corpus: str, text: str, **fields: Any) -> list[tuple[str, float]]:
        """The chunks, sections and facts that searches find, with scores, by their texts instead of their ids."""
        chunks = self.hits(corpus, level=CHUNK, text=text, **fields)
        sections = self.hits(corpus, level=SECTION, text=text, **fields)
        facts = self.search(text, corpus, exact=True, **fields).hits
        return [
            *((f"{hit.node.chunk.source_id} {hit.node.chunk.span.start}", round(hit.score, 3)) for hit in chunks),
            *((hit.node.section.summary, round(hit.score, 3)) for hit in sections),
            *((hit.fact.content, round(hit.score, 3)) for hit in facts),
        ]

    def found(self, corpus: str, text: str) -> list[tuple[str, float]]:
        """As `answers`, for chunks and facts only: which sections there are depends on which documents came first."""
        return [answer for answer in self.answers(corpus, text) if answer[0] not in self.summaries(corpus)]

    def summaries(self, corpus: str) -> set[str]:
        return {node.section.summary for node in self.query(corpus, level=SECTION)}


@contextmanager
def serving(path: Path, ingest: IngestSettings, **changes: Any) -> Iterator[MigrationCaller]:
    """A caller of a server with these models."""
    with running(path, ingest, **changes) as server, MigrationCaller(server) as caller:
        if not server.client(OPERATOR).list_tenants().items:
            create_tenants(server.client(OPERATOR))
        yield caller  # type: ignore[misc]


def problems(caller: MigrationCaller) -> list[str]:
    """The problems that fsck finds."""
    server = caller.server.server
    return list(Fsck(caller.server.engine, server._keys, server.keyring, server.logs.signing.store).run().problems)


def section_sums(caller: MigrationCaller, corpus: str) -> dict[str, npt.NDArray[np.float32]]:
    """The sums of their chunks' vectors that sections keep, by the sections' titles."""
    server, tenant, wanted = caller.server.server, TenantId(ACME_ID), CorpusId(UUID(corpus))
    found = caller.server.engine.run(lambda tr: corpora.get(tr, server._keys, tenant, wanted))
    keys = server._keys.of_corpus(found.number)

    def read(tr: Transaction) -> list[Section | None]:
        view = CorpusAtRevision(tr, found, keys, SealedRecords(server.keyring), revisions.head(tr, keys))
        return [HierarchyReader(view).section(section_id) for section_id in HierarchyReader(view).section_ids()]

    return {
        section.title: sum_of_bytes(section.vector_sum)
        for section in caller.server.engine.run(read)
        if section is not None
    }


def finished(caller: MigrationCaller, corpus: str) -> None:
    """Returns when a migration that continues by itself is finished."""
    deadline = time.monotonic() + 60
    while not caller.migration(corpus).HasField("finished_at"):
        assert time.monotonic() < deadline, "the migration does not continue"
        time.sleep(0.05)


def near(left: Sequence[float], right: Sequence[float]) -> bool:
    return len(left) == len(right) and math.dist(left, right) < 1e-3
