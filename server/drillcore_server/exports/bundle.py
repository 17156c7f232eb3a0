"""The bundle: one ZIP file with the copy and everything that is needed to verify it without the server.

    manifest.json    lists the files of the bundle, each with its SHA-256 (canonical JSON)
    manifest.note    a C2SP note over the manifest, signed by the audit key
    content.*        the copy
    audit.ndjson     the corpus's audit records with their proofs (`audit/ndjson.py`), if they were requested
    checkpoint       the checkpoint of the tenant's log
    keys.json        the chain of audit keys
    signatures.json  the electronic signatures of nodes and facts in the copy

Files are always in this order, and all have the same time.
"""

from __future__ import annotations

import hashlib
import time
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from drillcore_fdb.engine import Engine, Transaction
from drillcore_formats.audit.notes import make_note
from drillcore_proto.reasons import Reason
from drillcore_server.audit import log_store as audit_log
from drillcore_server.audit.ndjson import LogAt, NdjsonExport, log_now
from drillcore_server.audit.search import AuditFilter, FoundRecord, LogSearch, TriedEnough
from drillcore_server.exports.copies import About, Copied, MarkdownFile, Member, copy_for_people, copy_json
from drillcore_server.exports.pdf.pdf_signature import PdfOptions
from drillcore_server.exports.store import ExportFormat
from drillcore_server.exports.walk import CorpusWalk
from drillcore_server.kernel.canonical_json import canonical
from drillcore_server.kernel.errors import Unavailable
from drillcore_server.kernel.journal import SigningKeys, chain_text, log_of
from drillcore_server.kernel.trail import time_text
from drillcore_server.signatures.messages import SignatureContent
from drillcore_server.storage.ids import CorpusId, RecordId, Revision, TenantId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.sealed_file import SealedFile

WAIT_S: Final = 10.0
"""How long an export waits until the log has all records that were committed before. It usually takes moments."""
_LOOK_EVERY_S: Final = 0.05
_LAGS: Final = "the audit log does not have its newest records yet; export again in a few seconds"


@dataclass(frozen=True, slots=True)
class Trails:
    """Reads the audit trail of a corpus."""

    engine: Engine
    keys: Keyspace
    search: LogSearch
    signing: SigningKeys

    @property
    def store(self) -> UUID:
        return self.signing.store

    def of_corpus(self, tenant: TenantId, corpus: CorpusId) -> CorpusTrail:
        """The trail with every record up to now. Raises `Unavailable` if the log does not have them in time."""
        log = log_of(tenant)
        newest = self._newest(log)
        until = time.monotonic() + WAIT_S
        while newest is not None and not self._has(log, newest.opened.leaf.record):
            if time.monotonic() > until:
                raise Unavailable(Reason.AUDIT_UNAVAILABLE, _LAGS)
            time.sleep(_LOOK_EVERY_S)
        at = self.engine.run(lambda tr: log_now(tr.snapshot, self.keys, self.signing, log))
        return CorpusTrail(self, at, corpus)

    def _newest(self, log: UUID) -> FoundRecord | None:
        """Raises `Unavailable` if too many records of other logs wait to find it."""
        try:
            return self.engine.run(lambda tr: next(self.search.find(tr.snapshot, log, AuditFilter()), None))
        except TriedEnough:
            raise Unavailable(Reason.AUDIT_UNAVAILABLE, _LAGS) from None

    def _has(self, log: UUID, record: UUID) -> bool:
        """Raises `Unavailable` if the log has stopped."""

        def look(tr: Transaction) -> bool:
            if audit_log.place_of(tr.snapshot, self.keys, RecordId(record)) is not None:
                return True
            if audit_log.head(tr.snapshot, self.keys, log).problem:
                message = "the audit log has stopped; call VerifyAudit to see why"
                raise Unavailable(Reason.AUDIT_UNAVAILABLE, message)
            return False

        return self.engine.run(look)


