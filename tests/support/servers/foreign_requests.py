"""For every call, the requests that name what a tenant has, in every field that takes such a name.

A new RPC has no entry here, and no entry sets a new field. Both fail the test that walks the requests until added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from drillcore_server.graphs.quad_model import iri_of
from tests.support.callers.cores import handbook, import_requests
from tests.support.callers.hierarchies import Made, requests, two_sections
from tests.support.callers.knowledge import File, parts, update_parts
from tests.support.callers.quads import import_parts
from tests.support.servers.people import PASSWORD
from tests.support.servers.two_tenants import Names, Own, listing_request

Asked = dict[str, Any] | Sequence[Message]
"""The fields of a request, or the requests of a call that streams."""
TEXT: Final = "What is asked for has to be long enough to be taken for a fact, and so it is."
_DRAFT: Final = {"content": TEXT, "source_id": "own"}
_IRI: Final = {"iri": "http://example.org/own"}
_QUAD: Final = {"subject": _IRI, "predicate": _IRI, "object": _IRI}
_LINE: Final = b"<http://example.org/own> <http://example.org/own> <http://example.org/own> .\n"
_PASSWORD: Final = "a long enough new password"
_GRANT: Final = {"role": "ROLE_READER"}


def _of_corpus(t: Names, _own: Own) -> list[Asked]:
    return [{"corpus_id": t.corpus}]


def _of_tenant(_t: Names, _own: Own) -> list[Asked]:
    return [{}]


def _target(kind: str, name: str) -> dict[str, Any]:
    return {"kind": f"SIGNATURE_TARGET_KIND_{kind}", "id": name}


def _targets(t: Names) -> list[dict[str, Any]]:
    named = [("AUDIT_RECORD", t.record), ("EXPORT", t.export), ("REVIEW", t.review), ("FACT", t.fact)]
    return [_target(*target) for target in [*(("NODE", node) for node in t.nodes), *named]]


def _fact_filters(t: Names) -> list[dict[str, Any]]:
    return [
        {"source_ids": [t.source]},
        {"community_ids": [t.community]},
        {"document_ids": [t.document]},
        {"chunk_ids": [t.chunk]},
    ]


def _question(**fields: Any) -> dict[str, Any]:
    return {"query": TEXT, "budget": {"tokens": 500}, **fields}


def _questions(t: Names, own: Own) -> list[dict[str, Any]]:
    return [
        _question(corpus_ids=[t.corpus]),
        _question(corpus_ids=[own.corpus, t.corpus]),
        _question(session_id=t.session),
        _question(window_fact_ids=[t.fact]),
        *(_question(filters=filters) for filters in _fact_filters(t)),
    ]


def _audit_filters(t: Names) -> list[dict[str, Any]]:
    return [
        {"corpus_id": t.corpus},
        {"node_id": t.chunk},
        {"node_id": t.document},
        {"operator": t.principal},
        {"request_id": t.request},
        {"record_id": t.record},
    ]


def _iris(t: Names) -> list[dict[str, Any]]:
    kinds = {"chunk": t.chunk, "document": t.document, "fact": t.fact, "source": t.source, "envelope": t.envelope}
    return [{"iri": iri_of(kind, name)} for kind, name in kinds.items()]


def _explained(t: Names, own: Own) -> Iterator[Asked]:
    """Ids and IRIs, each in the owner's corpus, in the caller's corpus and in none."""
    kinds = {"master": t.master, "section": t.section, "chunk": t.chunk, "raw": t.raw}
    kinds |= {"fact": t.fact, "envelope": t.envelope, "document": t.document}
    for kind, identity in kinds.items():
        for name in (identity, iri_of(kind, UUID(identity)), iri_of("raw", UUID(identity))):
            yield from ({"node": name, "corpus_id": corpus} for corpus in ("", t.corpus, own.corpus))
    yield from ({"node": iri_of("source", t.source), "corpus_id": corpus} for corpus in (t.corpus, own.corpus))


def _hierarchy(t: Names) -> Made:
    """A hierarchy of the caller's, with ids that another tenant has too."""
    made = two_sections()
    old = made.master.id
    for node in made.nodes:
        node.id = t.spare_node if node.id == old else node.id
        node.parent_id = t.spare_node if node.parent_id == old else node.parent_id
    return made


