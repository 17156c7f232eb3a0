"""What the commands of envelopes share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from drillcore_server.commands.fact_library import FactLibrary
from drillcore_server.commands.unit import Unit
from drillcore_server.derived.lexical_follower import LexicalIndexes
from drillcore_server.domain.ids import TenantId
from drillcore_server.envelope_settings import EnvelopeSettings
from drillcore_server.store.envelopes import EnvelopeStore
from drillcore_server.tokenizing.models import Models


@dataclass(frozen=True, slots=True)
class EnvelopeLibrary:
    """Everything that envelopes need."""

    facts: FactLibrary
    words: LexicalIndexes
    models: Models
    settings: EnvelopeSettings

    @property
    def unit(self) -> Unit:
        return self.facts.library.unit

    def store(self, tenant: TenantId) -> EnvelopeStore:
        return self.facts.sessions.envelopes(tenant)

    def session_end(self, now: datetime) -> datetime:
        return now + self.facts.sessions.idle

    def kept_until(self, now: datetime) -> datetime:
        return now + timedelta(days=self.settings.keep_days)
