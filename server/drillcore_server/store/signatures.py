"""Signatures, and the challenges that come before them, in the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_fdb.tuples import KeyRange
from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import NotReady
from drillcore_server.domain.signatures import Challenge, Signature, Target, TargetKind
from drillcore_server.store.keyring import KeyErased, KeyNumber, Keyring
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.records import RecordKind

SIGNATURE: Final = RecordKind(Signature)
CHALLENGE: Final = RecordKind(Challenge)
PER_VERSION_MAX: Final = 500
"""Signatures of one version of one record: a node is shown with all of them."""
_ID_BYTES: Final = 16
_SALT: Final = b"signed content"


def add(tr: Transaction, keys: Keyspace, signature: Signature) -> None:
    """Keeps a signature for ever, without its salt, which must go with the key that it is made from."""
    assert not signature.content_salt
    target = signature.target
    listed = keys.signatures_of(signature.tenant, target.kind, target.id, target.version)
    before = tr.get(listed) or b""
    if len(before) >= PER_VERSION_MAX * _ID_BYTES:
        raise NotReady(Reason.TOO_LARGE, f"this version has {PER_VERSION_MAX} signatures already")
    tr.set(listed, before + signature.id.bytes)
    SIGNATURE.write(tr, keys.signature(signature.tenant, signature.id), signature)


def signatures_of(
    tr: Reader, keys: Keyspace, tenant: UUID, kind: TargetKind, target: UUID, version: int
) -> list[Signature]:
    """Those of one version of a record, oldest first, without their salts."""
    listed = tr.get(keys.signatures_of(tenant, kind, target, version))
    return [_get(tr, keys, tenant, one) for one in _ids(listed)]


def signatures_of_many(
    tr: Reader, keys: Keyspace, tenant: UUID, kind: TargetKind, versions: Sequence[tuple[UUID, int]]
) -> dict[UUID, list[Signature]]:
    """Likewise for a version of each of several records; of those that nobody signed, nothing.

    Where nobody has signed anything of the kind it costs one read.
    """
    begin, end = keys.signed(tenant, kind)
    if not any(True for _ in tr.range(begin, end, limit=1)):
        return {}
    stored = tr.get_many([keys.signatures_of(tenant, kind, *one) for one in versions])
    signed = {target: _ids(listed) for (target, _), listed in zip(versions, stored, strict=True) if listed}
    return {target: [_get(tr, keys, tenant, one) for one in ids] for target, ids in signed.items()}


def ids_of(tr: Reader, keys: Keyspace, tenant: UUID, target: Target) -> list[UUID]:
    """The ids of the signatures of one version, or with version 0 of all versions, oldest first."""
    if target.version:
        return _ids(tr.get(keys.signatures_of(tenant, target.kind, target.id, target.version)))
    found = tr.range(*keys.signed(tenant, target.kind, target.id))
    return sorted(one for _, listed in found for one in _ids(listed))


def find(tr: Reader, keys: Keyspace, tenant: UUID, signature: UUID) -> Signature | None:
    """A signature of a tenant, without its salt."""
    return SIGNATURE.read(tr, keys.signature(tenant, signature))


def by_ids(tr: Reader, keys: Keyspace, tenant: UUID, ids: Iterable[UUID]) -> Iterator[Signature]:
    return (_get(tr, keys, tenant, one) for one in ids)


def scan(tr: Reader, keys: Keyspace, tenant: UUID, after: UUID | None) -> Iterator[Signature]:
    """All of a tenant, oldest first."""
    for _, stored in codec.scan(tr, *keys.signatures(tenant, after)):
        yield SIGNATURE.decode(stored)


def salt(keyring: Keyring, target: Target, sealed_by: Sequence[int]) -> bytes:
    """What the content of a target is hashed with: nobody can guess what was signed once a key of it is destroyed."""
    version = target.version.to_bytes(8, "big")
    purpose = _SALT + bytes([target.kind]) + target.id.bytes + version
    return keyring.composite([KeyNumber(number) for number in sealed_by], purpose)


def with_salt(keyring: Keyring, signature: Signature) -> Signature:
    """The signature as it is shown."""
    try:
        found = salt(keyring, signature.target, signature.sealed_by)
    except KeyErased:
        found = b""
    return replace(signature, content_salt=found)


def put_challenge(tr: Transaction, keys: Keyspace, name: bytes, challenge: Challenge) -> None:
    CHALLENGE.write(tr, keys.challenge(name), challenge)


def find_challenge(tr: Reader, keys: Keyspace, name: bytes) -> Challenge | None:
    return CHALLENGE.read(tr, keys.challenge(name))


def forget_challenge(tr: Transaction, keys: Keyspace, name: bytes) -> None:
    codec.clear(tr, keys.challenge(name))


def forget_expired(tr: Transaction, left: KeyRange, now: datetime, limit: int) -> tuple[int, bytes | None]:
    """Removes those of the first challenges of a range that nobody used in time.

    How many, and the last key that was looked at if there may be more behind it.
    """
    batch = [(key, CHALLENGE.decode(stored)) for key, stored in codec.scan(tr.snapshot, *left, limit=limit)]
    expired = [key for key, one in batch if one.expires_at <= now]
    for key in expired:
        codec.clear(tr, key)
    return len(expired), batch[-1][0] if len(batch) == limit else None


def _get(tr: Reader, keys: Keyspace, tenant: UUID, signature: UUID) -> Signature:
    found = find(tr, keys, tenant, signature)
    if found is None:
        raise StoreCorruptError(f"the signature {signature} is not there")
    return found


def _ids(listed: bytes | None) -> list[UUID]:
    together = listed or b""
    return [UUID(bytes=together[place : place + _ID_BYTES]) for place in range(0, len(together), _ID_BYTES)]
