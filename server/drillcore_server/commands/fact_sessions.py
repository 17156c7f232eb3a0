"""What the commands about facts in sessions share (no-store): finding them, and forgetting them with their key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import uuid4

from drillcore_fdb.engine import Engine, Options, Reader, Transaction
from drillcore_server.audit.journal import log_key, log_of
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted
from drillcore_server.auth.principal import SERVER
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.derived.vectors import unpacked
from drillcore_server.domain.audit import Trail, time_text
from drillcore_server.domain.fact_sessions import FactSession, OwnSession, SessionFact
from drillcore_server.domain.found_facts import FoundFact
from drillcore_server.domain.ids import CorpusNumber, NodeId, RequestId, SourceId, TenantId
from drillcore_server.store import fact_sessions
from drillcore_server.store.envelopes import EnvelopeStore
from drillcore_server.store.keyring import KeyNumber, Keyring
from drillcore_server.store.records import RecordKind
from drillcore_server.store.sealed import SealedRecords

_NO_CORPUS: Final = CorpusNumber((1 << 40) + 1)
"""Whose keys those of sessions are to the keyring: larger than any corpus's number."""
_BATCH: Final = 100
_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class EndedSession:
    facts: int | None
    """That it had; None if it turns out not to be over."""


ENDED_SESSION = RecordKind(EndedSession)


@dataclass(frozen=True, slots=True)
class FactSessions:
    """Everything that facts in sessions need."""

    engine: Engine
    unit: Unit
    sealed: SealedRecords
    keyring: Keyring
    idle: timedelta
    """A session that is not used for so long ends."""
    facts_max: int

    def found(self, tr: Reader, own: OwnSession, trail: Trail, now: datetime) -> list[SessionFact]:
        """The facts of a session, which counts as used; none if it has ended, or is another's."""
        if fact_sessions.find(tr, self.unit.keys, own, now) is None:
            return []
        facts = list(fact_sessions.facts(tr, self.unit.keys, self.sealed, own))
        trail.session = own, now + self.idle
        trail.touch_node_ids(NodeId(one.fact.id) for one in facts)
        trail.detail["session_facts"] = len(facts)
        return facts

    def told(self, one: SessionFact, *, with_embedding: bool) -> FoundFact:
        return FoundFact(
            one.fact,
            one.corpus,
            embedding=tuple(unpacked(one.vector).tolist()) if with_embedding else (),
            embedding_model=one.fact.embedding_model,
            session_only=True,
        )

    def new(self, own: OwnSession, now: datetime) -> FactSession:
        """A session with a key of its own, which is durable, and nothing in it."""
        source = SourceId(f"session {uuid4()}")
        (number,) = self.keyring.numbers(_NO_CORPUS, [source])
        return FactSession(own, number, self.keyring.hashed(source), 0, now + self.idle)

    def source_keys(self, corpus: CorpusNumber, sources: Iterable[SourceId]) -> dict[SourceId, KeyNumber]:
        """Their keys, made where there are none: to erase a source erases what sessions have of it, also of one that
        the corpus gets only later."""
        wanted = sorted(set(sources))
        return dict(zip(wanted, self.keyring.numbers(corpus, wanted), strict=True))

    def envelopes(self, tenant: TenantId) -> EnvelopeStore:
        """Where envelopes that were packed in the tenant's sessions are kept."""
        return EnvelopeStore(self.unit.keys, self.sealed, tenant, log_key(self.keyring, log_of(tenant)))

    def sweep(self, now: datetime) -> int:
        """Removes sessions that are over, in as many transactions as it takes, and destroys their keys; how many."""
        swept = 0
        while True:
            batch = self.engine.run(lambda tr: fact_sessions.over(tr.snapshot, self.unit.keys, now, _BATCH))
            gone = [one for one in batch if self._removed(one, now) is not None]
            if gone:
                self.keyring.destroy(_NO_CORPUS, {KeyNumber(one.number): one.scope for one in gone}, now)
                self.engine.run(lambda tr: self._forget(tr, gone), Options(idempotent=True))  # noqa: B023 - run at once
            swept += len(gone)
            if len(batch) < _BATCH:
                return swept

    def _removed(self, ended: FactSession, now: datetime) -> int | None:
        """Removes one; how many facts there were. Those that its caller did not end are on the record as the server's
        own deed."""

        def work(tr: Transaction) -> int | None:
            return fact_sessions.remove(tr, self.unit.keys, ended)

        def recorded(tr: Transaction, _granted: Granted, trail: Trail) -> EndedSession:
            done = EndedSession(work(tr))
            trail.detail["session_facts_forgotten"] = done.facts or 0
            return done

        if not self.engine.run(lambda tr: fact_sessions.is_left(tr.snapshot, self.unit.keys, ended)):
            return self.engine.run(work, Options(idempotent=True))
        request = RequestId(f"session facts {ended.number} over at {time_text(ended.ends_at)}")
        call = Call("Housekeeping", request, SERVER, now, _TIMEOUT_S, b"")
        return self.unit.write(call, access.as_server(ended.own.tenant), ENDED_SESSION, recorded).facts

    def _forget(self, tr: Transaction, gone: list[FactSession]) -> None:
        for one in gone:
            fact_sessions.forget(tr, self.unit.keys, one)
