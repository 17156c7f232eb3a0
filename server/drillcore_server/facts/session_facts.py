"""EndSession, and facts in sessions (no-store): finds them, and removes sessions that are over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeVar
from uuid import uuid4

from drillcore_fdb.engine import Engine, Options, Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.facts import session_fact_store
from drillcore_server.facts.model import Fact, FoundFact
from drillcore_server.facts.session_fact_store import FactSession, OwnSession, SessionFact
from drillcore_server.kernel import access
from drillcore_server.kernel.access import SERVER, Granted, InTenant
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.errors import NotReady
from drillcore_server.kernel.trail import Trail, time_text
from drillcore_server.kernel.unit import Call, Notes, Unit, errors_as_refusals
from drillcore_server.storage.ids import CorpusId, CorpusNumber, NodeId, RequestId, SourceId, TenantId
from drillcore_server.storage.keyring import KeyNumber, Keyring
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed import SealedRecords
from drillcore_server.vectors.model import Model
from drillcore_server.vectors.stored_vectors import unpacked

T = TypeVar("T")

_NO_CORPUS: Final = CorpusNumber((1 << 40) + 1)
"""The number under which the keyring keeps the keys of sessions: larger than any corpus's number."""
_BATCH: Final = 100
_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class EndedSession:
    facts: int | None
    """How many facts it had. None if the session was renewed and is not over."""


ENDED_SESSION = RecordKind(EndedSession)


def new_session_source() -> SourceId:
    """Makes the name of a new session's key. Call it before the transaction, which may run more than once."""
    return SourceId(f"session {uuid4()}")


@dataclass(frozen=True, slots=True)
class FactSessions:
    """Finds the facts of sessions, and removes sessions that are over."""

    engine: Engine
    unit: Unit
    sealed: SealedRecords
    keyring: Keyring
    idle: timedelta
    """How long a session lasts after its last use."""
    facts_max: int
    end_envelopes: Callable[[Transaction, OwnSession], bool]
    """Ends the session of envelopes. Returns whether there was one."""

    def found(self, tr: Reader, own: OwnSession, trail: Trail, notes: Notes, now: datetime) -> list[SessionFact]:
        """The facts of a session; empty if it has ended or is another caller's. Counts as a use of the session."""
        if session_fact_store.find(tr, self.unit.keys, own, now) is None:
            return []
        facts = list(session_fact_store.facts(tr, self.unit.keys, self.sealed, own))
        notes.add(lambda tr: session_fact_store.note_use(tr, self.unit.keys, own, now, now + self.idle))
        trail.touch_node_ids(NodeId(kept.fact.id) for kept in facts)
        trail.detail["session_facts"] = len(facts)
        return facts

    def new(self, own: OwnSession, source: SourceId, now: datetime) -> FactSession:
        """An empty session with a key of its own in the keyring. The same source always gives the same key."""
        (number,) = self.keyring.numbers(_NO_CORPUS, [source])
        return FactSession(own, number, self.keyring.hashed(source), 0, now + self.idle)

    def source_keys(self, corpus: CorpusNumber, sources: Iterable[SourceId]) -> dict[SourceId, KeyNumber]:
        """The keys of sources. Makes missing keys, so that erasing a source also erases its facts in sessions.

        This holds for a source that the corpus gets only later, too.
        """
        wanted = sorted(set(sources))
        return dict(zip(wanted, self.keyring.numbers(corpus, wanted), strict=True))

    def sweep(self, now: datetime) -> int:
        """Removes sessions that are over and destroys their keys. Returns how many sessions.

        Takes as many transactions as it needs. May be called again, also after it was interrupted. A session that
        cannot be removed does not keep the others; in the end this raises an `ExceptionGroup` with all failures.
        """
        swept = 0
        while True:
            batch = self.engine.run(
                lambda tr: session_fact_store.sessions_over(tr.snapshot, self.unit.keys, now, _BATCH)
            )
            gone, failures = self._removed_of(batch, now)
            self.destroy_keys(gone, now)
            swept += len(gone)
            if failures and (len(batch) < _BATCH or not gone):
                raise ExceptionGroup("sessions not removed", failures)
            if len(batch) < _BATCH:
                return swept

    def destroy_keys(self, gone: Sequence[FactSession], now: datetime) -> None:
        """Destroys the keys of sessions that are removed, and forgets the sessions. May be called again."""
        if gone:
            self.keyring.destroy(_NO_CORPUS, {KeyNumber(ended.number): ended.scope for ended in gone}, now)
            self.engine.run(lambda tr: self._forget(tr, gone), Options(idempotent=True))

    def _removed_of(self, batch: list[FactSession], now: datetime) -> tuple[list[FactSession], list[Exception]]:
        """Removes sessions. Returns those that are over, and why others could not be removed."""
        gone, failures = [], []
        for ended in batch:
            try:
                if self._removed(ended, now) is not None:
                    gone.append(ended)
            except Exception as error:
                failures.append(error)
        return gone, failures

    def _removed(self, ended: FactSession, now: datetime) -> int | None:
        """Removes a session that is over. Returns how many facts it had; None if it was renewed and is not over.

        If the caller did not end the session, the removal is recorded as the server's own.
        """

        def work(tr: Transaction) -> int | None:
            return session_fact_store.remove(tr, self.unit.keys, ended)

        def recorded(tr: Transaction, _granted: Granted, trail: Trail) -> EndedSession:
            done = EndedSession(work(tr))
            trail.detail["session_facts_forgotten"] = done.facts or 0
            return done

        if not self.engine.run(lambda tr: session_fact_store.has_facts_left(tr.snapshot, self.unit.keys, ended)):
            return self.engine.run(work, Options(idempotent=True))
        request = RequestId(f"session facts {ended.number} over at {time_text(ended.ends_at)}")
        call = Call("Housekeeping", request, SERVER, now, _TIMEOUT_S, b"")
        return self.unit.write(call, access.as_server(ended.own.tenant), ENDED_SESSION, recorded).facts

    def _forget(self, tr: Transaction, gone: Sequence[FactSession]) -> None:
        for ended in gone:
            session_fact_store.forget(tr, self.unit.keys, ended)


