"""Records of a log: one record with its content, the order of records, and private parts that were erased."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from drillcore_formats.audit.encoding import canonical_record, from_base64
from drillcore_formats.audit.findings import Findings, Malformed, Mismatch, Outcome
from drillcore_formats.audit.keys import TrustedKeys
from drillcore_formats.audit.leaves import SALT_BYTES, Leaf, commit_to
from drillcore_formats.audit.merkle import HASH_BYTES

_CONTENT: Final = frozenset({"salt", "body", "private_salt", "private"})


class PrivatePart(enum.Enum):
    NONE = enum.auto()
    SHOWN = enum.auto()
    MISSING = enum.auto()
    """The record has a private part, but the evidence does not contain it."""


@dataclass(frozen=True, slots=True)
class CheckedContent:
    body: Mapping[str, Any]
    private: PrivatePart
    private_key: int | None
    """The number of the key that seals the private part."""

    @property
    def erased_keys(self) -> frozenset[int]:
        """The keys that the recorded erasure destroyed. Empty for other records."""
        detail = self.body.get("detail")
        if self.body.get("action") != "ERASE" or self.body.get("outcome") != "OK" or not isinstance(detail, Mapping):
            return frozenset()
        keys = detail.get("erased_keys")
        return frozenset(key for key in keys if type(key) is int) if isinstance(keys, list) else frozenset()

    @property
    def rotated_to(self) -> int | None:
        """The number of the key that signs from here on, if the record is about a rotation."""
        detail = self.body.get("detail")
        if self.body.get("action") != "ROTATE" or self.body.get("outcome") != "OK" or not isinstance(detail, Mapping):
            return None
        number = detail.get("key_number")
        return number if type(number) is int else None


def parse_leaf(document: Mapping[str, Any]) -> tuple[Leaf, bytes]:
    """The leaf, and its bytes, which the tree is made of."""
    encoded = from_base64(document.get("leaf"), "its leaf")
    return Leaf.decode(encoded), encoded


def check_leaf(leaf: Leaf, log: UUID, trusted: TrustedKeys) -> int:
    """The number of the key that signed. Raises `VerificationFailed` unless it is trusted and signed for this log."""
    if leaf.store != trusted.store:
        raise Mismatch(f"it belongs to another store: {leaf.store}")
    if leaf.log != log:
        raise Mismatch(f"it belongs to another log: {leaf.log}")
    trusted.key(leaf.key_hash, "it").check(leaf.signature, leaf.signed, "the record")
    return trusted.numbers[leaf.key_hash]


def has_content(document: Mapping[str, Any]) -> bool:
    return not _CONTENT.isdisjoint(document)


def check_content(document: Mapping[str, Any], leaf: Leaf) -> CheckedContent:
    """Raises `VerificationFailed` unless the leaf commits to this body and, if it is shown, this private part."""
    body = _object(document, "body")
    salt = from_base64(document.get("salt"), "its salt", SALT_BYTES)
    if commit_to(salt, canonical_record(body)) != leaf.commitment:
        raise Mismatch("its body is not the one that was signed")
    said = {"id": leaf.record, "store": leaf.store, "log": leaf.log}
    for name, expected in said.items():
        if body.get(name) != str(expected):
            raise Mismatch(f"its body names another {name if name != 'id' else 'record'}: {body.get(name)}")
    return _with_private(document, body)


def _with_private(document: Mapping[str, Any], body: Mapping[str, Any]) -> CheckedContent:
    committed = body.get("private")
    shown = "private" in document or "private_salt" in document
    if committed is None:
        if shown:
            raise Mismatch("it is shown with a private part, but was made without one")
        return CheckedContent(body, PrivatePart.NONE, None)
    commitment, key = _private_commitment(committed)
    if not shown:
        return CheckedContent(body, PrivatePart.MISSING, key)
    salt = from_base64(document.get("private_salt"), "the salt of its private part", SALT_BYTES)
    if commit_to(salt, canonical_record(_object(document, "private"))) != commitment:
        raise Mismatch("its private part is not the one that was signed")
    return CheckedContent(body, PrivatePart.SHOWN, key)


def _private_commitment(committed: Any) -> tuple[bytes, int]:
    """The commitment to the private part in the body, and the number of its key."""
    if not isinstance(committed, Mapping) or type(committed.get("key")) is not int:
        raise Malformed("its body does not say what its private part is")
    commitment = committed.get("commitment")
    if not isinstance(commitment, str) or len(commitment) != 2 * HASH_BYTES:
        raise Malformed("its body does not commit to its private part")
    try:
        return bytes.fromhex(commitment), committed["key"]
    except ValueError:
        raise Malformed("its body does not commit to its private part") from None


def _object(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    if not isinstance(found, Mapping):
        raise Malformed(f"it is shown without its {name}")
    return found


NOT_ERASED: Final = "its private part is missing without an erasure"


class Erasures:
    """Matches missing private parts with erasures.

    A record comes before the erasure that explains it, so its index and id wait for the erasure.
    """

    def __init__(self, found: Findings) -> None:
        self._found = found
        self._destroyed: set[int] = set()
        self._waiting: dict[int, list[tuple[int, UUID]]] = {}

    def add(self, index: int, record: UUID, key: int) -> None:
        """Adds a record whose private part was sealed under this key and is missing."""
        if key in self._destroyed:
            self._found.settle(index, record, Outcome.ERASED)
        else:
            self._waiting.setdefault(key, []).append((index, record))

    def destroyed(self, keys: Iterable[int]) -> None:
        """Notes that a verified record says that these keys were destroyed."""
        for key in keys:
            self._destroyed.add(key)
            for index, record in self._waiting.pop(key, ()):
                self._found.settle(index, record, Outcome.ERASED)

    def end(self) -> None:
        """Reports what is still missing without an erasure."""
        for waiting in self._waiting.values():
            for index, record in waiting:
                self._found.settle(index, record, Outcome.TAMPERED, NOT_ERASED)
        self._waiting.clear()


class Sequence:
    """Checks the order of a log's records: all of them from `first` on, or with `gaps` only some."""

    def __init__(self, first: int, size: int, *, gaps: bool) -> None:
        self._size = size
        self._gaps = gaps
        self._place = (-1, b"")
        self._seen: set[bytes] = set()
        self._key_number = 0
        self.next = first
        """The index of the next record; with gaps, the least it can be."""

    def missing_before(self, index: int) -> range:
        """The indexes that are missing if the record with this index comes next."""
        return range(0) if self._gaps else range(self.next, min(index, self._size))

    def check(self, index: int, leaf: Leaf) -> None:
        """Raises `Mismatch` unless the record may come next."""
        expected, self.next = self.next, max(self.next, index + 1)
        if index >= self._size:
            raise Mismatch(f"it is said to be at {index}, but the log has only {self._size} records")
        if index < expected:
            raise Mismatch(f"it is said to be at {index}, where another record is already")
        if leaf.record.bytes in self._seen:
            raise Mismatch("it is there twice")
        self._seen.add(leaf.record.bytes)
        if leaf.place <= self._place:
            raise Mismatch("it is out of order: it was committed before the record that stands before it")
        self._place = leaf.place

    def check_key(self, number: int) -> None:
        """Raises `Mismatch` if a later key had already taken over. From then on, earlier keys must not sign."""
        if number < self._key_number:
            raise Mismatch(f"it is signed by key {number}, after key {self._key_number} had taken over")
        self._key_number = number

    def rotated_to(self, number: int) -> None:
        self._key_number = max(self._key_number, number)
