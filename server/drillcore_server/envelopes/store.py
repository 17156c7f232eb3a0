"""Envelopes that were issued, the etags they are known by, and the sessions they were packed in.

They hold ids, numbers and the question, sealed under the key of the tenant's audit log, as the question is there too.
An index in each corpus leads from its facts to the envelopes that they were packed into.
When something is to be forgotten is an entry by time, one for each; using a session puts its own off.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_server.envelopes.envelope_plan import EnvelopeSession, IssuedEnvelope, WindowQuality
from drillcore_server.facts.session_store import OwnSession
from drillcore_server.kernel.corpus_at_revision import CorpusReads
from drillcore_server.kernel.journal import log_key, log_of
from drillcore_server.storage.ids import CommunityId, EnvelopeId, PrincipalId, Revision, TenantId
from drillcore_server.storage.keyring import KeyNumber
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed import SealedRecords
from drillcore_server.storage.versioned import Entry

ISSUED: Final = RecordKind(IssuedEnvelope)
SESSION: Final = RecordKind(EnvelopeSession)
HISTORY_MAX: Final = 100
"""Windows of a session whose quality is remembered."""
WARM_MAX: Final = 256
_NO_REVISION: Final = Revision(0)
_KEYS_OF_END: Final = 1_000
"""Named by one entry of what is to be forgotten: it must fit into a value."""
_FORGOTTEN_KEYS: Final = 10_000
"""Cleared in one transaction, about."""


@dataclass(frozen=True, slots=True)
class EnvelopeStore:
    """Reads and writes of one tenant's envelopes."""

    keys: Keyspace
    sealed: SealedRecords
    tenant: TenantId
    number: KeyNumber
    """Of the key that they are sealed under."""

    def issue(self, tr: Transaction, issued: IssuedEnvelope, known_by: bytes, said: bytes, until: datetime) -> None:
        """Keeps an envelope, that its etag stands for it, and that its facts are in it, until some time.

        `said` are 8 bytes of what it says: an earlier one of the same etag that says the same is not found any more.
        """
        key, etag = self.keys.envelope(self.tenant, issued.id), self.keys.etag(self.tenant, known_by, said)
        codec.write(tr, key, self._seal(key, ISSUED.encode(issued)))
        tr.set(etag, issued.id.bytes)
        entries = entries_of(self.keys, issued)
        for entry in entries:
            tr.set(entry, issued_to(self.tenant, issued.principal))
        self._forget_at(tr, until, issued.id, [key, etag, *entries])

    def _forget_at(self, tr: Transaction, until: datetime, envelope: EnvelopeId, cleared: list[bytes]) -> None:
        for place, start in enumerate(range(0, len(cleared), _KEYS_OF_END)):
            named = envelope.bytes if not place else hashlib.sha256(envelope.bytes + bytes([place])).digest()[:16]
            some = msgspec.msgpack.encode(cleared[start : start + _KEYS_OF_END])
            tr.set(self.keys.envelope_end(until, named), some)

    def find(self, tr: Reader, envelope: EnvelopeId) -> IssuedEnvelope | None:
        key = self.keys.envelope(self.tenant, envelope)
        stored = codec.read(tr, key)
        return None if stored is None else ISSUED.decode(self._open(key, stored))

    def find_etag(self, tr: Reader, known_by: bytes) -> list[IssuedEnvelope]:
        """The envelopes that an etag was given for, the last one for each thing they say; two if there are more."""
        stored = tr.range(*self.keys.etags(self.tenant, known_by), limit=2)
        found = [self.find(tr, EnvelopeId(UUID(bytes=value))) for _, value in stored]
        return [one for one in found if one is not None]

    def session(self, tr: Reader, own: OwnSession, now: datetime) -> EnvelopeSession | None:
        """The session, if it stands."""
        found = self._session(tr, own)
        return None if found is None or found.is_over(now) else found

    def use(
        self,
        tr: Transaction,
        begun: EnvelopeSession,
        quality: WindowQuality,
        warm: tuple[CommunityId, ...],
        now: datetime,
    ) -> None:
        """Notes what was packed in a session, which begins with it or goes on, up to when `begun` ends."""
        known = self._session(tr, begun.own)
        if known is not None:
            tr.clear(self._session_end(known))
        current = begun if known is None or known.is_over(now) else known
        history = [*current.history, *([] if quality in current.history else [quality])]
        used = replace(
            current,
            ends_at=max(current.ends_at, begun.ends_at),
            history=tuple(history[-HISTORY_MAX:]),
            warm=tuple(dict.fromkeys((*warm, *current.warm)))[:WARM_MAX],
        )
        key = self._session_key(begun.own)
        codec.write(tr, key, self._seal(key, SESSION.encode(used)))
        tr.set(self._session_end(used), msgspec.msgpack.encode([key]))

    def end_session(self, tr: Transaction, own: OwnSession) -> bool:
        """Forgets a session; whether there was one."""
        known = self._session(tr, own)
        if known is not None:
            codec.clear(tr, self._session_key(own))
            tr.clear(self._session_end(known))
        return known is not None

    def _session(self, tr: Reader, own: OwnSession) -> EnvelopeSession | None:
        key = self._session_key(own)
        stored = codec.read(tr, key)
        return None if stored is None else SESSION.decode(self._open(key, stored))

    def _session_end(self, session: EnvelopeSession) -> bytes:
        return self.keys.envelope_end(session.ends_at, hashlib.sha256(self._session_key(session.own)).digest()[:16])

    def _session_key(self, own: OwnSession) -> bytes:
        return self.keys.envelope_session(own.tenant, own.principal, own.id)

    def _seal(self, key: bytes, value: bytes) -> bytes:
        return self.sealed.seal(key, _NO_REVISION, self.number, value)

    def _open(self, key: bytes, stored: bytes) -> bytes:
        return self.sealed.opened(Entry(key, _NO_REVISION, stored)).value


def known_by(principal: PrincipalId, etag: str, question: bytes) -> bytes:
    """What an etag is found by: it counts for the caller and the question that it was given for, and no other."""
    return hashlib.sha256(b"\0".join([principal.encode(), etag.encode(), question])).digest()[:16]


def entries_of(keys: Keyspace, issued: IssuedEnvelope) -> list[bytes]:
    """What leads from the facts of the store to an envelope that holds them."""
    corpora = {one.number: keys.of_corpus(one.number) for one in issued.corpora}
    return [corpora[at.number].fact_envelope(fact, issued.id) for at, fact in issued.stored()]


def issued_to(tenant: TenantId, principal: PrincipalId) -> bytes:
    """What an entry of the index of facts says of an envelope: a shared corpus has entries of many tenants."""
    return tenant.bytes + principal.encode()


def forget(tr: Transaction, keys: Keyspace, now: datetime, limit: int) -> int:
    """Removes some of what is to be forgotten by now; how many entries there were, 0 when nothing is left."""
    forgotten = cleared = 0
    for entry, value in tr.range(*keys.envelope_ends_up_to(now), limit=limit):
        tr.clear(entry)
        named = msgspec.msgpack.decode(value, type=list[bytes])
        for key in named:
            codec.clear(tr, key)
        forgotten, cleared = forgotten + 1, cleared + len(named)
        if cleared >= _FORGOTTEN_KEYS:
            break
    return forgotten


def envelope_store(reads: CorpusReads, tenant: TenantId) -> EnvelopeStore:
    """Where the envelopes of a tenant are kept, sealed under the key of its log."""
    return EnvelopeStore(reads.unit.keys, reads.sealed, tenant, log_key(reads.keyring, log_of(tenant)))