def _turn(name: str, **more: str) -> dict[str, Any]:
    return {"turn_id": name, "role": "TURN_ROLE_USER", "phase": "PHASE_PLANNING", "salience": 0.5, **more}


def _edge(parent: str, child: str) -> dict[str, Any]:
    return {"parent": parent, "child": child, "edge_type": "EDGE_TYPE_REPLY"}


CASES: Final[Mapping[str, Callable[[Names, Own], list[Asked]]]] = {
    "CreateTenant": lambda t, _: [{"name": "another", "id": t.tenant}],
    "GetTenant": lambda t, _: [{"id": t.tenant}, {"name": t.tenant_name}],
    "ListTenants": _of_tenant,
    "UpdateTenant": lambda t, _: [{"id": t.tenant, "name": "another"}],
    "DeleteTenant": lambda t, _: [{"id": t.tenant}],
    "CreateCorpus": lambda t, _: [{"name": f"copy {t.spare_corpus}", "id": t.spare_corpus}],
    "GetCorpus": lambda t, _: [{"id": t.corpus}, {"name": t.corpus_name}],
    "ListCorpora": _of_tenant,
    "UpdateCorpus": lambda t, own: [
        {"id": t.corpus, "description": "another"},
        {"id": own.corpus, "share_with_tenants": {"ids": [t.tenant]}},
    ],
    "DeleteCorpus": lambda t, _: [{"id": t.corpus}],
    "TrimCorpus": lambda t, _: [{"id": t.corpus}],
    "GetServerInfo": _of_tenant,
    "AddDocuments": lambda t, own: [
        list(parts(t.corpus, [File("a.txt", TEXT)])),
        list(parts(t.corpus, [File("a.txt", TEXT)], tenant=t.tenant)),
        list(parts(own.corpus, [File("a.txt", TEXT, source_id=t.spare_source)])),
    ],
    "UpdateDocument": lambda t, own: [
        list(update_parts(t.corpus, TEXT, document_id=t.document)),
        list(update_parts(t.corpus, TEXT, document_id=t.document, tenant_id=t.tenant)),
        list(update_parts(t.corpus, TEXT, source_id=t.source)),
        list(update_parts(own.corpus, TEXT, document_id=t.document)),
    ],
    "PutHierarchy": lambda t, own: [
        list(requests(t.corpus, two_sections())),
        list(requests(t.corpus, two_sections(), tenant_id=t.tenant)),
        list(requests(own.scratch, _hierarchy(t))),
    ],
    "RemoveDocuments": lambda t, own: [
        {"corpus_id": t.corpus, "document_ids": [t.document]},
        {"corpus_id": own.corpus, "document_ids": [t.document]},
    ],
    "GetDocument": lambda t, own: [
        {"corpus_id": t.corpus, "id": t.document, "with_text": True},
        {"corpus_id": own.corpus, "id": t.document, "with_text": True},
    ],
    "ListDocuments": _of_corpus,
    "GetNode": lambda t, _: [{"id": node, "with_embedding": True} for node in t.nodes],
    "Query": lambda t, own: [
        {"corpus_ids": [t.corpus], "level": "LEVEL_CHUNK"},
        {"corpus_ids": [own.corpus, t.corpus], "level": "LEVEL_CHUNK"},
        {"level": "LEVEL_CHUNK", "filters": {"document_ids": [t.document]}},
        {"level": "LEVEL_CHUNK", "filters": {"source_ids": [t.source]}},
    ],
    "DrillDown": lambda t, _: [{"id": node, "target": "LEVEL_RAW"} for node in t.nodes],
    "RollUp": lambda t, own: [
        *({"ids": [node], "target": "LEVEL_MASTER"} for node in t.nodes),
        {"ids": [own.node, t.chunk], "target": "LEVEL_MASTER"},
    ],
    "GetHistory": lambda t, _: [{"corpus_id": t.corpus}, *({"node_id": node} for node in t.nodes)],
    "QueryAudit": lambda t, _: [{"filter": filters} for filters in _audit_filters(t)],
    "WaitProof": lambda t, _: [{"record_id": t.record}, {"request_id": t.request}],
    "GetCheckpoint": _of_tenant,
    "GetConsistencyProof": lambda _t, _: [{"first_size": 0, "second_size": 1}],
    "VerifyAudit": _of_tenant,
    "ExportAudit": lambda t, _: [{"format": "AUDIT_FORMAT_NDJSON", "filter": filters} for filters in _audit_filters(t)],
    "ReviewAudit": lambda _t, _: [{"first": 0, "last": 0, "findings": "none"}],
    "ListReviews": _of_tenant,
    "RotateAuditKey": _of_tenant,
    "CreateAccount": lambda t, _: [
        {
            "login": f"new-{t.corpus}",
            "name": "Ann Other",
            "kind": "ACCOUNT_KIND_PERSON",
            "password": _PASSWORD,
            "grants": [{**_GRANT, **grant}],
        }
        for grant in ({"corpus_id": t.corpus}, {"tenant_id": t.tenant})
    ],
    "GetAccount": lambda t, _: [{"id": t.account}, {"login": t.login}],
    "ListAccounts": _of_tenant,
    "UpdateAccount": lambda t, _: [{"id": t.account, "name": "Another"}],
    "SetGrants": lambda t, own: [
        {"id": t.account, "grants": [_GRANT]},
        {"id": own.account, "grants": [{**_GRANT, "corpus_id": t.corpus}]},
        {"id": own.account, "grants": [{**_GRANT, "tenant_id": t.tenant}]},
    ],
    "SetPassword": lambda t, _: [{"id": t.account, "new_password": _PASSWORD}],
    "Login": lambda t, _: [{"login": t.login, "password": "a wrong password"}],
    "Logout": _of_tenant,
    "CreateToken": lambda t, _: [{"account_id": t.service, "name": "job"}, {"account_id": t.account, "name": "job"}],
    "ListTokens": lambda t, _: [{"account_id": t.service}],
    "RevokeToken": lambda t, own: [
        {"account_id": t.service, "token_id": t.token_id},
        {"account_id": t.service},
        {"account_id": own.account, "token_id": t.token_id},
    ],
    "PrepareSignature": lambda t, _: [{"target": target, "meaning": "approved"} for target in _targets(t)],
    "SignRecord": lambda t, own: [
        {
            "target": {**target, "version": 1},
            "meaning": "approved",
            "challenge": t.challenge,
            "content_hash": bytes(32),
            "login": t.login,
            "password": PASSWORD,
        }
        for target in [*_targets(t), _target("NODE", own.node)]
    ],
    "ListSignatures": lambda t, _: [{"target": target} for target in _targets(t)],
    "ExportCorpus": lambda t, _: [{"corpus_id": t.corpus, "format": "EXPORT_FORMAT_JSON"}],
    "PutFacts": lambda t, own: [
        {"corpus_id": t.corpus, "facts": [_DRAFT]},
        {"corpus_id": t.corpus, "facts": [_DRAFT], "cache_control": "no-store", "session_id": t.session},
        {"corpus_id": own.corpus, "facts": [{**_DRAFT, "fact_id": t.spare_fact}]},
        {"corpus_id": own.corpus, "facts": [{"content": TEXT, "chunk_id": t.chunk}]},
        {"corpus_id": own.corpus, "facts": [{**_DRAFT, "source_id": t.spare_source}]},
    ],
    "GetFacts": lambda t, own: [{"fact_ids": [t.fact], "with_embedding": True}, {"fact_ids": [own.fact, t.fact]}],
    "ListFacts": lambda t, own: [
        {"corpus_id": t.corpus},
        *({"corpus_id": own.corpus, "filters": filters} for filters in _fact_filters(t)),
    ],
    "UpdateFact": lambda t, _: [{"fact_id": t.fact, "source_location": "page 1"}],
    "SetFactStatus": lambda t, own: [
        {"fact_ids": [t.fact], "status": "FACT_STATUS_STALE"},
        {"fact_ids": [own.fact, t.fact], "status": "FACT_STATUS_STALE"},
        {"fact_ids": [own.fact], "status": "FACT_STATUS_ACTIVE", "signature_id": t.signature},
    ],
    "ArchiveFacts": lambda t, _: [{"fact_ids": [t.fact]}],
    "RestoreFacts": lambda t, _: [{"fact_ids": [t.fact]}],
    "SearchFacts": lambda t, own: [
        {"corpus_ids": [t.corpus], "text": TEXT},
        {"corpus_ids": [own.corpus, t.corpus], "text": TEXT},
        {"text": TEXT, "session_id": t.session},
        *({"text": TEXT, "filters": filters} for filters in _fact_filters(t)),
    ],
    "GetState": lambda t, own: [{"corpus_ids": [t.corpus]}, {"corpus_ids": [own.corpus, t.corpus]}],
    "EndSession": lambda t, _: [{"session_id": t.session}],
    "PreviewEnvelope": lambda t, own: [{"question": question} for question in _questions(t, own)],
    "PackEnvelope": lambda t, own: [
        *({"question": question} for question in _questions(t, own)),
        {"question": _question(corpus_ids=[own.corpus]), "if_match": t.etag},
        {"question": _question(corpus_ids=[own.corpus], session_id=t.session), "salted_etag": True, "if_match": t.etag},
    ],
    "ContinueEnvelope": lambda t, _: [{"continuation_id": t.continuation}],
    "GetEnvelope": lambda t, _: [{"envelope_id": t.envelope}],
    "ListCommunities": _of_corpus,
    "GetCommunity": lambda t, own: [
        {"corpus_id": t.corpus, "id": t.community},
        {"corpus_id": own.corpus, "id": t.community},
    ],
    "RecomputeCommunities": _of_corpus,
    "GetSource": lambda t, own: [
        {"corpus_id": t.corpus, "source_id": t.source},
        {"corpus_id": own.scratch, "source_id": t.source},
    ],
    "ListSources": _of_corpus,
    "EraseSource": lambda t, own: [
        {"corpus_id": t.corpus, "source_id": t.source, "reason": "asked to", "purge_now": True},
        {"corpus_id": own.scratch, "source_id": t.source, "reason": "asked to"},
    ],
    "ListErasures": _of_corpus,
    "PurgeErased": _of_corpus,
    "WatchEvents": lambda t, _: [{"corpus_ids": [t.corpus], "from_beginning": True}],
    "MigrateEmbeddings": _of_corpus,
    "GetMigration": _of_corpus,
    "PutQuads": lambda t, own: [
        {"corpus_id": t.corpus, "quads": [_QUAD]},
        {"corpus_id": own.corpus, "quads": [_QUAD], "source_id": t.spare_source},
    ],
    "RemoveQuads": lambda t, own: [
        {"corpus_id": t.corpus, "quads": [_QUAD]},
        {"corpus_id": t.corpus, "pattern": {}},
        {"corpus_id": own.scratch, "quads": [_QUAD], "source_id": t.source},
        {"corpus_id": own.scratch, "pattern": {"source_id": t.source}},
    ],
    "MatchQuads": lambda t, own: [
        {"corpus_id": t.corpus},
        {"corpus_id": own.scratch, "pattern": {"source_id": t.source}},
        *({"corpus_id": own.corpus, "pattern": {"subject": iri}} for iri in _iris(t)),
        *({"corpus_id": own.corpus, "pattern": {"object": iri}} for iri in _iris(t)),
    ],
    "ImportQuads": lambda t, own: [
        list(import_parts(t.corpus, _LINE)),
        list(import_parts(t.corpus, _LINE, tenant_id=t.tenant)),
        list(import_parts(own.corpus, _LINE, source_id=t.spare_source)),
    ],
    "ExportQuads": lambda t, own: [
        {"corpus_id": t.corpus, "format": "QUAD_FORMAT_N_QUADS"},
        {"corpus_id": own.scratch, "format": "QUAD_FORMAT_N_QUADS", "pattern": {"source_id": t.source}},
        *({"corpus_id": own.scratch, "format": "QUAD_FORMAT_N_QUADS", "pattern": {"subject": iri}} for iri in _iris(t)),
    ],
    "Explain": lambda t, own: list(_explained(t, own)),
    "ExportCore": lambda t, _: [
        {"corpus_id": t.corpus, "kind": kind, "core_id": t.source, "include_retrieval": True}
        for kind in ("CORE_KIND_FULL", "CORE_KIND_PLAIN", "CORE_KIND_DOCUMENT_EMBEDDINGS")
    ],
    "ImportCore": lambda t, own: [
        list(import_requests(t.corpus, handbook())),
        list(import_requests(t.corpus, handbook(), tenant_id=t.tenant)),
        list(import_requests(own.scratch, handbook(), source_id=t.spare_source, upload_id=t.upload)),
    ],
    "PutTurns": lambda t, own: [
        {"corpus_id": t.corpus, "turns": [_turn(t.spare_turn)]},
        {"corpus_id": own.corpus, "turns": [_turn(t.spare_turn, session_id=t.session)], "source_id": t.spare_source},
        {"corpus_id": own.corpus, "turns": [_turn(own.turn)], "edges": [_edge(t.turn, own.turn)]},
    ],
    "PutEdges": lambda t, own: [
        {"corpus_id": t.corpus, "edges": [_edge(t.turn, t.spare_turn)]},
        {"corpus_id": own.corpus, "edges": [_edge(own.turn, t.turn)]},
    ],
    "RemoveTurns": lambda t, own: [
        {"corpus_id": t.corpus, "turn_ids": [t.turn]},
        {"corpus_id": own.corpus, "turn_ids": [t.turn]},
        {"corpus_id": own.corpus, "edges": [_edge(own.turn, t.turn)]},
    ],
    "ListTurns": lambda t, own: [{"corpus_id": t.corpus}, {"corpus_id": own.corpus, "session_id": t.session}],
    "Slice": lambda t, own: [
        *({"anchors": [anchor], "policy": {"policy_id": "slice_policy_v1"}} for anchor in (t.turn, t.fact, *t.nodes)),
        {"anchors": [own.turn, t.turn]},
        {"anchors": [t.turn], "corpus_id": t.corpus},
        {"anchors": [t.turn], "corpus_id": own.corpus},
    ],
}

