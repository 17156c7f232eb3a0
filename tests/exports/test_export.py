"""ExportCorpus: who may call it, what is recorded, what is sent, and what is refused."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import grpc
import pytest
from click.testing import CliRunner

from drillcore import (
    AsyncClient,
    Client,
    ExportFormat,
    ExportResult,
    FailedPrecondition,
    Grant,
    Internal,
    InvalidArgument,
    Level,
    NewDocument,
    NotFound,
    PermissionDenied,
    Reason,
    Role,
    SignatureTarget,
    SignatureTargetKind,
)
from drillcore.cli import main
from drillcore_formats.audit.bundle import verify_bundle
from drillcore_formats.audit.findings import Report
from drillcore_formats.audit.pins import Pins
from drillcore_proto.v1 import exports_pb2 as pb
from drillcore_proto.v1.exports_pb2_grpc import ExportServiceStub
from drillcore_server.exports import store as exports
from drillcore_server.kernel import retention
from drillcore_server.kernel.revisions import Revision
from drillcore_server.storage.ids import TenantId
from tests.support.callers.knowledge import refused
from tests.support.data.texts import REGULATIONS
from tests.support.servers.running import ACME, ACME_ID, GLOBEX, GLOBEX_ID, OPERATOR, Running, create_tenants, running
from tests.support.servers.signatories import QUICK, Person, person
from tests.support.stores.aged import keys_of, keyspace
from tests.support.stores.trails import records


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "data", auth=QUICK) as found:
        create_tenants(found.client())
        yield found


@pytest.fixture
def writer(server: Running) -> Client:
    return server.client(ACME)


@pytest.fixture
def corpus(writer: Client) -> UUID:
    made = writer.create_corpus("rules")
    writer.add_documents(made.id, [NewDocument("records.txt", REGULATIONS["records.txt"].encode())])
    return made.id


@pytest.fixture
def ann(server: Running) -> Person:
    return person(server, "ann", Role.AUDITOR)


@pytest.fixture
def auditor(ann: Person) -> Client:
    return ann.log_in()


def exported(client: Client, corpus: UUID, **wanted: Any) -> tuple[ExportResult, bytes]:
    file = io.BytesIO()
    return client.export_corpus(corpus, file, **wanted), file.getvalue()


def checked(server: Running, bundle: bytes) -> Report:
    pinned = server.server.logs.signing.signer(1).verifier
    return verify_bundle(io.BytesIO(bundle), Pins((pinned,)))


def content_of(bundle: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(zipfile.ZipFile(io.BytesIO(bundle)).read("content.json"))
    return found


@pytest.mark.parametrize("kind", list(ExportFormat))
def test_a_bundle_agrees_with_its_record_and_verifies_offline(
    server: Running, auditor: Client, corpus: UUID, kind: ExportFormat
) -> None:
    result, bundle = exported(auditor, corpus, format=kind)
    report = checked(server, bundle)
    assert report.ok, report.problems
    assert (result.size_bytes, result.sha256) == (len(bundle), hashlib.sha256(bundle).hexdigest())
    (record,) = records(server, call="ExportCorpus")
    manifest = zipfile.ZipFile(io.BytesIO(bundle)).read("manifest.json")
    assert record["id"] == str(result.record_id)
    assert (record["action"], record["outcome"]) == ("EXPORT", "OK")
    assert record["levels"] == ["chunk", "master", "raw", "section"]
    assert record["corpora"] == {str(corpus): 1}
    assert record["detail"] == {
        "export_id": str(result.export_id),
        "format": kind.value,
        "revision": 1,
        "include_audit": True,
        "manifest_sha256": hashlib.sha256(manifest).hexdigest(),
        "bundle_sha256": result.sha256,
        "size_bytes": len(bundle),
    }


def test_an_export_is_stored_with_its_record_and_hash(server: Running, auditor: Client, corpus: UUID) -> None:
    result, _ = exported(auditor, corpus)
    keys = keyspace(server)
    kept = server.engine.run(lambda tr: exports.find(tr, keys, TenantId(ACME_ID), result.export_id))
    assert kept is not None
    assert (kept.corpus, kept.revision, kept.record) == (corpus, 1, result.record_id)
    assert kept.bundle_sha256.hex() == result.sha256


def test_the_bundle_has_the_audit_trail_of_this_corpus_only(
    server: Running, writer: Client, auditor: Client, corpus: UUID
) -> None:
    writer.get_corpus(corpus)
    other_corpus = writer.create_corpus("others")
    _, bundle = exported(auditor, corpus)
    lines = zipfile.ZipFile(io.BytesIO(bundle)).read("audit.ndjson").splitlines()
    bodies = [json.loads(line)["body"] for line in lines[1:-1]]
    assert [body["call"] for body in bodies] == ["CreateCorpus", "AddDocuments", "GetCorpus"]
    assert all(list(body["corpora"]) == [str(corpus)] for body in bodies)
    assert str(other_corpus.id).encode() not in b"".join(lines)


def test_an_export_without_the_audit_trail(server: Running, auditor: Client, corpus: UUID) -> None:
    _, bundle = exported(auditor, corpus, include_audit=False)
    assert "audit.ndjson" not in zipfile.ZipFile(io.BytesIO(bundle)).namelist()
    assert checked(server, bundle).ok


def test_signatures_of_people_are_in_the_bundle_and_hold(
    server: Running, ann: Person, auditor: Client, corpus: UUID
) -> None:
    (hit, *_) = auditor.iter_query(level=Level.SECTION, corpus_ids=[corpus])
    prepared = auditor.prepare_signature(SignatureTarget(SignatureTargetKind.NODE, hit.node.id), "approved")
    signature = auditor.sign_record(prepared, ann.password, login="ann")
    _, bundle = exported(auditor, corpus)
    assert checked(server, bundle).ok
    (shown,) = (signature for node in content_of(bundle)["nodes"] for signature in node["signatures"])
    assert (shown["id"], shown["signer_name"], shown["meaning"]) == (str(signature.id), "Ann Auditor", "approved")
    _, markdown = exported(auditor, corpus, format=ExportFormat.MARKDOWN)
    assert b"**Signed electronically by Ann Auditor**" in zipfile.ZipFile(io.BytesIO(markdown)).read("content.md")


def test_an_export_can_be_signed(server: Running, ann: Person, auditor: Client, corpus: UUID) -> None:
    result, _ = exported(auditor, corpus)
    target = SignatureTarget(SignatureTargetKind.EXPORT, result.export_id)
    prepared = auditor.prepare_signature(target, "released")
    assert result.sha256 in prepared.content
    signature = auditor.sign_record(prepared, ann.password, login="ann")
    assert signature.target.id == result.export_id
    assert signature.corpus_id == corpus
    with pytest.raises(NotFound):
        auditor.prepare_signature(SignatureTarget(SignatureTargetKind.EXPORT, uuid4()), "released")


def test_an_earlier_moment_can_be_exported(writer: Client, auditor: Client, corpus: UUID) -> None:
    before = datetime.now(UTC)
    writer.add_documents(corpus, [NewDocument("food.txt", REGULATIONS["food.txt"].encode())])
    now, bundle = exported(auditor, corpus)
    assert (now.revision, len(content_of(bundle)["documents"])) == (2, 2)
    for moment in (1, before):
        result, bundle = exported(auditor, corpus, as_of=moment)
        assert (result.revision, content_of(bundle)["revision"], len(content_of(bundle)["documents"])) == (1, 1, 1)


def test_an_empty_corpus_has_an_export_that_verifies(server: Running, writer: Client, auditor: Client) -> None:
    made = writer.create_corpus("empty")
    for kind in ExportFormat:
        result, bundle = exported(auditor, made.id, format=kind)
        assert result.revision == 0
        assert checked(server, bundle).ok


@pytest.mark.parametrize(
    "grant",
    [
        Grant(Role.READER),
        Grant(Role.WRITER),
        Grant(Role.REVIEWER),
        Grant(Role.AUDITOR, levels=(Level.SECTION, Level.MASTER)),
    ],
)
def test_only_a_caller_with_every_level_can_export(server: Running, corpus: UUID, grant: Grant) -> None:
    client = person(server, "bea", grant).log_in()
    with pytest.raises(PermissionDenied):
        exported(client, corpus)
    (record,) = records(server, call="ExportCorpus")
    assert record["outcome"] == "PERMISSION_DENIED"


def test_a_corpus_that_is_not_granted_is_not_found(server: Running, writer: Client, corpus: UUID) -> None:
    other_corpus = writer.create_corpus("other")
    bob = person(server, "bob", Grant(Role.AUDITOR, corpus_id=other_corpus.id)).log_in()
    with pytest.raises(NotFound) as error:
        exported(bob, corpus)
    assert error.value.reason is Reason.CORPUS_NOT_FOUND
    assert exported(bob, other_corpus.id)[0].revision == 0


def test_a_corpus_of_another_tenant_is_not_found(server: Running, corpus: UUID) -> None:
    gus = person(server, "gus", Role.AUDITOR, tenant=GLOBEX_ID).log_in()
    with pytest.raises(NotFound) as error:
        exported(gus, corpus)
    assert error.value.reason is Reason.CORPUS_NOT_FOUND
    with pytest.raises(NotFound) as error:
        exported(gus, corpus, tenant_id=ACME_ID)
    assert error.value.reason is Reason.TENANT_NOT_FOUND


def test_unknown_corpora_and_revisions_are_refused_and_recorded(server: Running, auditor: Client, corpus: UUID) -> None:
    with pytest.raises(NotFound) as error:
        exported(auditor, uuid4())
    assert error.value.reason is Reason.CORPUS_NOT_FOUND
    with pytest.raises(NotFound) as error:
        exported(auditor, corpus, as_of=7)
    assert error.value.reason is Reason.REVISION_NOT_FOUND
    outcomes = [record["outcome"] for record in records(server, call="ExportCorpus")]
    assert outcomes == ["CORPUS_NOT_FOUND", "REVISION_NOT_FOUND"]


def test_a_trimmed_revision_is_refused(server: Running, writer: Client, auditor: Client, corpus: UUID) -> None:
    writer.add_documents(corpus, [NewDocument("food.txt", REGULATIONS["food.txt"].encode())])
    keys = keys_of(server, str(corpus))
    server.engine.run(lambda tr: retention.raise_floor(tr, keys, Revision(2)))
    with pytest.raises(NotFound) as error:
        exported(auditor, corpus, as_of=1)
    assert error.value.reason is Reason.REVISION_TRIMMED


def test_a_revision_trimmed_while_it_is_exported_is_refused(
    server: Running, writer: Client, auditor: Client, corpus: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is trimmed between the bundle and its record. The bundle may have gaps, so nothing is sent."""
    writer.add_documents(corpus, [NewDocument("food.txt", REGULATIONS["food.txt"].encode())])
    keys = keys_of(server, str(corpus))
    from drillcore_server.exports.bundle import Binder

    bind = Binder.bind

    def trimmed_meanwhile(*args: Any) -> Any:
        bundle = bind(*args)
        server.engine.run(lambda tr: retention.raise_floor(tr, keys, Revision(2)))
        return bundle

    monkeypatch.setattr(Binder, "bind", trimmed_meanwhile)
    file = io.BytesIO()
    with pytest.raises(NotFound) as error:
        auditor.export_corpus(corpus, file, as_of=1)
    assert error.value.reason is Reason.REVISION_TRIMMED
    assert file.getvalue() == b""


