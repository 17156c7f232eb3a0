"""The chain of public keys that audit records are signed with."""

from __future__ import annotations

from typing import Final

from drillcore.audit.keys import ChainedKey
from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.records import RecordKind

CHAINED_KEY: Final = RecordKind(ChainedKey)


def chain(tr: Reader, keys: Keyspace) -> list[ChainedKey]:
    """By number, from 1 on."""
    return [CHAINED_KEY.decode(stored) for _, stored in codec.scan(tr, *keys.audit_keys())]


def find(tr: Reader, keys: Keyspace, number: int) -> ChainedKey | None:
    return CHAINED_KEY.read(tr, keys.audit_key(number))


def put(tr: Transaction, keys: Keyspace, key: ChainedKey) -> None:
    CHAINED_KEY.write(tr, keys.audit_key(key.number), key)
