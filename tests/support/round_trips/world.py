"""A server with something of everything in its store, in as many documents as asked for, and calls of any RPC.

The texts are short and made by a rule, so that thousands of documents are added in seconds.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID, uuid4

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tests.support.callers.knowledge import File, parts
from tests.support.servers.rpcs import METHODS, path_of

BY_NAME: Final = {method.name: method for method in METHODS}
PASSWORD: Final = "a long and easy passphrase"
ROLES: Final = ("ROLE_READER", "ROLE_WRITER", "ROLE_REVIEWER", "ROLE_AUDITOR", "ROLE_OPERATOR")
SMALL_DOCUMENTS: Final = 20
"""The size of the corpus for calls that copy a whole corpus. It does not depend on the size of the store."""
_ADDED_AT_ONCE: Final = 200
_PUT_AT_ONCE: Final = 1_000
_LIMIT_S: Final = 300.0

_SUBJECTS: Final = (
    ("records", "The records office", "shall keep", "the register of accounts", "for {} years after it is closed"),
    ("safety", "The safety officer", "must inspect", "every pressure vessel", "within {} days of its delivery"),
    ("trials", "The sponsor of a trial", "shall report", "each adverse reaction", "not later than {} hours after it"),
    ("privacy", "The data controller", "must erase", "the personal data of a customer", "within {} days of a request"),
    ("aviation", "The maintenance engineer", "shall sample", "the engine oil", "every {} flight hours"),
    ("food", "The operator of a kitchen", "must store", "raw meat and fish", "below {} degrees at all times"),
)


def sentence(number: int, kind: int = 0) -> str:
    """A sentence that is long enough to become a fact, and like no other."""
    _, who, does, what, when = _SUBJECTS[number % len(_SUBJECTS)]
    return f"{who} of site {number} {does} {what} of part {kind + 1} {when.format(number % 90 + 2 + kind)}."


def document(number: int) -> File:
    """A document of one chunk with three claims."""
    title = _SUBJECTS[number % len(_SUBJECTS)][0].title()
    claims = " ".join(sentence(number, kind) for kind in range(3))
    return File(f"{title.lower()}-{number}.txt", f"{title} of site {number}\n\n{claims}\n")


class Caller:
    """Calls any RPC by its name, as one caller. Calls raise `grpc.RpcError`."""

    def __init__(self, address: str, token: str) -> None:
        options = [("grpc.enable_retries", 0), ("grpc.max_receive_message_length", 1 << 28)]
        self._channel = grpc.insecure_channel(address, options)
        self._token = token

    def close(self) -> None:
        self._channel.close()

    def __call__(self, rpc: str, **fields: Any) -> Any:
        """The answer to one request."""
        return self.send(rpc, [request(rpc, **fields)])[-1]

    def send(self, rpc: str, requests: Iterable[Message]) -> list[Any]:
        """All answers to these requests."""
        return list(self.begin(rpc, requests))

    def begin(self, rpc: str, requests: Iterable[Message]) -> Any:
        """The answers as they come. On the wire, a call with one request and one answer is a stream of each."""
        method = BY_NAME[rpc]
        stream = self._channel.stream_stream(
            path_of(method), lambda message: message.SerializeToString(), _answer(method).FromString
        )
        return stream(iter(requests), metadata=[("authorization", f"Bearer {self._token}")], timeout=_LIMIT_S)


def request(rpc: str, **fields: Any) -> Message:
    return GetMessageClass(BY_NAME[rpc].input_type)(**fields)


def _answer(method: MethodDescriptor) -> type[Message]:
    return GetMessageClass(method.output_type)


@dataclass
class World:
    """The names of what a filled store has, and callers."""

    address: str
    operator: Caller
    """An operator of the server."""
    person: Caller
    """A person of the tenant, in a session, with every role."""
    anonymous: Caller
    documents: int
    tenant: str = ""
    account: str = ""
    login: str = ""
    corpus: str = ""
    corpus_name: str = ""
    small: str = ""
    """A corpus of `SMALL_DOCUMENTS` documents."""
    model: str = ""
    """The embedding model."""
    service: str = ""
    """The account of a service."""
    facts: list[str] = field(default_factory=list)
    """Facts that were put without a document."""
    document_ids: list[str] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)
    opened: list[Caller] = field(default_factory=list)
    """Further callers, to be closed."""
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(10_000_000, 20_000_000)))
    """Numbers of texts that are in no corpus yet."""

    def caller(self, token: str) -> Caller:
        self.opened.append(Caller(self.address, token))
        return self.opened[-1]

    def close(self) -> None:
        for caller in (self.operator, self.person, self.anonymous, *self.opened):
            caller.close()

    def new_tenant(self) -> str:
        return str(self.operator("CreateTenant", name=f"tenant {uuid4()}").tenant.id)

    def new_corpus(self) -> str:
        return str(self.person("CreateCorpus", name=f"corpus {uuid4()}").corpus.id)

    def add(self, corpus: str, files: Iterable[File]) -> list[str]:
        """Adds documents and returns their ids."""
        answers = self.person.send("AddDocuments", parts(corpus, files))
        found = [answer.outcome for answer in answers if answer.WhichOneof("event") == "outcome"]
        assert all(outcome.document_id for outcome in found)
        return [outcome.document_id for outcome in found]

    def new_document(self) -> str:
        """Adds a document to the corpus and returns its id."""
        return self.add(self.corpus, [document(next(self.numbers))])[0]

    def new_fact(self, corpus: str = "", **fields: Any) -> str:
        draft = {"content": sentence(next(self.numbers)), "source_id": "letters", **fields}
        return str(self.person("PutFacts", corpus_id=corpus or self.corpus, facts=[draft]).fact_ids[0])

    def nodes(self, level: str, count: int = 1) -> list[str]:
        """The ids of some nodes of the corpus."""
        answer = self.person("Query", corpus_ids=[self.corpus], level=level, page_size=count)
        return [hit.node.id for hit in answer.hits]

    def new_account(self, kind: str = "ACCOUNT_KIND_PERSON", **fields: Any) -> tuple[str, str]:
        """Makes an account of the tenant. Returns its id and its login."""
        login = f"login-{uuid4()}"
        given = {"name": "Pat Example", "password": "the very first passphrase"} if "PERSON" in kind else {}
        made = self.operator("CreateAccount", tenant_id=self.tenant, kind=kind, login=login, **given, **fields)
        return made.account.id, login


def quad(number: int) -> dict[str, Any]:
    return {
        "subject": {"iri": f"http://example.org/site/{number}"},
        "predicate": {"iri": f"http://example.org/property/{number % 7}"},
        "object": {"literal": {"value": f"value {number}"}},
    }


def turn(turn_id: str, number: int) -> dict[str, Any]:
    return {
        "turn_id": turn_id,
        "session_id": f"talk {number // 50}",
        "role": "TURN_ROLE_USER",
        "phase": 1 + number % 5,
        "salience": number % 10 / 10,
    }


def edge(parent: str, child: str, edge_type: str = "EDGE_TYPE_REPLY") -> dict[str, Any]:
    return {"parent": parent, "child": child, "edge_type": edge_type}


def fill(address: str, token: str, documents: int) -> World:
    """Fills an empty store. Everything in it grows with the number of documents, except the small corpus."""
    operator, anonymous = Caller(address, token), Caller(address, "")
    tenant = operator("CreateTenant", name="acme").tenant.id
    grants = [{"role": role} for role in ROLES]
    login = "ann"
    made = operator(
        "CreateAccount",
        tenant_id=tenant,
        kind="ACCOUNT_KIND_PERSON",
        login=login,
        name="Ann Example",
        grants=grants,
        password="the very first passphrase",
    )
    session = anonymous("Login", login=login, password="the very first passphrase", new_password=PASSWORD).token
    world = World(address, operator, Caller(address, session), anonymous, documents, tenant, made.account.id, login)
    world.corpus, world.small = world.new_corpus(), world.new_corpus()
    world.corpus_name = world.person("GetCorpus", id=world.corpus).corpus.name
    for start in range(0, documents, _ADDED_AT_ONCE):
        numbers = range(start, min(start + _ADDED_AT_ONCE, documents))
        world.document_ids += world.add(world.corpus, map(document, numbers))
    world.add(world.small, map(document, range(SMALL_DOCUMENTS)))
    world.model = world.person("GetMigration", corpus_id=world.corpus).migration.current.name
    _put_facts(world)
    _put_graphs(world)
    for corpus in (world.corpus, world.small):
        world.person("RecomputeCommunities", corpus_id=corpus)
    world.service, _ = world.new_account("ACCOUNT_KIND_SERVICE", grants=[{"role": "ROLE_READER"}])
    return world


def _put_facts(world: World) -> None:
    drafts = [
        {"content": sentence(number, 7), "source_id": f"letter {number % 50}", "metadata": {"site": str(number % 9)}}
        for number in range(world.documents)
    ]
    for start in range(0, len(drafts), _PUT_AT_ONCE):
        put = world.person("PutFacts", corpus_id=world.corpus, facts=drafts[start : start + _PUT_AT_ONCE])
        world.facts += put.fact_ids


def _put_graphs(world: World) -> None:
    """A quad and a turn for each document. A turn answers one of the six before it."""
    chance = random.Random(7)
    ids = [str(UUID(int=chance.getrandbits(128), version=4)) for _ in range(world.documents)]
    edges = [edge(ids[chance.randrange(max(0, place - 6), place)], ids[place]) for place in range(1, len(ids))]
    for start in range(0, len(ids), _PUT_AT_ONCE):
        numbers = range(start, min(start + _PUT_AT_ONCE, len(ids)))
        turns = [turn(ids[number], number) for number in numbers]
        joined = edges[max(0, start - 1) : numbers.stop - 1]
        world.person("PutTurns", corpus_id=world.corpus, turns=turns, edges=joined)
        quads = [quad(number) for number in numbers]
        world.person("PutQuads", corpus_id=world.corpus, quads=quads, source_id="register")
    world.turns = ids