class CorpusTrail:
    """The log at one size, and its records about one corpus. May be read more than once."""

    def __init__(self, trails: Trails, at: LogAt, corpus: CorpusId) -> None:
        self._trails = trails
        self._at = at
        self._corpus = corpus

    @property
    def checkpoint(self) -> str:
        """A C2SP signed note."""
        return self._at.checkpoint.note

    @property
    def keys(self) -> str:
        """The chain of signing keys, in canonical JSON."""
        return chain_text(self._at.chain)

    def signed_note(self, text: str) -> str:
        """The text as a C2SP note, signed by the last key of the chain."""
        signer = self._trails.signing.signer(self._at.chain.keys[-1].number)
        return make_note(text, (signer.verifier, signer.sign)).encode()

    def lines(self) -> Iterator[bytes]:
        """The records as lines of an audit export, each with its proof."""
        trails = self._trails
        export = NdjsonExport(trails.keys, trails.search, self._at, AuditFilter(corpus=self._corpus))
        return export.lines(lambda work: trails.engine.run(lambda tr: work(tr.snapshot)))


BUNDLE_FORMAT: Final = 1
_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that ZIP can store."""
_MODE: Final = 0o600 << 16


@dataclass(frozen=True, slots=True)
class BundleOptions:
    """What to put into a bundle."""

    format: ExportFormat
    include_audit: bool
    record: dict[str, str]
    """How to find the audit record of the export: its log, request id and caller."""


@dataclass(frozen=True, slots=True)
class Bundle:
    file: SealedFile
    manifest_sha256: bytes
    revision: Revision


class Binder:
    """Makes bundles."""

    def __init__(self, trails: Trails, pdf: PdfOptions) -> None:
        self._trails = trails
        self._pdf = pdf

    @property
    def store(self) -> UUID:
        return self._trails.store

    def bind(self, walk: CorpusWalk, about: About, wanted: BundleOptions) -> Bundle:
        """The complete bundle, before anything is sent. The caller must close its file."""
        with ExitStack() as files:
            trail = self._trails.of_corpus(walk.corpus.tenant_id, walk.corpus.id)
            signatures = _Signatures(files.enter_context(SealedFile()))
            copied = self._copied(walk, about, wanted, trail, signatures, files)
            members = [*copied.members, *_proof(trail, wanted, files), signatures.finish()]
            manifest = canonical(self._manifest(walk, about, wanted, copied, members))
            digest = hashlib.sha256(manifest)
            note = trail.signed_note(note_text(about, digest.hexdigest()))
            first = [_member("manifest.json", manifest, files), _member("manifest.note", note.encode(), files)]
            return Bundle(_zipped([*first, *members]), digest.digest(), walk.revision)

    def _copied(
        self,
        walk: CorpusWalk,
        about: About,
        wanted: BundleOptions,
        trail: CorpusTrail,
        signatures: _Signatures,
        files: ExitStack,
    ) -> Copied:
        if wanted.format is ExportFormat.JSON:
            return copy_json(walk, files, signatures.take)
        lines = trail.lines() if wanted.include_audit else ()
        if wanted.format is ExportFormat.MARKDOWN:
            return copy_for_people(walk, MarkdownFile(walk, about, files), lines, signatures.take)
        from drillcore_server.exports.pdf.volumes import PdfFiles  # reportlab is slow to import

        return copy_for_people(walk, PdfFiles(self._pdf, walk, about, files), lines, signatures.take)

    def _manifest(
        self, walk: CorpusWalk, about: About, wanted: BundleOptions, copied: Copied, members: Iterable[Member]
    ) -> dict[str, Any]:
        manifest = {
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
            "files": {member.name: {"sha256": member.sha256(), "size": member.size_bytes} for member in members},
            "record": wanted.record,
        }
        if wanted.format is ExportFormat.PDF:
            manifest["pdf_certificate_sha256"] = self._pdf.signer.certificate_sha256
        return manifest


def note_text(about: About, manifest_sha256: str) -> str:
    return f"drillcore-{about.store}/export\n{about.export_id}\n{manifest_sha256}\n"


class _Signatures:
    """Writes signatures.json, one signature at a time."""

    def __init__(self, file: SealedFile) -> None:
        self._file = file
        self._opening = b'{"drillcore_signatures":1,"signatures":['

    def take(self, signature: SignatureContent) -> None:
        self._file.write(self._opening + canonical(signature))
        self._opening = b","

    def finish(self) -> Member:
        self._file.write((self._opening if self._opening != b"," else b"") + b"]}")
        return Member("signatures.json", (self._file,))


def _proof(trail: CorpusTrail, wanted: BundleOptions, files: ExitStack) -> list[Member]:
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
    """The ZIP file, written from front to end, so that it can be sealed piece by piece."""
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
