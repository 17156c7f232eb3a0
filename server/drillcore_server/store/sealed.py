"""Records by revision whose content only the keyring can open.

    key number (4 bytes) nonce (12) ciphertext

Sealed with AES-256-GCM and authenticated with its own logical key and revision, so a record put in another's place, or
changed, is found when it is read, and needs no checksum beside the seal. Text is compressed before it is sealed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, TypeVar

from cryptography.exceptions import InvalidTag

from drillcore_fdb.engine import Reader, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.domain.ids import Revision, SourceId
from drillcore_server.store import versioned
from drillcore_server.store.keyring import KeyNumber, Keyring
from drillcore_server.store.records import RecordKind
from drillcore_server.store.squeezing import dense, squeezed, unsqueezed
from drillcore_server.store.versioned import REVISION_BYTES, Entry

T = TypeVar("T")
_NUMBER_BYTES: Final = 4
_NONCE_BYTES: Final = 12


class SealedRecords:
    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def hashed(self, source: SourceId) -> bytes:
        """What stands for a source in keys."""
        return self._keyring.hashed(source)

    def put(
        self,
        tr: Transaction,
        key: bytes,
        revision: Revision,
        number: KeyNumber,
        value: bytes,
        *,
        is_dense: bool = False,
    ) -> bytes:
        """Stores a value, and gives it as it is stored. With `is_dense` nobody tries to compress it."""
        shortened = dense(value) if is_dense else squeezed(value)
        sealed = self._seal(key, revision, number, shortened)
        versioned.put(tr, key, revision, sealed, checksum=False)
        return sealed

    def get(self, tr: Reader, key: bytes, revision: Revision) -> Entry | None:
        entry = versioned.get(tr, key, revision)
        return None if entry is None else self.opened(entry)

    def scan(self, tr: Reader, begin: bytes, end: bytes, revision: Revision) -> Iterator[Entry]:
        return map(self.opened, versioned.scan(tr, begin, end, revision))

    def seal(self, key: bytes, revision: Revision, number: KeyNumber, value: bytes, *, is_dense: bool = False) -> bytes:
        """What `put` would store; for those that keep it elsewhere."""
        return self._seal(key, revision, number, dense(value) if is_dense else squeezed(value))

    def _seal(self, key: bytes, revision: Revision, number: KeyNumber, shortened: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._keyring.cipher(number).encrypt(nonce, shortened, _bound_to(key, revision))
        return number.to_bytes(_NUMBER_BYTES, "big") + nonce + sealed

    def opened(self, entry: Entry) -> Entry:
        """The entry with its value in the clear. Raises `StoreCorruptError` if it is not what was written there."""
        number = KeyNumber(int.from_bytes(entry.value[:_NUMBER_BYTES], "big"))
        nonce, sealed = entry.value[_NUMBER_BYTES:][:_NONCE_BYTES], entry.value[_NUMBER_BYTES + _NONCE_BYTES :]
        try:
            opened = self._keyring.cipher(number).decrypt(nonce, sealed, _bound_to(entry.key, entry.revision))
        except (InvalidTag, ValueError) as error:
            raise StoreCorruptError(
                f"the record at {entry.key.hex()}, revision {entry.revision}, is not what was written there"
            ) from error
        return replace(entry, value=unsqueezed(opened))


class SealedKind(RecordKind[T]):
    """A kind of record that is sealed where it is kept among plain ones. Only to read it needs no key's number."""

    def __init__(
        self, kind: RecordKind[T], sealed: SealedRecords, bound_to: str, number: KeyNumber | None = None
    ) -> None:
        self.name = kind.name
        self._kind = kind
        self._sealed = sealed
        self._bound_to = bound_to.encode()
        self._number = number

    def encode(self, value: T) -> bytes:
        assert self._number is not None
        return self._sealed.seal(self._bound_to, Revision(0), self._number, self._kind.encode(value))

    def decode(self, stored: bytes) -> T:
        return self._kind.decode(self._sealed.opened(Entry(self._bound_to, Revision(0), stored)).value)


def _bound_to(key: bytes, revision: Revision) -> bytes:
    return key + revision.to_bytes(REVISION_BYTES, "big")
