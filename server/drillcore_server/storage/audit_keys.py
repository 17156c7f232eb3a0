"""The chain of public keys that audit records are signed with."""

from __future__ import annotations

from typing import Final

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_formats.audit.keys import ChainedKey
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind

CHAINED_KEY: Final = RecordKind(ChainedKey)


def chain(tr: Reader, keys: Keyspace) -> list[ChainedKey]:
    """All public keys, in the order of their numbers, which begin at 1."""
    return [CHAINED_KEY.decode(stored) for _, stored in codec.scan(tr, *keys.audit_keys())]


def find(tr: Reader, keys: Keyspace, number: int) -> ChainedKey | None:
    return CHAINED_KEY.read(tr, keys.audit_key(number))


def put(tr: Transaction, keys: Keyspace, key: ChainedKey) -> None:
    CHAINED_KEY.write(tr, keys.audit_key(key.number), key)
