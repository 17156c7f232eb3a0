"""Two tenants on one server: every name for what the first has, and callers from the second."""

from __future__ import annotations

import io
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any
from uuid import UUID, uuid4

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from drillcore import Client, Grant, Level, NewDocument, Role, SignatureTarget, SignatureTargetKind
from drillcore_proto.v1 import events_pb2, facts_pb2, graphs_pb2
from tests.support.callers.cores import CoreCaller
from tests.support.callers.facts import FactCaller
from tests.support.callers.hierarchies import put, two_sections
from tests.support.data.texts import REGULATIONS
from tests.support.servers.people import PASSWORD, Person, make_person, make_service
from tests.support.servers.rpcs import METHODS, RawAnswer, path_of
from tests.support.servers.running import ACME_ID, GLOBEX_ID, Running

SECRET = "a well-kept secret of theirs"
ROLES = (Role.READER, Role.WRITER, Role.REVIEWER, Role.AUDITOR, Role.OPERATOR)
BY_NAME = {method.name: method for method in METHODS}


@dataclass(frozen=True)
class Names:
    """All the names by which a request can name something of a tenant."""

    tenant: str
    tenant_name: str
    corpus: str
    corpus_name: str
    master: str
    section: str
    chunk: str
    raw: str
    document: str
    source: str
    fact: str
    turn: str
    community: str
    account: str
    login: str
    service: str
    token_id: str
    principal: str
    signature: str
    export: str
    review: str
    record: str
    request: str
    session: str
    envelope: str
    continuation: str
    etag: str
    upload: str
    """The id of a core upload that broke off."""
    challenge: bytes
    spare_corpus: str
    """An id that another tenant can create too. The rest are such ids as well."""
    spare_node: str
    spare_document: str
    spare_fact: str
    spare_source: str
    spare_turn: str
    page_tokens: dict[str, str] = field(default_factory=dict)
    """By the name of the call that gave them."""

    @property
    def nodes(self) -> Sequence[str]:
        return self.master, self.section, self.chunk, self.raw

    def texts(self) -> dict[str, str]:
        """Every name except tokens."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, str)}


def names_of_nobody(like: Names) -> Names:
    """Names of the same form that nothing in the store has."""
    made: dict[str, Any] = {}
    for name, value in like.texts().items():
        made[name] = str(uuid4()) if _is_uuid(value) else secrets.token_hex(32)[: len(value)]
    return Names(**made, challenge=secrets.token_bytes(len(like.challenge)))


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _broken_upload(server: Running, token: str, corpus: str) -> str:
    cores = CoreCaller(server.address, token)
    with suppress(grpc.RpcError):
        cores.send(corpus, SECRET.encode(), stop_at=10, upload_id="an upload of theirs")
    cores.close()
    return "an upload of theirs"


@dataclass(frozen=True)
class Own:
    """What the caller has itself, named in requests beside the other tenant's names."""

    corpus: str
    node: str
    fact: str
    document: str
    account: str
    turn: str
    scratch: str
    """A corpus for whole hierarchies."""


def fill_globex(server: Running) -> Names:
    """Makes everything that globex has."""
    person = make_person(server, *map(Grant, ROLES), tenant=GLOBEX_ID, login=f"login of {SECRET}".replace(" ", "-"))
    client = server.client(person.token)
    corpus = client.create_corpus(f"corpus of {SECRET}")
    texts = zip((f"source of {SECRET}", "spare source"), REGULATIONS.values(), strict=False)
    client.add_documents(corpus.id, [NewDocument(name, f"{SECRET}\n\n{text}".encode()) for name, text in texts])
    nodes = {level: str(client.query(level=level, corpus_ids=[corpus.id]).items[0].node.id) for level in Level}
    document, second = client.list_documents(corpus.id).items
    with FactCaller(server, person.token) as caller:
        drafts = [_draft(f"{SECRET} is fact number {number} of them.") for number in range(3)]
        facts = caller.put(str(corpus.id), *drafts).fact_ids
        caller.put(str(corpus.id), _draft(SECRET), cache_control="no-store", session_id="a session of theirs")
        spare, spare_fact = client.create_corpus(f"spare of {SECRET}"), caller.put(str(corpus.id), _draft("Spare."))
        hierarchy = two_sections()
        put(caller, str(spare.id), hierarchy)
    turns = put_turns(server, person.token, str(corpus.id), session_id="a session of theirs")
    client.recompute_communities(corpus.id)
    community = client.list_communities(corpus.id).items[0]
    service = make_service(server, Grant(Role.READER), tenant=GLOBEX_ID)
    signatures = [_sign(client, person, UUID(nodes[level])) for level in (Level.MASTER, Level.CHUNK)]
    export = client.export_corpus(corpus.id, io.BytesIO())
    reviews = [client.review_audit(0, last, findings=SECRET) for last in (1, 2)]
    challenge = client.prepare_signature(_node_target(nodes[Level.RAW]), "approved").challenge
    packed = client.pack_envelope(SECRET, corpus_ids=[corpus.id], budget_tokens=60, session_id="a session of theirs")
    assert packed.envelope is not None
    assert packed.continuation_id
    client.get_corpus(corpus.id, request_id="a request of theirs")
    record = next(iter(client.iter_audit()))
    named = Names(
        tenant=str(GLOBEX_ID),
        tenant_name="globex",
        corpus=str(corpus.id),
        corpus_name=corpus.name,
        master=nodes[Level.MASTER],
        section=nodes[Level.SECTION],
        chunk=nodes[Level.CHUNK],
        raw=nodes[Level.RAW],
        document=str(document.id),
        source=document.source_id,
        fact=facts[0],
        turn=turns[0],
        community=str(community.id),
        account=str(person.account.id),
        login=person.login,
        service=str(service.account.id),
        token_id=str(client.list_tokens(service.account.id)[0].id),
        principal=str(person.account.id),
        signature=str(signatures[0].id),
        export=str(export.export_id),
        review=str(reviews[0].id),
        record=str(record.id),
        request="a request of theirs",
        session="a session of theirs",
        envelope=str(packed.envelope_id),
        continuation=packed.continuation_id,
        etag=packed.envelope.etag,
        upload=_broken_upload(server, person.token, str(corpus.id)),
        challenge=challenge,
        spare_corpus=str(spare.id),
        spare_node=hierarchy.master.id,
        spare_document=hierarchy.documents[0].id,
        spare_fact=spare_fact.fact_ids[0],
        spare_source=second.source_id,
        spare_turn=turns[1],
    )
    named.page_tokens.update(_page_tokens(server, person.token, named))
    return named


