"""Every key of the store, built and parsed here and nowhere else. `fdb/README.md` has the same as pages to read.

A record's key is never another record's key extended by a positive integer: those are the parts of large values.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import VERSIONSTAMP_BYTES
from drillcore_fdb.tuples import KeyRange, Subspace, prefix_end
from drillcore_server.domain.ids import (
    AccountId,
    CorpusId,
    CorpusNumber,
    DocumentId,
    NodeId,
    PrincipalId,
    RecordId,
    RequestId,
    Revision,
    TenantId,
)
from drillcore_server.domain.nodes import Membership
from drillcore_server.domain.times import to_microseconds


class Space(enum.IntEnum):
    """The first element of every key. Numbers are never used again; 0 is the store's header."""

    TENANTS = 1
    TENANT_NAMES = 2
    CORPORA = 3
    CORPUS_NAMES = 4
    REQUESTS = 5
    REQUEST_TIMES = 6
    CORPUS_NUMBERS = 7
    LOCATORS = 8
    HEADS = 9
    REVISIONS = 10
    REVISION_TIMES = 11
    CLAIMS = 12
    STAGED = 13
    MASTERS = 14
    SECTIONS = 15
    CHUNKS = 16
    VECTORS = 18
    MEMBERS = 19
    PARENTS = 20
    DOCUMENTS = 21
    SOURCES = 22
    ENTITIES = 23
    CATEGORIES = 24
    CITING = 25
    FLOORS = 26
    SECTION_LIST = 27
    EMBEDDED = 28
    AUDIT_STATE = 29
    AUDIT_RECORDS = 30
    AUDIT_REQUESTS = 31
    AUDIT_ENTRIES = 32
    AUDIT_TILES = 33
    AUDIT_HEADS = 34
    AUDIT_CHECKPOINTS = 35
    AUDIT_PLACES = 36
    AUDIT_INDEXES = 37
    AUDIT_SEQUENCER = 38
    AUDIT_KEYS = 39
    MANIFESTS = 40
    ACCOUNTS = 41
    LOGINS = 42
    CREDENTIALS = 43
    SESSIONS = 44
    ACCOUNT_SESSIONS = 45
    BINDINGS = 46
    SIGNATURES = 47
    SIGNATURES_BY_TARGET = 48
    CHALLENGES = 49
    REVIEWS = 50
    EXPORTS = 51
    AUDIT_PUBLISHED = 52
    ACCOUNTS_BY_TENANT = 53


_UUID_CODE: Final = b"\x30"
"""Stands before the 16 bytes of a UUID in FoundationDB's tuples."""
_COMMITTED: Final = (
    Space.MASTERS,
    Space.SECTIONS,
    Space.CHUNKS,
    Space.VECTORS,
    Space.PARENTS,
    Space.DOCUMENTS,
    Space.SOURCES,
)
"""What a revision's manifest lists: the other records by revision follow from these."""
_BY_REVISION: Final = (
    Space.MASTERS,
    Space.SECTIONS,
    Space.CHUNKS,
    Space.VECTORS,
    Space.MEMBERS,
    Space.PARENTS,
    Space.DOCUMENTS,
    Space.SOURCES,
    Space.ENTITIES,
    Space.CATEGORIES,
    Space.CITING,
    Space.SECTION_LIST,
    Space.EMBEDDED,
)
"""Those marked * in the order of their numbers."""


