"""What a running server has on its audit record, read from its store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from drillcore_fdb.engine import VERSIONSTAMP_BYTES, Transaction
from drillcore_server.audit.opening import RecordOpener
from drillcore_server.store import audit_records
from drillcore_server.store.audit_records import BUCKETS, RECORD, Position
from tests.journals import STORE
from tests.rpc.running import Running


@dataclass(frozen=True)
class Record:
    log: str
    body: dict[str, Any]
    private: dict[str, Any]

    @property
    def detail(self) -> dict[str, Any]:
        return dict(self.body.get("detail", {}))


def records(server: Running, call: str | None = None) -> list[Record]:
    """In the order of the commits; of one RPC, or of all."""
    unit = server.server._unit
    opener = RecordOpener(STORE, unit.journal._sealed)

    def work(tr: Transaction) -> list[Record]:
        incarnation = audit_records.state(tr, unit.keys).incarnation
        found = []
        for bucket in range(BUCKETS):
            for key, value in tr.range(*unit.keys.audit_records(incarnation, bucket)):
                found.append((key[-VERSIONSTAMP_BYTES:], bucket, RECORD.decode(value)))
        opened = []
        for versionstamp, bucket, stored in sorted(found, key=lambda one: one[0]):
            record = opener.open(stored, Position(incarnation, bucket, versionstamp))
            opened.append(Record(str(stored.log), json.loads(record.body), json.loads(record.private or b"{}")))
        return opened

    every = server.engine.run(work)
    return [record for record in every if call is None or record.body["call"] == call]
