"""Every call, however it ends, leaves one record of who did what, when and to what, in its own transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor

from drillcore import Client, InvalidArgument, Level, NewDocument, NotFound, Reason, Unavailable
from drillcore_fdb.engine import Transaction
from drillcore_server.app.factories import open_keyring
from drillcore_server.fsck.check_store import Fsck
from drillcore_server.kernel.trail import ACTIONS
from drillcore_server.storage import audit_records
from drillcore_server.storage.audit_records import AuditState
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.store import open_store
from drillcore_server.transport.stages import OPEN_TO_NOBODY
from tests.support.data.texts import notice
from tests.support.servers.concurrently import concurrently
from tests.support.servers.rpcs import METHODS, call, name_of, path_of, request_of
from tests.support.servers.running import ACME, ACME_ID, GLOBEX_ID, OPERATOR, Running, running
from tests.support.stores.engines import engine_settings, open_engine
from tests.support.stores.trails import all_records, records

SERVER_LOG = str(UUID(int=0))


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server for the tests that look at the records of their own requests only."""
    with running(tmp_path_factory.mktemp("audited"), strangers_per_minute=100_000) as found:
        found.client().create_tenant("acme", tenant_id=ACME_ID)
        yield found


@pytest.mark.parametrize("token", [OPERATOR, ACME, "", "forged"], ids=["operator", "tenant", "nobody", "forged"])
@pytest.mark.parametrize("method", METHODS, ids=name_of)
def test_every_rpc_leaves_one_record_whoever_calls(audited: Running, method: MethodDescriptor, token: str) -> None:
    request_id = str(uuid4())
    content = request_of(method).SerializeToString()
    answer = call(audited.address, path_of(method), content, token=token or None, drillcore_request_id=request_id)
    (record,) = records(audited, request_id=request_id)
    outcome = "OK" if answer.code is grpc.StatusCode.OK else answer.info.reason
    assert (record["call"], record["outcome"]) == (method.name, outcome)
    assert record["action"] == ACTIONS[method.name].value
    counted = "" if method.name in OPEN_TO_NOBODY else token
    assert record.get("operator") == {OPERATOR: "root", ACME: "ann@acme"}.get(counted)
    assert record["log"] == (str(ACME_ID) if counted == ACME else SERVER_LOG)


def test_every_action_belongs_to_an_rpc_or_to_the_server_itself() -> None:
    assert ACTIONS.keys() - {method.name for method in METHODS} == {"Alert", "Housekeeping", "InviteServer"}


def test_a_read_says_what_was_read_and_why(server: Running, acme: Client) -> None:
    corpus = acme.create_corpus("rules").id
    added = acme.add_documents(corpus, [NewDocument("a.txt", notice(1).encode())])
    hits = acme.query("inspector of bridges", corpus_ids=[corpus], request_id="search").items
    (record,) = records(server, request_id="search")
    assert record["action"] == "ACCESS"
    assert record["tenant"] == record["log"] == str(ACME_ID)
    assert record["corpora"] == {str(corpus): added.revision}
    assert record["levels"] == ["chunk"]
    assert record["nodes"] == [str(hit.node.id) for hit in hits]
    assert record["nodes_count"] == len(hits) > 0
    assert record["operator"] == "ann@acme"
    assert record["peer"].startswith("ipv4:127.0.0.1:")
    assert datetime.now(UTC) - datetime.fromisoformat(record["at"]) < timedelta(minutes=1)
    assert record["opened"] == {"query": "inspector of bridges"}, "the text is in the part that can be erased"


def test_a_change_names_the_revisions_before_and_after_and_commits_to_what_was_written(
    server: Running, acme: Client
) -> None:
    corpus = acme.create_corpus("rules").id
    first = acme.add_documents(corpus, [NewDocument("a.txt", notice(1).encode())], request_id="first")
    acme.remove_documents(corpus, [first.outcomes[0].document_id], request_id="second")
    added, removed = records(server, request_id="first")[0], records(server, request_id="second")[0]
    assert (added["action"], removed["action"]) == ("CREATE", "DELETE")
    assert (added["before"], added["after"]["revision"]) == ({"revision": 0}, 1)
    assert (removed["before"], removed["after"]["revision"]) == ({"revision": 1}, 2)
    assert len(added["after"]["commitment"]) == 64
    assert added["after"]["commitment"] != removed["after"]["commitment"]
    assert added["documents"] == removed["documents"] == [str(first.outcomes[0].document_id)]
    assert set(added["levels"]) == {"raw", "chunk", "section", "master"}


def test_an_update_of_a_corpus_is_recorded_with_the_corpus_before_and_after(server: Running, acme: Client) -> None:
    corpus = acme.create_corpus("rules", description="first").id
    acme.update_corpus(corpus, description="second", set_metadata={"ключ": "1", "😀": "2"}, request_id="change")
    (record,) = records(server, request_id="change")
    assert record["opened"]["before"]["description"] == "first"
    assert record["opened"]["after"]["description"] == "second"
    assert record["opened"]["after"]["metadata"] == [["ключ", "1"], ["😀", "2"]]


