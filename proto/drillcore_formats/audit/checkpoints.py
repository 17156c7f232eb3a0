"""Checkpoints (c2sp.org/tlog-checkpoint): the signed state of a log at one size, and the cosignatures of witnesses
(c2sp.org/tlog-cosignature, v1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from drillcore_formats.audit.encoding import from_base64, to_base64
from drillcore_formats.audit.findings import Malformed, Untrusted
from drillcore_formats.audit.merkle import HASH_BYTES
from drillcore_formats.audit.notes import (
    COSIGNATURE_V1,
    SIGNATURE_BYTES,
    Note,
    NoteSignature,
    Sign,
    VerifierKey,
    make_note,
)

SIZE_MAX: Final = (1 << 63) - 1
_TIME_BYTES: Final = 8
_TIME_MAX: Final = (1 << 63) - 1
_NUMBER: Final = re.compile(r"(0|[1-9][0-9]{0,18})", re.ASCII)


def key_name(store: UUID) -> str:
    """The name that a store's keys sign under."""
    return f"drillcore-{store}"


def log_origin(store: UUID, log: UUID) -> str:
    """The name of a log in checkpoints."""
    return f"{key_name(store)}/{log}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()
    """Further lines, which Drillcore does not write."""

    @property
    def text(self) -> str:
        """The text that is signed."""
        return "".join(f"{line}\n" for line in (self.origin, self.size, to_base64(self.root), *self.extensions))

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """Reads a note's text. Check the note's signature before you use it."""
        lines = text.removesuffix("\n").split("\n")
        if len(lines) < 3 or not all(lines) or not text.endswith("\n"):
            raise Malformed("the checkpoint is not an origin, a size and a root, each on a line")
        origin, size, root, *extensions = lines
        return cls(origin, parse_size(size), from_base64(root, "the checkpoint's root", HASH_BYTES), tuple(extensions))


def parse_size(text: str) -> int:
    """A count or an index, in its canonical form."""
    if not _NUMBER.fullmatch(text) or int(text) > SIZE_MAX:
        raise Malformed("a size or an index is not a whole number without leading zeros")
    return int(text)


def make_checkpoint(checkpoint: Checkpoint, key: VerifierKey, sign: Sign) -> Note:
    return make_note(checkpoint.text, (key, sign))


@dataclass(frozen=True, slots=True)
class Cosignature:
    witness: VerifierKey
    at: int
    """Seconds since 1970."""


def cosigned_message(text: str, at: int) -> bytes:
    """The bytes that a witness signs for a checkpoint, `at` seconds since 1970."""
    return f"cosignature/v1\ntime {at}\n{text}".encode()


def cosign(note: Note, witness: VerifierKey, at: int, sign: Sign) -> Note:
    """The note with the witness's signature added at the end."""
    signature = at.to_bytes(_TIME_BYTES, "big") + sign(cosigned_message(note.text, at))
    return Note(note.text, (*note.signatures, NoteSignature(witness.name, witness.key_hash, signature)))


def check_cosignatures(note: Note, witnesses: Iterable[VerifierKey], required: int) -> list[Cosignature]:
    """The cosignatures of these witnesses, each once. Two names for one key count as one witness.

    Raises `WrongSignature` if the cosignature of one of them is wrong, and `Untrusted` if fewer than `required`
    cosigned.
    """
    keys = {(key.name, key.key_hash): key for key in witnesses if key.kind == COSIGNATURE_V1}
    found: dict[bytes, Cosignature] = {}
    for line in note.signatures:
        if key := keys.get((line.name, line.key_hash)):
            found[key.public_key] = Cosignature(key, _cosigned_at(note, key, line.signature))
    if len(found) < required:
        raise Untrusted(f"the checkpoint is cosigned by {len(found)} of the witnesses, {required} are required")
    return list(found.values())


def _cosigned_at(note: Note, witness: VerifierKey, signature: bytes) -> int:
    if len(signature) != _TIME_BYTES + SIGNATURE_BYTES:
        raise Malformed(f"the cosignature of {witness.name} has the wrong length")
    at = int.from_bytes(signature[:_TIME_BYTES], "big")
    if at > _TIME_MAX:
        raise Malformed(f"the cosignature of {witness.name} has a time that is out of range")
    witness.check(signature[_TIME_BYTES:], cosigned_message(note.text, at), f"the witness {witness.name}")
    return at
