"""No call of a tenant finds, reveals or changes anything of another tenant, whatever name it asks for.

Names of another tenant get the same answer as unknown names. Every RPC is called with every kind of name, once with
those of another tenant and once with unknown names. A refusal that differed would reveal that something exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from drillcore import Grant
from drillcore_fdb.tuples import KeyRange
from drillcore_server.kernel.corpus_store import CORPORA
from drillcore_server.storage.ids import TenantId
from drillcore_server.storage.spaces import Space
from tests.support.servers.foreign_requests import (
    CASES,
    CONTENT,
    NO_NAME,
    case_requests,
    continuation_requests,
    names_in,
    set_in,
)
from tests.support.servers.people import make_person
from tests.support.servers.rpcs import METHODS, RawAnswer, name_of
from tests.support.servers.running import GLOBEX_ID, Running, create_tenants, running
from tests.support.servers.two_tenants import (
    BY_NAME,
    ROLES,
    SECRET,
    Names,
    Own,
    exchange,
    fill_globex,
    fill_own,
    names_of_nobody,
)
from tests.support.stores.trails import all_records

every_method = pytest.mark.parametrize("method", METHODS, ids=name_of)
DEFECTS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNIMPLEMENTED}


@dataclass(frozen=True)
class Tenants:
    server: Running
    theirs: Names
    names_of_nobody: Names
    own: Own
    callers: Mapping[str, str]
    """Tokens of callers of the asking tenant, by role."""


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    with running(tmp_path_factory.mktemp("apart")) as server:
        create_tenants(server.client())
        theirs, own = fill_globex(server), fill_own(server)
        callers = {role.value: make_person(server, Grant(role)).token for role in ROLES}
        yield Tenants(server, theirs, names_of_nobody(theirs), own, callers)


@every_method
def test_names_of_another_tenant_get_the_answer_of_unknown_names(tenants: Tenants, method: MethodDescriptor) -> None:
    before = state(tenants)
    real, unreal = (
        list(case_requests(method, names, tenants.own)) for names in (tenants.theirs, tenants.names_of_nobody)
    )
    for role in tenants.callers:
        for theirs, nobodys_own in zip(real, unreal, strict=True):
            found = exchange(tenants.server, _token(tenants, method, role), method, theirs)
            missing = exchange(tenants.server, _token(tenants, method, role), method, nobodys_own)
            assert told(found, tenants.theirs) == told(missing, tenants.names_of_nobody), f"{role}: {theirs}"
            assert found.code not in DEFECTS, f"{role}: {theirs}"
            assert not leaked(found, theirs, tenants.theirs), f"{role}: {theirs}"
    assert state(tenants) == before


@every_method
def test_page_tokens_of_another_tenant_give_nothing_of_that_tenant(tenants: Tenants, method: MethodDescriptor) -> None:
    token = tenants.theirs.page_tokens.get(method.name)
    before = state(tenants)
    for requests in [] if token is None else continuation_requests(method, tenants.theirs, tenants.own, token):
        for role, caller in tenants.callers.items():
            answer = exchange(tenants.server, caller, method, requests)
            assert answer.code not in DEFECTS, f"{role}: {requests}"
            assert not leaked(answer, requests, tenants.theirs), f"{role}: {requests}"
    assert state(tenants) == before


def test_every_call_and_every_name_in_it_is_tried(tenants: Tenants) -> None:
    """A new RPC, or a new field of an existing RPC, must be added to the requests above."""
    assert CASES.keys() == {method.name for method in METHODS}
    for method in METHODS:
        requests = list(case_requests(method, tenants.theirs, tenants.own))
        requests += continuation_requests(method, tenants.theirs, tenants.own, "token")
        tried = {path for stream in requests for request in stream for path in set_in(request)}
        names = {path for path in names_in(method.input_type) if not path.startswith(CONTENT)}
        assert {(method.name, path) for path in names - tried} <= NO_NAME


def test_callers_of_the_owning_tenant_are_served(tenants: Tenants) -> None:
    """This proves that the others were refused only because of their tenant."""
    named = tenants.theirs
    client = tenants.server.client(tenant_id=GLOBEX_ID)
    assert client.get_corpus(named.corpus).name == named.corpus_name
    assert all(client.get_node(node).corpus_id for node in named.nodes)
    assert SECRET in (client.get_document(named.corpus, named.document, with_text=True).text or "")
    assert client.get_account(named.account).login == named.login
    assert SECRET in client.get_facts([named.fact])[0].content
    assert client.get_community(named.corpus, named.community).community.size >= 3
    assert len(client.list_signatures().items) == 2
    assert len(client.list_reviews().items) == 2


def test_no_call_of_the_other_tenant_is_in_the_owning_tenants_log(tenants: Tenants) -> None:
    callers = {tenants.server.client(token).server_info().principal for token in tenants.callers.values()}
    for role, token in tenants.callers.items():
        for requests in case_requests(BY_NAME["GetNode"], tenants.theirs, tenants.own):
            assert exchange(tenants.server, token, BY_NAME["GetNode"], requests).code is not grpc.StatusCode.OK, role
    records = list(all_records(tenants.server))
    assert [record for record in records if record["log"] == str(GLOBEX_ID)]
    assert not [record for record in records if record["log"] == str(GLOBEX_ID) and record.get("operator") in callers]


def test_listings_have_several_pages(tenants: Tenants) -> None:
    """Otherwise the test of page tokens would have no tokens."""
    listings = {"ListCorpora", "ListDocuments", "Query", "DrillDown", "GetHistory", "QueryAudit", "ListSignatures"}
    listings |= {"ListReviews", "ListAccounts", "ListFacts", "ListSources", "GetCommunity", "WatchEvents", "ListTurns"}
    assert listings <= tenants.theirs.page_tokens.keys()


def _token(tenants: Tenants, method: MethodDescriptor, role: str) -> str:
    """The token of a caller of this role. For calls that end the session, the token of a new caller."""
    if method.name != "Logout":
        return tenants.callers[role]
    return make_person(tenants.server, *(Grant(known) for known in ROLES if known.value == role)).token


def told(answer: RawAnswer, names: Names) -> tuple[object, ...]:
    """What an answer reveals, without the names that were asked for."""
    if answer.code is grpc.StatusCode.OK:
        return (answer.code,)
    metadata = {name: value for name, value in answer.info.metadata.items() if name != "request_id"}
    return answer.code, answer.info.reason, without(repr((answer.details, sorted(metadata.items()))), names)


def without(text: str, names: Names) -> str:
    for name, value in sorted(names.texts().items(), key=lambda item: -len(item[1])):
        text = text.replace(value, f"<{name}>")
    return text


def leaked(answer: RawAnswer, requests: Sequence[Message], names: Names) -> list[str]:
    """The names of another tenant in an answer that the request did not contain itself."""
    sent = repr([request.SerializeToString() for request in requests])
    got = repr((answer.content, answer.details, answer.trailing))
    theirs = [value for name, value in names.texts().items() if not name.startswith(("spare", "tenant_name"))]
    return [value for value in [SECRET, *theirs] if value in got and value not in sent]


def state(tenants: Tenants) -> dict[bytes, bytes]:
    """Everything stored for the other tenant and its corpora, except its log."""
    server = tenants.server
    keys = server.server._unit.keys
    corpora = server.engine.run(lambda tr: list(CORPORA.scan(tr, keys.corpora(TenantId(GLOBEX_ID)))))
    below = tuple(prefix for corpus, _ in corpora for prefix in keys.of_corpus(corpus.number)._prefixes.values())
    audit = tuple(keys._prefixes[space] for space in Space if space.name.startswith("AUDIT"))
    everything = server.engine.run(lambda tr: list(tr.snapshot.range(*KeyRange(b"", b"\xff"))))
    kept = ((key, value) for key, value in everything if not key.startswith(audit))
    assert corpora
    return {key: value for key, value in kept if GLOBEX_ID.bytes in key or key.startswith(below)}
