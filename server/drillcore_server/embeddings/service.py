"""EmbeddingService: requests to commands, results to responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from drillcore_proto.v1 import embeddings_pb2 as pb
from drillcore_server.embeddings.migration import Migrator, Progress, get_migration, migrate_embeddings
from drillcore_server.kernel.corpus_at_revision import CorpusReads
from drillcore_server.kernel.messages import corpus_id, one_request, optional_tenant_id, timestamp
from drillcore_server.kernel.revise import Target
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import CorpusId
from drillcore_server.vectors.model import EmbeddingModel


class EmbeddingService:
    def __init__(self, reads: CorpusReads, migrator: Migrator) -> None:
        self._reads = reads
        self._migrator = migrator

    def MigrateEmbeddings(
        self,
        requests: Iterator[pb.MigrateEmbeddingsRequest],
        call: Call,
        emit: Callable[[pb.MigrateEmbeddingsResponse], None],
    ) -> None:
        request, known = one_request(requests, call)
        corpus = corpus_id(request.corpus_id, "corpus_id")
        target = Target(optional_tenant_id(request.tenant_id), corpus)
        done = migrate_embeddings(
            self._migrator, known, target, lambda progress: emit(_response(corpus, progress, finished=False))
        )
        emit(_response(corpus, done, finished=True))

    def GetMigration(self, request: pb.GetMigrationRequest, call: Call) -> pb.GetMigrationResponse:
        corpus = corpus_id(request.corpus_id, "corpus_id")
        tenant = optional_tenant_id(request.tenant_id)
        found = get_migration(self._reads, call, tenant=tenant, corpus=corpus)
        return pb.GetMigrationResponse(migration=_migration(corpus, found))


def _response(corpus: CorpusId, progress: Progress, *, finished: bool) -> pb.MigrateEmbeddingsResponse:
    return pb.MigrateEmbeddingsResponse(
        migration=_migration(corpus, progress), finished=finished, revision=progress.revision
    )


def _migration(corpus: CorpusId, progress: Progress) -> pb.Migration:
    models, migration = progress.models, progress.migration
    message = pb.Migration(corpus_id=str(corpus))
    if models is not None:
        message.current.CopyFrom(_model(models.current))
        if models.next is not None:
            message.next.CopyFrom(_model(models.next))
    if migration is not None:
        message.done, message.total = migration.done, migration.total
        message.begun_at.CopyFrom(timestamp(migration.begun_at))
        if migration.finished_at is not None:
            message.finished_at.CopyFrom(timestamp(migration.finished_at))
    return message


def _model(model: EmbeddingModel) -> pb.EmbeddingModel:
    return pb.EmbeddingModel(name=model.name, dimensions=model.dimensions)
