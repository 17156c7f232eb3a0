"""Stores issued envelopes, the index of their etags, and the sessions that they were packed in.

The records have ids, numbers and the question. They are sealed under the key of the tenant's audit log, which has the
question too. An index in each corpus leads from facts to the envelopes that contain them. Another index says when each
envelope and session is to be forgotten; using a session postpones its end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_server.envelopes.envelope_plan import EnvelopeSession, IssuedEnvelope, WindowQuality
from drillcore_server.facts.session_fact_store import OwnSession
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
"""The session keeps the quality of this many last windows."""
WARM_MAX: Final = 256
"""The session keeps this many communities, those that were used last."""
_NO_REVISION: Final = Revision(0)
_KEYS_OF_END: Final = 1_000
"""The keys that one entry lists for clearing: the entry must fit into a value."""
_FORGOTTEN_KEYS: Final = 10_000
"""About so many keys are cleared in one transaction."""


@dataclass(frozen=True, slots=True)
class EnvelopeStore:
    """Reads and writes one tenant's envelopes and their sessions."""

    keys: Keyspace
    sealed: SealedRecords
    tenant: TenantId
    number: KeyNumber
    """The key that the records are sealed under."""

    def issue(
        self, tr: Transaction, issued: IssuedEnvelope, found_by: bytes, text_hash: bytes, until: datetime
    ) -> None:
        """Stores an envelope with its entries in the index of etags and in the index of facts, until some time.

        `text_hash` is an 8-byte hash of text and tier. The envelope replaces an earlier one of the same etag and hash.
        """
        key, etag = self.keys.envelope(self.tenant, issued.id), self.keys.etag(self.tenant, found_by, text_hash)
        codec.write(tr, key, self._seal(key, ISSUED.encode(issued)))
        tr.set(etag, issued.id.bytes)
        entries = fact_entries(self.keys, issued)
        for entry in entries:
            tr.set(entry, issued_to(self.tenant, issued.principal))
        self._forget_at(tr, until, issued.id, [key, etag, *entries])

    def _forget_at(self, tr: Transaction, until: datetime, envelope: EnvelopeId, cleared: list[bytes]) -> None:
        for place, start in enumerate(range(0, len(cleared), _KEYS_OF_END)):
            named = envelope.bytes if not place else hashlib.sha256(envelope.bytes + bytes([place])).digest()[:16]
            some = msgspec.msgpack.encode(cleared[start : start + _KEYS_OF_END])
            tr.set(self.keys.envelope_end(until, named), some)

    def find(self, tr: Reader, envelope: EnvelopeId) -> IssuedEnvelope | None:
        (found,) = self._find_many(tr, [envelope])
        return found

    def _find_many(self, tr: Reader, envelopes: Sequence[EnvelopeId]) -> list[IssuedEnvelope | None]:
        keys = [self.keys.envelope(self.tenant, envelope) for envelope in envelopes]
        found = zip(keys, codec.read_many(tr, keys), strict=True)
        return [None if stored is None else ISSUED.decode(self._open(key, stored)) for key, stored in found]

    def find_etag(self, tr: Reader, found_by: bytes) -> list[IssuedEnvelope]:
        """Returns the envelopes of an etag, the last one for each text. Returns at most two."""
        stored = tr.range(*self.keys.etags(self.tenant, found_by), limit=2)
        found = self._find_many(tr, [EnvelopeId(UUID(bytes=value)) for _, value in stored])
        return [issued for issued in found if issued is not None]

    def session(self, tr: Reader, own: OwnSession, now: datetime) -> EnvelopeSession | None:
        """Returns the session; None if there is none or it is over."""
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
        """Adds a window to a session, and postpones the session's end to that of `begun`. Stores `begun` if the session
        is new or over."""
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
        """Forgets a session. Returns whether there was one."""
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


def etag_key(principal: PrincipalId, etag: str, question: bytes) -> bytes:
    """Returns the key of an etag. It depends on caller and question, so an etag is valid for no other."""
    return hashlib.sha256(b"\0".join([principal.encode(), etag.encode(), question])).digest()[:16]


def fact_entries(keys: Keyspace, issued: IssuedEnvelope) -> list[bytes]:
    """Returns the keys of the index entries that lead from the stored facts of an envelope to the envelope."""
    corpora = {at.number: keys.of_corpus(at.number) for at in issued.corpora}
    return [corpora[at.number].fact_envelope(fact, issued.id) for at, fact in issued.stored()]


def issued_to(tenant: TenantId, principal: PrincipalId) -> bytes:
    """Returns the value of such an index entry. A shared corpus has entries of many tenants."""
    return tenant.bytes + principal.encode()


def forget(tr: Transaction, keys: Keyspace, now: datetime, limit: int) -> int:
    """Removes some envelopes and sessions that are to be forgotten by now. Returns how many; 0 if none is left."""
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
    """Returns the store of a tenant's envelopes, sealed under the key of its audit log."""
    return EnvelopeStore(reads.unit.keys, reads.sealed, tenant, log_key(reads.keyring, log_of(tenant)))
