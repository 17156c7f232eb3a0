"""Signed notes (c2sp.org/signed-note): a text, a blank line, and a line for each signature.

A note's text means nothing until `Note.check` found a signature of a key that is trusted.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drillcore.audit.base64_text import from_base64, to_base64
from drillcore.audit.failures import Malformed, Untrusted, WrongSignature

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

ED25519: Final = 0x01
COSIGNATURE_V1: Final = 0x04
KEY_HASH_BYTES: Final = 4
PUBLIC_KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64

NOTE_CHARACTERS_MAX: Final = 100_000
SIGNATURES_MAX: Final = 100
"""The format asks for room for 16 at least."""
VKEY_CHARACTERS_MAX: Final = 1_000
_KEYS_PARSED: Final = 1_000
_DASH: Final = "\N{EM DASH} "

Sign = Callable[[bytes], bytes]
"""Signs a message: with a key at hand, or by asking whoever holds it."""


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """A public key under the name it signs by."""

    name: str
    public_key: bytes
    kind: int = ED25519
    """ED25519 for what signs notes and records, COSIGNATURE_V1 for a witness."""

    def __post_init__(self) -> None:
        _check_name(self.name)
        if len(self.public_key) != PUBLIC_KEY_BYTES:
            raise Malformed(f"an Ed25519 key has {PUBLIC_KEY_BYTES} bytes, not {len(self.public_key)}")

    @property
    def key_hash(self) -> bytes:
        return key_hash(self.name, self.public_key, self.kind)

    def encode(self) -> str:
        """As people pass it on: name, hash and key."""
        return f"{self.name}+{self.key_hash.hex()}+{to_base64(bytes([self.kind]) + self.public_key)}"

    @classmethod
    def parse(cls, text: str) -> VerifierKey:
        parts = text.strip().split("+", 2)
        if len(text) > VKEY_CHARACTERS_MAX or len(parts) != 3:
            raise Malformed("it is no verifier key of the form name+hash+base64")
        name, hashed, encoded = parts
        key = from_base64(encoded, "the verifier key")
        if key[:1] not in {bytes([ED25519]), bytes([COSIGNATURE_V1])}:
            raise Malformed("the verifier key is of a kind that is not known here: Ed25519 is")
        found = cls(name, key[1:], key[0])
        if found.key_hash.hex() != hashed:
            raise Malformed(f"the verifier key's hash is {found.key_hash.hex()}, not {hashed}: a part of it is wrong")
        return found

    def check(self, signature: bytes, message: bytes, what: str) -> None:
        """Raises `WrongSignature`, which names `what` was signed, unless the key made the signature."""
        check_signature(self.public_key, signature, message, what)


def key_hash(name: str, public_key: bytes, kind: int = ED25519) -> bytes:
    """Names a key in few bytes. Others may share them: what counts is the key that is looked up by it."""
    return hashlib.sha256(name.encode() + b"\n" + bytes([kind]) + public_key).digest()[:KEY_HASH_BYTES]


def check_signature(public_key: bytes, signature: bytes, message: bytes, what: str) -> None:
    from cryptography.exceptions import InvalidSignature

    try:
        _parsed(public_key).verify(signature, message)
    except InvalidSignature:
        raise WrongSignature(f"the signature of {what} is not right") from None


@functools.lru_cache(maxsize=_KEYS_PARSED)
def _parsed(public_key: bytes) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(public_key)


@dataclass(frozen=True, slots=True)
class NoteSignature:
    name: str
    key_hash: bytes
    signature: bytes

    def encode(self) -> str:
        return f"{_DASH}{self.name} {to_base64(self.key_hash + self.signature)}\n"

    @classmethod
    def parse(cls, line: str) -> NoteSignature:
        name, space, encoded = line.removeprefix(_DASH).partition(" ")
        if not line.startswith(_DASH) or not space:
            raise Malformed("a signature line of the note is not of the form '— name base64'")
        _check_name(name)
        data = from_base64(encoded, "a signature of the note")
        if len(data) <= KEY_HASH_BYTES:
            raise Malformed("a signature of the note is empty")
        return cls(name, data[:KEY_HASH_BYTES], data[KEY_HASH_BYTES:])


@dataclass(frozen=True, slots=True)
class Note:
    text: str
    """Ends with a newline."""
    signatures: tuple[NoteSignature, ...]

    def encode(self) -> str:
        return self.text + "\n" + "".join(one.encode() for one in self.signatures)

    @classmethod
    def parse(cls, note: str) -> Note:
        if len(note) > NOTE_CHARACTERS_MAX:
            raise Malformed(f"the note has more than {NOTE_CHARACTERS_MAX:,} characters")
        if any(one < " " and one != "\n" for one in note):
            raise Malformed("the note has control characters")
        text, blank, signatures = note.rpartition("\n\n")
        if not blank or not text or not signatures.endswith("\n"):
            raise Malformed("the note is not a text, a blank line and signatures, each ended by a newline")
        lines = signatures[:-1].split("\n")
        if len(lines) > SIGNATURES_MAX:
            raise Malformed(f"the note has more than {SIGNATURES_MAX} signatures")
        return cls(text + "\n", tuple(map(NoteSignature.parse, lines)))

    def check(self, trusted: Iterable[VerifierKey], what: str = "the note") -> list[VerifierKey]:
        """The trusted keys that signed, at least one.

        Raises `WrongSignature` if one of them did not sign this text, though it is said to, and `Untrusted` if none is
        said to. Signatures of other keys are left aside.
        """
        keys = {(key.name, key.key_hash): key for key in trusted if key.kind == ED25519}
        found = [(keys[one.name, one.key_hash], one) for one in self.signatures if (one.name, one.key_hash) in keys]
        for key, one in found:
            key.check(one.signature, self.text.encode(), what)
        if not found:
            raise Untrusted(f"{what} is signed by no key that is trusted")
        return [key for key, _ in found]


def sign_note(text: str, key: VerifierKey, sign: Sign) -> NoteSignature:
    """The key's signature of a note's text. `sign` signs with the private half of `key`."""
    return NoteSignature(key.name, key.key_hash, sign(text.encode()))


def make_note(text: str, *signers: tuple[VerifierKey, Sign]) -> Note:
    assert text.endswith("\n"), "a note's text ends with a newline"
    return Note(text, tuple(sign_note(text, key, sign) for key, sign in signers))


def _check_name(name: str) -> None:
    if not name or "+" in name or any(one.isspace() or one < " " for one in name):
        raise Malformed("the name of a key is empty, or has spaces or a plus sign")
