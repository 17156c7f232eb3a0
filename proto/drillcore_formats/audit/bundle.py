"""Verifies the signed copy of a corpus, a ZIP file: it must be whole and unchanged, and its parts must agree.

    manifest.json    names every other file with its size and hash; manifest.note is its signature
    content.*        the copy: JSON, Markdown, or PDF in one or more volumes
    audit.ndjson     the audit trail, an audit export; may have been left out
    checkpoint, keys.json, signatures.json

The manifest is read first. Nothing else is read before its signature is verified.
"""

from __future__ import annotations

import hashlib
import io
import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, cast
from uuid import UUID

from drillcore_formats.audit.checkpoints import key_name
from drillcore_formats.audit.encoding import canonical_json, parse_count, parse_id, parse_object, stream_object
from drillcore_formats.audit.exported import examine_export
from drillcore_formats.audit.findings import (
    Evidence,
    Findings,
    Malformed,
    Mismatch,
    OnRecord,
    Report,
    VerificationFailed,
)
from drillcore_formats.audit.keys import KeyChain, TrustedKeys, trust
from drillcore_formats.audit.notes import NOTE_CHARACTERS_MAX, Note
from drillcore_formats.audit.pins import Pins, know_log, not_shown_to_continue
from drillcore_formats.audit.signatures import FACT, NODE, BundleSignatures, can_check_pdf, check_pdf
from drillcore_formats.audit.zip_members import CheckedMember, as_malformed, open_zip, read_small

FORMAT: Final = 1
MANIFEST_BYTES_MAX: Final = 16 << 20
KEYS_BYTES_MAX: Final = 16 << 20
_NAMES: Final = re.compile(
    r"content\.(json|md|pdf)|content-[0-9]{3,6}\.pdf|audit\.ndjson|checkpoint|keys\.json|signatures\.json", re.ASCII
)
_CONTENT: Final = re.compile(r"content[.-]")
_NEEDED: Final = ("checkpoint", "keys.json", "signatures.json")
_HEX: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_PIECE_BYTES: Final = 1 << 20
_SIGNABLE: Final = {"facts": FACT, "nodes": NODE}
"""The lists of content.json whose items can be signed, with the kind of their items."""


@dataclass(frozen=True, slots=True)
class Manifest:
    export: UUID
    store: UUID
    tenant: UUID
    files: Mapping[str, tuple[int, str]]
    """Size and SHA-256 of each file, by name."""
    document: Mapping[str, Any]

    @classmethod
    def parse(cls, data: bytes) -> Manifest:
        document = parse_object(data, "manifest.json")
        if document.get("drillcore_bundle") != FORMAT or canonical_json(document) != data:
            raise Malformed(f"manifest.json is not a manifest of format {FORMAT} in canonical JSON")
        files = document.get("files")
        if not isinstance(files, Mapping):
            raise Malformed("manifest.json does not list the files")
        found = {name: _parse_file(name, entry) for name, entry in files.items()}
        for name in _NEEDED:
            if name not in found:
                raise Malformed(f"the manifest does not list {name}")
        if not any(map(_CONTENT.match, found)):
            raise Malformed("the manifest does not list the copy itself")
        return cls(
            parse_id(document.get("export_id"), "the export"),
            parse_id(document.get("store"), "the store of the bundle"),
            parse_id(document.get("tenant"), "the tenant of the bundle"),
            found,
            document,
        )


def _parse_file(name: str, entry: object) -> tuple[int, str]:
    if not _NAMES.fullmatch(name):
        raise Malformed(f"the manifest lists a file that does not belong in a bundle: {name!a}")
    if not isinstance(entry, Mapping) or not _HEX.fullmatch(str(entry.get("sha256"))):
        raise Malformed(f"the manifest does not say what {name} is")
    return parse_count(entry.get("size"), f"the size of {name}"), entry["sha256"]


def note_text(store: UUID, export: UUID, manifest: bytes) -> str:
    """The text of manifest.note, which the server's key signs."""
    return f"{key_name(store)}/export\n{export}\n{hashlib.sha256(manifest).hexdigest()}\n"


def verify_bundle(file: BinaryIO, pins: Pins, *, on_record: OnRecord | None = None) -> Report:
    """Reports whether the server signed this bundle, and whether its parts agree. The file must be seekable.

    Problems are in the report. Only errors of reading the file are raised.
    """
    found = Findings(Evidence.BUNDLE, on_record)
    try:
        with open_zip(file) as archive:
            manifest, trusted, keys = _check_manifest(archive, pins)
            _Examination(archive, manifest, trusted, keys, pins, found).run()
    except VerificationFailed as failure:
        found.blame(str(failure))
    return found.report()


def _check_manifest(archive: zipfile.ZipFile, pins: Pins) -> tuple[Manifest, TrustedKeys, KeyChain]:
    data = read_small(archive, "manifest.json", MANIFEST_BYTES_MAX)
    manifest = Manifest.parse(data)
    keys = KeyChain.parse(parse_object(read_small(archive, "keys.json", KEYS_BYTES_MAX), "keys.json"))
    trusted = trust(manifest.store, pins.keys, keys)
    note = Note.parse(_text(read_small(archive, "manifest.note", NOTE_CHARACTERS_MAX), "manifest.note"))
    trusted.check_note(note, "manifest.note")
    if note.text != note_text(manifest.store, manifest.export, data):
        raise Mismatch("manifest.note was signed for another manifest")
    _check_names(archive, manifest)
    return manifest, trusted, keys


