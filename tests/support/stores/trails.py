"""Audit records of a running server's store, opened with its own keyring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from drillcore_fdb.tuples import prefix_end
from drillcore_server.storage.audit_records import BUCKETS, RECORD, Position, RecordOpener
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.sealed import SealedRecords
from drillcore_server.storage.spaces import Space
from drillcore_server.storage.store import open_store
from tests.support.servers.running import Running


def records(server: Running, **wanted: str) -> list[dict[str, Any]]:
    """The bodies of the records with these fields, oldest first, each with its private part under "opened"."""
    return [body for body in all_records(server) if all(body.get(name) == value for name, value in wanted.items())]


def all_records(server: Running) -> Iterator[dict[str, Any]]:
    directories, header = open_store(server.engine)
    opener, keys = RecordOpener(header.store_id, SealedRecords(server.server.keyring)), Keyspace(directories)
    prefix = directories[Space.AUDIT_RECORDS].prefix
    found = server.engine.run(lambda tr: list(tr.range(prefix, prefix_end(prefix))))
    for key, value in sorted(found, key=lambda pair: pair[0][-10:]):
        place = key[len(prefix) :]
        position = Position(int.from_bytes(place[:4], "big"), place[4], place[5:])
        assert position.bucket < BUCKETS
        assert keys.audit_record(position.incarnation, position.bucket, position.versionstamp) == key
        opened = opener.open(RECORD.decode(value), position)
        private = {} if opened.private is None else {"opened": orjson.loads(opened.private)}
        yield {**orjson.loads(opened.body), **private}


def knowledge_keys(server: Running) -> int:
    """The number of keys in the store, without the audit trail, which grows with every call."""
    directories, _ = open_store(server.engine)
    kept = [directories[space].prefix for space in Space if not space.startswith("audit/")]
    ranges = [(prefix, prefix_end(prefix)) for prefix in kept]
    return server.engine.run(lambda tr: sum(1 for key_range in ranges for _ in tr.range(*key_range)))
