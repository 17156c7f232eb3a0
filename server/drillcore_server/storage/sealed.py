"""Versioned records whose content only the keyring can open.

    key number (4 bytes) nonce (12) ciphertext
    zeros (4) count (4) key numbers (4 each, in order) nonce (12) ciphertext

The second form is for content made of several sources. It is sealed under all their keys at once, so that destroying
any one of them makes it unreadable.

Content is compressed, then sealed with AES-256-GCM and authenticated with its logical key and revision. A record that
was moved or changed is therefore detected when it is read, and needs no other checksum.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from cryptography.exceptions import InvalidTag

from drillcore_fdb.engine import Reader, Streaming, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.storage import erasure_notes, versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusNumber, Revision, SourceId
from drillcore_server.storage.keyring import KeyErased, KeyNumber, Keyring
from drillcore_server.storage.records import RecordKind, dense, squeezed, unsqueezed
from drillcore_server.storage.versioned import REVISION_BYTES, Entry

T = TypeVar("T")
_NUMBER_BYTES: Final = 4
_COUNT_BYTES: Final = 4
_SEVERAL: Final = bytes(_NUMBER_BYTES)
"""Takes the place of a key number (there is no key 0): a count and several numbers follow."""
_NONCE_BYTES: Final = 12

KeyNumbers = KeyNumber | Sequence[KeyNumber]
"""One key, or several together."""


class SealedRecords:
    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def hashed(self, source: SourceId) -> bytes:
        """The keyed hash of a source's id, which represents the source in keys."""
        return self._keyring.hashed(source)

    def follow_erasures(self, tr: Reader, keys: CorpusKeys) -> None:
        """Learns of all erasures up to now, so that erased records cannot be opened. Call it first when you read."""
        erasure_notes.follow(tr, keys.erasure_notes, self._keyring)

    def epoch(self, corpus: CorpusNumber) -> int:
        """Changes with every erasure in a corpus. What was derived under an older epoch must not be used."""
        return self._keyring.epoch(corpus)

    def put(
        self,
        tr: Transaction,
        key: bytes,
        revision: Revision,
        numbers: KeyNumbers,
        value: bytes,
        *,
        is_dense: bool = False,
    ) -> bytes:
        """Stores a value and returns the stored bytes. `is_dense`: compression would not shorten it."""
        sealed = self.seal(key, revision, numbers, value, is_dense=is_dense)
        versioned.put(tr, key, revision, sealed, checksum=False)
        return sealed

    def get(self, tr: Reader, key: bytes, revision: Revision) -> Entry | None:
        """The record of a key, opened. Raises `KeyErased` if it was erased."""
        entry = versioned.get(tr, key, revision)
        return None if entry is None else self.opened(entry)

    def get_many(self, tr: Reader, keys: Sequence[bytes], revision: Revision) -> list[Entry | None]:
        """The records of several keys, opened, in two round trips at most. Raises `KeyErased` if one was erased."""
        return [None if entry is None else self.opened(entry) for entry in versioned.get_many(tr, keys, revision)]

    def get_many_unless_erased(self, tr: Reader, keys: Sequence[bytes], revision: Revision) -> list[Entry | None]:
        """The records of several keys, opened, in two round trips at most. None for records that were erased."""
        return [
            None if entry is None else self._unless_erased(entry) for entry in versioned.get_many(tr, keys, revision)
        ]

    def scan(
        self,
        tr: Reader,
        begin: bytes,
        end: bytes,
        revision: Revision,
        streaming: Streaming = Streaming.ITERATOR,
    ) -> Iterator[Entry]:
        """What a reader sees in a range, opened, without erased records."""
        return self.opened_all(versioned.scan(tr, begin, end, revision, streaming))

    def opened_all(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """The entries, opened, without those that were erased."""
        return filter(None, map(self._unless_erased, entries))

    def _unless_erased(self, entry: Entry) -> Entry | None:
        try:
            return self.opened(entry)
        except KeyErased:
            return None

    def seal(
        self, key: bytes, revision: Revision, numbers: KeyNumbers, value: bytes, *, is_dense: bool = False
    ) -> bytes:
        """The bytes that `put` would store, for a caller who keeps them elsewhere."""
        shortened, nonce = dense(value) if is_dense else squeezed(value), os.urandom(_NONCE_BYTES)
        header = _header(numbers)
        sealed = self._keyring.cipher(sealed_by(header)).encrypt(nonce, shortened, _bound_to(key, revision))
        return header + nonce + sealed

    def opened(self, entry: Entry) -> Entry:
        """The entry with its value in the clear.

        Raises `StoreCorruptError` if it is not what was written there, or a key is lost; `KeyErased` if it was erased.
        """
        numbers = sealed_by(entry.value)
        rest = entry.value[_header_bytes(numbers) :]
        nonce, sealed = rest[:_NONCE_BYTES], rest[_NONCE_BYTES:]
        try:
            opened = self._keyring.cipher(numbers).decrypt(nonce, sealed, _bound_to(entry.key, entry.revision))
        except (InvalidTag, ValueError) as error:
            raise StoreCorruptError(
                f"the record at {entry.key.hex()}, revision {entry.revision}, is not what was written there"
            ) from error
        return Entry(entry.key, entry.revision, unsqueezed(opened))


class SealedKind(RecordKind[T]):
    """A kind of record that is sealed although it is stored among plain ones.

    Without a key number it can only be read.
    """

    def __init__(
        self, kind: RecordKind[T], sealed: SealedRecords, bound_to: str, number: KeyNumbers | None = None
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


def sealed_by(stored: bytes) -> KeyNumber | tuple[KeyNumber, ...]:
    """The key, or the several keys, that a stored value is sealed under."""
    if not stored.startswith(_SEVERAL):
        return KeyNumber(int.from_bytes(stored[:_NUMBER_BYTES], "big"))
    count = int.from_bytes(stored[_NUMBER_BYTES:][:_COUNT_BYTES], "big")
    listed = stored[_NUMBER_BYTES + _COUNT_BYTES :][: count * _NUMBER_BYTES]
    places = range(0, len(listed), _NUMBER_BYTES)
    return tuple(KeyNumber(int.from_bytes(listed[place : place + _NUMBER_BYTES], "big")) for place in places)


def keys_of(stored: bytes) -> tuple[KeyNumber, ...]:
    """The keys that a stored value is sealed under, always as a tuple."""
    numbers = sealed_by(stored)
    return numbers if isinstance(numbers, tuple) else (numbers,)


def is_of_several(stored: bytes) -> bool:
    """Whether a stored value is sealed under several keys at once."""
    return stored.startswith(_SEVERAL)


def emptied(stored: bytes) -> bytes:
    """The stub that stays when the content of a value is removed: the numbers of its keys."""
    return stored[: _header_bytes(sealed_by(stored))]


def is_empty(stored: bytes) -> bool:
    return len(stored) == _header_bytes(sealed_by(stored))


def _header(numbers: KeyNumbers) -> bytes:
    if isinstance(numbers, int):
        return numbers.to_bytes(_NUMBER_BYTES, "big")
    ordered = sorted(set(numbers))
    assert ordered, "a sealed record needs a key"
    listed = b"".join(number.to_bytes(_NUMBER_BYTES, "big") for number in ordered)
    return _SEVERAL + len(ordered).to_bytes(_COUNT_BYTES, "big") + listed


def _header_bytes(numbers: KeyNumbers) -> int:
    if isinstance(numbers, int):
        return _NUMBER_BYTES
    return _NUMBER_BYTES + _COUNT_BYTES + len(numbers) * _NUMBER_BYTES


def _bound_to(key: bytes, revision: Revision) -> bytes:
    return key + revision.to_bytes(REVISION_BYTES, "big")
