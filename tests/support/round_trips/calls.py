"""The calls whose round trips are counted, at least one for each RPC, each with its budget.

A round trip is a time that a call waits for the store before it can go on: see `drillcore_fdb.round_trips`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from google.protobuf.message import Message

from drillcore_proto.v1 import cores_pb2, quads_pb2
from tests.support.callers.hierarchies import requests as hierarchy_requests
from tests.support.callers.hierarchies import two_sections
from tests.support.callers.knowledge import parts, update_parts
from tests.support.round_trips.world import PASSWORD, Caller, World, document, edge, quad, request, sentence, turn

Fields = dict[str, Any]
PAGE: Final = 100
QUERY: Final = "how long does the records office keep the register of accounts"
FIRST_PASSWORD: Final = "the very first passphrase"


def _person(world: World) -> Caller:
    return world.person


def _operator(world: World) -> Caller:
    return world.operator


def _anonymous(world: World) -> Caller:
    return world.anonymous


@dataclass(frozen=True)
class Call:
    """A call, and how many round trips it may take at most."""

    rpc: str
    budget: int
    fields: Callable[[World], Fields] = field(default=lambda _world: {})
    """Makes what the call needs, and returns the fields of its only request."""
    requests: Callable[[World], Sequence[Message]] | None = None
    """Same, for a call that streams: returns all its requests."""
    case: str = ""
    """What is special about this call of the RPC."""
    by: Callable[[World], Caller] = _person

    @property
    def name(self) -> str:
        return f"{self.rpc}, {self.case}" if self.case else self.rpc

    def prepare(self, world: World) -> Callable[[], object]:
        """Makes what the call needs. Returns a function that makes the call."""
        sent = self.requests(world) if self.requests else [request(self.rpc, **self.fields(world))]
        caller = self.by(world)
        return lambda: caller.send(self.rpc, sent)


def _new_session(world: World) -> Caller:
    token = world.anonymous("Login", login=world.login, password=PASSWORD).token
    return world.caller(token)


def _new_token(world: World) -> Fields:
    token = world.operator("CreateToken", tenant_id=world.tenant, account_id=world.service, name="job").info
    return {"tenant_id": world.tenant, "account_id": world.service, "token_id": token.id}


IDENTITY: Final = (
    Call(
        "CreateAccount",
        5,
        lambda world: {
            "tenant_id": world.tenant,
            "kind": "ACCOUNT_KIND_PERSON",
            "login": f"login-{uuid4()}",
            "name": "Pat Example",
            "password": FIRST_PASSWORD,
        },
    ),
    Call("GetAccount", 4, lambda world: {"id": world.account}),
    Call("GetAccount", 5, lambda world: {"login": world.login}, case="by its login"),
    Call("ListAccounts", 6, lambda _world: {"page_size": PAGE}),
    Call("UpdateAccount", 5, lambda world: {"id": world.service, "name": f"Pat {uuid4()}"}),
    Call("SetGrants", 5, lambda world: {"id": world.new_account()[0], "grants": [{"role": "ROLE_READER"}]}),
    Call("SetPassword", 5, lambda world: {"id": world.new_account()[0], "new_password": f"password {uuid4()}"}),
    Call("Login", 10, lambda world: {"login": world.login, "password": PASSWORD}, by=_anonymous),
    Call("Logout", 6, by=_new_session),
    Call("CreateToken", 6, lambda world: {"account_id": world.service, "name": "job"}),
    Call("ListTokens", 6, lambda world: {"account_id": world.service}),
    Call("RevokeToken", 6, _new_token),
)

TENANCY: Final = (
    Call("CreateTenant", 5, lambda _world: {"name": f"tenant {uuid4()}"}, by=_operator),
    Call("GetTenant", 4, lambda world: {"id": world.tenant}, by=_operator),
    Call("GetTenant", 5, lambda _world: {"name": "acme"}, case="by its name", by=_operator),
    Call("ListTenants", 5, lambda _world: {"page_size": PAGE}, by=_operator),
    Call("UpdateTenant", 4, lambda world: {"id": world.tenant, "set_metadata": {"k": str(uuid4())}}, by=_operator),
    Call("DeleteTenant", 6, lambda world: {"id": world.new_tenant()}, by=_operator),
    Call("CreateCorpus", 6, lambda _world: {"name": f"corpus {uuid4()}"}),
    Call("GetCorpus", 4, lambda world: {"id": world.corpus}),
    Call("GetCorpus", 5, lambda world: {"name": world.corpus_name}, case="by its name"),
    Call("ListCorpora", 6, lambda _world: {"page_size": PAGE}),
    Call("UpdateCorpus", 6, lambda world: {"id": world.corpus, "set_metadata": {"k": str(uuid4())}}),
    Call("DeleteCorpus", 6, lambda world: {"id": world.new_corpus()}),
    Call("TrimCorpus", 6, lambda world: {"id": world.small}),
)

HIERARCHY: Final = (
    Call("GetNode", 6, lambda world: {"id": world.nodes("LEVEL_CHUNK")[0], "with_embedding": True}),
    Call("GetNode", 6, lambda world: {"id": world.nodes("LEVEL_MASTER")[0]}, case="the master"),
    Call("GetNode", 6, lambda world: {"id": world.nodes("LEVEL_SECTION")[0]}, case="a section"),
    Call("GetNode", 6, lambda world: {"id": world.nodes("LEVEL_RAW")[0]}, case="a raw"),
    Call("Query", 10, lambda world: {"corpus_ids": [world.corpus], "level": "LEVEL_CHUNK", "page_size": PAGE}),
    Call(
        "Query", 10, lambda world: {"corpus_ids": [world.corpus], "level": "LEVEL_RAW", "page_size": PAGE}, case="raws"
    ),
    Call(
        "Query",
        10,
        lambda world: {"corpus_ids": [world.corpus], "level": "LEVEL_CHUNK", "text": QUERY, "page_size": PAGE},
        case="by meaning",
    ),
    Call(
        "Query",
        10,
        lambda world: {
            "corpus_ids": [world.corpus],
            "level": "LEVEL_CHUNK",
            "filters": {"document_ids": world.document_ids[:10], "entities": [{"type": "date"}]},
            "page_size": PAGE,
        },
        case="with filters",
    ),
    Call(
        "DrillDown", 7, lambda world: {"id": world.nodes("LEVEL_SECTION")[0], "target": "LEVEL_RAW", "page_size": PAGE}
    ),
    Call(
        "DrillDown",
        7,
        lambda world: {"id": world.nodes("LEVEL_MASTER")[0], "target": "LEVEL_CHUNK", "page_size": PAGE},
        case="from the master",
    ),
    Call("RollUp", 7, lambda world: {"ids": world.nodes("LEVEL_RAW", 10), "target": "LEVEL_SECTION"}),
    Call("GetHistory", 6, lambda world: {"corpus_id": world.corpus, "page_size": PAGE}),
    Call(
        "GetHistory", 8, lambda world: {"node_id": world.nodes("LEVEL_SECTION")[0], "page_size": PAGE}, case="of a node"
    ),
)

DOCUMENTS: Final = (
    Call("AddDocuments", 30, requests=lambda world: list(parts(world.corpus, [document(next(world.numbers))]))),
    Call(
        "UpdateDocument",
        30,
        requests=lambda world: list(
            update_parts(world.corpus, sentence(next(world.numbers)), document_id=world.new_document())
        ),
    ),
    Call("PutHierarchy", 30, requests=lambda world: list(hierarchy_requests(world.new_corpus(), two_sections()))),
    Call("RemoveDocuments", 30, lambda world: {"corpus_id": world.corpus, "document_ids": [world.new_document()]}),
    Call("GetDocument", 6, lambda world: {"corpus_id": world.corpus, "id": world.document_ids[0], "with_text": True}),
    Call("ListDocuments", 6, lambda world: {"corpus_id": world.corpus, "page_size": PAGE}),
    Call("MigrateEmbeddings", 10, requests=lambda world: [request("MigrateEmbeddings", corpus_id=world.corpus)]),
    Call("GetMigration", 4, lambda world: {"corpus_id": world.corpus}),
)


def _put_facts(world: World, count: int = 1) -> Fields:
    drafts = [{"content": sentence(next(world.numbers)), "source_id": "letters"} for _ in range(count)]
    return {"corpus_id": world.corpus, "facts": drafts}


def _session_facts(world: World) -> Fields:
    return {**_put_facts(world, 10), "cache_control": "no-store", "session_id": "a session"}


def _restored(world: World) -> Fields:
    facts = [world.new_fact()]
    world.person("ArchiveFacts", fact_ids=facts)
    return {"fact_ids": facts}


def _session(world: World) -> Fields:
    world.person("PutFacts", **{**_session_facts(world), "session_id": (name := str(uuid4()))})
    return {"session_id": name}


def _search(world: World, **fields: Any) -> Fields:
    return {"corpus_ids": [world.corpus], "text": QUERY, "limit": 10, **fields}


def _search_after_change(world: World) -> Fields:
    world.new_fact()
    return _search(world)


FACTS: Final = (
    Call("PutFacts", 14, _put_facts),
    Call("PutFacts", 14, lambda world: _put_facts(world, 100), case="100 facts"),
    Call("PutFacts", 10, _session_facts, case="in a session"),
    Call("GetFacts", 6, lambda world: {"fact_ids": world.facts[:50], "with_embedding": True}),
    Call("ListFacts", 8, lambda world: {"corpus_id": world.corpus, "page_size": PAGE}),
    Call(
        "ListFacts",
        10,
        lambda world: {
            "corpus_id": world.corpus,
            "page_size": PAGE,
            "filters": {"document_ids": world.document_ids[:10]},
        },
        case="of ten documents",
    ),
    Call("UpdateFact", 10, lambda world: {"fact_id": world.new_fact(), "content": sentence(next(world.numbers))}),
    Call("SetFactStatus", 10, lambda world: {"fact_ids": [world.new_fact()], "status": "FACT_STATUS_STALE"}),
    Call("ArchiveFacts", 10, lambda world: {"fact_ids": [world.new_fact()]}),
    Call("RestoreFacts", 10, _restored),
    Call("SearchFacts", 8, _search),
    Call("SearchFacts", 12, _search_after_change, case="after a change"),
    Call("SearchFacts", 10, lambda world: _search(world, filters={"metadata": {"site": "3"}}), case="with a filter"),
    Call("SearchFacts", 8, lambda world: _search(world, session_id="a session"), case="in a session"),
    Call("GetState", 6, lambda world: {"corpus_ids": [world.corpus]}),
    Call("EndSession", 8, _session),
)

COMMUNITIES: Final = (
    Call("ListCommunities", 6, lambda world: {"corpus_id": world.corpus, "page_size": PAGE}),
    Call(
        "GetCommunity",
        8,
        lambda world: {"corpus_id": world.corpus, "id": _community(world), "page_size": PAGE},
    ),
    Call("RecomputeCommunities", 14, lambda world: {"corpus_id": world.small}),
)


def _community(world: World) -> str:
    return str(world.person("ListCommunities", corpus_id=world.corpus).communities[0].id)


def _question(world: World, **fields: Any) -> Fields:
    budget = {"model": "gpt-4o", "tokens": 2_000}
    return {"question": {"query": QUERY, "corpus_ids": [world.corpus], "budget": budget, **fields}}


def _known_question(world: World) -> Fields:
    packed = world.person("PackEnvelope", **_question(world))
    return {**_question(world), "if_match": packed.envelope.etag}


def _continuation(world: World) -> Fields:
    budget = {"model": "gpt-4o", "tokens": 300}
    packed = world.person("PackEnvelope", **_question(world, session_id=str(uuid4()), budget=budget))
    return {"continuation_id": packed.continuation_id, "previous_answer": "The register is kept for two years."}


def _pack_after_change(world: World) -> Fields:
    world.new_fact()
    return _question(world)


ENVELOPES: Final = (
    Call("PreviewEnvelope", 12, _question),
    Call("PackEnvelope", 12, _question),
    Call("PackEnvelope", 5, _known_question, case="not modified"),
    Call("PackEnvelope", 16, _pack_after_change, case="after a change"),
    Call("ContinueEnvelope", 14, _continuation),
    Call(
        "GetEnvelope",
        14,
        lambda world: {"envelope_id": world.person("PackEnvelope", **_question(world)).envelope_id},
    ),
)


def _turns(world: World) -> Fields:
    ids = [str(uuid4()) for _ in range(10)]
    edges = [edge(parent, child) for parent, child in zip([world.turns[0], *ids], ids, strict=False)]
    return {"corpus_id": world.corpus, "turns": [turn(name, place) for place, name in enumerate(ids)], "edges": edges}


def _new_turns(world: World) -> list[str]:
    fields = _turns(world)
    world.person("PutTurns", **fields)
    return [given["turn_id"] for given in fields["turns"]]


def _quads(world: World) -> list[Fields]:
    return [quad(next(world.numbers)) for _ in range(10)]


def _new_quads(world: World) -> list[Fields]:
    quads = _quads(world)
    world.person("PutQuads", corpus_id=world.corpus, quads=quads, source_id="register")
    return quads


def _quad_file(world: World) -> list[Message]:
    lines = (f'<http://example.org/s{next(world.numbers)}> <http://example.org/p> "o" .\n' for _ in range(10))
    content = "".join(lines).encode()
    target = {"corpus_id": world.corpus, "format": "QUAD_FORMAT_N_QUADS"}
    given = ({"target": target}, {"data": content}, {"end": {"size_bytes": len(content)}})
    return [quads_pb2.ImportQuadsRequest(**part) for part in given]


def _pattern(world: World, **pattern: Any) -> Fields:
    return {"corpus_id": world.corpus, "pattern": pattern, "page_size": PAGE}


GRAPHS: Final = (
    Call("PutTurns", 10, _turns),
    Call("PutEdges", 10, lambda world: {"corpus_id": world.corpus, "edges": [edge(*_new_turns(world)[4:10:5])]}),
    Call("RemoveTurns", 10, lambda world: {"corpus_id": world.corpus, "turn_ids": _new_turns(world)[-1:]}),
    Call("ListTurns", 7, lambda world: {"corpus_id": world.corpus, "page_size": PAGE}),
    Call("Slice", 30, lambda world: {"anchors": world.turns[20:21]}),
    Call("Slice", 50, lambda world: {"anchors": world.nodes("LEVEL_CHUNK")}, case="around a chunk"),
    Call("Explain", 10, lambda world: {"node": world.facts[0]}),
    Call("Explain", 10, lambda world: {"node": world.nodes("LEVEL_SECTION")[0]}, case="a section"),
    Call("PutQuads", 10, lambda world: {"corpus_id": world.corpus, "quads": _quads(world), "source_id": "register"}),
    Call("RemoveQuads", 10, lambda world: {"corpus_id": world.corpus, "quads": _new_quads(world)}),
    Call("MatchQuads", 8, lambda world: _pattern(world, predicate={"iri": "http://example.org/property/1"})),
    Call("MatchQuads", 12, _pattern, case="everything"),
    Call("ImportQuads", 12, requests=_quad_file),
    Call(
        "ExportQuads",
        20,
        requests=lambda world: [
            request("ExportQuads", corpus_id=world.small, format="QUAD_FORMAT_N_QUADS", pattern={"graph": ""})
        ],
    ),
)


def _record(world: World) -> str:
    """The id of a record that is in the log."""
    (record,) = world.person("QueryAudit", page_size=1).records
    world.person("WaitProof", record_id=record.id)
    return str(record.id)


def _ten_records(rpc: str, **fields: Any) -> Callable[[World], list[Message]]:
    return lambda world: [request(rpc, filter={"record_id": _record(world)}, **fields)]


AUDIT: Final = (
    Call("QueryAudit", 8, lambda _world: {"page_size": PAGE}),
    Call(
        "QueryAudit", 10, lambda world: {"page_size": PAGE, "filter": {"corpus_id": world.corpus}}, case="of a corpus"
    ),
    Call("WaitProof", 8, lambda world: {"record_id": _record(world)}),
    Call("GetCheckpoint", 6),
    Call("GetConsistencyProof", 6, lambda _world: {"first_size": 7, "second_size": 100}),
    Call("VerifyAudit", 12, lambda _world: {"start": 0, "records_max": PAGE}),
    Call("ExportAudit", 16, requests=_ten_records("ExportAudit", format="AUDIT_FORMAT_NDJSON")),
    Call("ReviewAudit", 10, lambda _world: {"first": 0, "last": 20, "findings": "none"}),
    Call("ListReviews", 6, lambda _world: {"page_size": PAGE}),
    Call("RotateAuditKey", 10, by=_operator),
)


def _to_sign(world: World) -> Fields:
    target = {"kind": "SIGNATURE_TARGET_KIND_NODE", "id": world.nodes("LEVEL_CHUNK")[0]}
    return {"target": target, "meaning": "approved"}


def _signed(world: World) -> Fields:
    prepared = world.person("PrepareSignature", **_to_sign(world))
    named = {"login": world.login} if prepared.needs_login else {}
    return {
        "target": prepared.target,
        "meaning": "approved",
        "challenge": prepared.challenge,
        "content_hash": prepared.content_hash,
        "password": PASSWORD,
        **named,
    }


def _core(world: World) -> list[Message]:
    answers = world.person.send("ExportCore", [request("ExportCore", corpus_id=world.small)])
    content = b"".join(answer.data for answer in answers)
    tenant = world.new_tenant()  # nodes keep their ids, which a tenant has once
    corpus = world.operator("CreateCorpus", tenant_id=tenant, name="copy").corpus.id
    target = {"tenant_id": tenant, "corpus_id": corpus, "upload_id": str(uuid4())}
    end = {"size_bytes": len(content), "sha256": hashlib.sha256(content).digest()}
    return [cores_pb2.ImportCoreRequest(**part) for part in ({"target": target}, {"data": content}, {"end": end})]


def _old_source(world: World) -> Fields:
    """A source of one fact."""
    source = f"letter {uuid4()}"
    world.new_fact(source_id=source)
    return {"corpus_id": world.corpus, "source_id": source, "reason": "asked for", "purge_now": True}


def _document_source(world: World) -> Fields:
    """A source of one document."""
    document = world.person("GetDocument", corpus_id=world.corpus, id=world.new_document()).document
    return {"corpus_id": world.corpus, "source_id": document.source_id, "reason": "asked for", "purge_now": True}


def _erased(world: World) -> Fields:
    world.person("EraseSource", **{**_old_source(world), "purge_now": False})
    return {"corpus_id": world.corpus}


def _watch(world: World) -> list[Message]:
    """Asks for what has happened since a token: ten revisions."""
    token = world.person("WatchEvents", corpus_ids=[world.corpus]).resume_token
    for _ in range(10):
        world.new_fact()
    return [request("WatchEvents", corpus_ids=[world.corpus], resume_token=token)]


OTHERS: Final = (
    Call("GetServerInfo", 4),
    Call("PrepareSignature", 8, _to_sign),
    Call("SignRecord", 12, _signed),
    Call("ListSignatures", 6, lambda _world: {"page_size": PAGE}),
    Call(
        "ExportCorpus",
        60,
        requests=lambda world: [request("ExportCorpus", corpus_id=world.small, format="EXPORT_FORMAT_JSON")],
    ),
    Call("ExportCore", 40, requests=lambda world: [request("ExportCore", corpus_id=world.small)]),
    Call("ImportCore", 60, requests=_core, by=_operator),
    Call("WatchEvents", 12, requests=_watch),
    Call("GetSource", 5, lambda world: {"corpus_id": world.corpus, "source_id": "letter 1"}),
    Call("ListSources", 7, lambda world: {"corpus_id": world.corpus, "page_size": PAGE}),
    Call("ListErasures", 6, lambda world: {"corpus_id": world.corpus, "page_size": PAGE}),
    Call("EraseSource", 40, _old_source),
    Call("EraseSource", 70, _document_source, case="of a document"),
    Call("PurgeErased", 30, _erased),
)

CALLS: Final = (
    *IDENTITY,
    *TENANCY,
    *HIERARCHY,
    *DOCUMENTS,
    *FACTS,
    *COMMUNITIES,
    *ENVELOPES,
    *GRAPHS,
    *AUDIT,
    *OTHERS,
)
