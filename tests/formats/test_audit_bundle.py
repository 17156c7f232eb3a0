"""A bundle that is not complete, consistent and signed by its server is refused, and no bundle does harm."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import uuid
import zipfile
from collections.abc import Callable
from typing import Any

import pytest

from drillcore_formats.audit import signatures as pdf_signatures
from drillcore_formats.audit.bundle import verify_bundle
from drillcore_formats.audit.findings import Mismatch, Report
from drillcore_formats.audit.notes import Note
from drillcore_formats.audit.pins import Pins
from drillcore_formats.audit.zip_members import CheckedMember
from tests.support.data.audit_bundles import Bundle, make_signature, packed
from tests.support.data.audit_logs import Log, base64_text, canonical, make_log, store_key, written
from tests.support.data.signed_pdf import make_pdf, make_signed_pdf

PINS = Log().pins


def verified(members: dict[str, bytes], pins: Pins = PINS) -> Report:
    return verify_bundle(packed(members), pins)


def problems(report: Report) -> list[str]:
    return [problem.problem for problem in report.problems]


def signed_bundle() -> Bundle:
    bundle = Bundle()
    bundle.sign(0, 1)
    bundle.sign(1, 2)
    bundle.sign(1, 3)
    return bundle.make()


def test_an_honest_bundle_is_verified() -> None:
    report = verified(signed_bundle().members())
    assert (report.ok, report.verified, report.problems, report.remarks) == (True, 7, (), ())
    assert report.details["signatures"] == 3
    assert report.details["files"] == 5


def test_a_bundle_without_the_audit_trail_says_so() -> None:
    report = verified(Bundle().make(audit=False).members())
    assert (report.ok, report.remarks) == (True, ("the bundle was made without the audit trail",))


def test_a_copy_for_people_is_checked_by_its_hash() -> None:
    bundle = Bundle(content_name="content.md")
    bundle.sign(0)
    report = verified(bundle.make().members())
    assert report.ok
    assert "only the JSON copy can show" in report.remarks[0]


@pytest.mark.parametrize("name", ["content.json", "audit.ndjson", "signatures.json", "checkpoint", "keys.json"])
def test_a_changed_file_is_found(name: str) -> None:
    members = signed_bundle().members()
    data = members[name]
    members[name] = data[:-1] + bytes([data[-1] ^ 1])
    assert any(name in problem or "note" in problem for problem in problems(verified(members)))


@pytest.mark.parametrize("name", ["content.json", "audit.ndjson", "signatures.json", "checkpoint", "keys.json"])
def test_a_file_that_is_gone_is_found(name: str) -> None:
    members = signed_bundle().members()
    del members[name]
    said = "has no" if name == "keys.json" else "lacks a file of its manifest:"
    assert problems(verified(members)) == [f"the bundle {said} {name}"]


@pytest.mark.parametrize("name", ["manifest.json", "manifest.note"])
def test_a_bundle_without_its_manifest_is_refused(name: str) -> None:
    members = signed_bundle().members()
    del members[name]
    assert problems(verified(members)) == [f"the bundle has no {name}"]


@pytest.mark.parametrize("name", ["more.txt", "content.html", "Manifest.json", "CONTENT.JSON", "content.json "])
def test_an_extra_file_is_refused(name: str) -> None:
    assert "not in its manifest" in problems(verified(signed_bundle().members() | {name: b"x"}))[0]


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "a/content.json", "..\\evil", "folder/", "C:\\evil"])
def test_a_name_that_leaves_the_bundle_is_refused(name: str) -> None:
    assert problems(verified(signed_bundle().members() | {name: b"x"}))[0].startswith("the ZIP file has")


def test_an_extra_file_that_the_manifest_lists_is_refused_unless_it_belongs_there() -> None:
    bundle = signed_bundle()
    bundle.files["run.sh"] = b"x"
    assert problems(verified(bundle.members())) == [
        "the manifest lists a file that does not belong in a bundle: 'run.sh'"
    ]


def test_a_duplicate_file_is_refused() -> None:
    file = packed(signed_bundle().members())
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("content.json", b"{}")
    assert problems(verify_bundle(file, PINS)) == ["the ZIP file has content.json twice"]


def test_a_symbolic_link_is_refused() -> None:
    link = zipfile.ZipInfo("content.json")
    link.external_attr = 0o120777 << 16
    report = verify_bundle(packed(signed_bundle().members(), **{"content.json": link}), PINS)
    assert problems(report) == ["the ZIP file has something that is not a plain file: 'content.json'"]


def test_an_unknown_compression_is_refused() -> None:
    member = zipfile.ZipInfo("content.json")
    member.compress_type = zipfile.ZIP_BZIP2
    report = verify_bundle(packed(signed_bundle().members(), **{"content.json": member}), PINS)
    assert "compressed in an unknown way" in problems(report)[0]


def test_a_file_that_unpacks_to_more_than_the_manifest_says_is_refused() -> None:
    members = signed_bundle().members()
    members["content.json"] += b" " * (10 << 20)
    assert "in the manifest" in problems(verified(members))[0]


def test_a_file_that_unpacks_to_more_than_its_declared_size_is_refused() -> None:
    members = signed_bundle().members()
    size_bytes = len(members["content.json"])
    members["content.json"] += b" " * (10 << 20)
    data = packed(members).getvalue()
    lied = data.replace(struct.pack("<L", size_bytes + (10 << 20)), struct.pack("<L", size_bytes))
    assert lied != data
    (problem,) = problems(verify_bundle(io.BytesIO(lied), PINS))
    assert "content.json" in problem


def test_a_huge_manifest_is_not_read() -> None:
    members = signed_bundle().members()
    members["manifest.json"] = b" " * (17 << 20)
    assert problems(verified(members)) == ["manifest.json has more than 16,777,216 bytes"]


def test_too_many_files_are_refused() -> None:
    assert "more than 10,000" in problems(verified({f"{number}": b"" for number in range(10_001)}))[0]


@pytest.mark.parametrize("where", ["before", "between", "comment"])
def test_hidden_bytes_in_the_file_are_refused(where: str) -> None:
    data = packed(signed_bundle().members()).getvalue()
    if where == "before":
        data = b"hidden" + data
    elif where == "comment":
        file = io.BytesIO(data)
        with zipfile.ZipFile(file, "a") as archive:
            archive.comment = b"hidden"
        data = file.getvalue()
    else:
        file = io.BytesIO(data)
        with zipfile.ZipFile(file, "a") as archive:
            archive.writestr("zzz", b"hidden")
            archive.infolist().pop()
            del archive.NameToInfo["zzz"]
        data = file.getvalue()
    (problem,) = problems(verify_bundle(io.BytesIO(data), PINS))
    assert problem in {
        "the ZIP file has hidden parts between its files",
        "the ZIP file has a comment, which nothing signs",
    }


@pytest.mark.parametrize("kept", [0, 10, 500, -1, -30])
def test_a_bundle_that_is_cut_short_is_refused(kept: int) -> None:
    assert not verify_bundle(io.BytesIO(packed(signed_bundle().members()).getvalue()[:kept]), PINS).ok


def test_a_bundle_written_as_a_stream_is_verified() -> None:
    class Stream(io.BytesIO):
        def seekable(self) -> bool:
            return False

    file = Stream()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in signed_bundle().members().items():
            archive.writestr(name, data)
    assert verify_bundle(io.BytesIO(file.getvalue()), PINS).ok


def test_a_manifest_of_another_key_or_export_is_refused() -> None:
    bundle = signed_bundle()
    members = bundle.members()
    manifest = members["manifest.json"]
    forged = {"manifest.note": bundle.note(manifest, store_key(seed="x"))}
    assert problems(verified(members | forged)) == ["manifest.note is not signed by a trusted key"]
    other_manifest = bundle.manifest(made_by="mallory")
    assert problems(verified(members | {"manifest.json": other_manifest})) == [
        "manifest.note was signed for another manifest"
    ]
    stranger = Bundle(make_log(keys=[store_key(seed="x")])).make().members()
    assert problems(verified(stranger)) == ["the pinned key is not in the chain of keys"]
    elsewhere = Bundle(make_log(store=uuid.uuid4())).make().members()
    assert problems(verified(elsewhere))[0].startswith("no key of store")


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"drillcore_bundle": 2}, "manifest.json is not a manifest of format 1"),
        ({"files": []}, "manifest.json does not list the files"),
        ({"files": {}}, "the manifest does not list checkpoint"),
        ({"files": {"checkpoint": {"sha256": "x", "size": 1}}}, "the manifest does not say what checkpoint is"),
        ({"export_id": "x"}, "the id of the export is not a UUID"),
        ({"content_digest": "0" * 64}, "the manifest names another content than content.json"),
        ({"tenant": str(uuid.uuid4())}, "audit.ndjson is of another log than the bundle"),
    ],
)
def test_a_wrong_manifest_is_refused_whoever_signed_it(changed: dict[str, Any], problem: str) -> None:
    bundle = signed_bundle()
    manifest = bundle.manifest(**changed)
    members = bundle.members() | {"manifest.json": manifest, "manifest.note": bundle.note(manifest)}
    assert any(message.startswith(problem) for message in problems(verified(members)))


def test_a_manifest_in_another_form_is_refused_whoever_signed_it() -> None:
    bundle = signed_bundle()
    manifest = bundle.manifest().replace(b":", b": ", 1)
    members = bundle.members() | {"manifest.json": manifest, "manifest.note": bundle.note(manifest)}
    assert problems(verified(members)) == ["manifest.json is not a manifest of format 1 in canonical JSON"]


def test_reading_a_file_stops_at_the_size_that_the_manifest_says() -> None:
    member = CheckedMember(io.BytesIO(b"x" * 100), "content.md", 99, hashlib.sha256(b"x" * 99).hexdigest())
    with pytest.raises(Mismatch, match=r"content.md is larger than the manifest says"):
        member.read()


def test_contradicting_parts_are_refused() -> None:
    bundle = signed_bundle()
    bundle.files["checkpoint"] = bundle.log.checkpoint(5).encode()
    assert problems(verified(bundle.members())) == ["audit.ndjson has another checkpoint than the bundle"]
    rotated = make_log()
    rotated.rotate("2")
    bundle = Bundle(rotated).make()
    header, *rest = rotated.export()
    header["keys"]["keys"].pop()
    header["checkpoint"] = rotated.checkpoint(key=rotated.keys[0])
    bundle.files |= {"audit.ndjson": written([header, *rest]), "checkpoint": header["checkpoint"].encode()}
    assert problems(verified(bundle.members())) == ["audit.ndjson has other keys than the bundle"]


def test_a_tampered_audit_trail_is_found_whoever_signed_the_manifest() -> None:
    bundle = signed_bundle()
    lines = bundle.log.export()
    lines[3]["body"]["operator"] = "mallory"
    bundle.files["audit.ndjson"] = written(lines)
    report = verified(bundle.members())
    assert [(problem.index, problem.problem) for problem in report.problems] == [
        (2, "its body is not the one that was signed")
    ]


def test_a_pinned_checkpoint_counts_for_bundles_too() -> None:
    longer = make_log(9)
    pins = Pins(PINS.keys, (Note.parse(longer.checkpoint()),))
    assert any("rolled back" in problem for problem in problems(verified(signed_bundle().members(), pins)))
    pins = Pins(PINS.keys, (Note.parse(longer.checkpoint(5)),))
    assert verified(signed_bundle().members(), pins).ok
    assert any("not shown" in problem for problem in problems(verified(Bundle().make(audit=False).members(), pins)))


def change_node(bundle: Bundle) -> None:
    bundle.nodes[1]["summary"] = "something else"


def change_version(bundle: Bundle) -> None:
    bundle.nodes[1]["version"] += 1


def move(bundle: Bundle) -> None:
    bundle.nodes[2]["signatures"] = [bundle.nodes[1]["signatures"].pop()]


def change_meaning(bundle: Bundle) -> None:
    bundle.signatures[1]["meaning"] = "rejected"


def change_manifestation(bundle: Bundle) -> None:
    bundle.signatures[1]["manifestation"] = bundle.signatures[1]["manifestation"].replace("approved", "rejected")


def respace_manifestation(bundle: Bundle) -> None:
    signature = bundle.signatures[1]
    signature["manifestation"] = signature["manifestation"].replace(":", ": ", 1)
    message = b"drillcore signature 1\n" + signature["manifestation"].encode()
    signature["signature"] = base64_text(bundle.key.sign(message))


def add_title(bundle: Bundle) -> None:
    bundle.signatures[1]["title"] = "Dr."


def forge(bundle: Bundle) -> None:
    bundle.signatures[1] |= make_signature(bundle.nodes[1], store_key(seed="x"), 2)


def unlist(bundle: Bundle) -> None:
    del bundle.signatures[1]


def sign_other_content(bundle: Bundle) -> None:
    bundle.signatures[1] |= make_signature(bundle.nodes[1] | {"summary": "x"}, bundle.key, 2)


@pytest.mark.parametrize(
    ("lie", "problem"),
    [
        (change_node, "is not of this content"),
        (change_version, "is shown with a record or version that it is not of"),
        (move, "is shown with a record or version that it is not of"),
        (change_meaning, "is shown with another meaning than was signed"),
        (change_manifestation, "the signature of signature 00000000-0000-0000-0000-000000000002 is not right"),
        (respace_manifestation, "is not in canonical JSON"),
        (add_title, "is shown with another title than was signed"),
        (forge, "is signed by a key that is not trusted"),
        (unlist, "is shown with a record or version that it is not of"),
        (sign_other_content, "is not of this content"),
    ],
)
def test_a_signature_of_other_content_is_found_whoever_signed_the_manifest(
    lie: Callable[[Bundle], None], problem: str
) -> None:
    bundle = signed_bundle()
    lie(bundle)
    found = problems(verified(bundle.make().members()))
    assert any(problem in message for message in found), found


def test_signatures_of_targets_that_are_not_in_the_copy_are_remarked() -> None:
    bundle = signed_bundle()
    bundle.signatures.append(make_signature({"id": str(uuid.uuid4()), "version": 1}, bundle.key, 9))
    report = verified(bundle.make().members())
    assert report.ok
    assert report.remarks[0].startswith("1 of 4 signatures are of records that are not in content.json, or were erased")


def test_the_report_says_that_a_signature_without_its_salt_was_not_checked() -> None:
    bundle = signed_bundle()
    bundle.signatures[0]["content_salt"] = ""
    report = verified(bundle.make().members())
    assert report.ok
    assert report.remarks[0].startswith("1 of 3 signatures are of records that are not in content.json, or were erased")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"nodes":[1]}', b'{"nodes":[],"nodes":[]}', b'{"nodes":[]} x'])
def test_invalid_content_is_refused(content: bytes) -> None:
    bundle = Bundle().make()
    bundle.files["content.json"] = content
    assert any("content.json" in problem for problem in problems(verified(bundle.members())))


def test_large_content_is_read_piece_by_piece() -> None:
    bundle = Bundle()
    bundle.nodes = [
        {"id": str(uuid.UUID(int=number)), "version": 1, "summary": "é" * 3_000, "number": number}
        for number in range(1_000)
    ]
    bundle.sign(999)
    bundle.make()
    assert len(bundle.files["content.json"]) > 4 << 20
    assert verified(bundle.members()).ok
    indented = json.dumps(json.loads(bundle.files["content.json"]), indent=4).encode()
    bundle.files["content.json"] = indented
    assert verified(bundle.members()).ok


def test_a_pdf_without_pyhanko_is_checked_by_its_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf_signatures.importlib.util, "find_spec", lambda _name: None)
    report = verified(Bundle(content_name="content.pdf").make().members())
    assert report.ok
    assert report.remarks == (
        "content.pdf was checked by its hash only; install pyhanko to check its digital signature",
    )


def pdf_bundle(pdf: bytes) -> dict[str, bytes]:
    bundle = Bundle(content_name="content.pdf").make()
    bundle.files["content.pdf"] = pdf
    return bundle.members()


def test_the_digital_signature_of_a_pdf_is_checked() -> None:
    report = verified(pdf_bundle(make_signed_pdf()))
    assert (problems(report), report.remarks) == ([], ())


def test_a_pdf_signed_by_another_certificate_than_the_manifest_names_is_refused() -> None:
    bundle = Bundle(content_name="content.pdf").make()
    bundle.files["content.pdf"] = make_signed_pdf()
    manifest = bundle.manifest(pdf_certificate_sha256="0" * 64)
    members = bundle.members() | {"manifest.json": manifest, "manifest.note": bundle.note(manifest)}
    assert problems(verified(members)) == [
        "the digital signature in content.pdf is by another certificate than the manifest names"
    ]


def test_a_pdf_that_was_changed_after_it_was_signed_is_found_whoever_signed_the_manifest() -> None:
    signed = make_signed_pdf()
    place = signed.index(b"endstream") - 3
    changed = signed[:place] + bytes([signed[place] ^ 1]) + signed[place + 1 :]
    (problem,) = problems(verified(pdf_bundle(changed)))
    assert "the digital signature in content.pdf is not right" in problem


@pytest.mark.parametrize(
    ("pdf", "problem"),
    [
        (b"# no PDF", "content.pdf cannot be read as a signed PDF file"),
        (make_pdf("hello"), "content.pdf has no digital signature"),
    ],
)
def test_an_invalid_or_unsigned_pdf_is_refused(pdf: bytes, problem: str) -> None:
    assert problems(verified(pdf_bundle(pdf)))[0].startswith(problem)


def test_canonical_json_of_the_test_is_that_of_the_verifier() -> None:
    from drillcore_formats.audit.encoding import canonical_json

    bundle = signed_bundle()
    assert canonical(bundle.nodes) == canonical_json(bundle.nodes)
