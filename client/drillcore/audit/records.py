"""One record with its content: whether it is what the server signed when it made it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from drillcore.audit.base64_text import from_base64
from drillcore.audit.documents import canonical_record
from drillcore.audit.failures import Malformed, Mismatch
from drillcore.audit.keys import TrustedKeys
from drillcore.audit.leaves import SALT_BYTES, Leaf, commit_to
from drillcore.audit.merkle import HASH_BYTES

_CONTENT: Final = frozenset({"salt", "body", "private_salt", "private"})


class PrivatePart(enum.Enum):
    NONE = enum.auto()
    SHOWN = enum.auto()
    MISSING = enum.auto()
    """The record has one, but it is not here."""


@dataclass(frozen=True, slots=True)
class CheckedContent:
    body: Mapping[str, Any]
    private: PrivatePart
    private_key: int | None
    """Number of the key that the private part is sealed under."""

    @property
    def erased_keys(self) -> frozenset[int]:
        """The keys that were destroyed by what the record is of."""
        detail = self.body.get("detail")
        if self.body.get("action") != "ERASE" or self.body.get("outcome") != "OK" or not isinstance(detail, Mapping):
            return frozenset()
        keys = detail.get("erased_keys")
        return frozenset(key for key in keys if type(key) is int) if isinstance(keys, list) else frozenset()

    @property
    def rotated_to(self) -> int | None:
        """The number of the key that signs from here on, if the record is of a rotation."""
        detail = self.body.get("detail")
        if self.body.get("action") != "ROTATE" or self.body.get("outcome") != "OK" or not isinstance(detail, Mapping):
            return None
        number = detail.get("key_number")
        return number if type(number) is int else None


def parse_leaf(document: Mapping[str, Any]) -> tuple[Leaf, bytes]:
    """The leaf, and its bytes: what the tree is made of."""
    encoded = from_base64(document.get("leaf"), "its leaf")
    return Leaf.decode(encoded), encoded


def check_leaf(leaf: Leaf, log: UUID, trusted: TrustedKeys) -> int:
    """The number of the key that signed. Raises unless a trusted key signed the leaf for this store and log."""
    if leaf.store != trusted.store:
        raise Mismatch(f"it belongs to another store: {leaf.store}")
    if leaf.log != log:
        raise Mismatch(f"it belongs to another log: {leaf.log}")
    trusted.key(leaf.key_hash, "it").check(leaf.signature, leaf.signed, "the record")
    return trusted.numbers[leaf.key_hash]


def has_content(document: Mapping[str, Any]) -> bool:
    return not _CONTENT.isdisjoint(document)


def check_content(document: Mapping[str, Any], leaf: Leaf) -> CheckedContent:
    """Raises unless body and private part, if it is there, are those that the leaf commits to."""
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
    """What a body says of the private part: its commitment, and the number of its key."""
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
