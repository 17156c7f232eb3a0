"""QueryAudit gives every record that a filter asks for, newest first, to callers who may see it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import grpc
import pytest

from drillcore import (
    AuditFilter,
    AuditRecord,
    Client,
    DrillcoreError,
    Grant,
    Level,
    NewDocument,
    PermissionDenied,
    Reason,
    Role,
)
from drillcore_formats.audit.leaves import Leaf, commit_to
from drillcore_proto.v1 import audit_pb2 as pb
from drillcore_proto.v1.audit_pb2_grpc import AuditServiceStub
from tests.support.callers.knowledge import refused
from tests.support.data.texts import REGULATIONS
from tests.support.servers.running import ACME, ACME_ID, GLOBEX_ID, Running, create_tenants, running
from tests.support.servers.signatories import QUICK, person


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "data", auth=QUICK) as found:
        create_tenants(found.client())
        yield found


@pytest.fixture
def writer(server: Running) -> Client:
    return server.client(ACME)


@pytest.fixture
def auditor(server: Running) -> Client:
    return person(server, "ann", Role.AUDITOR).log_in()


@pytest.fixture
def corpus(writer: Client) -> UUID:
    made = writer.create_corpus("rules")
    writer.add_documents(made.id, [NewDocument("records.txt", REGULATIONS["records.txt"].encode())])
    return made.id


def calls(records: Iterator[AuditRecord]) -> list[str]:
    return [record.body["call"] for record in records]


def test_the_newest_record_comes_first_and_is_there_as_soon_as_its_call_was_answered(
    writer: Client, auditor: Client
) -> None:
    for number in range(20):
        request = f"request {number}"
        writer.create_corpus(f"corpus {number}", request_id=request)
        newest = auditor.query_audit(page_size=1).items[0]
        assert (newest.body["call"], newest.body["request_id"]) == ("CreateCorpus", request)


def test_a_record_says_who_did_what_when_and_why(server: Running, auditor: Client, corpus: UUID) -> None:
    asking = server.client(ACME, reason="a question of the inspector")
    asking.query("audit trails", corpus_ids=[corpus], request_id="asked")
    (record,) = auditor.iter_audit(AuditFilter(request_id="asked"))
    assert record.body["action"] == "ACCESS"
    assert record.body["operator"] == "ann@acme"
    assert list(record.body["corpora"]) == [str(corpus)]
    assert datetime.now(UTC) - datetime.fromisoformat(record.body["at"]) < timedelta(minutes=1)
    assert record.private == {"query": "audit trails", "reason": "a question of the inspector"}
    leaf = Leaf.decode(record.leaf)
    assert leaf.record == record.id
    assert leaf.log == ACME_ID


def test_each_filter_finds_its_records_and_all_together_narrow_them_down(
    writer: Client, auditor: Client, corpus: UUID
) -> None:
    other_corpus = writer.create_corpus("other")
    section = next(writer.iter_query(level=Level.SECTION, corpus_ids=[corpus], page_size=1)).node
    before = datetime.now(UTC)
    writer.get_node(section.id, request_id="seen")
    after = datetime.now(UTC) + timedelta(microseconds=1)
    writer.get_corpus(other_corpus.id)
    (document,) = [document.id for document in writer.iter_documents(corpus)]
    assert set(calls(auditor.iter_audit(AuditFilter(corpus_id=other_corpus.id)))) == {"CreateCorpus", "GetCorpus"}
    assert calls(auditor.iter_audit(AuditFilter(node_id=section.id))) == ["GetNode", "Query", "AddDocuments"]
    assert "AddDocuments" in calls(auditor.iter_audit(AuditFilter(node_id=document)))
    assert set(calls(auditor.iter_audit(AuditFilter(action="CREATE", operator="ann@acme")))) == {
        "AddDocuments",
        "CreateCorpus",
    }
    assert calls(auditor.iter_audit(AuditFilter(since=before, until=after))) == ["GetNode"]
    (made,) = auditor.iter_audit(AuditFilter(request_id="seen"))
    auditor.wait_proof(made.id)  # from now on the record has its place in the log
    (seen,) = auditor.iter_audit(AuditFilter(request_id="seen"))
    assert list(auditor.iter_audit(AuditFilter(record_id=seen.id))) == [seen]
    everything = AuditFilter(corpus, section.id, "ann@acme", "ACCESS", before, after, "seen", seen.id)
    assert list(auditor.iter_audit(everything)) == [seen]
    for nothing in (
        AuditFilter(operator="nobody"),
        AuditFilter(other_corpus.id, request_id="seen"),
        AuditFilter(uuid4()),
    ):
        assert list(auditor.iter_audit(nothing)) == []


def test_pages_go_on_where_they_ended_whatever_is_recorded_meanwhile(writer: Client, auditor: Client) -> None:
    for number in range(5):
        writer.create_corpus(f"corpus {number}", request_id=f"request {number}")
    seen, token = [], ""
    while True:
        page = auditor.query_audit(AuditFilter(action="CREATE", operator="ann@acme"), page_size=2, page_token=token)
        seen += [record.body["request_id"] for record in page.items]
        writer.create_corpus(f"corpus made after page {len(seen)}")
        token = page.next_page_token
        if not token:
            break
    assert seen == [f"request {number}" for number in range(4, -1, -1)]


def test_a_query_is_on_the_record_but_not_in_its_own_answer(auditor: Client) -> None:
    wanted = AuditFilter(action="ACCESS", operator="somebody@acme")
    first = auditor.query_audit(wanted, request_id="asked")
    assert first.items == ()
    again = auditor.query_audit(AuditFilter(request_id="asked"), request_id="asked again")
    assert calls(iter(again.items)) == ["QueryAudit"]
    body, private = again.items[0].body, again.items[0].private
    assert body["detail"] == {"filter": {"action": "ACCESS"}, "records": 0}
    assert private == {"filter": {"operator": "somebody@acme"}}


def test_a_repeated_query_gets_the_same_answer(auditor: Client) -> None:
    first = auditor.query_audit(request_id="twice")
    assert auditor.query_audit(request_id="twice").items[0].id == first.items[0].id


def test_refusals_are_found_too(server: Running, auditor: Client, corpus: UUID) -> None:
    reader = person(server, "rob", Role.READER)
    client = reader.log_in()
    with pytest.raises(PermissionDenied):
        client.query_audit(request_id="curious")
    (record,) = auditor.iter_audit(AuditFilter(request_id="curious"))
    assert record.body["outcome"] == "PERMISSION_DENIED"
    assert record.body["operator"] == str(reader.account.id)


def test_the_shown_record_is_the_signed_record(auditor: Client, corpus: UUID) -> None:
    message = raw_query(auditor)
    assert len(message.records) >= 3
    for record in message.records:
        assert commit_to(record.salt, record.body.encode()) == Leaf.decode(record.leaf).commitment


def raw_query(client: Client) -> pb.QueryAuditResponse:
    with grpc.insecure_channel(client.settings.address) as channel:
        return AuditServiceStub(channel).QueryAudit(
            pb.QueryAuditRequest(), metadata=[("authorization", f"Bearer {client.settings.token}")]
        )


def test_a_tenants_log_has_nothing_of_another(server: Running, auditor: Client, corpus: UUID) -> None:
    stranger = person(server, "gina", Role.AUDITOR, tenant=GLOBEX_ID).log_in()
    assert all(record.body["log"] == str(GLOBEX_ID) for record in stranger.iter_audit())
    assert list(stranger.iter_audit(AuditFilter(corpus_id=corpus))) == []
    with pytest.raises(DrillcoreError) as error:
        stranger.query_audit(tenant_id=ACME_ID)
    assert error.value.reason is Reason.TENANT_NOT_FOUND


@pytest.mark.parametrize("role", [Role.READER, Role.WRITER, Role.REVIEWER, Role.OPERATOR])
def test_only_auditors_see_a_tenants_log(server: Running, role: Role) -> None:
    with pytest.raises(PermissionDenied):
        person(server, "pat", role).log_in().query_audit()


def test_an_auditor_of_one_corpus_does_not_see_the_whole_log(server: Running, corpus: UUID) -> None:
    with pytest.raises(PermissionDenied):
        person(server, "cora", Grant(Role.AUDITOR, corpus_id=corpus)).log_in().query_audit()


def test_the_servers_own_log_is_shown_to_its_operators_only(server: Running, auditor: Client) -> None:
    operator = server.client()
    assert "CreateTenant" in calls(operator.iter_audit(server_log=True))
    with pytest.raises(PermissionDenied):
        auditor.query_audit(server_log=True)
    with pytest.raises(DrillcoreError) as error:
        operator.query_audit(server_log=True, tenant_id=ACME_ID)
    assert error.value.reason is Reason.INVALID_ARGUMENT


NOW = datetime.now(UTC)


@pytest.mark.parametrize(
    "wanted",
    [
        AuditFilter(action="access"),
        AuditFilter(action="EVERYTHING"),
        AuditFilter(since=NOW, until=NOW),
        AuditFilter(since=NOW, until=NOW - timedelta(days=1)),
        AuditFilter(operator="x" * 300),
        AuditFilter(request_id="x" * 300),
    ],
)
def test_filters_that_can_match_nothing_are_refused(auditor: Client, wanted: AuditFilter) -> None:
    with pytest.raises(DrillcoreError) as error:
        auditor.query_audit(wanted)
    assert error.value.reason is Reason.INVALID_ARGUMENT


@pytest.mark.parametrize("field", ["corpus_id", "node_id", "record_id"])
def test_malformed_ids_are_refused(auditor: Client, field: str) -> None:
    with pytest.raises(DrillcoreError) as error:
        auditor.query_audit(AuditFilter(**{field: "rules"}))
    assert error.value.reason is Reason.INVALID_ID


def test_page_tokens_of_other_listings_are_refused(writer: Client, auditor: Client) -> None:
    for number in range(3):
        writer.create_corpus(f"corpus {number}")
    token = auditor.query_audit(page_size=1).next_page_token
    for wanted, bad in [
        (AuditFilter(action="CREATE"), token),
        (AuditFilter(), token[:-2]),
        (AuditFilter(), "nonsense"),
    ]:
        with pytest.raises(DrillcoreError) as error:
            auditor.query_audit(wanted, page_token=bad)
        assert error.value.reason is Reason.INVALID_PAGE_TOKEN


def test_an_unknown_filter_is_refused_not_ignored(server: Running, auditor: Client) -> None:
    request = pb.QueryAuditRequest()
    request.filter.MergeFromString(bytes([99 << 3 & 0x7F | 0x80, 99 >> 4, 1]))
    metadata = [("authorization", f"Bearer {auditor.settings.token}")]
    with grpc.insecure_channel(server.address) as channel, refused(Reason.UNKNOWN_FIELD):
        AuditServiceStub(channel).QueryAudit(request, metadata=metadata)
