"""Stores signatures, and the challenges that come before them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore_fdb import codec
from drillcore_fdb.engine import RangeRead, Reader, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_fdb.tuples import KeyRange
from drillcore_proto.reasons import Reason
from drillcore_server.kernel.errors import NotReady
from drillcore_server.kernel.writes import Write
from drillcore_server.signatures.model import Challenge, Signature, Target, TargetKind
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusNumber, Revision, SourceId
from drillcore_server.storage.keyring import CORPUS_SCOPE, KeyErased, KeyNumber, Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed import SealedRecords

SIGNATURE: Final = RecordKind(Signature)
CHALLENGE: Final = RecordKind(Challenge)
PER_VERSION_MAX: Final = 500
"""Signatures of one version of a record. A node is shown with all of them, so they must fit into one answer."""
_ID_BYTES: Final = 16
_SALT: Final = b"signed content"


def add(tr: Transaction, keys: Keyspace, signature: Signature) -> None:
    """Stores a signature for ever, without its salt, which must be lost with the key that it is derived from."""
    assert not signature.content_salt
    target = signature.target
    listed = keys.signatures_of(signature.tenant, target.kind, target.id, target.version)
    before = tr.get(listed) or b""
    if len(before) >= PER_VERSION_MAX * _ID_BYTES:
        message = f"this version already has {PER_VERSION_MAX} signatures, which is the limit"
        raise NotReady(Reason.TOO_LARGE, message)
    tr.set(listed, before + signature.id.bytes)
    SIGNATURE.write(tr, keys.signature(signature.tenant, signature.id), signature)


def signatures_of_many(
    tr: Reader, keys: Keyspace, tenant: UUID, kind: TargetKind, versions: Sequence[tuple[UUID, int]]
) -> dict[UUID, list[Signature]]:
    """The signatures of one version of each record, oldest first and without salts. Unsigned records are left out.

    If nobody has signed anything of this kind, this costs one read.
    """
    if not any_signed(tr, keys, tenant, kind):
        return {}
    stored = tr.range_many([keys.signed(tenant, kind, target) for target, _ in versions])
    signed: dict[UUID, list[UUID]] = {}
    for (target, version), entries in zip(versions, stored, strict=True):
        ids = _ids(dict(entries).get(keys.signatures_of(tenant, kind, target, version)))
        if ids:
            signed[target] = ids
    found = by_id(tr, keys, tenant, [signature for ids in signed.values() for signature in ids])
    return {target: [found[signature] for signature in ids] for target, ids in signed.items()}


def whether_signed(keys: Keyspace, tenant: UUID, kind: TargetKind) -> RangeRead:
    """What `any_signed` reads, to be read ahead."""
    return RangeRead(*keys.signed(tenant, kind), limit=1)


def any_signed(tr: Reader, keys: Keyspace, tenant: UUID, kind: TargetKind) -> bool:
    """Whether a record of this kind was ever signed."""
    return bool(tr.range_many([keys.signed(tenant, kind)], limit=1)[0])


def by_id(tr: Reader, keys: Keyspace, tenant: UUID, ids: Sequence[UUID]) -> dict[UUID, Signature]:
    """Signatures that a list names, read together, without salts. Raises `StoreCorruptError` if one is missing."""
    stored = SIGNATURE.read_many(tr, [keys.signature(tenant, signature) for signature in ids])
    return {id_: _listed(id_, signature) for id_, signature in zip(ids, stored, strict=True)}


def ids_of(tr: Reader, keys: Keyspace, tenant: UUID, target: Target) -> list[UUID]:
    """The ids of the signatures of one version, oldest first; with version 0, of all versions."""
    if target.version:
        return _ids(tr.get(keys.signatures_of(tenant, target.kind, target.id, target.version)))
    found = tr.range(*keys.signed(tenant, target.kind, target.id))
    return sorted(signature for _, listed in found for signature in _ids(listed))


def find(tr: Reader, keys: Keyspace, tenant: UUID, signature: UUID) -> Signature | None:
    """A signature of a tenant, without its salt."""
    return SIGNATURE.read(tr, keys.signature(tenant, signature))


def _listed(id_: UUID, found: Signature | None) -> Signature:
    if found is None:
        raise StoreCorruptError(f"the signature {id_} is listed but missing")
    return found


def scan(tr: Reader, keys: Keyspace, tenant: UUID, after: UUID | None) -> Iterator[Signature]:
    """All signatures of a tenant, oldest first, without salts."""
    for _, stored in codec.scan(tr, *keys.signatures(tenant, after)):
        yield SIGNATURE.decode(stored)


def salt(keyring: Keyring, target: Target, sealed_by: Sequence[int]) -> bytes:
    """The salt for hashing a target's content. Once a key is destroyed, nobody can guess the signed content."""
    version = target.version.to_bytes(8, "big")
    purpose = _SALT + bytes([target.kind]) + target.id.bytes + version
    return keyring.composite([KeyNumber(number) for number in sealed_by], purpose)


