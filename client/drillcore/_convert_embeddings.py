"""Protocol messages about embedding models to results."""

from __future__ import annotations

from uuid import UUID

from drillcore._convert import optional_datetime
from drillcore._embedding_results import EmbeddingModel, Migration, MigrationProgress
from drillcore_proto.v1 import embeddings_pb2 as pb


def migration(message: pb.Migration) -> Migration:
    return Migration(
        corpus_id=UUID(message.corpus_id),
        current=_model(message.current) if message.HasField("current") else None,
        next=_model(message.next) if message.HasField("next") else None,
        done=message.done,
        total=message.total,
        begun_at=optional_datetime(message, "begun_at"),
        finished_at=optional_datetime(message, "finished_at"),
    )


def progress(message: pb.MigrateEmbeddingsResponse) -> MigrationProgress:
    return MigrationProgress(migration(message.migration), message.finished, message.revision)


def _model(message: pb.EmbeddingModel) -> EmbeddingModel:
    return EmbeddingModel(message.name, message.dimensions)
