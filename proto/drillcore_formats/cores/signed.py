"""The signed note about a core, and whether a file is that core."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final
from uuid import UUID

from drillcore_formats.audit.encoding import parse_id
from drillcore_formats.audit.findings import Malformed, Mismatch
from drillcore_formats.audit.notes import Note, VerifierKey
from drillcore_formats.cores.framing import file_pieces

_TITLE: Final = "drillcore core 1"
_LINES: Final = 7
_SHA256_CHARACTERS: Final = 64
_DIGITS_MAX: Final = 20
_TIME_CHARACTERS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class CoreStatement:
    """The text of the signed note about a core file."""

    sha256: str
    size_bytes: int
    corpus: UUID
    revision: int
    made_at: str
    """RFC 3339, in UTC."""
    record: UUID
    """The audit record of the export."""

    def encode(self) -> str:
        said = (_TITLE, self.sha256, self.size_bytes, self.corpus, self.revision, self.made_at, self.record)
        return "".join(f"{line}\n" for line in said)

    @classmethod
    def parse(cls, text: str) -> CoreStatement:
        """Raises `Malformed`."""
        lines = text.removesuffix("\n").split("\n")
        if len(lines) != _LINES or lines[0] != _TITLE:
            raise Malformed("the note is not about a core; give the .sig file that was made with it")
        _, sha256, size, corpus, revision, made_at, record = lines
        if len(sha256) != _SHA256_CHARACTERS or len(made_at) > _TIME_CHARACTERS_MAX:
            raise Malformed("the note does not say which core it is about")
        corpus_id, record_id = parse_id(corpus, "the corpus"), parse_id(record, "the audit record")
        said = cls(sha256, _whole(size), corpus_id, _whole(revision), made_at, record_id)
        if said.encode() != text:
            raise Malformed("the note about the core is not in its canonical form")
        return said


@dataclass(frozen=True, slots=True)
class VerifiedCore:
    statement: CoreStatement
    signed_by: tuple[str, ...]
    """The names of the trusted keys that signed."""


def verify(file: Path | str | IO[bytes], note: str, keys: Iterable[VerifierKey]) -> VerifiedCore:
    """Verifies that one of the keys signed the note, and that the note is about this file.

    Raises `VerificationFailed`: `Untrusted` or `WrongSignature` for the note, `Mismatch` if it is about another file.
    """
    signed = check_note(note, keys)
    digest, size = hashlib.sha256(), 0
    for piece in file_pieces(file):
        digest.update(piece)
        size += len(piece)
    check_file(signed.statement, size, digest.digest())
    return signed


def check_note(note: str, keys: Iterable[VerifierKey]) -> VerifiedCore:
    """The content of the note, if one of the keys signed it. Raises the same errors as `verify`, without a file."""
    parsed = Note.parse(note)
    signers = parsed.check(keys, "the note about the core")
    return VerifiedCore(CoreStatement.parse(parsed.text), tuple(key.name for key in signers))


def check_file(statement: CoreStatement, size_bytes: int, sha256: bytes) -> None:
    """Raises `Mismatch` unless the statement is about a file of this size and hash."""
    if size_bytes != statement.size_bytes:
        raise Mismatch(f"the file has {size_bytes:,} bytes, the signed core has {statement.size_bytes:,}")
    if sha256.hex() != statement.sha256:
        raise Mismatch("the file is not the signed core: its SHA-256 differs")


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX:
        raise Malformed("the note about the core has something else in place of a number")
    return int(text)
