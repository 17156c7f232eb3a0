"""Documents and nodes of another tenant are never found, and no log contains their content."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor

from drillcore import Client
from drillcore_proto.reasons import Reason
from drillcore_proto.v1.nodes_pb2 import Filters
from tests.support.callers.hierarchies import Made, put, two_sections
from tests.support.callers.knowledge import CHUNK, LEVELS, MASTER, RAW, Caller, File, parts, update_parts
from tests.support.data.texts import REGULATIONS, notice
from tests.support.fixtures import new_corpus
from tests.support.servers.rpcs import KNOWLEDGE_METHODS, RawAnswer, call, fields_of, name_of, path_of, request_of
from tests.support.servers.running import ACME, ACME_ID, GLOBEX, GLOBEX_ID, OPERATOR, Running
from tests.support.servers.trees import Tree, walk

SECRET = "globex keeps this secret"
every_method = pytest.mark.parametrize("method", KNOWLEDGE_METHODS, ids=name_of)
NOT_FOUND = {Reason.CORPUS_NOT_FOUND.name, Reason.NODE_NOT_FOUND.name, Reason.DOCUMENT_NOT_FOUND.name}


@pytest.fixture(scope="module")
def theirs(shared: Running) -> Tree:
    """The documents and nodes of another tenant."""
    caller, corpus = Caller(shared.address, GLOBEX), new_corpus(shared, GLOBEX)
    caller.add_texts(corpus, {f"{SECRET}.txt": f"{SECRET}\n\n{SECRET}, and shall keep it so.\n\n{notice(7)}"})
    tree = walk(caller, corpus)
    caller.close()
    return tree


def naming(method: MethodDescriptor, tree: Tree) -> list[dict[str, Any]]:
    """Requests that name a corpus's records in every way the method has."""
    corpus, document = tree.master.corpus_id, next(iter(tree.documents))
    nodes = [tree.master.id, *(next(iter(level)) for level in (tree.sections, tree.chunks, tree.raws))]
    return {
        "AddDocuments": [{"corpus_id": corpus}],
        "UpdateDocument": [
            {"corpus_id": corpus, "document_id": document},
            {"corpus_id": corpus, "source_id": tree.documents[document].source_id},
        ],
        "PutHierarchy": [{"corpus_id": corpus}],
        "RemoveDocuments": [{"corpus_id": corpus, "document_ids": [document]}],
        "GetDocument": [{"corpus_id": corpus, "id": document, "with_text": True}],
        "ListDocuments": [{"corpus_id": corpus}],
        "GetNode": [{"id": node} for node in nodes],
        "Query": [{"corpus_ids": [corpus], "level": level} for level in LEVELS],
        "DrillDown": [{"id": node, "target": RAW} for node in nodes],
        "RollUp": [{"ids": [node], "target": MASTER} for node in nodes],
        "GetHistory": [{"corpus_id": corpus}, *({"corpus_id": "", "node_id": node} for node in nodes)],
    }[method.name]


def ask(server: Running, token: str, method: MethodDescriptor, **fields: Any) -> RawAnswer:
    return call(server.address, path_of(method), request_of(method, **fields).SerializeToString(), token=token)


@every_method
def test_another_tenants_records_are_not_found(shared: Running, theirs: Tree, method: MethodDescriptor) -> None:
    for fields in naming(method, theirs):
        for token, tenant in ((ACME, ""), (ACME, str(ACME_ID)), (OPERATOR, str(ACME_ID))):
            answer = ask(shared, token, method, **fields, tenant_id=tenant)
            assert answer.code is grpc.StatusCode.NOT_FOUND
            assert answer.info.reason in NOT_FOUND
            assert SECRET not in repr(answer)
        answer = ask(shared, ACME, method, **fields, tenant_id=str(GLOBEX_ID))
        assert answer.info.reason == Reason.TENANT_NOT_FOUND.name


@every_method
def test_the_owning_tenant_and_an_operator_in_it_are_served(
    shared: Running, theirs: Tree, method: MethodDescriptor
) -> None:
    """This proves that the other tenant was refused only because of its tenant. The removal comes last."""
    if method.name == "RemoveDocuments":
        return
    for fields in naming(method, theirs):
        if method.name in {"DrillDown", "RollUp"} and {fields.get("id"), *fields.get("ids", ())} & {
            theirs.master.id if method.name == "RollUp" else next(iter(theirs.raws))
        }:
            continue  # there is nothing above the master and nothing below a raw
        # after the target, which names the corpus
        given_up = method.name in {"AddDocuments", "PutHierarchy", "UpdateDocument"}
        expected = grpc.StatusCode.CANCELLED if given_up else grpc.StatusCode.OK
        assert ask(shared, GLOBEX, method, **fields).code is expected
        assert ask(shared, OPERATOR, method, **fields, tenant_id=str(GLOBEX_ID)).code is expected


