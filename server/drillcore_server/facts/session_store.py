"""Facts that are kept in a caller's session only (no-store), and are gone with it.

Sessions that facts are kept in, below their caller, and the facts themselves, sealed under the session's own key.

When a session is to end is an entry by time, which names its key. It outlives the facts until the key is destroyed, so
that whoever is interrupted is followed by another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
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
    """A session by its id, which is its caller's own choice: nobody else has it."""

    tenant: TenantId
    principal: PrincipalId
    id: str


@dataclass(frozen=True, slots=True)
class FactSession:
    """What is known of a session that facts were put into."""

    own: OwnSession
    number: int
    """Of the key that its facts are sealed under, which is destroyed with it."""
    scope: bytes
    """What the keyring knows that key by."""
    facts: int
    ends_at: datetime
    """Unless it is used before."""

    def is_over(self, now: datetime) -> bool:
        return now >= self.ends_at


@dataclass(frozen=True, slots=True)
class SessionFact:
    corpus: CorpusId
    """The one that it was put beside: who may not read that, may not read this."""
    fact: Fact
    vector: bytes
    """As vectors are stored."""


def checked_session(session: str) -> str:
    if not 0 < len(session) <= SESSION_CHARACTERS_MAX or not session.isascii() or not session.isprintable():
        message = f"a session id is 1 to {SESSION_CHARACTERS_MAX} printable ASCII characters"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="session_id")
    return session


SESSION = RecordKind(FactSession)
SESSION_FACT = RecordKind(SessionFact)
USE_NOTED_EVERY: Final = timedelta(minutes=1)
_NO_REVISION: Final = Revision(0)


def find(tr: Reader, keys: Keyspace, own: OwnSession, now: datetime) -> FactSession | None:
    """The session, if it has facts and stands."""
    session = SESSION.read(tr, _head(keys, own))
    return None if session is None or session.is_over(now) else session


def facts(tr: Reader, keys: Keyspace, sealed: SealedRecords, own: OwnSession) -> Iterator[SessionFact]:
    """Those of a session, by their ids. What is left of one whose key is destroyed is not there."""
    stored = codec.scan(tr, *keys.session_facts(own.tenant, own.principal, own.id))
    entries = (Entry(key, _NO_REVISION, value) for key, value in stored)
    return (SESSION_FACT.decode(entry.value) for entry in sealed.opened_all(entries))


def has(tr: Reader, keys: Keyspace, own: OwnSession, fact: FactId) -> bool:
    return tr.get(_fact(keys, own, fact)) is not None


def begin(tr: Transaction, keys: Keyspace, session: FactSession) -> None:
    """A new session, in place of one that is over if that was not swept away yet."""
    tr.clear_range(*keys.session_facts(session.own.tenant, session.own.principal, session.own.id))
    SESSION.write(tr, _head(keys, session.own), session)
    _set_end(tr, keys, session)


def add(
    tr: Transaction,
    keys: Keyspace,
    sealed: SealedRecords,
    session: FactSession,
    added: Sequence[SessionFact],
    sources: Mapping[SourceId, KeyNumber],
) -> None:
    """Puts facts into a session that stands. They are gone with its key, or with their source's."""
    for one in added:
        key = _fact(keys, session.own, one.fact.id)
        numbers = [KeyNumber(session.number), sources[one.fact.source]]
        codec.write(tr, key, sealed.seal(key, _NO_REVISION, numbers, SESSION_FACT.encode(one)))
    SESSION.write(tr, _head(keys, session.own), replace(session, facts=session.facts + len(added)))


def renew(tr: Transaction, keys: Keyspace, session: FactSession, until: datetime) -> FactSession:
    """The session, which now ends later."""
    codec.clear(tr, _end(keys, session))
    renewed = replace(session, ends_at=max(until, session.ends_at))
    SESSION.write(tr, _head(keys, session.own), renewed)
    _set_end(tr, keys, renewed)
    return renewed


def note_use(tr: Transaction, keys: Keyspace, own: OwnSession, now: datetime, until: datetime) -> None:
    """Puts off a session's end, to the minute: one that is read often does not write with every call."""
    session = find(tr, keys, own, now)
    if session is not None and until - session.ends_at > USE_NOTED_EVERY:
        renew(tr, keys, session, until)


def end(tr: Transaction, keys: Keyspace, own: OwnSession, at: datetime) -> int:
    """Removes a session with its facts; how many there were. Its key is destroyed by whoever sweeps what is over."""
    session = find(tr, keys, own, at)
    if session is None:
        return 0
    _remove(tr, keys, own)
    codec.clear(tr, _end(keys, session))
    _set_end(tr, keys, replace(session, ends_at=at))
    return session.facts


def over(tr: Reader, keys: Keyspace, now: datetime, limit: int) -> list[FactSession]:
    """Sessions that have ended, whose keys are still there."""
    return [SESSION.decode(stored) for _, stored in codec.scan(tr, *keys.session_ends_up_to(now), limit=limit)]


def is_left(tr: Reader, keys: Keyspace, ended: FactSession) -> bool:
    """Whether the facts of a session that is over are still there."""
    session = SESSION.read(tr, _head(keys, ended.own))
    return session is not None and session.number == ended.number


def remove(tr: Transaction, keys: Keyspace, ended: FactSession) -> int | None:
    """Removes what is left of a session that is over; how many facts. None if it was renewed, and so is not over.

    Another session that was begun under the same id stays.
    """
    if tr.get(_end(keys, ended)) is None:
        return None
    session = SESSION.read(tr, _head(keys, ended.own))
    if session is None or session.number != ended.number:
        return 0
    _remove(tr, keys, ended.own)
    return session.facts


def forget(tr: Transaction, keys: Keyspace, ended: FactSession) -> None:
    """The last of it: for those whose key is destroyed."""
    codec.clear(tr, _end(keys, ended))


def _remove(tr: Transaction, keys: Keyspace, own: OwnSession) -> None:
    codec.clear(tr, _head(keys, own))
    tr.clear_range(*keys.session_facts(own.tenant, own.principal, own.id))


def _set_end(tr: Transaction, keys: Keyspace, session: FactSession) -> None:
    SESSION.write(tr, _end(keys, session), session)


def _head(keys: Keyspace, own: OwnSession) -> bytes:
    return keys.session_facts_head(own.tenant, own.principal, own.id)


def _fact(keys: Keyspace, own: OwnSession, fact: FactId) -> bytes:
    return keys.session_fact(own.tenant, own.principal, own.id, fact)


def _end(keys: Keyspace, session: FactSession) -> bytes:
    return keys.session_end(session.ends_at, session.number)
