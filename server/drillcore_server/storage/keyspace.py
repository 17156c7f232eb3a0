"""Every key of the store, built and parsed here and nowhere else. `fdb/README.md` has the same as pages to read.

A record's key is never another record's key extended by a positive integer: those are the parts of large values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import VERSIONSTAMP_BYTES
from drillcore_fdb.tuples import KeyRange, Subspace, prefix_end
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import (
    AccountId,
    CorpusId,
    CorpusNumber,
    EnvelopeId,
    FactId,
    NodeId,
    PrincipalId,
    RecordId,
    RequestId,
    TenantId,
    to_microseconds,
)
from drillcore_server.storage.spaces import ErasureNotes, Space, behind, below

_UUID_CODE: Final = b"\x30"
"""Precedes the 16 bytes of a UUID in FoundationDB's tuples."""


class Keyspace:
    def __init__(self, directories: Mapping[str, Subspace]) -> None:
        """`directories` has one for each `Space`, by its path."""
        self._spaces = {space: directories[space] for space in Space}
        self._prefixes = {space: subspace.prefix for space, subspace in self._spaces.items()}
        # Other keys of this space begin with the number of a corpus. They differ from these, which begin with text.
        erasures = self._spaces[Space.ERASURES]
        self.erasure_notes = ErasureNotes(erasures.pack((b"count",)), erasures[b"noted"].prefix)

    def _ids(self, space: Space, *ids: UUID) -> bytes:
        """A tuple of ids in FoundationDB's encoding, ten times as fast as its own code: every call needs such keys."""
        return self._prefixes[space] + b"".join([_UUID_CODE + id_.bytes for id_ in ids])

    def of_corpus(self, number: CorpusNumber) -> CorpusKeys:
        """The keys of one corpus. Fast, since every call needs some: the number is encoded once, not for each space."""
        encoded = self._spaces[Space.HEADS][number].prefix.removeprefix(self._prefixes[Space.HEADS])
        prefixes = {space: prefix + encoded for space, prefix in self._prefixes.items()}
        return CorpusKeys(prefixes, self.erasure_notes)

    def corpus_number(self, number: CorpusNumber) -> bytes:
        return self._spaces[Space.CORPUS_NUMBERS].pack((number,))

    def locator(self, tenant: TenantId, node: NodeId) -> bytes:
        return self._ids(Space.LOCATORS, tenant, node)

    def tenant(self, tenant: TenantId) -> bytes:
        return self._ids(Space.TENANTS, tenant)

    def tenants(self, after: TenantId | None = None) -> KeyRange:
        whole = self._spaces[Space.TENANTS].range()
        return whole if after is None else KeyRange(behind(self.tenant(after)), whole.end)

    def tenant_name(self, name: str) -> bytes:
        return self._spaces[Space.TENANT_NAMES].pack((name,))

    def corpus(self, tenant: TenantId, corpus: CorpusId) -> bytes:
        return self._ids(Space.CORPORA, tenant, corpus)

    def corpora(self, tenant: TenantId, after: CorpusId | None = None) -> KeyRange:
        whole = self._spaces[Space.CORPORA].range((tenant,))
        return whole if after is None else KeyRange(behind(self.corpus(tenant, after)), whole.end)

    def corpus_name(self, tenant: TenantId, name: str) -> bytes:
        return self._spaces[Space.CORPUS_NAMES].pack((tenant, name))

    def corpus_names(self, tenant: TenantId) -> KeyRange:
        return self._spaces[Space.CORPUS_NAMES].range((tenant,))

    def shared_corpus(self, reader: UUID, corpus: CorpusId) -> bytes:
        """A corpus of another tenant that this tenant may read. Zeros stand for every tenant."""
        return self._ids(Space.SHARED_CORPORA, reader, corpus)

    def shared_corpora(self, reader: UUID, after: CorpusId | None = None) -> KeyRange:
        whole = below(self._ids(Space.SHARED_CORPORA, reader))
        return whole if after is None else KeyRange(behind(self.shared_corpus(reader, after)), whole.end)

    def all_shared_corpora(self) -> KeyRange:
        return below(self._prefixes[Space.SHARED_CORPORA])

    @staticmethod
    def parse_shared_corpus(key: bytes) -> tuple[UUID, CorpusId]:
        """The reader and the corpus."""
        return UUID(bytes=key[-33:-17]), CorpusId(UUID(bytes=key[-16:]))

    def request(self, principal: PrincipalId, request: RequestId) -> bytes:
        return self._spaces[Space.REQUESTS].pack((principal, request))

    def request_time(self, at: datetime, principal: PrincipalId, request: RequestId) -> bytes:
        return self._spaces[Space.REQUEST_TIMES].pack((int(at.timestamp()), principal, request))

    def request_times_before(self, at: datetime) -> KeyRange:
        times = self._spaces[Space.REQUEST_TIMES]
        return KeyRange(times.range().begin, times.pack((int(at.timestamp()),)))

    def parse_request_time(self, key: bytes) -> tuple[PrincipalId, RequestId]:
        _, principal, request = self._spaces[Space.REQUEST_TIMES].unpack(key)
        return PrincipalId(principal), RequestId(request)

    def audit_state(self) -> bytes:
        return self._prefixes[Space.AUDIT_STATE]

    def audit_record_template(self, incarnation: int, bucket: int) -> bytes:
        """For `set_versionstamped_key`: the record's key, with a gap for its versionstamp."""
        key = self._audit_bucket(incarnation, bucket)
        return key + bytes(VERSIONSTAMP_BYTES) + len(key).to_bytes(4, "little")

    def audit_record(self, incarnation: int, bucket: int, versionstamp: bytes) -> bytes:
        return self._audit_bucket(incarnation, bucket) + versionstamp

    def audit_records(self, incarnation: int, bucket: int, after: bytes | None = None) -> KeyRange:
        """The records of a bucket after a versionstamp, in the order of their commits."""
        whole = below(self._audit_bucket(incarnation, bucket))
        return whole if after is None else KeyRange(self.audit_record(incarnation, bucket, after) + b"\0", whole.end)

    def _audit_bucket(self, incarnation: int, bucket: int) -> bytes:
        return self._prefixes[Space.AUDIT_RECORDS] + incarnation.to_bytes(4, "big") + bytes([bucket])

    def audit_request(self, principal: PrincipalId, request: RequestId, refused: str = "") -> bytes:
        """Where the record of a request is; for a refused request, one for each reason.

        Short, because every call has one.
        """
        named = f"{len(principal)} {len(request)} {principal}{request}{refused}".encode()
        return self._prefixes[Space.AUDIT_REQUESTS] + hashlib.sha256(named).digest()[:16]

    def audit_entry(self, log: UUID, index: int) -> bytes:
        return self._prefixes[Space.AUDIT_ENTRIES] + log.bytes + index.to_bytes(8, "big")

    def audit_entries(self, log: UUID, begin: int, end: int) -> KeyRange:
        return KeyRange(self.audit_entry(log, begin), self.audit_entry(log, end))

    def audit_tile(self, log: UUID, level: int, index: int) -> bytes:
        return self._prefixes[Space.AUDIT_TILES] + log.bytes + bytes([level]) + index.to_bytes(8, "big")

    def audit_head(self, log: UUID) -> bytes:
        return self._prefixes[Space.AUDIT_HEADS] + log.bytes

    def audit_heads(self) -> KeyRange:
        return below(self._prefixes[Space.AUDIT_HEADS])

    def audit_checkpoint(self, log: UUID, size: int) -> bytes:
        return self._prefixes[Space.AUDIT_CHECKPOINTS] + log.bytes + size.to_bytes(8, "big")

    def audit_checkpoints(self, log: UUID) -> KeyRange:
        return below(self._prefixes[Space.AUDIT_CHECKPOINTS] + log.bytes)

    def audit_published(self, log: UUID) -> bytes:
        """The last checkpoint of a log that was published."""
        return self._prefixes[Space.AUDIT_PUBLISHED] + log.bytes

    def audit_place(self, record: RecordId) -> bytes:
        """Where a record is in its log, by its id."""
        return self._prefixes[Space.AUDIT_PLACES] + record.bytes

    def audit_index(self, log: UUID, kind: int, value: bytes, index: int) -> bytes:
        """Each kind has values of a fixed length."""
        prefix = self._prefixes[Space.AUDIT_INDEXES]
        return prefix + log.bytes + bytes([kind]) + value + index.to_bytes(8, "big")

    def audit_index_of(self, log: UUID, terms: Iterable[tuple[int, bytes]], index: int) -> list[bytes]:
        """The `audit_index` entries of a kind and value."""
        prefix, place = self._prefixes[Space.AUDIT_INDEXES] + log.bytes, index.to_bytes(8, "big")
        return [prefix + bytes([kind]) + value + place for kind, value in terms]

    def audit_indexed(self, log: UUID, kind: int, value: bytes) -> KeyRange:
        return below(self._prefixes[Space.AUDIT_INDEXES] + log.bytes + bytes([kind]) + value)

    def audit_sequencer(self) -> bytes:
        return self._prefixes[Space.AUDIT_SEQUENCER]

    def audit_key(self, number: int) -> bytes:
        return self._spaces[Space.AUDIT_KEYS].pack((number,))

    def audit_keys(self) -> KeyRange:
        return self._spaces[Space.AUDIT_KEYS].range()

    def account(self, account: AccountId) -> bytes:
        return self._ids(Space.ACCOUNTS, account)

    def tenant_account(self, tenant: UUID, account: AccountId) -> bytes:
        return self._spaces[Space.ACCOUNTS_BY_TENANT].pack((tenant, account))

    def tenant_accounts(self, tenant: UUID, after: AccountId | None = None) -> KeyRange:
        whole = self._spaces[Space.ACCOUNTS_BY_TENANT].range((tenant,))
        return whole if after is None else KeyRange(behind(self.tenant_account(tenant, after)), whole.end)

    def parse_tenant_account(self, key: bytes) -> AccountId:
        account: UUID = self._spaces[Space.ACCOUNTS_BY_TENANT].unpack(key)[1]
        return AccountId(account)

    def login(self, login: str) -> bytes:
        return self._spaces[Space.LOGINS].pack((login,))

    def credential(self, account: AccountId) -> bytes:
        return self._spaces[Space.CREDENTIALS].pack((account,))

    def session(self, token_hash: bytes) -> bytes:
        return self._spaces[Space.SESSIONS].pack((token_hash,))

    def sessions(self) -> KeyRange:
        return self._spaces[Space.SESSIONS].range()

    def parse_session(self, key: bytes) -> bytes:
        """The token's hash."""
        token_hash: bytes = self._spaces[Space.SESSIONS].unpack(key)[0]
        return token_hash

    def account_session(self, account: AccountId, token_hash: bytes) -> bytes:
        return self._spaces[Space.ACCOUNT_SESSIONS].pack((account, token_hash))

    def account_sessions(self, account: AccountId) -> KeyRange:
        return self._spaces[Space.ACCOUNT_SESSIONS].range((account,))

    def parse_account_session(self, key: bytes) -> bytes:
        """The token's hash."""
        token_hash: bytes = self._spaces[Space.ACCOUNT_SESSIONS].unpack(key)[1]
        return token_hash

    def binding(self, kind: str, *value: str | bytes) -> bytes:
        """Leads from a certificate, or an issuer and subject, to an account."""
        return self._spaces[Space.BINDINGS].pack((kind, *value))

    def signature(self, tenant: UUID, signature: UUID) -> bytes:
        return self._spaces[Space.SIGNATURES].pack((tenant, signature))

    def signatures(self, tenant: UUID, after: UUID | None = None) -> KeyRange:
        whole = self._spaces[Space.SIGNATURES].range((tenant,))
        return whole if after is None else KeyRange(behind(self.signature(tenant, after)), whole.end)

    def signatures_of(self, tenant: UUID, kind: int, target: UUID, version: int) -> bytes:
        """The ids of the signatures of one version of a record, together, so that one read gets them all."""
        return self._spaces[Space.SIGNATURES_BY_TARGET].pack((tenant, kind, target, version))

    def signed(self, tenant: UUID, kind: int, *target: UUID) -> KeyRange:
        """The signed versions of one record, or of all records of a kind."""
        return self._spaces[Space.SIGNATURES_BY_TARGET].range((tenant, kind, *target))

    def challenge(self, challenge: bytes) -> bytes:
        return self._spaces[Space.CHALLENGES].pack((challenge,))

    def challenges(self) -> KeyRange:
        return self._spaces[Space.CHALLENGES].range()

    def review(self, log: UUID, review: UUID) -> bytes:
        return self._spaces[Space.REVIEWS].pack((log, review))

    def reviews(self, log: UUID, after: UUID | None = None) -> KeyRange:
        whole = self._spaces[Space.REVIEWS].range((log,))
        return whole if after is None else KeyRange(behind(self.review(log, after)), whole.end)

    def export(self, tenant: UUID, export: UUID) -> bytes:
        return self._spaces[Space.EXPORTS].pack((tenant, export))

    def session_facts_head(self, tenant: TenantId, principal: PrincipalId, session: str) -> bytes:
        """A caller's session that keeps facts."""
        return self._spaces[Space.SESSION_FACTS].pack((tenant, principal, session))

    def session_fact(self, tenant: TenantId, principal: PrincipalId, session: str, fact: FactId) -> bytes:
        return self.session_facts_head(tenant, principal, session) + _UUID_CODE + fact.bytes

    def session_facts(self, tenant: TenantId, principal: PrincipalId, session: str) -> KeyRange:
        return below(self.session_facts_head(tenant, principal, session) + _UUID_CODE)

    def session_end(self, at: datetime, number: int) -> bytes:
        """When a session ends unless it is used again, by the number of its key."""
        return self._spaces[Space.SESSION_ENDS].pack((to_microseconds(at), number))

    def session_ends_up_to(self, at: datetime) -> KeyRange:
        ends = self._spaces[Space.SESSION_ENDS]
        return KeyRange(ends.range().begin, ends.pack((to_microseconds(at) + 1,)))

    def envelope(self, tenant: TenantId, envelope: EnvelopeId) -> bytes:
        return self._ids(Space.ENVELOPES, tenant, envelope)

    def envelopes(self, tenant: TenantId) -> KeyRange:
        """All of a tenant. The id follows the beginning of the range."""
        return below(self._ids(Space.ENVELOPES, tenant) + _UUID_CODE)

    def envelope_session(self, tenant: TenantId, principal: PrincipalId, session: str) -> bytes:
        return self._spaces[Space.ENVELOPE_SESSIONS].pack((tenant, principal, session))

    def etag(self, tenant: TenantId, hashed: bytes, said: bytes) -> bytes:
        """`hashed`: 16 bytes of the caller, the etag and the question it was given for. `said`: 8 of the answer."""
        return self.etags(tenant, hashed).begin + said

    def etags(self, tenant: TenantId, hashed: bytes) -> KeyRange:
        """The entries of all answers."""
        begin = self._prefixes[Space.ETAGS] + tenant.bytes + hashed
        return KeyRange(begin, prefix_end(begin))

    def envelope_end(self, at: datetime, what: bytes) -> bytes:
        """When an envelope is forgotten, or a session of envelopes ends unless it is used again."""
        return self._prefixes[Space.ENVELOPE_ENDS] + to_microseconds(at).to_bytes(8, "big") + what

    def envelope_ends_up_to(self, at: datetime) -> KeyRange:
        begin = self._prefixes[Space.ENVELOPE_ENDS]
        return KeyRange(begin, begin + (to_microseconds(at) + 1).to_bytes(8, "big"))

    def change_template(self, tenant: TenantId, incarnation: int) -> bytes:
        """For `set_versionstamped_key`: the key of a change in a tenant, with a gap for its versionstamp."""
        key = self._changes_in(tenant, incarnation)
        return key + bytes(VERSIONSTAMP_BYTES) + len(key).to_bytes(4, "little")

    def change(self, tenant: TenantId, incarnation: int, versionstamp: bytes) -> bytes:
        return self._changes_in(tenant, incarnation) + versionstamp

    def changes(self, tenant: TenantId) -> KeyRange:
        """Every change in a tenant, in the order of commits."""
        return below(self._prefixes[Space.CHANGES] + tenant.bytes)

    @staticmethod
    def parse_change(key: bytes) -> tuple[int, bytes]:
        """Incarnation and versionstamp."""
        return int.from_bytes(key[-VERSIONSTAMP_BYTES - 4 : -VERSIONSTAMP_BYTES], "big"), key[-VERSIONSTAMP_BYTES:]

    def migrations(self) -> KeyRange:
        """The progress of each corpus's change to another embedding model."""
        return below(self._prefixes[Space.MIGRATIONS])

    def _changes_in(self, tenant: TenantId, incarnation: int) -> bytes:
        return self._prefixes[Space.CHANGES] + tenant.bytes + incarnation.to_bytes(4, "big")
