"""What the commands about facts in sessions share (no-store): finding them, and forgetting them with their key.

EndSession.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeVar
from uuid import uuid4

from drillcore_fdb.engine import Engine, Options, Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.facts import session_store as fact_sessions
from drillcore_server.facts.model import Fact, FoundFact
from drillcore_server.facts.session_store import FactSession, OwnSession, SessionFact
from drillcore_server.hierarchy.chunk_index import unpacked
from drillcore_server.kernel import access
from drillcore_server.kernel.access import SERVER, Granted, InTenant
from drillcore_server.kernel.accounts import Permission
from drillcore_server.kernel.errors import NotReady
from drillcore_server.kernel.trail import Trail, time_text
from drillcore_server.kernel.unit import Call, Notes, Unit, refusing
from drillcore_server.storage.ids import CorpusId, CorpusNumber, NodeId, RequestId, SourceId, TenantId
from drillcore_server.storage.keyring import KeyNumber, Keyring
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed import SealedRecords
from drillcore_server.vectors.model import Model

T = TypeVar("T")

_NO_CORPUS: Final = CorpusNumber((1 << 40) + 1)
"""Whose keys those of sessions are to the keyring: larger than any corpus's number."""
_BATCH: Final = 100
_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class EndedSession:
    facts: int | None
    """That it had; None if it turns out not to be over."""


ENDED_SESSION = RecordKind(EndedSession)


def new_session_source() -> SourceId:
    """What the key of a new session is kept under. Made before the transaction, which may be run more than once."""
    return SourceId(f"session {uuid4()}")


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
    end_envelopes: Callable[[Transaction, OwnSession], bool]
    """Ends what a session knows of its envelopes; whether it knew any."""

    def found(self, tr: Reader, own: OwnSession, trail: Trail, notes: Notes, now: datetime) -> list[SessionFact]:
        """The facts of a session, which counts as used; none if it has ended, or is another's."""
        if fact_sessions.find(tr, self.unit.keys, own, now) is None:
            return []
        facts = list(fact_sessions.facts(tr, self.unit.keys, self.sealed, own))
        notes.add(lambda tr: fact_sessions.note_use(tr, self.unit.keys, own, now, now + self.idle))
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

    def new(self, own: OwnSession, source: SourceId, now: datetime) -> FactSession:
        """An empty session. The source gives it a key of its own, which is durable; the same source, the same key."""
        (number,) = self.keyring.numbers(_NO_CORPUS, [source])
        return FactSession(own, number, self.keyring.hashed(source), 0, now + self.idle)

    def source_keys(self, corpus: CorpusNumber, sources: Iterable[SourceId]) -> dict[SourceId, KeyNumber]:
        """Their keys, made where there are none: to erase a source erases what sessions have of it, also of one that
        the corpus gets only later."""
        wanted = sorted(set(sources))
        return dict(zip(wanted, self.keyring.numbers(corpus, wanted), strict=True))

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


def end_session(sessions: FactSessions, call: Call, tenant: TenantId | None, session: str) -> int:
    """Forgets the facts of the caller's own session, and what it knows of its envelopes; how many facts there were.

    When it returns, their key is destroyed, and no envelope of the session is continued.
    """

    def work(tr: Transaction, granted: InTenant, trail: Trail) -> EndedSession:
        own = OwnSession(granted.tenant, call.principal.id, session)
        forgotten = fact_sessions.end(tr, sessions.unit.keys, own, call.at)
        if sessions.end_envelopes(tr, own):
            trail.detail["envelope_session_ended"] = True
        trail.detail["session_facts_forgotten"] = forgotten
        return EndedSession(forgotten)

    rule = access.in_tenant(tenant, Permission.READ, Permission.WRITE)
    done = sessions.unit.write(call, rule, ENDED_SESSION, work)
    if done.facts:
        with refusing():
            sessions.sweep(call.at)
    return done.facts or 0


def beside_session(fact: Fact, corpus: CorpusId, dimensions: int, sought: Callable[[CorpusId, Model], T]) -> T:
    """What is sought, by the model that a fact of a session was embedded with. Raises `NotReady` if that is gone."""
    try:
        return sought(corpus, Model(fact.embedding_model, dimensions))
    except NotReady as refused:
        message = f"a fact of the session was embedded with {fact.embedding_model}; end the session, or put it again"
        raise NotReady(Reason.MODEL_MISMATCH, message, field="session_id") from refused