def put_turns(server: Running, token: str, corpus: str, **more: str) -> list[str]:
    """Puts two turns, the second in answer to the first. Returns their ids."""
    ids = [str(uuid4()), str(uuid4())]
    given = {"role": graphs_pb2.TURN_ROLE_USER, "phase": graphs_pb2.PHASE_PLANNING, "salience": 0.5, **more}
    turns = [graphs_pb2.Turn(turn_id=turn_id, **given) for turn_id in ids]
    edge = graphs_pb2.Edge(parent=ids[0], child=ids[1], edge_type=graphs_pb2.EDGE_TYPE_REPLY)
    request = graphs_pb2.PutTurnsRequest(corpus_id=corpus, turns=turns, edges=[edge])
    assert exchange(server, token, BY_NAME["PutTurns"], [request]).content
    return ids


def _draft(text: str) -> facts_pb2.FactDraft:
    content = f"{text} It has to be long enough to be taken for a fact at all."
    return facts_pb2.FactDraft(content=content, source_id=SECRET)


def _node_target(node: str) -> SignatureTarget:
    return SignatureTarget(SignatureTargetKind.NODE, UUID(node))


def _sign(client: Client, person: Person, node: UUID) -> Any:
    return client.sign_record(
        client.prepare_signature(_node_target(str(node)), "approved"), PASSWORD, login=person.login
    )


def _page_tokens(server: Running, token: str, named: Names) -> Iterator[tuple[str, str]]:
    """The page tokens of every listing with more than one page, and of a watch, by the name of the call."""
    method = BY_NAME["WatchEvents"]
    watched = exchange(server, token, method, [events_pb2.WatchEventsRequest(from_beginning=True)])
    yield method.name, events_pb2.WatchEventsResponse.FromString(watched.content or b"").resume_token
    for method in METHODS:
        if "page_token" not in method.input_type.fields_by_name:
            continue
        answer = exchange(server, token, method, [listing_request(method, named)])
        if answer.content:
            page: Any = GetMessageClass(method.output_type).FromString(answer.content)
            if page.next_page_token:
                yield method.name, page.next_page_token


def listing_request(method: MethodDescriptor, named: Names, **more: Any) -> Message:
    """The request for the first page of a tenant's listing."""
    given: dict[str, Any] = {"page_size": 1, **more}
    known = method.input_type.fields_by_name
    named_by = {"corpus_id": named.corpus, "corpus_ids": [named.corpus], "id": named.master, "target": 0}
    if method.name == "ListSignatures":
        named_by.pop("target")
    if method.name == "GetCommunity":
        named_by["id"] = named.community
    given |= {name: value for name, value in named_by.items() if name in known}
    if method.name == "Query":
        given["level"] = "LEVEL_CHUNK"
    if method.name == "DrillDown":
        given["target"] = "LEVEL_RAW"
    return GetMessageClass(method.input_type)(**given)


def fill_own(server: Running) -> Own:
    client = server.client(tenant_id=ACME_ID)
    corpus, scratch = client.create_corpus("own"), client.create_corpus("scratch")
    client.add_documents(corpus.id, [NewDocument("own.txt", REGULATIONS["records.txt"].encode())])
    node = client.query(level=Level.CHUNK, corpus_ids=[corpus.id]).items[0].node
    draft = facts_pb2.FactDraft(content="Our own fact, which has to be long enough to be taken.", source_id="own")
    service = make_service(server, Grant(Role.READER))
    token = make_service(server, Grant(Role.WRITER)).token
    with FactCaller(server, token) as caller:
        (fact,) = caller.put(str(corpus.id), draft).fact_ids
    document = client.list_documents(corpus.id).items[0].id
    turn, _ = put_turns(server, token, str(corpus.id))
    account = str(service.account.id)
    return Own(str(corpus.id), str(node.id), fact, str(document), account, turn, str(scratch.id))


def exchange(server: Running, token: str, method: MethodDescriptor, requests: Sequence[Message]) -> RawAnswer:
    """Makes a call of any kind. The content of the result is that of all answers together."""
    metadata = [("authorization", f"Bearer {token}")]
    with grpc.insecure_channel(server.address, [("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0)]) as channel:
        sent = iter([request.SerializeToString() for request in requests])
        ended = channel.stream_stream(path_of(method))(sent, metadata=metadata, timeout=20)
        content: bytes | None = b""
        try:
            content = b"".join(ended)
        except grpc.RpcError:
            content = None
        return RawAnswer(content, ended.code(), ended.details() or "", dict(ended.trailing_metadata() or ()))
