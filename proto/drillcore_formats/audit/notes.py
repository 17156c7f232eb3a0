"""Signed notes (c2sp.org/signed-note): a text, a blank line, and a line for each signature.

Do not use a note's text before `Note.check` has found a signature by a trusted key.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drillcore_formats.audit.encoding import from_base64, to_base64
from drillcore_formats.audit.findings import Malformed, Untrusted, WrongSignature

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

ED25519: Final = 0x01
COSIGNATURE_V1: Final = 0x04
KEY_HASH_BYTES: Final = 4
PUBLIC_KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64

NOTE_CHARACTERS_MAX: Final = 100_000
SIGNATURES_MAX: Final = 100
"""The format requires at least 16."""
VKEY_CHARACTERS_MAX: Final = 1_000
_KEYS_PARSED: Final = 1_000
_DASH: Final = "\N{EM DASH} "

Sign = Callable[[bytes], bytes]
"""Signs a message, with a private key or through a program that holds one."""


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """A public key and the name it signs under."""

    name: str
    public_key: bytes
    kind: int = ED25519
    """ED25519 for keys that sign notes and records, COSIGNATURE_V1 for witnesses."""

    def __post_init__(self) -> None:
        _check_name(self.name)
        if len(self.public_key) != PUBLIC_KEY_BYTES:
            raise Malformed(f"an Ed25519 key has {PUBLIC_KEY_BYTES} bytes, not {len(self.public_key)}")

    @property
    def key_hash(self) -> bytes:
        return key_hash(self.name, self.public_key, self.kind)

    def encode(self) -> str:
        """The key as text, to pass on: name, hash and key."""
        return f"{self.name}+{self.key_hash.hex()}+{to_base64(bytes([self.kind]) + self.public_key)}"

    @classmethod
    def parse(cls, text: str) -> VerifierKey:
        parts = text.strip().split("+", 2)
        if len(text) > VKEY_CHARACTERS_MAX or len(parts) != 3:
            raise Malformed("it is not a verifier key of the form name+hash+base64")
        name, hashed, encoded = parts
        key = from_base64(encoded, "the verifier key")
        if key[:1] not in {bytes([ED25519]), bytes([COSIGNATURE_V1])}:
            raise Malformed("the verifier key is of an unknown kind; only Ed25519 is known")
        found = cls(name, key[1:], key[0])
        if found.key_hash.hex() != hashed:
            raise Malformed(f"the verifier key's hash is {found.key_hash.hex()}, not {hashed}: a part of it is wrong")
        return found

    def check(self, signature: bytes, message: bytes, what: str) -> None:
        """Raises `WrongSignature`, with `what` in the message, unless the key made the signature."""
        check_signature(self.public_key, signature, message, what)


def key_hash(name: str, public_key: bytes, kind: int = ED25519) -> bytes:
    """A short name for a key. Two keys may share it, so it only serves to look up a key that is already trusted."""
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
        return self.text + "\n" + "".join(signature.encode() for signature in self.signatures)

    @classmethod
    def parse(cls, note: str) -> Note:
        if len(note) > NOTE_CHARACTERS_MAX:
            raise Malformed(f"the note has more than {NOTE_CHARACTERS_MAX:,} characters")
        if any(character < " " and character != "\n" for character in note):
            raise Malformed("the note has control characters")
        text, blank, signatures = note.rpartition("\n\n")
        if not blank or not text or not signatures.endswith("\n"):
            raise Malformed("the note is not a text, a blank line and signatures, each ended by a newline")
        lines = signatures[:-1].split("\n")
        if len(lines) > SIGNATURES_MAX:
            raise Malformed(f"the note has more than {SIGNATURES_MAX} signatures")
        return cls(text + "\n", tuple(map(NoteSignature.parse, lines)))

    def check(self, trusted: Iterable[VerifierKey], what: str = "the note") -> list[VerifierKey]:
        """The trusted keys that signed, at least one. Signatures by other keys are ignored.

        Raises `WrongSignature` if the signature of a trusted key is wrong, and `Untrusted` if there is none.
        """
        keys = {(key.name, key.key_hash): key for key in trusted if key.kind == ED25519}
        signed = ((keys.get((line.name, line.key_hash)), line) for line in self.signatures)
        found = [(key, line) for key, line in signed if key is not None]
        for key, line in found:
            key.check(line.signature, self.text.encode(), what)
        if not found:
            raise Untrusted(f"{what} is not signed by a trusted key")
        return [key for key, _ in found]


def sign_note(text: str, key: VerifierKey, sign: Sign) -> NoteSignature:
    """Signs a note's text. `sign` signs with the private half of `key`."""
    return NoteSignature(key.name, key.key_hash, sign(text.encode()))


def make_note(text: str, *signers: tuple[VerifierKey, Sign]) -> Note:
    assert text.endswith("\n"), "a note's text ends with a newline"
    return Note(text, tuple(sign_note(text, key, sign) for key, sign in signers))


def _check_name(name: str) -> None:
    if not name or "+" in name or any(character.isspace() or character < " " for character in name):
        raise Malformed("the name of a key is empty, or has spaces or a plus sign")
