"""ExportAudit: an export can be verified without the server."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import grpc
import pytest

from drillcore import (
    AsyncClient,
    AuditFilter,
    AuditFormat,
    AuditRecord,
    Client,
    DrillcoreError,
    NewDocument,
    PermissionDenied,
    Reason,
    Role,
    SignatureTarget,
    SignatureTargetKind,
)
from drillcore_formats.audit.exported import verify_export
from drillcore_formats.audit.findings import Report
from drillcore_formats.audit.keys import KeyChain
from drillcore_formats.audit.notes import Note
from drillcore_formats.audit.pins import Pins
from drillcore_proto.v1 import audit_pb2 as pb
from drillcore_proto.v1.audit_pb2_grpc import AuditServiceStub
from tests.support.callers.knowledge import refused
from tests.support.data.texts import REGULATIONS
from tests.support.servers.running import ACME, ACME_ID, GLOBEX_ID, Running, create_tenants, running
from tests.support.servers.signatories import QUICK, Person, person


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "data", auth=QUICK) as found:
        create_tenants(found.client())
        yield found


@pytest.fixture
def writer(server: Running) -> Client:
    return server.client(ACME)


@pytest.fixture
def who(server: Running) -> Person:
    return person(server, "ann", Role.AUDITOR)


@pytest.fixture
def auditor(who: Person) -> Client:
    return who.log_in()


@pytest.fixture
def corpus(writer: Client) -> UUID:
    made = writer.create_corpus("rules")
    writer.add_documents(made.id, [NewDocument("records.txt", REGULATIONS["records.txt"].encode())])
    return made.id


def exported(client: Client, wanted: AuditFilter | None = None, **options: Any) -> bytes:
    file = io.BytesIO()
    size = client.export_audit(file, wanted or AuditFilter(), **options)
    assert size == len(file.getvalue())
    return file.getvalue()


def lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def pins(client: Client, **options: Any) -> Pins:
    """What an auditor pins: the first key that the store signed with."""
    chain = KeyChain.parse(json.loads(client.get_checkpoint(**options).keys))
    return Pins((chain.verifier(chain.keys[0]),))


def verified(data: bytes, pinned: Pins) -> Report:
    return verify_export(io.BytesIO(data), pinned)


def test_a_whole_log_is_verified_without_the_server(writer: Client, auditor: Client, corpus: UUID) -> None:
    writer.query("audit trails", corpus_ids=[corpus])
    data = exported(auditor)
    header, *records, end = lines(data)
    assert header["complete"] is True
    assert [record["index"] for record in records] == list(range(header["size"]))
    assert end == {"end": header["size"]}
    report = verified(data, pins(auditor))
    assert report.ok, report.problems
    assert report.verified == header["size"]
    assert any(record.get("private") == {"query": "audit trails"} for record in records)


def test_every_record_of_a_call_that_was_answered_before_is_in_the_export(writer: Client, auditor: Client) -> None:
    for number in range(10):
        request = str(uuid4())
        writer.create_corpus(f"corpus {number}", request_id=request)
        assert request in [line["body"]["request_id"] for line in lines(exported(auditor))[1:-1]]


@pytest.mark.parametrize("named", ["corpus_id", "operator", "action", "request_id", "since"])
def test_a_selection_has_a_proof_for_each_record(writer: Client, auditor: Client, corpus: UUID, named: str) -> None:
    writer.get_corpus(corpus, request_id="asked")
    filters = {
        "corpus_id": AuditFilter(corpus_id=corpus),
        "operator": AuditFilter(operator="ann@acme"),
        "action": AuditFilter(action="ACCESS"),
        "request_id": AuditFilter(request_id="asked"),
        "since": AuditFilter(since=datetime.now(UTC) - timedelta(hours=1)),
    }
    data = exported(auditor, filters[named])
    header, *records, _ = lines(data)
    assert header["complete"] is False
    assert records
    assert all("proof" in record for record in records)
    report = verified(data, pins(auditor))
    assert report.ok, report.problems
    assert report.verified == len(records)


def test_a_selection_without_records_is_a_valid_file(auditor: Client) -> None:
    data = exported(auditor, AuditFilter(operator="nobody"))
    assert lines(data)[-1] == {"end": 0}
    assert verified(data, pins(auditor)).ok


def test_a_changed_record_of_an_export_is_found(auditor: Client, corpus: UUID) -> None:
    data = exported(auditor)
    assert not verified(data.replace(b'"CreateCorpus"', b'"DeleteCorpus"'), pins(auditor)).ok
    assert not verified(b"".join(data.splitlines(keepends=True)[:-2]), pins(auditor)).ok


def test_an_export_of_many_pages_is_whole(writer: Client, auditor: Client) -> None:
    for _ in range(450):
        writer.list_corpora()
    data = exported(auditor)
    assert len(lines(data)) > 450
    assert verified(data, pins(auditor)).ok
    accesses = exported(auditor, AuditFilter(action="ACCESS"))
    assert len(lines(accesses)) > 450
    assert verified(accesses, pins(auditor)).ok


def test_an_export_across_a_new_signing_key_is_verified_by_the_first_key(
    server: Running, writer: Client, auditor: Client, corpus: UUID
) -> None:
    pinned = pins(auditor)
    server.client().rotate_audit_key()
    writer.get_corpus(corpus)
    for wanted in (AuditFilter(), AuditFilter(corpus_id=corpus)):
        report = verified(exported(auditor, wanted), pinned)
        assert report.ok, report.problems


class Asking(io.BytesIO):
    """A file that asks, when its first bytes come, whether the export is on the record."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client
        self.found: list[AuditRecord] = []

    def write(self, data: Any, /) -> int:
        self.found = self.found or list(self._client.iter_audit(AuditFilter(request_id="exported")))
        return super().write(data)


