"""The bundle: one ZIP file with the copy and everything that is needed to verify it without the server.

    manifest.json    first; what is in the bundle, each file with its SHA-256 (canonical JSON)
    manifest.note    a C2SP note over the manifest, signed by the audit key
    content.*        the copy
    audit.ndjson     the corpus's audit records with their proofs, if they were asked for
    checkpoint       of the tenant's log
    keys.json        the chain of audit keys
    signatures.json  the electronic signatures of what is in the copy

Files are always in this order and bear no times of their own.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from drillcore_server.domain.audit import time_text
from drillcore_server.domain.exports import ExportFormat
from drillcore_server.domain.ids import Revision
from drillcore_server.exporting.canonical import canonical
from drillcore_server.exporting.copies import (
    About,
    Copied,
    MarkdownFile,
    Member,
    copy_for_people,
    copy_json,
)
from drillcore_server.exporting.press import Press
from drillcore_server.exporting.sealed_file import SealedFile
from drillcore_server.exporting.signatures import SignatureContent
from drillcore_server.exporting.trails import CorpusTrail, Trails
from drillcore_server.exporting.walk import CorpusWalk

BUNDLE_FORMAT: Final = 1
_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest that ZIP knows."""
_MODE: Final = 0o600 << 16


@dataclass(frozen=True, slots=True)
class Wanted:
    format: ExportFormat
    include_audit: bool
    record: dict[str, str]
    """Where the audit record of the export will be found: its log, its request's id, who made it."""


@dataclass(frozen=True, slots=True)
class Bundle:
    file: SealedFile
    manifest_sha256: bytes
    revision: Revision


class Binder:
    """Makes bundles."""

    def __init__(self, trails: Trails, press: Press) -> None:
        self._trails = trails
        self._press = press

    @property
    def store(self) -> UUID:
        return self._trails.store

    def bind(self, walk: CorpusWalk, about: About, wanted: Wanted) -> Bundle:
        """The bundle, whose file is the caller's to close. It is complete when this returns: nothing was sent yet."""
        with ExitStack() as files:
            trail = self._trails.of_corpus(walk.corpus.tenant_id, walk.corpus.id)
            signatures = _Signatures(files.enter_context(SealedFile()))
            copied = self._copied(walk, about, wanted, trail, signatures, files)
            members = [*copied.members, *_proof(trail, wanted, files), signatures.ended()]
            manifest = canonical(self._manifest(walk, about, wanted, copied, members))
            digest = hashlib.sha256(manifest)
            note = trail.signed_note(note_text(about, digest.hexdigest()))
            first = [_member("manifest.json", manifest, files), _member("manifest.note", note.encode(), files)]
            return Bundle(_zipped([*first, *members]), digest.digest(), walk.revision)

    def _copied(
        self,
        walk: CorpusWalk,
        about: About,
        wanted: Wanted,
        trail: CorpusTrail,
        signatures: _Signatures,
        files: ExitStack,
    ) -> Copied:
        if wanted.format is ExportFormat.JSON:
            return copy_json(walk, files, signatures.take)
        lines = trail.lines() if wanted.include_audit else ()
        if wanted.format is ExportFormat.MARKDOWN:
            return copy_for_people(walk, MarkdownFile(walk, about, files), lines, signatures.take)
        from drillcore_server.exporting.pdf.files import PdfFiles  # reportlab is slow to import

        return copy_for_people(walk, PdfFiles(self._press, walk, about, files), lines, signatures.take)

    def _manifest(
        self, walk: CorpusWalk, about: About, wanted: Wanted, copied: Copied, members: Iterable[Member]
    ) -> dict[str, Any]:
        said = {
            "drillcore_bundle": BUNDLE_FORMAT,
            "export_id": str(about.export_id),
            "store": str(about.store),
            "tenant": str(walk.corpus.tenant_id),
            "corpus": {"id": str(walk.corpus.id), "name": walk.corpus.name},
            "revision": walk.revision,
            "format": wanted.format.value,
            "made_at": time_text(about.made_at),
            "made_by": about.made_by,
            "content_digest": copied.content_digest,
            "files": {one.name: {"sha256": one.sha256(), "size": one.size_bytes} for one in members},
            "record": wanted.record,
        }
        if wanted.format is ExportFormat.PDF:
            said["pdf_certificate_sha256"] = self._press.signer.certificate_sha256
        return said


def note_text(about: About, manifest_sha256: str) -> str:
    return f"drillcore-{about.store}/export\n{about.export_id}\n{manifest_sha256}\n"


class _Signatures:
    """signatures.json, written as signatures come."""

    def __init__(self, file: SealedFile) -> None:
        self._file = file
        self._opening = b'{"drillcore_signatures":1,"signatures":['

    def take(self, signature: SignatureContent) -> None:
        self._file.write(self._opening + canonical(signature))
        self._opening = b","

    def ended(self) -> Member:
        self._file.write((self._opening if self._opening != b"," else b"") + b"]}")
        return Member("signatures.json", (self._file,))


def _proof(trail: CorpusTrail, wanted: Wanted, files: ExitStack) -> list[Member]:
    found = [_member("checkpoint", trail.checkpoint.encode(), files), _member("keys.json", trail.keys.encode(), files)]
    if not wanted.include_audit:
        return found
    file = files.enter_context(SealedFile())
    for line in trail.lines():
        file.write(line)
    return [Member("audit.ndjson", (file,)), *found]


def _member(name: str, content: bytes, files: ExitStack) -> Member:
    file = files.enter_context(SealedFile())
    file.write(content)
    return Member(name, (file,))


def _zipped(members: Iterable[Member]) -> SealedFile:
    """Written from front to end, so that it can be sealed as it comes."""
    file = SealedFile()
    try:
        with zipfile.ZipFile(file, "w") as archive:
            for member in members:
                _add(archive, member)
    except BaseException:
        file.close()
        raise
    return file


def _add(archive: zipfile.ZipFile, member: Member) -> None:
    entry = zipfile.ZipInfo(member.name, _TIME)
    entry.external_attr = _MODE
    entry.compress_type = zipfile.ZIP_STORED if member.name.endswith(".pdf") else zipfile.ZIP_DEFLATED
    entry.file_size = member.size_bytes
    with archive.open(entry, "w") as opened:
        for piece in member.read():
            opened.write(piece)