@pytest.mark.parametrize("number", [0, 99])
def test_unknown_formats_are_refused(server: Running, corpus: UUID, number: int) -> None:
    request = pb.ExportCorpusRequest(tenant_id=str(ACME_ID), corpus_id=str(corpus), format=number)  # type: ignore[arg-type]
    with grpc.insecure_channel(server.address) as channel, refused(Reason.INVALID_ARGUMENT):
        list(
            ExportServiceStub(channel).ExportCorpus(iter([request]), metadata=[("authorization", f"Bearer {OPERATOR}")])
        )


def test_a_call_without_a_request_is_refused(server: Running) -> None:
    with grpc.insecure_channel(server.address) as channel, refused(Reason.INVALID_ARGUMENT):
        list(ExportServiceStub(channel).ExportCorpus(iter([]), metadata=[("authorization", f"Bearer {OPERATOR}")]))


def test_a_bundle_is_made_once_for_a_request(server: Running, auditor: Client, corpus: UUID) -> None:
    result, _ = exported(auditor, corpus, request_id="the-first")
    file = io.BytesIO()
    with pytest.raises(FailedPrecondition) as error:
        auditor.export_corpus(corpus, file, request_id="the-first")
    assert error.value.reason is Reason.EXPORT_MADE
    assert str(result.export_id) in error.value.message
    assert file.getvalue() == b""
    with pytest.raises(InvalidArgument) as reused:
        auditor.export_corpus(corpus, file, format=ExportFormat.PDF, request_id="the-first")
    assert reused.value.reason is Reason.REQUEST_ID_REUSED
    outcomes = [record["outcome"] for record in records(server, call="ExportCorpus")]
    assert outcomes == ["OK", "EXPORT_MADE", "REQUEST_ID_REUSED"]


