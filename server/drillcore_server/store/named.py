"""Records with an id that is never given twice and a name that is unique while the record is not deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_fdb.tuples import KeyRange
from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import Exists, Missing
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.records import RecordKind


class Named(Protocol):
    @property
    def id(self) -> UUID: ...
    @property
    def name(self) -> str: ...
    @property
    def deleted_at(self) -> datetime | None: ...


R = TypeVar("R", bound=Named)


@dataclass(frozen=True, slots=True)
class NamedRecords(Generic[R]):
    kind: RecordKind[R]
    key: Callable[[Keyspace, R], bytes]
    name_key: Callable[[Keyspace, R], bytes]
    missing: Reason
    exists: Reason

    def get(self, tr: Reader, key: bytes, shown: str) -> R:
        """The record; a deleted one is not there. `shown` is how the caller named it."""
        record = self.kind.read(tr, key)
        if record is None or record.deleted_at is not None:
            raise Missing(self.missing, f"there is no {self.kind.name} {shown}")
        return record

    def id_of(self, tr: Reader, name_key: bytes, name: str) -> UUID:
        stored = tr.get(name_key)
        if stored is None:
            raise self.unnamed(name)
        return UUID(bytes=stored)

    def unnamed(self, name: str) -> Missing:
        return Missing(self.missing, f"there is no {self.kind.name} named {name!r}")

    def scan(self, tr: Reader, keys: KeyRange) -> Iterator[tuple[R, int]]:
        """The records of a range that are not deleted, in the order of their ids, each with its size in bytes."""
        for _, stored in codec.scan(tr, *keys):
            record = self.kind.decode(stored)
            if record.deleted_at is None:
                yield record, len(stored)

    def insert(self, tr: Transaction, keys: Keyspace, record: R) -> None:
        if tr.get(self.key(keys, record)) is not None:
            raise Exists(self.exists, f"the id {record.id} is, or was, another {self.kind.name}'s")
        self._take_name(tr, keys, record)
        self.kind.write(tr, self.key(keys, record), record)

    def replace(self, tr: Transaction, keys: Keyspace, old: R, new: R) -> None:
        """Writes the new state; a deleted record gives its name free and keeps its id."""
        if new.deleted_at is not None:
            tr.clear(self.name_key(keys, old))
        elif new.name != old.name:
            self._take_name(tr, keys, new)
            tr.clear(self.name_key(keys, old))
        self.kind.write(tr, self.key(keys, new), new)

    def _take_name(self, tr: Transaction, keys: Keyspace, record: R) -> None:
        if tr.get(self.name_key(keys, record)) is not None:
            raise Exists(self.exists, f"there is a {self.kind.name} named {record.name!r} already")
        tr.set(self.name_key(keys, record), record.id.bytes)
