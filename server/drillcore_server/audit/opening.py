"""Audit records as they are read: the leaf, and what it stands for, unsealed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import orjson

from drillcore.audit.base64_text import to_base64
from drillcore.audit.leaves import SALT_BYTES, Leaf
from drillcore_server.domain.ids import Revision
from drillcore_server.store.audit_records import Position, StoredRecord
from drillcore_server.store.keyring import KeyErased, KeyLostError
from drillcore_server.store.sealed import SealedRecords
from drillcore_server.store.versioned import Entry

PRIVATE: Final = b"private"
"""Behind the record's id, what its private part is sealed to."""


@dataclass(frozen=True, slots=True)
class OpenedRecord:
    leaf: Leaf
    salt: bytes
    body: bytes
    """Canonical JSON."""
    private_salt: bytes = b""
    private: bytes | None = None
    """Canonical JSON; None if there is none, it was erased, or its key is lost."""
    erased: bool = False
    """There was a private part, and its key was destroyed."""

    @property
    def size_bytes(self) -> int:
        return len(self.body) + len(self.private or b"")

    def document(self, *, with_content: bool = True) -> dict[str, Any]:
        """As proofs and exports show it; without content only the leaf, which tells nothing of it."""
        shown: dict[str, Any] = {"leaf": to_base64(self.leaf.encode())}
        if with_content:
            shown |= {"salt": to_base64(self.salt), "body": orjson.loads(self.body)}
        if with_content and self.private is not None:
            shown |= {"private_salt": to_base64(self.private_salt), "private": orjson.loads(self.private)}
        return shown


class RecordOpener:
    def __init__(self, store: UUID, sealed: SealedRecords) -> None:
        self._store = store
        self._sealed = sealed

    def leaf(self, stored: StoredRecord, position: Position) -> Leaf:
        return Leaf(
            self._store,
            stored.log,
            position.incarnation,
            position.versionstamp,
            stored.id,
            stored.commitment,
            stored.key_hash,
            stored.signature,
        )

    def body(self, stored: StoredRecord) -> tuple[bytes, bytes]:
        """Salt and body. Raises `StoreCorruptError` if it is not what was written, or cannot be unsealed."""
        return self._opened(stored.id.bytes, stored.body)

    def open(self, stored: StoredRecord, position: Position) -> OpenedRecord:
        """The record. Raises `StoreCorruptError` if it is not what was written, or its body cannot be unsealed."""
        leaf, (salt, body) = self.leaf(stored, position), self.body(stored)
        if stored.private is None:
            return OpenedRecord(leaf, salt, body)
        try:
            private_salt, private = self._opened(stored.id.bytes + PRIVATE, stored.private)
        except KeyErased:
            return OpenedRecord(leaf, salt, body, erased=True)
        except KeyLostError:
            return OpenedRecord(leaf, salt, body)  # whoever checks it finds a part missing that nobody erased
        return OpenedRecord(leaf, salt, body, private_salt, private)

    def _opened(self, bound_to: bytes, sealed: bytes) -> tuple[bytes, bytes]:
        opened = self._sealed.opened(Entry(bound_to, Revision(0), sealed)).value
        return opened[:SALT_BYTES], opened[SALT_BYTES:]