def test_only_one_of_two_concurrent_runs_of_a_request_sends_its_bundle(
    server: Running, ann: Person, auditor: Client, corpus: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    from drillcore_server.exports.bundle import Binder

    bind, faster = Binder.bind, []

    def overtaken(*args: Any) -> Any:
        if not faster:
            faster.append(None)
            faster.append(exported(auditor, corpus, request_id="the-same"))
        return bind(*args)

    monkeypatch.setattr(Binder, "bind", overtaken)
    file = io.BytesIO()
    with pytest.raises(FailedPrecondition) as error:
        auditor.export_corpus(corpus, file, request_id="the-same")
    assert error.value.reason is Reason.EXPORT_MADE
    assert file.getvalue() == b""
    result, bundle = faster[1]
    assert result.size_bytes == len(bundle) > 0


def test_nothing_leaves_the_server_if_it_cannot_be_recorded(
    server: Running, auditor: Client, corpus: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no record")

    monkeypatch.setattr(exports, "add", broken)
    file = io.BytesIO()
    with pytest.raises(Internal):
        auditor.export_corpus(corpus, file)
    assert file.getvalue() == b""
    assert [record["outcome"] for record in records(server, call="ExportCorpus")] == ["INTERNAL"]


def test_a_bundle_comes_in_pieces_followed_by_its_description(server: Running, corpus: UUID) -> None:
    request = pb.ExportCorpusRequest(tenant_id=str(ACME_ID), corpus_id=str(corpus), format=pb.EXPORT_FORMAT_PDF)
    with grpc.insecure_channel(server.address) as channel:
        metadata = [("authorization", f"Bearer {OPERATOR}")]
        *pieces, last = ExportServiceStub(channel).ExportCorpus(iter([request]), metadata=metadata)
    assert all(len(piece.data) <= 256 * 1024 for piece in pieces)
    assert last.done.size_bytes == sum(len(piece.data) for piece in pieces)


def test_the_async_client_exports_too(server: Running, corpus: UUID) -> None:
    async def export() -> tuple[ExportResult, bytes, list[int]]:
        file, heard = io.BytesIO(), []
        async with AsyncClient(server.address, token=OPERATOR) as client:
            result = await client.export_corpus(corpus, file, tenant_id=ACME_ID, on_bytes=heard.append)
        return result, file.getvalue(), heard

    result, bundle, heard = asyncio.run(export())
    assert result.size_bytes == len(bundle) == heard[-1]
    assert checked(server, bundle).ok


def command(server: Running, token: str, home: Path, *arguments: object) -> Any:
    runner = CliRunner()
    flags = ["--address", server.address, "--token", token]
    return runner.invoke(main, [str(argument) for argument in (*arguments, *flags)], env={"HOME": str(home)})


def test_the_command_writes_a_bundle_that_the_other_command_verifies(
    server: Running, corpus: UUID, tmp_path: Path
) -> None:
    output = tmp_path / "rules.zip"
    wanted = ["export", "--corpus", "rules", "--output", output, "--format", "pdf"]
    done = command(server, OPERATOR, tmp_path, *wanted, "--tenant", ACME_ID)
    assert done.exit_code == 0, done.output
    assert hashlib.sha256(output.read_bytes()).hexdigest() in done.output
    key = server.server.logs.signing.signer(1).verifier.encode()
    found = CliRunner().invoke(main, ["verify", str(output), "--key", key])
    assert found.exit_code == 0, found.output
    again = command(server, OPERATOR, tmp_path, *wanted, "--tenant", ACME_ID)
    assert again.exit_code == 1
    assert "FILE_EXISTS" in again.output


def test_a_failed_export_leaves_no_file(server: Running, corpus: UUID, tmp_path: Path) -> None:
    output = tmp_path / "rules.zip"
    failed = command(server, GLOBEX, tmp_path, "export", "--corpus", corpus, "--output", output, "--no-audit")
    assert failed.exit_code == 1
    assert list(tmp_path.glob("*rules*")) == []
    nowhere = tmp_path / "no" / "rules.zip"
    failed = command(server, OPERATOR, tmp_path, "export", "--corpus", corpus, "--tenant", ACME_ID, "--output", nowhere)
    assert failed.exit_code == 1
    assert "CANNOT_WRITE" in failed.output
