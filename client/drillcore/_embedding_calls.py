"""Calls about embedding models. See `_calls`."""

from __future__ import annotations

from typing import Final

from drillcore import _convert_embeddings as convert
from drillcore._call import Call, Id, id_text
from drillcore._embedding_results import Migration, MigrationProgress
from drillcore._follow import Batch, Follow
from drillcore_proto.v1 import embeddings_pb2 as pb

_EMBEDDINGS: Final = "/drillcore_proto.v1.EmbeddingService/"


def migrate_embeddings(corpus_id: Id, *, tenant_id: Id | None = None) -> Follow[MigrationProgress]:
    """Change a corpus to the server's own embedding model, or go on with that; iterate to the end to hear how it goes.

    The old vectors serve every search until all new ones are there. Nothing is lost if the iteration is left: call it
    again. A lost connection is made again; only if no server answers for as long as other calls wait, Unavailable is
    raised.
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
    """Which embedding model a corpus uses, and how far its change to another is."""

    def decode(answer: bytes) -> Migration:
        return convert.migration(pb.GetMigrationResponse.FromString(answer).migration)

    request = pb.GetMigrationRequest(tenant_id=id_text(tenant_id), corpus_id=id_text(corpus_id))
    return Call(f"{_EMBEDDINGS}GetMigration", request, decode, request_id, timeout_s)


def _decode(answer: bytes) -> Batch[MigrationProgress]:
    progress = convert.progress(pb.MigrateEmbeddingsResponse.FromString(answer))
    return Batch((progress,), last=progress.finished)
