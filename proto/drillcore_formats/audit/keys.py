"""The chain of keys that a store has signed with. Each key is vouched for by the one before it.

A verifier pins at least one key, which it got independently of the server. That key and the keys after it are trusted.
The server cannot insert another key, because it could not make the chain's signatures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from drillcore_formats.audit.checkpoints import key_name
from drillcore_formats.audit.encoding import from_base64, parse_id, to_base64
from drillcore_formats.audit.findings import Malformed, Untrusted
from drillcore_formats.audit.notes import (
    ED25519,
    PUBLIC_KEY_BYTES,
    SIGNATURE_BYTES,
    Note,
    Sign,
    VerifierKey,
    check_signature,
)

KEYS_MAX: Final = 10_000
_VOUCHED: Final = b"drillcore audit key 1\n"
_TIME_CHARACTERS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class ChainedKey:
    number: int
    """Counts from 1."""
    public_key: bytes
    introduced_at: str
    """RFC 3339, in UTC."""
    signature: bytes | None = None
    """Made by the key before it; the first key has none."""

    def document(self) -> dict[str, Any]:
        vouched = {} if self.signature is None else {"signature": to_base64(self.signature)}
        return {
            "number": self.number,
            "public_key": to_base64(self.public_key),
            "introduced_at": self.introduced_at,
            **vouched,
        }

    @classmethod
    def parse(cls, document: object, number: int) -> ChainedKey:
        what = f"key {number} of the chain"
        if not isinstance(document, Mapping) or document.get("number") != number:
            raise Malformed(f"{what} is missing")
        introduced_at, signature = document.get("introduced_at"), document.get("signature")
        if not isinstance(introduced_at, str) or len(introduced_at) > _TIME_CHARACTERS_MAX:
            raise Malformed(f"{what} does not say when it was introduced")
        if (signature is None) != (number == 1):
            raise Malformed(
                f"{what} has no signature of the key before it" if signature is None else f"{what} has a signature"
            )
        return cls(
            number,
            from_base64(document.get("public_key"), what, PUBLIC_KEY_BYTES),
            introduced_at,
            None if signature is None else from_base64(signature, f"the signature of {what}", SIGNATURE_BYTES),
        )


@dataclass(frozen=True, slots=True)
class KeyChain:
    store: UUID
    keys: tuple[ChainedKey, ...]
    """In order of their numbers, from 1."""

    def document(self) -> dict[str, Any]:
        """The chain as proofs, exports and bundles contain it."""
        return {"store": str(self.store), "keys": [key.document() for key in self.keys]}

    @classmethod
    def parse(cls, document: object) -> KeyChain:
        if not isinstance(document, Mapping) or not isinstance(document.get("keys"), list):
            raise Malformed("the chain of keys is missing")
        keys = document["keys"]
        if not 0 < len(keys) <= KEYS_MAX:
            raise Malformed(f"a chain has 1 to {KEYS_MAX:,} keys, not {len(keys):,}")
        return cls(parse_id(document.get("store"), "the store"), tuple(map(ChainedKey.parse, keys, range(1, KEYS_MAX))))

    def verifier(self, key: ChainedKey) -> VerifierKey:
        return VerifierKey(key_name(self.store), key.public_key)


def vouched_message(store: UUID, number: int, public_key: bytes, introduced_at: str) -> bytes:
    """The bytes that a key signs to vouch for the next one."""
    return _VOUCHED + store.bytes + number.to_bytes(4, "big") + public_key + introduced_at.encode()


def vouch(store: UUID, number: int, public_key: bytes, introduced_at: str, sign: Sign) -> ChainedKey:
    """The key of this number. `sign` signs with the key before it."""
    return ChainedKey(
        number, public_key, introduced_at, sign(vouched_message(store, number, public_key, introduced_at))
    )


@dataclass(frozen=True, slots=True)
class TrustedKeys:
    """The trusted keys of one store, by hash."""

    store: UUID
    numbers: Mapping[bytes, int]
    """The numbers of the keys in the chain; all 0 without a chain."""
    keys: Mapping[bytes, VerifierKey]

    def key(self, hashed: bytes, what: str) -> VerifierKey:
        """The key with this hash. Raises `Untrusted`, with `what` it signed in the message, if it is not trusted."""
        found = self.keys.get(hashed)
        if found is None:
            raise Untrusted(f"{what} is signed by a key that is not trusted ({hashed.hex()})")
        return found

    def check_note(self, note: Note, what: str) -> int:
        """The highest number of the trusted keys that signed the note. Raises the same errors as `Note.check`."""
        return max(self.numbers[key.key_hash] for key in note.check(self.keys.values(), what))


def trust(store: UUID, pinned: Iterable[VerifierKey], chain: KeyChain | None = None) -> TrustedKeys:
    """The keys of a store to trust: the pinned keys, and the keys of the chain that follow one of them.

    Raises `Untrusted` if no key of this store is pinned, or the pinned key is not in the chain, and `WrongSignature`
    if a key was not vouched for by the one before it. Keys before the first pinned key are not trusted, because
    nothing vouches for them.
    """
    own = {key.public_key: key for key in pinned if key.name == key_name(store) and key.kind == ED25519}
    if not own:
        raise Untrusted(f"no key of store {store} is pinned; give a verifier key of this store")
    if chain is None:
        return _trusted(store, [(0, key) for key in own.values()])
    if chain.store != store:
        raise Untrusted(f"the chain of keys is of store {chain.store}, not {store}")
    first = next((key.number for key in chain.keys if key.public_key in own), None)
    if first is None:
        raise Untrusted("the pinned key is not in the chain of keys")
    for before, key in zip(chain.keys[first - 1 :], chain.keys[first:], strict=False):
        _check_vouched(store, before, key)
    return _trusted(store, [(key.number, chain.verifier(key)) for key in chain.keys[first - 1 :]])


def _check_vouched(store: UUID, before: ChainedKey, key: ChainedKey) -> None:
    message = vouched_message(store, key.number, key.public_key, key.introduced_at)
    check_signature(before.public_key, key.signature or b"", message, f"key {key.number} by key {before.number}")


def _trusted(store: UUID, keys: list[tuple[int, VerifierKey]]) -> TrustedKeys:
    by_hash = {key.key_hash: key for _, key in keys}
    if len(by_hash) != len(keys):
        raise Malformed("two keys of the store have the same hash")
    return TrustedKeys(store, {key.key_hash: number for number, key in keys}, by_hash)
