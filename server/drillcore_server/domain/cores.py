"""Knowledge cores that were exported. The file itself is not kept: what it was is."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.ids import CorpusId, RecordId, Revision

CORE_ID_CHARACTERS_MAX: Final = 1_000


class CoreKind(enum.Enum):
    FULL = "full"
    PLAIN = "plain"
    DOCUMENT_EMBEDDINGS = "document_embeddings"


@dataclass(frozen=True, slots=True)
class CoreCounts:
    """What is in a core. The names are those of the protocol."""

    records: int = 0
    quads: int = 0
    entity_vectors: int = 0
    library_documents: int = 0
    documents: int = 0
    sections: int = 0
    chunks: int = 0
    facts: int = 0
    sources: int = 0
    communities: int = 0
    signatures: int = 0
    turns: int = 0
    edges: int = 0

    def by_name(self) -> dict[str, int]:
        """Those that are not zero."""
        return {one.name: count for one in fields(self) if (count := getattr(self, one.name))}


@dataclass(frozen=True, slots=True)
class CoreExport:
    """Never changed."""

    corpus: CorpusId
    revision: Revision
    core_id: str
    sha256: bytes
    size_bytes: int
    counts: CoreCounts
    at: datetime
    record: RecordId
    """The audit record of the export."""
    key_number: int
    """Of the key that signs for it: the one that signed its audit record."""


def check_core_id(core_id: str) -> None:
    if len(core_id) > CORE_ID_CHARACTERS_MAX or not core_id.isprintable():
        message = f"core_id has up to {CORE_ID_CHARACTERS_MAX:,} printable characters"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="core_id")