class Keyspace:
    def __init__(self, root: Subspace) -> None:
        self._spaces = {space: root[int(space)] for space in Space}
        self._prefixes = {space: subspace.prefix for space, subspace in self._spaces.items()}

    def _ids(self, space: Space, *ids: UUID) -> bytes:
        """A tuple of ids in FoundationDB's encoding. Its own code takes ten times as long; every call needs some."""
        return self._prefixes[space] + b"".join([_UUID_CODE + one.bytes for one in ids])

    def of_corpus(self, number: CorpusNumber) -> CorpusKeys:
        return CorpusKeys({space: subspace[number].prefix for space, subspace in self._spaces.items()})

    def corpus_number(self, number: CorpusNumber) -> bytes:
        return self._spaces[Space.CORPUS_NUMBERS].pack((number,))

    def locator(self, tenant: TenantId, node: NodeId) -> bytes:
        return self._ids(Space.LOCATORS, tenant, node)

    def tenant(self, tenant: TenantId) -> bytes:
        return self._ids(Space.TENANTS, tenant)

    def tenants(self, after: TenantId | None = None) -> KeyRange:
        whole = self._spaces[Space.TENANTS].range()
        return whole if after is None else KeyRange(_behind(self.tenant(after)), whole.end)

    def tenant_name(self, name: str) -> bytes:
        return self._spaces[Space.TENANT_NAMES].pack((name,))

    def corpus(self, tenant: TenantId, corpus: CorpusId) -> bytes:
        return self._ids(Space.CORPORA, tenant, corpus)

    def corpora(self, tenant: TenantId, after: CorpusId | None = None) -> KeyRange:
        whole = self._spaces[Space.CORPORA].range((tenant,))
        return whole if after is None else KeyRange(_behind(self.corpus(tenant, after)), whole.end)

    def corpus_name(self, tenant: TenantId, name: str) -> bytes:
        return self._spaces[Space.CORPUS_NAMES].pack((tenant, name))

    def corpus_names(self, tenant: TenantId) -> KeyRange:
        return self._spaces[Space.CORPUS_NAMES].range((tenant,))

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
        """The records of a bucket, in the order of their commits, after a versionstamp."""
        whole = _below(self._audit_bucket(incarnation, bucket))
        return whole if after is None else KeyRange(self.audit_record(incarnation, bucket, after) + b"\0", whole.end)

    def _audit_bucket(self, incarnation: int, bucket: int) -> bytes:
        return self._prefixes[Space.AUDIT_RECORDS] + incarnation.to_bytes(4, "big") + bytes([bucket])

    def audit_request(self, principal: PrincipalId, request: RequestId, refused: str = "") -> bytes:
        """Where the record of a request is; of one that was refused, by the reason. Short, for every call has one."""
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
        return _below(self._prefixes[Space.AUDIT_HEADS])

    def audit_checkpoint(self, log: UUID, size: int) -> bytes:
        return self._prefixes[Space.AUDIT_CHECKPOINTS] + log.bytes + size.to_bytes(8, "big")

    def audit_checkpoints(self, log: UUID) -> KeyRange:
        return _below(self._prefixes[Space.AUDIT_CHECKPOINTS] + log.bytes)

    def audit_published(self, log: UUID) -> bytes:
        """How far the checkpoints of a log have left the store."""
        return self._prefixes[Space.AUDIT_PUBLISHED] + log.bytes

    def audit_place(self, record: RecordId) -> bytes:
        """Where a record is in its log, by its id."""
        return self._prefixes[Space.AUDIT_PLACES] + record.bytes

    def audit_index(self, log: UUID, kind: int, value: bytes, index: int) -> bytes:
        """`value` is of a fixed length for each kind."""
        prefix = self._prefixes[Space.AUDIT_INDEXES]
        return prefix + log.bytes + bytes([kind]) + value + index.to_bytes(8, "big")

    def audit_index_of(self, log: UUID, terms: Iterable[tuple[int, bytes]], index: int) -> list[bytes]:
        """`audit_index` of each kind and value."""
        prefix, place = self._prefixes[Space.AUDIT_INDEXES] + log.bytes, index.to_bytes(8, "big")
        return [prefix + bytes([kind]) + value + place for kind, value in terms]

    def audit_indexed(self, log: UUID, kind: int, value: bytes) -> KeyRange:
        return _below(self._prefixes[Space.AUDIT_INDEXES] + log.bytes + bytes([kind]) + value)

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
        return whole if after is None else KeyRange(_behind(self.tenant_account(tenant, after)), whole.end)

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
        """What leads from a certificate, or an issuer and subject, to an account."""
        return self._spaces[Space.BINDINGS].pack((kind, *value))

    def signature(self, tenant: UUID, signature: UUID) -> bytes:
        return self._spaces[Space.SIGNATURES].pack((tenant, signature))

    def signatures(self, tenant: UUID, after: UUID | None = None) -> KeyRange:
        whole = self._spaces[Space.SIGNATURES].range((tenant,))
        return whole if after is None else KeyRange(_behind(self.signature(tenant, after)), whole.end)

    def signatures_of(self, tenant: UUID, kind: int, target: UUID, version: int) -> bytes:
        """The ids of the signatures of one version of a record, so that those of many are read at once."""
        return self._spaces[Space.SIGNATURES_BY_TARGET].pack((tenant, kind, target, version))

    def signed(self, tenant: UUID, kind: int, *target: UUID) -> KeyRange:
        """The versions that were signed, of one record or of all of a kind."""
        return self._spaces[Space.SIGNATURES_BY_TARGET].range((tenant, kind, *target))

    def challenge(self, challenge: bytes) -> bytes:
        return self._spaces[Space.CHALLENGES].pack((challenge,))

    def challenges(self) -> KeyRange:
        return self._spaces[Space.CHALLENGES].range()

    def review(self, log: UUID, review: UUID) -> bytes:
        return self._spaces[Space.REVIEWS].pack((log, review))

    def reviews(self, log: UUID, after: UUID | None = None) -> KeyRange:
        whole = self._spaces[Space.REVIEWS].range((log,))
        return whole if after is None else KeyRange(_behind(self.review(log, after)), whole.end)

    def export(self, tenant: UUID, export: UUID) -> bytes:
        return self._spaces[Space.EXPORTS].pack((tenant, export))