def test_an_export_is_on_the_record_before_its_first_line(auditor: Client, who: Person, corpus: UUID) -> None:
    file = Asking(auditor)
    auditor.export_audit(file, AuditFilter(corpus_id=corpus), request_id="exported")
    (record,) = file.found
    size = lines(file.getvalue())[0]["size"]
    assert (record.body["action"], record.body["operator"]) == ("EXPORT", str(who.account.id))
    assert record.body["detail"] == {"filter": {"corpus_id": str(corpus)}, "format": "ndjson", "size": size}
    assert auditor.wait_proof(record.id).index >= size


def test_the_checkpoint_of_an_export_is_the_logs_own(auditor: Client, corpus: UUID) -> None:
    header = lines(exported(auditor))[0]
    assert Note.parse(header["checkpoint"]).text.splitlines()[1] == str(header["size"])
    assert header["log"] == str(ACME_ID)


def test_a_signature_is_in_the_export(auditor: Client, who: Person, corpus: UUID) -> None:
    record = next(auditor.iter_audit(AuditFilter(corpus_id=corpus)))
    auditor.wait_proof(record.id)
    prepared = auditor.prepare_signature(SignatureTarget(SignatureTargetKind.AUDIT_RECORD, record.id), "seen")
    signature = auditor.sign_record(prepared, who.password, login="ann")
    (line,) = [line for line in lines(exported(auditor))[1:-1] if line["body"]["id"] == str(signature.record_id)]
    assert line["body"]["action"] == "SIGN"
    assert line["body"]["detail"] == {
        "target": {"kind": "audit_record", "id": str(record.id), "version": 1},
        "signature_id": str(signature.id),
        "meaning": "seen",
        "content_hash": signature.content_hash.hex(),
    }


def test_the_servers_own_log_is_exported_to_its_operators_only(server: Running, auditor: Client) -> None:
    operator = server.client()
    data = exported(operator, server_log=True)
    assert verified(data, pins(operator, server_log=True)).ok
    with pytest.raises(PermissionDenied):
        exported(auditor, server_log=True)


def test_an_asynchronous_client_gets_the_same_file(auditor: Client, corpus: UUID) -> None:
    told: list[int] = []

    async def export() -> bytes:
        file = io.BytesIO()
        async with AsyncClient(auditor.settings.address, token=auditor.settings.token) as client:
            await client.export_audit(file, AuditFilter(corpus_id=corpus), on_bytes=told.append)
        return file.getvalue()

    data = asyncio.run(export())
    assert told[-1] == len(data)
    assert verified(data, pins(auditor)).ok


