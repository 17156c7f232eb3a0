"""What a bundle takes from the audit log of a tenant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol
from uuid import UUID

from drillcore_server.domain.ids import CorpusId, TenantId


class CorpusTrail(Protocol):
    """The log of a tenant as of one checkpoint, and the records in it that are about one corpus."""

    @property
    def checkpoint(self) -> str:
        """A C2SP signed note."""

    @property
    def keys(self) -> str:
        """The chain of signing keys, in canonical JSON."""

    def lines(self) -> Iterator[bytes]:
        """The records as audit exports have them, NDJSON: the head, a line for each record with its proof, the end."""


class AuditSource(Protocol):
    @property
    def store(self) -> UUID: ...

    def of_corpus(self, tenant: TenantId, corpus: CorpusId) -> CorpusTrail:
        """The trail up to now. Raises `Refused` if the log has no checkpoint of it yet."""

    def signed_note(self, text: str) -> str:
        """The text as a C2SP note, signed by the key that records are signed with now."""