def with_salt(keyring: Keyring, signature: Signature) -> Signature:
    """The signature with its salt, as callers see it. The salt is empty if the signed content was erased."""
    try:
        found = salt(keyring, signature.target, signature.sealed_by)
    except KeyErased:
        found = b""
    return replace(signature, content_salt=found)


def foreign_signatures(
    tr: Reader, keys: CorpusKeys, sealed: SealedRecords, revision: Revision, target: Target
) -> list[Signature]:
    """Signatures that were made on other servers and came with a core, by version and id.

    This server does not vouch for them. With version 0 of the target, signatures of all versions are returned.
    Those of erased content are left out.
    """
    found = sealed.scan(tr, *keys.foreign_signatures(target.kind, target.id), revision)
    signatures = (SIGNATURE.decode(entry.value) for entry in found)
    return [signature for signature in signatures if target.version in {0, signature.target.version}]


def foreign_signatures_of_many(
    tr: Reader,
    keys: CorpusKeys,
    sealed: SealedRecords,
    revision: Revision,
    kind: TargetKind,
    versions: Sequence[tuple[UUID, int]],
) -> dict[UUID, tuple[Signature, ...]]:
    """Same as `foreign_signatures` for one version of each record, read together. Leaves out records without any."""
    ranges = [keys.foreign_signatures(kind, target) for target, _ in versions]
    found: dict[UUID, tuple[Signature, ...]] = {}
    for (target, version), entries in zip(versions, versioned.scan_many(tr, ranges, revision), strict=True):
        imported = (SIGNATURE.decode(entry.value) for entry in sealed.opened_all(entries))
        if signed := tuple(signature for signature in imported if signature.target.version == version):
            found[target] = signed
    return found


def whether_foreign(keys: CorpusKeys) -> RangeRead:
    """What `any_foreign` reads, to be read ahead."""
    return RangeRead(*keys.all_foreign_signatures(), limit=1)


def any_foreign(tr: Reader, keys: CorpusKeys) -> bool:
    """Whether a signature ever came to a corpus with a core."""
    return bool(tr.range_many([keys.all_foreign_signatures()], limit=1)[0])


class ForeignSignatureWrites:
    """Writes signatures that came with a core.

    They are stored with their salts, so each is sealed under the keys of the sources of its target.
    """

    def __init__(self, keys: CorpusKeys, number: CorpusNumber, keyring: Keyring) -> None:
        self._keys = keys
        self._number = number
        self._keyring = keyring

    def put(self, signature: Signature, sources: Collection[SourceId]) -> Write:
        """`sources` are the sources of the signed record."""
        scopes = sources or [CORPUS_SCOPE]
        numbers = tuple(sorted(self._keyring.numbers(self._number, sorted(scopes))))
        return Write(self.key(signature), SIGNATURE.encode(signature), numbers=numbers)

    def key(self, signature: Signature) -> bytes:
        target = signature.target
        return self._keys.foreign_signature(target.kind, target.id, target.version, signature.id)


def put_challenge(tr: Transaction, keys: Keyspace, name: bytes, challenge: Challenge) -> None:
    CHALLENGE.write(tr, keys.challenge(name), challenge)


def find_challenge(tr: Reader, keys: Keyspace, name: bytes) -> Challenge | None:
    return CHALLENGE.read(tr, keys.challenge(name))


def forget_challenge(tr: Transaction, keys: Keyspace, name: bytes) -> None:
    codec.clear(tr, keys.challenge(name))


def forget_expired(tr: Transaction, left: KeyRange, now: datetime, limit: int) -> tuple[int, bytes | None]:
    """Removes the expired ones among the first challenges of a range.

    Returns how many were removed, and the last key read if there may be more challenges behind it.
    """
    batch = [(key, CHALLENGE.decode(stored)) for key, stored in codec.scan(tr.snapshot, *left, limit=limit)]
    expired = [key for key, challenge in batch if challenge.expires_at <= now]
    for key in expired:
        codec.clear(tr, key)
    return len(expired), batch[-1][0] if len(batch) == limit else None


def _ids(listed: bytes | None) -> list[UUID]:
    together = listed or b""
    return [UUID(bytes=together[start : start + _ID_BYTES]) for start in range(0, len(together), _ID_BYTES)]
