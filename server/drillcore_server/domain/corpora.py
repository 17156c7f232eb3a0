"""Corpora."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from drillcore_server.domain.ids import CorpusId, CorpusNumber, PrincipalId, TenantId
from drillcore_server.domain.retention import LegalHold
from drillcore_server.domain.sharing import Sharing


@dataclass(frozen=True, slots=True)
class Corpus:
    id: CorpusId
    tenant_id: TenantId
    name: str
    description: str
    metadata: Mapping[str, str]
    created_at: datetime
    created_by: PrincipalId
    updated_at: datetime
    version: int
    number: CorpusNumber
    """Its short name in keys."""
    deleted_at: datetime | None = None
    retention_days: int | None = None
    """Every revision that was the head within so many days is kept; None: every one, for ever."""
    legal_hold: LegalHold | None = None
    """As it was last changed."""
    region: str = ""
    """Where its data may be; never changed once it has one."""
    sharing: Sharing | None = None
    """None: other tenants do not have it."""


@dataclass(frozen=True, slots=True)
class SeenCorpus:
    """A corpus as a caller sees it."""

    corpus: Corpus
    shared: bool = False
    """It is another tenant's, which the caller's may read and nothing else. Whose it is, is not shown."""

    @property
    def id(self) -> CorpusId:
        return self.corpus.id
