"""Opens stored audit records: the leaf, and the unsealed body and private part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import orjson

from drillcore_formats.audit.encoding import to_base64
from drillcore_formats.audit.leaves import SALT_BYTES, Leaf
from drillcore_server.storage.audit_records import Position, StoredRecord
from drillcore_server.storage.ids import Revision
from drillcore_server.storage.keyring import KeyErased, KeyLostError
from drillcore_server.storage.sealed import SealedRecords
from drillcore_server.storage.versioned import Entry

PRIVATE: Final = b"private"
"""Added to the record's id to seal the private part."""


@dataclass(frozen=True, slots=True)
class OpenedRecord:
    leaf: Leaf
    salt: bytes
    body: bytes
    """Canonical JSON."""
    private_salt: bytes = b""
    private: bytes | None = None
    """Canonical JSON. None if there is no private part, it was erased, or its key is lost."""
    erased: bool = False
    """Whether there was a private part whose key was destroyed."""

    @property
    def size_bytes(self) -> int:
        return len(self.body) + len(self.private or b"")

    def document(self, *, with_content: bool = True) -> dict[str, Any]:
        """The record as in proofs and exports. Without content, only the leaf, which reveals nothing."""
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
        """Salt and body. Raises `StoreCorruptError` if they were changed or cannot be unsealed."""
        return self._opened(stored.id.bytes, stored.body)

    def open(self, stored: StoredRecord, position: Position) -> OpenedRecord:
        """The opened record. Raises `StoreCorruptError` if it was changed or its body cannot be unsealed."""
        leaf, (salt, body) = self.leaf(stored, position), self.body(stored)
        if stored.private is None:
            return OpenedRecord(leaf, salt, body)
        try:
            private_salt, private = self._opened(stored.id.bytes + PRIVATE, stored.private)
        except KeyErased:
            return OpenedRecord(leaf, salt, body, erased=True)
        except KeyLostError:
            return OpenedRecord(leaf, salt, body)  # a check reports a private part that is missing without an erasure
        return OpenedRecord(leaf, salt, body, private_salt, private)

    def _opened(self, bound_to: bytes, sealed: bytes) -> tuple[bytes, bytes]:
        opened = self._sealed.opened(Entry(bound_to, Revision(0), sealed)).value
        return opened[:SALT_BYTES], opened[SALT_BYTES:]
