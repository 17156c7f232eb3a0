"""Bundles are complete, can be verified offline, and are refused if anything was changed."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from drillcore_formats.audit.bundle import verify_bundle
from drillcore_formats.audit.findings import Report
from drillcore_server.exports.bundle import Bundle, BundleOptions
from drillcore_server.exports.store import ExportFormat
from drillcore_server.storage.sealed_file import PIECE_BYTES, SealedFile
from tests.support.data.exported_corpora import ABOUT, TEXTS, Desk

RECORD = {"log": "x", "request_id": "y"}


def bound(desk: Desk, kind: ExportFormat = ExportFormat.JSON, *, include_audit: bool = True) -> Bundle:
    desk.sequence()
    return desk.binder().bind(desk.walk(), ABOUT, BundleOptions(kind, include_audit, RECORD))


def written(desk: Desk, kind: ExportFormat = ExportFormat.JSON, *, include_audit: bool = True) -> bytes:
    with bound(desk, kind, include_audit=include_audit).file as file:
        return b"".join(file.pieces())


def checked(desk: Desk, bundle: bytes) -> Report:
    return verify_bundle(io.BytesIO(bundle), desk.pins)


def names(bundle: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(bundle)).namelist()


def with_member(bundle: bytes, name: str, content: bytes) -> bytes:
    """The bundle with other content in one of its files."""
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(bundle)) as old, zipfile.ZipFile(changed, "w") as new:
        for member in old.namelist():
            new.writestr(member, content if member == name else old.read(member))
    return changed.getvalue()


@pytest.mark.parametrize("kind", list(ExportFormat))
def test_a_bundle_is_verified_offline_with_only_the_public_key(desk: Desk, kind: ExportFormat) -> None:
    bundle = written(desk, kind)
    content = {ExportFormat.JSON: "content.json", ExportFormat.MARKDOWN: "content.md", ExportFormat.PDF: "content.pdf"}[
        kind
    ]
    assert names(bundle) == [
        "manifest.json",
        "manifest.note",
        content,
        "audit.ndjson",
        "checkpoint",
        "keys.json",
        "signatures.json",
    ]
    report = checked(desk, bundle)
    assert report.ok, report.problems
    assert report.verified >= 3


@pytest.mark.parametrize("kind", list(ExportFormat))
def test_a_bundle_without_its_audit_trail_says_so(desk: Desk, kind: ExportFormat) -> None:
    bundle = written(desk, kind, include_audit=False)
    assert "audit.ndjson" not in names(bundle)
    report = checked(desk, bundle)
    assert report.ok, report.problems
    assert any("without the audit trail" in remark for remark in report.remarks)


@pytest.mark.parametrize("name", ["manifest.json", "manifest.note", "content.json", "audit.ndjson", "checkpoint",
                                  "keys.json", "signatures.json"])  # fmt: skip
def test_a_bundle_with_a_changed_file_is_refused(desk: Desk, name: str) -> None:
    bundle = written(desk)
    content = bytearray(zipfile.ZipFile(io.BytesIO(bundle)).read(name))
    content[len(content) // 2] ^= 1
    assert not checked(desk, with_member(bundle, name, bytes(content))).ok


def test_the_manifest_lists_the_content_of_the_bundle(desk: Desk) -> None:
    made = bound(desk, ExportFormat.PDF)
    with made.file as file:
        archive = zipfile.ZipFile(io.BytesIO(b"".join(file.pieces())))
    manifest = json.loads(archive.read("manifest.json"))
    assert hashlib.sha256(archive.read("manifest.json")).digest() == made.manifest_sha256
    for name, said in manifest["files"].items():
        content = archive.read(name)
        assert (said["sha256"], said["size"]) == (hashlib.sha256(content).hexdigest(), len(content))
    assert manifest["pdf_certificate_sha256"] == desk.pdf.signer.certificate_sha256
    assert (manifest["revision"], manifest["format"]) == (2, "pdf")
    json_copy = zipfile.ZipFile(io.BytesIO(written(desk))).read("content.json")
    assert manifest["content_digest"] == hashlib.sha256(json_copy).hexdigest()


def test_the_signatures_of_the_nodes_are_listed_and_are_of_their_content(desk: Desk) -> None:
    archive = zipfile.ZipFile(io.BytesIO(written(desk)))
    listed = json.loads(archive.read("signatures.json"))["signatures"]
    nodes = json.loads(archive.read("content.json"))["nodes"]
    assert listed == [signature for node in nodes for signature in node["signatures"]]
    assert len(listed) > 10


def test_a_signature_moved_to_another_node_is_refused(desk: Desk) -> None:
    """It is refused even if a server signs the manifest anew, since the content of the node is not what was signed."""
    walk = desk.walk()
    items = list(walk.items())
    signed = [item for item in items if item.content.get("signatures")]
    signed[0].content["signatures"], signed[1].content["signatures"] = (
        signed[1].content["signatures"],
        signed[0].content["signatures"],
    )
    walk.items = lambda: iter(items)  # type: ignore[method-assign]  # as a lying server would export it
    desk.sequence()
    with desk.binder().bind(walk, ABOUT, BundleOptions(ExportFormat.JSON, True, RECORD)).file as file:
        assert not checked(desk, b"".join(file.pieces())).ok


def test_the_same_state_gives_the_same_bundle(desk: Desk) -> None:
    assert written(desk) == written(desk)


def test_an_empty_corpus_has_a_bundle_that_verifies(empty: Desk) -> None:
    assert checked(empty, written(empty)).ok
    assert checked(empty, written(empty, ExportFormat.PDF)).ok


def test_a_corpus_in_volumes_has_a_bundle_that_verifies(empty: Desk) -> None:
    empty.archive.add({"consent": TEXTS["consent"]})
    empty.pdf = replace(empty.pdf, pages_max=2)
    bundle = written(empty, ExportFormat.PDF)
    assert [member for member in names(bundle) if member.startswith("content")][:2] == [
        "content-001.pdf",
        "content-002.pdf",
    ]
    report = checked(empty, bundle)
    assert report.ok, report.problems


def test_temporary_files_are_sealed_and_have_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with SealedFile() as file:
        file.write(b"secret words " * PIECE_BYTES)
        assert list(tmp_path.iterdir()) == []
        underneath = file._file
        assert underneath is not None
        underneath.seek(0)
        assert b"secret" not in underneath.read()
        assert b"".join(file.pieces()) == b"secret words " * PIECE_BYTES
        assert file.sha256 == hashlib.sha256(b"secret words " * PIECE_BYTES).digest()
    with ExitStack() as files:
        small = files.enter_context(SealedFile())
        small.write(b"few words")
        assert small._file is None
        assert b"".join(small.pieces()) == b"few words"