class CorpusKeys:
    """Keys of one corpus. Behind its number ids are 16 plain bytes and numbers have fixed sizes: short, and in order.

    Those marked * are logical keys, which `versioned` extends by revision and part.
    """

    def __init__(self, prefixes: Mapping[Space, bytes]) -> None:
        self._prefixes = prefixes
        self._committed = tuple(prefixes[space] for space in _COMMITTED)

    def head(self) -> bytes:
        return self._prefixes[Space.HEADS]

    def revision(self, revision: Revision) -> bytes:
        return self._prefixes[Space.REVISIONS] + revision.to_bytes(6, "big")

    def revisions(self, after: Revision, up_to: Revision) -> KeyRange:
        return KeyRange(self.revision(Revision(after + 1)), self.revision(Revision(up_to + 1)))

    def revision_time(self, at: datetime, revision: Revision) -> bytes:
        return self._time(at) + revision.to_bytes(6, "big")

    def revision_times_up_to(self, at: datetime) -> KeyRange:
        return KeyRange(self._prefixes[Space.REVISION_TIMES], self._time(at) + b"\xff")

    def claim(self) -> bytes:
        return self._prefixes[Space.CLAIMS]

    def staged(self, revision: Revision, batch: int) -> bytes:
        return self._prefixes[Space.STAGED] + revision.to_bytes(6, "big") + batch.to_bytes(4, "big")

    def all_staged(self) -> KeyRange:
        return _below(self._prefixes[Space.STAGED])

    def master(self) -> bytes:
        """*"""
        return self._prefixes[Space.MASTERS]

    def section(self, section: NodeId) -> bytes:
        """*"""
        return self._prefixes[Space.SECTIONS] + section.bytes

    def sections(self) -> KeyRange:
        return _below(self._prefixes[Space.SECTIONS])

    def listed_section(self, section: NodeId) -> bytes:
        """* The sections alone, without what they hold: short to walk, however often they changed."""
        return self._prefixes[Space.SECTION_LIST] + section.bytes

    def listed_sections(self, first: NodeId | None = None) -> KeyRange:
        whole = _below(self._prefixes[Space.SECTION_LIST])
        return whole if first is None else KeyRange(self.listed_section(first), whole.end)

    def chunk(self, chunk: NodeId) -> bytes:
        """*"""
        return self._prefixes[Space.CHUNKS] + chunk.bytes

    def chunks(self) -> KeyRange:
        return _below(self._prefixes[Space.CHUNKS])

    def vector(self, chunk: NodeId) -> bytes:
        """*"""
        return self._prefixes[Space.VECTORS] + chunk.bytes

    def vectors(self) -> KeyRange:
        return _below(self._prefixes[Space.VECTORS])

    def member(self, section: NodeId, document: DocumentId, ordinal: int, chunk: NodeId) -> bytes:
        """* A section's chunks, in the order of their documents."""
        return self.members(section).begin + document.bytes + ordinal.to_bytes(4, "big") + chunk.bytes

    def members(self, section: NodeId) -> KeyRange:
        return _below(self._prefixes[Space.MEMBERS] + section.bytes)

    def all_members(self) -> KeyRange:
        return _below(self._prefixes[Space.MEMBERS])

    @staticmethod
    def parse_member(key: bytes) -> Membership:
        document, ordinal = DocumentId(UUID(bytes=key[-36:-20])), int.from_bytes(key[-20:-16], "big")
        return Membership(NodeId(UUID(bytes=key[-16:])), document, ordinal)

    @staticmethod
    def parse_membership(key: bytes) -> tuple[NodeId, NodeId]:
        """The section and the chunk."""
        return NodeId(UUID(bytes=key[-52:-36])), NodeId(UUID(bytes=key[-16:]))

    def parent(self, node: NodeId) -> bytes:
        """* Of a chunk, or of a raw that has an id of its own."""
        return self._prefixes[Space.PARENTS] + node.bytes

    def parents(self) -> KeyRange:
        return _below(self._prefixes[Space.PARENTS])

    def document(self, document: DocumentId) -> bytes:
        """*"""
        return self._prefixes[Space.DOCUMENTS] + document.bytes

    def documents(self, after: DocumentId | None = None) -> KeyRange:
        whole = _below(self._prefixes[Space.DOCUMENTS])
        return whole if after is None else KeyRange(_behind(self.document(after)), whole.end)

    def source(self, source: bytes) -> bytes:
        """* A keyed hash of 16 bytes: nobody can find out by trial what is stored."""
        return self._prefixes[Space.SOURCES] + source

    def entity(self, kind: bytes, value: bytes, chunk: NodeId) -> bytes:
        """* Kind and value are keyed hashes of 4 and 8 bytes: a key tells nothing of what it stands for."""
        return self.entities(kind, value).begin + chunk.bytes

    def entities(self, kind: bytes, value: bytes = b"") -> KeyRange:
        return _below(self._prefixes[Space.ENTITIES] + kind + value)

    def all_entities(self) -> KeyRange:
        return _below(self._prefixes[Space.ENTITIES])

    def embedded(self, text: bytes, chunk: NodeId) -> bytes:
        """* The chunks whose vector is that of a text, given as a keyed hash of 12 bytes."""
        return self.embedded_as(text).begin + chunk.bytes

    def embedded_as(self, text: bytes) -> KeyRange:
        return _below(self._prefixes[Space.EMBEDDED] + text)

    def all_embedded(self) -> KeyRange:
        return _below(self._prefixes[Space.EMBEDDED])

    def category(self, category: bytes, section: NodeId) -> bytes:
        """* As for entities, a keyed hash of 8 bytes."""
        return self.categories(category).begin + section.bytes

    def categories(self, category: bytes) -> KeyRange:
        return _below(self._prefixes[Space.CATEGORIES] + category)

    def all_categories(self) -> KeyRange:
        return _below(self._prefixes[Space.CATEGORIES])

    def citing(self, document: DocumentId, node: NodeId) -> bytes:
        """* The sections and the master whose summaries cite a document."""
        return self._prefixes[Space.CITING] + document.bytes + node.bytes

    def all_citing(self) -> KeyRange:
        return _below(self._prefixes[Space.CITING])

    def manifest(self, revision: Revision, batch: int) -> bytes:
        """What a batch of a revision wrote, each entry by its hash."""
        return self._prefixes[Space.MANIFESTS] + revision.to_bytes(6, "big") + batch.to_bytes(4, "big")

    def manifests(self, revision: Revision) -> KeyRange:
        return _below(self._prefixes[Space.MANIFESTS] + revision.to_bytes(6, "big"))

    def floor(self) -> bytes:
        return self._prefixes[Space.FLOORS]

    def by_revision(self) -> list[KeyRange]:
        """Everything that is kept by revision, in the order of the keys."""
        return [_below(self._prefixes[space]) for space in _BY_REVISION]

    def is_committed(self, key: bytes) -> bool:
        """Whether a logical key is among those that manifests list."""
        return key.startswith(self._committed)

    def committed(self) -> list[KeyRange]:
        return [_below(prefix) for prefix in self._committed]

    def _time(self, at: datetime) -> bytes:
        return self._prefixes[Space.REVISION_TIMES] + max(to_microseconds(at), 0).to_bytes(8, "big")


def _below(prefix: bytes) -> KeyRange:
    return KeyRange(prefix, prefix_end(prefix))


def _behind(key: bytes) -> bytes:
    """The first key that is neither `key` nor one of its parts."""
    return key + b"\xff"