def _check_names(archive: zipfile.ZipFile, manifest: Manifest) -> None:
    expected = {"manifest.json", "manifest.note", *manifest.files}
    if extra := set(archive.namelist()) - expected:
        raise Mismatch(f"the bundle has a file that is not in its manifest: {min(extra)!a}")
    if missing := expected - set(archive.namelist()):
        raise Mismatch(f"the bundle lacks a file of its manifest: {min(missing)}")
    for name, (size_bytes, _) in manifest.files.items():
        if archive.getinfo(name).file_size != size_bytes:
            raise Mismatch(f"{name} has {archive.getinfo(name).file_size} bytes, in the manifest {size_bytes}")


class _Examination:
    """Verifies the files of a bundle whose manifest is verified."""

    def __init__(
        self,
        archive: zipfile.ZipFile,
        manifest: Manifest,
        trusted: TrustedKeys,
        keys: KeyChain,
        pins: Pins,
        found: Findings,
    ) -> None:
        self._archive = archive
        self._manifest = manifest
        self._trusted = trusted
        self._keys = keys
        self._pins = pins
        self._found = found
        self._signatures = BundleSignatures(trusted, found)

    def run(self) -> None:
        for name in sorted(self._manifest.files, key=lambda name: (name != "signatures.json", name)):
            try:
                with self._opened(name) as member, io.BufferedReader(member, _PIECE_BYTES) as data:
                    self._examine(name, cast(BinaryIO, data))
                    member.check()
            except VerificationFailed as failure:
                self._found.blame(str(failure))
        self._signatures.end("content.json" in self._manifest.files)
        self._check_digest()
        self._tell()

    def _opened(self, name: str) -> CheckedMember:
        with as_malformed(name):
            member = self._archive.open(name)
        return CheckedMember(member, name, *self._manifest.files[name])

    def _examine(self, name: str, data: BinaryIO) -> None:
        """Checks what a file needs beyond its hash."""
        if name == "signatures.json":
            self._signatures.listed(_elements(data, name, "signatures"))
        elif name == "content.json":
            items = ((member, value) for member, value in stream_object(data, name) if member in _SIGNABLE)
            self._signatures.shown((_SIGNABLE[member], value) for member, value in items)
        elif name == "audit.ndjson":
            self._check_audit(data)
        elif name == "checkpoint":
            self._check_checkpoint(data)
        elif name.endswith(".pdf"):
            self._check_pdf(name, data)

    def _check_audit(self, data: BinaryIO) -> None:
        header = examine_export(data, self._pins, self._found)
        if header is None:
            return
        if (header.store, header.log) != (self._manifest.store, self._manifest.tenant):
            raise Mismatch("audit.ndjson is of another log than the bundle")
        if header.checkpoint.encode() != read_small(self._archive, "checkpoint", NOTE_CHARACTERS_MAX):
            raise Mismatch("audit.ndjson has another checkpoint than the bundle")
        if header.keys != self._keys:
            raise Mismatch("audit.ndjson has other keys than the bundle")

    def _check_checkpoint(self, data: BinaryIO) -> None:
        note = _text(data.read(NOTE_CHARACTERS_MAX), "checkpoint")
        known = know_log(note, self._manifest.store, self._manifest.tenant, self._trusted, self._pins)
        if "audit.ndjson" not in self._manifest.files:
            for problem in not_shown_to_continue(known, self._pins.continuations):
                self._found.blame(problem)

    def _check_pdf(self, name: str, data: BinaryIO) -> None:
        if not can_check_pdf():
            self._found.remarks.append(
                f"{name} was checked by its hash only; install pyhanko to check its digital signature"
            )
            return
        with tempfile.TemporaryFile() as copy:
            while piece := data.read(_PIECE_BYTES):
                copy.write(piece)
            copy.seek(0)
            check_pdf(copy, name, self._manifest.document.get("pdf_certificate_sha256"))

    def _check_digest(self) -> None:
        digest = self._manifest.document.get("content_digest")
        _, sha256 = self._manifest.files.get("content.json", (0, digest))
        if sha256 != digest:
            self._found.blame("the manifest names another content than content.json")

    def _tell(self) -> None:
        document = self._manifest.document
        if "audit.ndjson" not in self._manifest.files:
            self._found.remarks.append("the bundle was made without the audit trail")
        self._found.details |= {
            "store": str(self._manifest.store),
            "log": str(self._manifest.tenant),
            "export": str(self._manifest.export),
            "format": str(document.get("format")),
            "revision": str(document.get("revision")),
            "made at": str(document.get("made_at")),
            "made by": str(document.get("made_by")),
            "files": len(self._manifest.files),
            "signatures": self._signatures.count,
        }


def _elements(data: BinaryIO, name: str, wanted: str) -> Iterator[Any]:
    return (value for member, value in stream_object(data, name) if member == wanted)


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Malformed(f"{name} is not UTF-8") from None