def test_an_upload_that_changes_nothing_is_recorded_too(server: Running, acme: Client) -> None:
    corpus = acme.create_corpus("rules").id
    document = NewDocument("a.txt", notice(1).encode())
    acme.add_documents(corpus, [document])
    acme.add_documents(corpus, [document], request_id="again")
    acme.add_documents(corpus, [document], request_id="again")
    (record,) = records(server, request_id="again")
    assert (record["outcome"], record["detail"]) == ("OK", {"unchanged": True})


def test_calls_of_an_operator_in_a_tenant_are_in_that_tenants_log(server: Running, acme: Client) -> None:
    corpus = acme.create_corpus("rules").id
    server.client().get_corpus(corpus, tenant_id=ACME_ID, request_id="looked")
    (record,) = records(server, request_id="looked")
    assert (record["log"], record["operator"]) == (str(ACME_ID), "root")


def test_calls_of_one_tenant_are_in_no_other_tenants_log(server: Running, acme: Client, globex: Client) -> None:
    corpus = acme.create_corpus("rules").id
    with pytest.raises(NotFound):
        globex.get_corpus(corpus, request_id="stranger")
    (record,) = records(server, request_id="stranger")
    assert (record["log"], record["outcome"]) == (str(GLOBEX_ID), "CORPUS_NOT_FOUND")


def test_a_refused_call_is_recorded_with_what_it_was_about(server: Running, acme: Client) -> None:
    corpus = acme.create_corpus("rules").id
    with pytest.raises(NotFound):
        acme.get_document(corpus, uuid4(), request_id="missing")
    (record,) = records(server, request_id="missing")
    assert (record["outcome"], record["corpora"]) == ("DOCUMENT_NOT_FOUND", {str(corpus): 0})


def test_a_retry_of_a_refused_call_is_recorded_once_for_each_reason(server: Running, acme: Client) -> None:
    for _ in range(3):
        with pytest.raises(NotFound):
            acme.get_corpus(uuid4(), request_id="missing")
    assert len(records(server, request_id="missing")) == 1


def test_a_repeated_write_has_one_record(server: Running, acme: Client) -> None:
    concurrently(8, lambda _: acme.create_corpus("rules", request_id="one"))
    assert len(records(server, request_id="one")) == 1


def test_a_repeated_read_has_one_record(server: Running, acme: Client) -> None:
    corpus = acme.create_corpus("rules").id
    concurrently(8, lambda _: acme.get_corpus(corpus, request_id="one"))
    assert len(records(server, request_id="one")) == 1


def test_if_the_record_cannot_be_written_the_call_fails_and_does_nothing(server: Running, acme: Client) -> None:
    """The signing key is missing."""
    corpus = acme.create_corpus("rules").id
    before = len(list(all_records(server)))
    keys = Keyspace(open_store(server.engine)[0])

    def use_key(number: int) -> None:
        def work(tr: Transaction) -> None:
            audit_records.set_state(tr, keys, AuditState(0, number))

        server.engine.run(work)

    use_key(7)
    for attempt in (
        lambda: acme.create_corpus("more rules"),
        lambda: acme.get_corpus(corpus),
        lambda: acme.add_documents(corpus, [NewDocument("a.txt", notice(1).encode())]),
        lambda: acme.query("anything", level=Level.CHUNK, corpus_ids=[corpus]),
    ):
        with pytest.raises(Unavailable) as refused:
            attempt()
        assert refused.value.reason is Reason.AUDIT_UNAVAILABLE
    use_key(1)
    assert [listed.name for listed in acme.iter_corpora()] == ["rules"]
    assert len(list(all_records(server))) == before + 1, "only the listing left a record"


def test_a_server_that_wants_a_reason_refuses_calls_without_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    with running(tmp_path_factory.mktemp("reasons"), reason_required=True) as found:
        with pytest.raises(InvalidArgument) as refused:
            found.client().list_tenants(request_id="silent")
        assert refused.value.reason is Reason.REASON_REQUIRED
        (record,) = records(found, request_id="silent")
        assert record["outcome"] == "REASON_REQUIRED"


def test_strangers_cannot_fill_the_log_and_unrecorded_calls_are_counted(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with running(tmp_path_factory.mktemp("strangers"), strangers_per_minute=5) as found:
        before = len(list(all_records(found)))
        (method,) = [method for method in METHODS if method.name == "ListTenants"]
        for _ in range(20):
            assert call(found.address, path_of(method), b"", token="forged").code is grpc.StatusCode.UNAUTHENTICATED
        assert len(list(all_records(found))) == before + 5


def test_fsck_checks_the_logs_too(tmp_path: Path) -> None:
    with running(tmp_path) as found:
        found.client().create_tenant("acme", tenant_id=ACME_ID)
        found.client(ACME).create_corpus("rules")
    with closing(open_engine(tmp_path)) as engine, open_keyring(engine_settings(tmp_path), engine) as keyring:
        root, header = open_store(engine)
        keys = Keyspace(root)
        assert Fsck(engine, keys, keyring, header.store_id).run().problems == ()
        engine.run(lambda tr: tr.set(keys.audit_tile(ACME_ID, 0, 0), bytes(32)))
        problems = Fsck(engine, keys, keyring, header.store_id).run().problems
    assert any(problem.startswith(f"audit log {ACME_ID}, record 0: ") for problem in problems), problems