@every_method
def test_another_tenants_record_and_an_unknown_record_get_the_same_refusal(
    shared: Running, theirs: Tree, method: MethodDescriptor
) -> None:
    for fields in naming(method, theirs):
        known = {name: value for name, value in fields.items() if name in fields_of(method)}
        unknown = {name: _never(value) if name.endswith(("id", "ids")) else value for name, value in known.items()}
        real, unreal = ask(shared, ACME, method, **known), ask(shared, ACME, method, **unknown)
        assert (real.code, real.info.reason) == (unreal.code, unreal.info.reason)
        assert len(real.details) == len(unreal.details)


def _never(value: Any) -> Any:
    return [str(uuid4()) for _ in value] if isinstance(value, list) else value and str(uuid4())


def test_another_tenants_document_is_not_found_in_a_callers_own_corpus(
    library: Caller, corpus: str, theirs: Tree
) -> None:
    document = next(iter(theirs.documents))
    library.add_texts(corpus, {"a.txt": notice(1)})
    assert library.query(corpus, level=CHUNK, filters=Filters(document_ids=[document])) == []
    (own,) = library.query(corpus, level=CHUNK)[:1]
    with pytest.raises(grpc.RpcError) as caught:
        library.roll_up(own.id, next(iter(theirs.chunks)), target=MASTER)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_two_tenants_with_the_same_source_each_read_their_own_content(
    server: Running, acme: Client, globex: Client
) -> None:
    """Two tenants with the same corpus id, the same source and the same content share nothing."""
    corpus = acme.create_corpus("same").id
    globex.create_corpus("same", corpus_id=corpus)
    ours, others = Caller(server.address, ACME), Caller(server.address, GLOBEX)
    first = ours.add_texts(str(corpus), {"a.txt": notice(1)})
    second = others.add_texts(str(corpus), {"a.txt": notice(1)})
    assert first != second
    ours.remove(str(corpus), first["a.txt"])
    assert others.text(str(corpus), second["a.txt"]) == notice(1)
    assert ours.list_documents(str(corpus)) == []
    for caller in (ours, others):
        caller.close()


def marked(made: Made, mark: str) -> Made:
    made.documents[0].source_id = made.documents[0].title = "MARK"
    made.master.master.summary = made.nodes_of("chunk")[0].chunk.entities[0].value = mark
    made.nodes_of("raw")[0].raw.content = "MARK" + made.nodes_of("raw")[0].raw.content[4:]
    return made


def test_no_content_of_documents_and_queries_gets_into_the_log(server: Running, acme: Client) -> None:
    """This holds for calls that succeed and for calls that are refused for any reason."""
    caller, corpus = Caller(server.address, ACME), new_corpus(server)
    text = f"MARK title\n\n{REGULATIONS['records.txt']}\n\nMARK shall be kept by MARK Ltd at mark@MARK.example."
    added = caller.add(
        corpus,
        File("MARK.txt", text, source_id="MARK source", metadata={"MARK": "MARK"}, media_type="text/MARK"),
        File("MARK empty.txt", ""),
        File("MARK.jsonl", '{"id": "MARK", "title": "MARK", "text": "MARK text.", "MARK": "MARK"}\n{MARK'),
    )
    document = added.outcomes[-1].document_id or added.ids["MARK.txt"]
    tree = walk(caller, corpus)
    updating = {"source_id": "MARK source", "name": "MARK", "metadata": {"MARK": "MARK"}}
    refusals = (
        lambda: caller.query(corpus, level=CHUNK, text="MARK" * 10_000),
        lambda: caller.query("MARK", level=CHUNK),
        lambda: caller.query(corpus, level=CHUNK, page_token="MARK"),
        lambda: caller.query(corpus, level=MASTER, text="MARK"),
        lambda: caller.node("MARK"),
        lambda: caller.document(corpus, "MARK"),
        lambda: caller.remove(corpus, "MARK"),
        lambda: caller.send(list(parts(corpus, [File("MARK", "MARK")]))[:-1]),
        lambda: caller.add(corpus, File("", "MARK")),
        lambda: list(caller.documents.UpdateDocument(update_parts(corpus, "", **updating), **caller.options())),
        lambda: put(caller, corpus, marked(two_sections(), "MARK" * 100_000)),
    )
    for attempt in refusals:
        with pytest.raises(grpc.RpcError):
            attempt()
    assert caller.query(corpus, level=CHUNK, text="What does MARK keep?")
    caller.query(corpus, level=CHUNK, filters=Filters(categories=["MARK"], source_ids=["MARK source"]))
    caller.below(tree.master.id, RAW)
    caller.roll_up(next(iter(tree.raws)), target=MASTER)
    caller.history(corpus_id=corpus)
    assert put(caller, new_corpus(server), marked(two_sections(), "MARK")).chunks == 4
    assert "MARK" in caller.text(corpus, document)
    assert list(caller.documents.UpdateDocument(update_parts(corpus, f"{text}MARK", **updating), **caller.options()))
    caller.remove(corpus, document)
    caller.close()
    methods = {line["method"] for line in server.logged_calls()}
    assert {method.name for method in KNOWLEDGE_METHODS} <= methods
    assert "mark" not in server.log.getvalue().casefold()
    lines = [line for line in server.log_lines() if line["event"] not in {"call", "serving", "audit key made"}]
    assert lines == [], "no refusal was logged as a defect"