def end_session(sessions: FactSessions, call: Call, tenant: TenantId | None, session: str) -> int:
    """Ends the caller's own session. Returns how many facts it had.

    On return, the key of the facts is destroyed, and no later envelope continues one of the session. May be called
    again: a session that has ended has no facts.
    """
    ended: FactSession | None = None

    def work(tr: Transaction, granted: InTenant, trail: Trail) -> EndedSession:
        nonlocal ended
        own = OwnSession(granted.tenant, call.principal.id, session)
        ended = session_fact_store.end(tr, sessions.unit.keys, own, call.at)
        forgotten = 0 if ended is None else ended.facts
        if sessions.end_envelopes(tr, own):
            trail.detail["envelope_session_ended"] = True
        trail.detail["session_facts_forgotten"] = forgotten
        return EndedSession(forgotten)

    rule = access.in_tenant(tenant, Permission.READ, Permission.WRITE)
    done = sessions.unit.write(call, rule, ENDED_SESSION, work, expected=_expected(sessions, call, tenant, session))
    with errors_as_refusals():
        if ended is not None:
            sessions.destroy_keys([ended], call.at)
        elif done.facts:
            sessions.sweep(call.at)  # an earlier call of the same request ended it, and may not have come this far
    return done.facts or 0


def _expected(sessions: FactSessions, call: Call, tenant: TenantId | None, session: str) -> list[bytes]:
    """The keys of a session's records, to be read ahead. Empty if the tenant is not known yet."""
    owner, caller, keys = call.principal.tenant or tenant, call.principal.id, sessions.unit.keys
    if owner is None:
        return []
    return [keys.session_facts_head(owner, caller, session), keys.envelope_session(owner, caller, session)]


def found_session_fact(own: SessionFact, *, with_embedding: bool) -> FoundFact:
    """A fact of a session as the caller gets it."""
    return FoundFact(
        own.fact,
        own.corpus,
        embedding=tuple(unpacked(own.vector).tolist()) if with_embedding else (),
        embedding_model=own.fact.embedding_model,
        session_only=True,
    )


def question_for_session_fact(
    fact: Fact, corpus: CorpusId, dimensions: int, sought: Callable[[CorpusId, Model], T]
) -> T:
    """The question as a vector of the model that a session's fact was embedded with.

    Raises `NotReady` (MODEL_MISMATCH) if that model is no longer available.
    """
    try:
        return sought(corpus, Model(fact.embedding_model, dimensions))
    except NotReady as refused:
        gone = f"a fact of the session was embedded with {fact.embedding_model}, which is not available"
        message = f"{gone}; end the session, or put the fact again"
        raise NotReady(Reason.MODEL_MISMATCH, message, field="session_id") from refused
