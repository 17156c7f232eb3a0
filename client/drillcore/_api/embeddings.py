"""The embedding model of a corpus, and its migration to another."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore._api.messages import optional_datetime
from drillcore._transport.call import Call, Id, id_text
from drillcore._transport.follow import Batch, Follow
from drillcore_proto.v1 import embeddings_pb2 as pb


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    name: str
    dimensions: int


@dataclass(frozen=True, slots=True)
class Migration:
    """The embedding model of a corpus, and the progress of its migration to another."""

    corpus_id: UUID
    current: EmbeddingModel | None
    """The model that searches use now; None if nothing is embedded yet."""
    next: EmbeddingModel | None
    """The model to migrate to; None if no migration is running."""
    done: int
    """How many chunks and facts have their new vector."""
    total: int
    begun_at: datetime | None
    finished_at: datetime | None
    """The end of the last migration."""


@dataclass(frozen=True, slots=True)
class MigrationProgress:
    """The progress of a migration."""

    migration: Migration
    finished: bool
    """True only in the last item: searches use the new model now."""
    revision: int


def to_migration(message: pb.Migration) -> Migration:
    return Migration(
        corpus_id=UUID(message.corpus_id),
        current=_to_model(message.current) if message.HasField("current") else None,
        next=_to_model(message.next) if message.HasField("next") else None,
        done=message.done,
        total=message.total,
        begun_at=optional_datetime(message, "begun_at"),
        finished_at=optional_datetime(message, "finished_at"),
    )


def to_progress(message: pb.MigrateEmbeddingsResponse) -> MigrationProgress:
    return MigrationProgress(to_migration(message.migration), message.finished, message.revision)


def _to_model(message: pb.EmbeddingModel) -> EmbeddingModel:
    return EmbeddingModel(message.name, message.dimensions)


_EMBEDDINGS: Final = "/drillcore_proto.v1.EmbeddingService/"


def migrate_embeddings(corpus_id: Id, *, tenant_id: Id | None = None) -> Follow[MigrationProgress]:
    """Migrate a corpus to the server's own embedding model, or continue to. Iterate to the end to follow the progress.

    Searches use the old vectors until all new ones are there. If you stop iterating, nothing is lost: call it again.
    The client reconnects after a lost connection. It raises Unavailable if no server answers for the client's timeout.
    """

    def begin(_token: str) -> Call[Batch[MigrationProgress]]:
        request = pb.MigrateEmbeddingsRequest(tenant_id=id_text(tenant_id), corpus_id=id_text(corpus_id))
        return Call(f"{_EMBEDDINGS}MigrateEmbeddings", request, _decode, None, None)

    return Follow(begin)


def get_migration(
    corpus_id: Id,
    *,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Migration]:
    """The embedding model of a corpus, and the progress of its migration to another."""

    def decode(answer: bytes) -> Migration:
        return to_migration(pb.GetMigrationResponse.FromString(answer).migration)

    request = pb.GetMigrationRequest(tenant_id=id_text(tenant_id), corpus_id=id_text(corpus_id))
    return Call(f"{_EMBEDDINGS}GetMigration", request, decode, request_id, timeout_s)


def _decode(answer: bytes) -> Batch[MigrationProgress]:
    progress = to_progress(pb.MigrateEmbeddingsResponse.FromString(answer))
    return Batch((progress,), last=progress.finished)
