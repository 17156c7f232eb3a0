"""Facts in sessions (no-store) in the store: sessions below their caller, and facts sealed under the session's key.

The end of a session is an entry by time that names its key. It outlives the facts until the key is destroyed, so that
another server can finish what an interrupted one began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Streaming, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.facts.model import Fact
from drillcore_server.kernel.errors import BadInput
from drillcore_server.storage.ids import CorpusId, FactId, PrincipalId, Revision, SourceId, TenantId
from drillcore_server.storage.keyring import KeyNumber
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed import SealedRecords
from drillcore_server.storage.versioned import Entry

SESSION_CHARACTERS_MAX: Final = 128


@dataclass(frozen=True, slots=True)
class OwnSession:
    """A session of one caller, who chose its id. Other callers with the same id have sessions of their own."""

    tenant: TenantId
    principal: PrincipalId
    id: str


@dataclass(frozen=True, slots=True)
class FactSession:
    """The record of a session that has facts."""

    own: OwnSession
    number: int
    """The number of the key that its facts are sealed under. The key is destroyed with the session."""
    scope: bytes
    """The name of that key in the keyring."""
    facts: int
    ends_at: datetime
    """When it ends, unless it is used before."""

    def is_over(self, now: datetime) -> bool:
        return now >= self.ends_at


@dataclass(frozen=True, slots=True)
class SessionFact:
    corpus: CorpusId
    """The corpus that it was put beside. Only callers who may read that corpus may read this fact."""
    fact: Fact
    vector: bytes
    """In the format of stored vectors."""


def checked_session(session: str) -> str:
    """The session id that a caller gave. Raises `BadInput` if it is not valid."""
    if not 0 < len(session) <= SESSION_CHARACTERS_MAX or not session.isascii() or not session.isprintable():
        message = f"session_id must be 1 to {SESSION_CHARACTERS_MAX} printable ASCII characters"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="session_id")
    return session


SESSION = RecordKind(FactSession)
SESSION_FACT = RecordKind(SessionFact)
USE_NOTED_EVERY: Final = timedelta(minutes=1)
_NO_REVISION: Final = Revision(0)


def find(tr: Reader, keys: Keyspace, own: OwnSession, now: datetime) -> FactSession | None:
    """The session. None if it has no facts or is over."""
    session = SESSION.read(tr, head_key(keys, own))
    return None if session is None or session.is_over(now) else session


def facts(tr: Reader, keys: Keyspace, sealed: SealedRecords, own: OwnSession) -> Iterator[SessionFact]:
    """The facts of a session in the order of ids, without those whose key is destroyed."""
    stored = codec.scan(tr, *keys.session_facts(own.tenant, own.principal, own.id), streaming=Streaming.WANT_ALL)
    entries = (Entry(key, _NO_REVISION, value) for key, value in stored)
    return (SESSION_FACT.decode(entry.value) for entry in sealed.opened_all(entries))


def those_there(tr: Reader, keys: Keyspace, own: OwnSession, facts: Sequence[FactId]) -> list[FactId]:
    """Those facts that a session has."""
    found = tr.get_many([_fact(keys, own, fact) for fact in facts])
    return [fact for fact, stored in zip(facts, found, strict=True) if stored is not None]


def begin(tr: Transaction, keys: Keyspace, session: FactSession) -> None:
    """Begins a session. Replaces a session with the same id that is over but not swept yet."""
    tr.clear_range(*keys.session_facts(session.own.tenant, session.own.principal, session.own.id))
    SESSION.write(tr, head_key(keys, session.own), session)
    _set_end(tr, keys, session)


def add(
    tr: Transaction,
    keys: Keyspace,
    sealed: SealedRecords,
    session: FactSession,
    added: Sequence[SessionFact],
    sources: Mapping[SourceId, KeyNumber],
) -> None:
    """Puts facts into a session that is not over. Destroying its key or the key of their source erases them."""
    for own in added:
        key = _fact(keys, session.own, own.fact.id)
        numbers = [KeyNumber(session.number), sources[own.fact.source]]
        codec.write(tr, key, sealed.seal(key, _NO_REVISION, numbers, SESSION_FACT.encode(own)))
    SESSION.write(tr, head_key(keys, session.own), replace(session, facts=session.facts + len(added)))


def renew(tr: Transaction, keys: Keyspace, session: FactSession, until: datetime) -> FactSession:
    """Moves the end of a session to a later time. Returns the session."""
    codec.clear(tr, _end(keys, session))
    renewed = replace(session, ends_at=max(until, session.ends_at))
    SESSION.write(tr, head_key(keys, session.own), renewed)
    _set_end(tr, keys, renewed)
    return renewed


def note_use(tr: Transaction, keys: Keyspace, own: OwnSession, now: datetime, until: datetime) -> None:
    """Puts off a session's end, accurate to a minute, so that a busy session does not write with every call."""
    session = find(tr, keys, own, now)
    if session is not None and until - session.ends_at > USE_NOTED_EVERY:
        renew(tr, keys, session, until)


def end(tr: Transaction, keys: Keyspace, own: OwnSession, at: datetime) -> FactSession | None:
    """Removes a session with its facts. Returns its last record, whose key must still be destroyed; None if it is over.

    If nobody destroys the key, the next sweep does.
    """
    session = find(tr, keys, own, at)
    if session is None:
        return None
    _remove(tr, keys, own)
    codec.clear(tr, _end(keys, session))
    ended = replace(session, ends_at=at)
    _set_end(tr, keys, ended)
    return ended


def sessions_over(tr: Reader, keys: Keyspace, now: datetime, limit: int) -> list[FactSession]:
    """Sessions that are over and whose keys are not destroyed yet."""
    return [SESSION.decode(stored) for _, stored in codec.scan(tr, *keys.session_ends_up_to(now), limit=limit)]


def has_facts_left(tr: Reader, keys: Keyspace, ended: FactSession) -> bool:
    """Whether the facts of a session that is over are still there."""
    session = SESSION.read(tr, head_key(keys, ended.own))
    return session is not None and session.number == ended.number


def remove(tr: Transaction, keys: Keyspace, ended: FactSession) -> int | None:
    """Removes a session that is over. Returns how many facts it had; None if it was renewed and is not over.

    A newer session with the same id stays.
    """
    if tr.get(_end(keys, ended)) is None:
        return None
    session = SESSION.read(tr, head_key(keys, ended.own))
    if session is None or session.number != ended.number:
        return 0
    _remove(tr, keys, ended.own)
    return session.facts


def forget(tr: Transaction, keys: Keyspace, ended: FactSession) -> None:
    """Removes the last entry of a session. Call it only once the session's key is destroyed."""
    codec.clear(tr, _end(keys, ended))


def _remove(tr: Transaction, keys: Keyspace, own: OwnSession) -> None:
    codec.clear(tr, head_key(keys, own))
    tr.clear_range(*keys.session_facts(own.tenant, own.principal, own.id))


def _set_end(tr: Transaction, keys: Keyspace, session: FactSession) -> None:
    SESSION.write(tr, _end(keys, session), session)


def head_key(keys: Keyspace, own: OwnSession) -> bytes:
    """The key of the session's record."""
    return keys.session_facts_head(own.tenant, own.principal, own.id)


def _fact(keys: Keyspace, own: OwnSession, fact: FactId) -> bytes:
    return keys.session_fact(own.tenant, own.principal, own.id, fact)


def _end(keys: Keyspace, session: FactSession) -> bytes:
    return keys.session_end(session.ends_at, session.number)