CONTENT: Final = ("node.master", "node.section", "node.chunk", "node.raw", "document.id", "document.source_id")
"""Fields of a hierarchy that a client puts. They name parts of that hierarchy, and no record is looked up by them."""
NO_NAME: Final = {("ListTenants", "page_token")}
"""Only operators of the server get this token, and they belong to no tenant."""


def case_requests(method: MethodDescriptor, t: Names, own: Own) -> Iterator[list[Message]]:
    """The requests of each case. Each case of a single request also comes with the other tenant named."""
    kind = GetMessageClass(method.input_type)
    for case in CASES[method.name](t, own):
        if not isinstance(case, dict):
            yield list(case)
            continue
        yield [kind(**case)]
        if "tenant_id" in method.input_type.fields_by_name:
            yield [kind(**case, tenant_id=t.tenant)]


def continuation_requests(method: MethodDescriptor, t: Names, own: Own, token: str) -> Iterator[list[Message]]:
    """Requests that continue another tenant's listing, both as that tenant would and in the caller's own corpus."""
    if method.name == "WatchEvents":
        yield [GetMessageClass(method.input_type)(resume_token=token)]
    if "page_token" not in method.input_type.fields_by_name:
        return
    yield [listing_request(method, t, page_token=token)]
    first: Any = listing_request(method, t, page_token=token)
    for name, value in (("corpus_id", own.corpus), ("id", own.node)):
        if name in method.input_type.fields_by_name:
            setattr(first, name, value)
    if "corpus_ids" in method.input_type.fields_by_name:
        first.corpus_ids[:] = [own.corpus]
    yield [first]


def names_in(kind: Descriptor, path: str = "", around: tuple[Descriptor, ...] = ()) -> Iterator[str]:
    """The fields of a request, at any depth, that name a record. A message inside its own type is not searched."""
    for field in kind.fields:
        inside = field.message_type
        if inside in around:
            continue
        if inside is not None and not inside.GetOptions().map_entry and not inside.full_name.startswith("google."):
            yield from names_in(inside, f"{path}{field.name}.", (*around, kind))
        elif field.type in {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES} and _is_name(field.name):
            yield f"{path}{field.name}"


def _is_name(field: str) -> bool:
    return field in {"login", "challenge", "operator", "node"} or field.endswith(("id", "ids", "_token"))


def set_in(message: Message, path: str = "") -> Iterator[str]:
    """The fields that are set."""
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            yield f"{path}{field.name}"
        else:
            for inner in [value] if isinstance(value, Message) else value:
                yield from set_in(inner, f"{path}{field.name}.")
