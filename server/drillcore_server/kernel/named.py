"""What tenants and corpora have in common: an id, a name, metadata and a version.

Ids are never reused. A name is unique as long as its record is not deleted.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_fdb.tuples import KeyRange
from drillcore_proto.reasons import Reason
from drillcore_server.kernel.errors import BadInput, Exists, Missing, Stale
from drillcore_server.kernel.pages import Listed
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind

NAME_CHARACTERS_MAX = 200
DESCRIPTION_CHARACTERS_MAX = 10_000
METADATA_ENTRIES_MAX = 100
METADATA_KEY_CHARACTERS_MAX = 200
METADATA_VALUE_CHARACTERS_MAX = 4_000


class Versioned(Protocol):
    @property
    def version(self) -> int: ...
    @property
    def updated_at(self) -> datetime: ...


def checked_name(name: str, field: str = "name") -> str:
    """The name in Unicode's composed form, so that names that look alike are equal."""
    composed = unicodedata.normalize("NFC", name)
    if not composed or len(composed) > NAME_CHARACTERS_MAX:
        raise BadInput(Reason.INVALID_ARGUMENT, f"{field} needs 1 to {NAME_CHARACTERS_MAX} characters", field=field)
    if composed != composed.strip():
        raise BadInput(Reason.INVALID_ARGUMENT, f"{field} begins or ends with a space", field=field)
    if any(unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for character in composed):
        raise BadInput(Reason.INVALID_ARGUMENT, f"{field} has a control or invisible character", field=field)
    return composed


def checked_description(description: str) -> str:
    if len(description) > DESCRIPTION_CHARACTERS_MAX:
        message = f"description has over {DESCRIPTION_CHARACTERS_MAX} characters"
        raise BadInput(Reason.TOO_LARGE, message, field="description")
    return description


def checked_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """The metadata, checked against its limits and sorted by key, so that equal metadata has equal bytes."""
    if len(metadata) > METADATA_ENTRIES_MAX:
        raise BadInput(Reason.TOO_LARGE, f"metadata has over {METADATA_ENTRIES_MAX} entries", field="metadata")
    for key, value in metadata.items():
        if not key or len(key) > METADATA_KEY_CHARACTERS_MAX:
            message = f"a metadata key needs 1 to {METADATA_KEY_CHARACTERS_MAX} characters"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="metadata")
        if len(value) > METADATA_VALUE_CHARACTERS_MAX:
            message = f"a metadata value has over {METADATA_VALUE_CHARACTERS_MAX} characters"
            raise BadInput(Reason.TOO_LARGE, message, field="metadata")
    return dict(sorted(metadata.items()))


def changed_metadata(stored: Mapping[str, str], put: Mapping[str, str], remove: Iterable[str]) -> dict[str, str]:
    removed = set(remove)
    if both := removed & put.keys():
        message = f"metadata key {min(both)[:METADATA_KEY_CHARACTERS_MAX]!r} is both set and removed"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="remove_metadata")
    kept = {key: value for key, value in stored.items() if key not in removed}
    return checked_metadata({**kept, **put})


def check_version(record: Versioned, expected: int | None) -> None:
    if expected is not None and record.version != expected:
        found = f"the record is at version {record.version}, not {expected}"
        message = f"{found}: read it again, then repeat the change (--expected-version)"
        raise Stale(Reason.VERSION_MISMATCH, message, version=str(record.version))


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
        """The record. Raises `Missing` if there is none or it is deleted. `shown` is what the caller called it."""
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
        """The records of a range in the order of ids, without deleted ones, each with its size in bytes."""
        found = self.stored(tr, keys)
        return ((record, size_bytes) for _, record, size_bytes in found if record is not None)

    def stored(self, tr: Reader, keys: KeyRange) -> Iterator[Listed[R]]:
        """Same as `scan`, also with the ids of deleted records, for a listing that stops after so many."""
        for _, stored in codec.scan(tr, *keys):
            record = self.kind.decode(stored)
            yield Listed(record.id, record if record.deleted_at is None else None, len(stored))

    def insert(self, tr: Transaction, keys: Keyspace, record: R) -> None:
        if tr.get(self.key(keys, record)) is not None:
            raise Exists(self.exists, f"the id {record.id} is, or was, another {self.kind.name}'s")
        self._take_name(tr, keys, record)
        self.kind.write(tr, self.key(keys, record), record)

    def replace(self, tr: Transaction, keys: Keyspace, old: R, new: R) -> None:
        """Writes the new state. A deleted record frees its name and keeps its id."""
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