def test_a_caller_who_may_not_audit_gets_no_line(server: Running, writer: Client, corpus: UUID) -> None:
    for client in (person(server, "rob", Role.READER).log_in(), person(server, "rita", Role.REVIEWER).log_in()):
        file = io.BytesIO()
        with pytest.raises(PermissionDenied):
            client.export_audit(file)
        assert file.getvalue() == b""
    stranger = person(server, "gina", Role.AUDITOR, tenant=GLOBEX_ID).log_in()
    with pytest.raises(DrillcoreError) as error:
        exported(stranger, tenant_id=ACME_ID)
    assert error.value.reason is Reason.TENANT_NOT_FOUND


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ([], Reason.INVALID_ARGUMENT),
        ([pb.ExportAuditRequest()], Reason.INVALID_ARGUMENT),
        ([pb.ExportAuditRequest(format=7)], Reason.INVALID_ARGUMENT),  # type: ignore[arg-type]
        (
            [pb.ExportAuditRequest(format=pb.AUDIT_FORMAT_NDJSON, filter=pb.AuditFilter(action="NONE"))],
            Reason.INVALID_ARGUMENT,
        ),
        (
            [pb.ExportAuditRequest(format=pb.AUDIT_FORMAT_OCSF, filter=pb.AuditFilter(corpus_id="rules"))],
            Reason.INVALID_ID,
        ),
    ],
    ids=["nothing", "no format", "unknown format", "unknown action", "no id"],
)
def test_bad_requests_are_refused(auditor: Client, requests: list[pb.ExportAuditRequest], expected: Reason) -> None:
    metadata = [("authorization", f"Bearer {auditor.settings.token}")]
    with grpc.insecure_channel(auditor.settings.address) as channel, refused(expected):
        list(AuditServiceStub(channel).ExportAudit(iter(requests), metadata=metadata))


REQUIRED = {
    6003: ("activity_id", "actor", "api", "category_uid", "class_uid", "metadata", "severity_id", "src_endpoint"),
    3002: ("activity_id", "category_uid", "class_uid", "metadata", "severity_id", "user", "service"),
}
"""The fields that ocsf-schema 1.3.0 requires in events/application/api.json, events/iam/authentication.json and
the files that these extend and include. Every event also has time and type_uid."""


def test_events_have_what_the_schema_requires(server: Running, writer: Client, auditor: Client, corpus: UUID) -> None:
    with pytest.raises(PermissionDenied):
        person(server, "rob", Role.READER).log_in().query_audit()
    events = lines(exported(auditor, format=AuditFormat.OCSF))
    assert {event["class_uid"] for event in events} == {6003, 3002}
    for event in events:
        missing = [name for name in (*REQUIRED[event["class_uid"]], "time", "type_uid") if name not in event]
        assert not missing
        assert event["type_uid"] == event["class_uid"] * 100 + event["activity_id"]
        assert event["metadata"]["version"] == "1.3.0"
        assert {"name", "vendor_name"} <= event["metadata"]["product"].keys()
        assert isinstance(event["time"], int)
        if event["class_uid"] == 6003:
            assert event["actor"]["user"]["uid"]
            assert event["api"]["operation"]
            assert event["src_endpoint"]["ip"] == "127.0.0.1"


def test_events_say_who_did_what_when_and_how_it_ended(
    server: Running, writer: Client, auditor: Client, corpus: UUID
) -> None:
    rob = person(server, "rob", Role.READER)
    with pytest.raises(PermissionDenied):
        rob.log_in().query_audit(request_id="curious")
    events = lines(exported(auditor, format=AuditFormat.OCSF))
    (denied,) = [event for event in events if event["metadata"]["correlation_uid"] == "curious"]
    assert denied["actor"]["user"]["uid"] == str(rob.account.id)
    assert (denied["api"]["operation"], denied["activity_name"]) == ("QueryAudit", "Read")
    assert (denied["status"], denied["status_code"], denied["severity"]) == ("Failure", "PERMISSION_DENIED", "Medium")
    (created,) = [event for event in events if event.get("api", {}).get("operation") == "CreateCorpus"]
    assert (created["activity_name"], created["status"], created["severity"]) == ("Create", "Success", "Informational")
    assert {"uid": str(corpus), "type": "corpus"} in created["resources"]
    logins = [event for event in events if event["class_uid"] == 3002]
    assert {login["user"]["name"] for login in logins} == {"ann", "rob"}
    assert {login["type_name"] for login in logins} == {"Authentication: Logon"}


def test_events_contain_nothing_private(writer: Client, auditor: Client, corpus: UUID) -> None:
    writer.query("a very private question", corpus_ids=[corpus])
    assert b"very private" in exported(auditor)
    assert b"very private" not in exported(auditor, format=AuditFormat.OCSF)
