"""Access without a grant is denied by tenant, corpus and level, for every RPC and at the moment of the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor

from drillcore import Client, Grant, Level, NewDocument, Role
from drillcore_proto.reasons import Reason
from drillcore_server.transport.stages import OPEN_TO_NOBODY
from tests.support.data.texts import REGULATIONS
from tests.support.servers.people import make_person, make_service, refused
from tests.support.servers.rpcs import METHODS, call, name_of, path_of, request_of
from tests.support.servers.running import ACME_ID, OPERATOR, Running, create_tenants, running
from tests.support.stores.hooked_engine import HookedEngine

FOR_EVERYBODY = {"GetServerInfo", "Login", "Logout", "SetPassword", "GetAccount", "ListTokens", "RevokeToken"}
"""Calls that every account may make about itself. SetPassword and the calls after it are denied for other accounts."""


@dataclass(frozen=True)
class Library:
    """Two corpora of acme, with the same documents."""

    server: Running
    rules: UUID
    others: UUID
    document: UUID

    def client(self, *grants: Grant) -> Client:
        return self.server.client(make_service(self.server, *grants).token)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    with running(tmp_path_factory.mktemp("library")) as server:
        create_tenants(server.client())
        root = server.client(OPERATOR, tenant_id=ACME_ID)
        rules, others = (root.create_corpus(name).id for name in ("rules", "others"))
        for corpus in (rules, others):
            texts = [NewDocument(name, text.encode()) for name, text in list(REGULATIONS.items())[:3]]
            added = root.add_documents(corpus, texts)
        first = root.list_documents(rules).items[0]
        assert added.revision == 1
        yield Library(server, rules, others, first.id)


def nodes_of(client: Client, corpus: UUID, level: Level) -> list[UUID]:
    return [hit.node.id for hit in client.iter_query(level=level, corpus_ids=[corpus])]


@pytest.mark.parametrize("method", METHODS, ids=name_of)
def test_an_account_without_grants_may_do_nothing(library: Library, method: MethodDescriptor) -> None:
    token = make_person(library.server).token
    answer = call(library.server.address, path_of(method), request_of(method).SerializeToString(), token=token)
    assert answer.code is not grpc.StatusCode.OK or method.name in FOR_EVERYBODY
    if method.name not in FOR_EVERYBODY:
        assert answer.info.reason in {Reason.PERMISSION_DENIED.name, Reason.CANNOT_SIGN.name}
    elif method.name not in OPEN_TO_NOBODY | {"GetServerInfo", "Logout"}:
        assert answer.info.reason == Reason.PERMISSION_DENIED.name, "the request names the account of another caller"


@pytest.mark.parametrize("level", Level)
def test_a_reader_of_one_level_reads_that_level_only(library: Library, level: Level) -> None:
    root = library.server.client(OPERATOR, tenant_id=ACME_ID)
    client = library.client(Grant(Role.READER, levels=(level,)))
    (master,) = nodes_of(root, library.rules, Level.MASTER)
    for wanted in Level:
        node = nodes_of(root, library.rules, wanted)[0]
        attempts: list[Callable[[], object]] = [
            lambda node=node: client.get_node(node),
            lambda node=node: client.get_node(node, as_of=1),
            lambda wanted=wanted: client.query(level=wanted, corpus_ids=[library.rules]),
            lambda wanted=wanted: client.query(level=wanted, corpus_ids=[library.rules], as_of=1),
        ]
        if wanted < Level.MASTER:
            attempts += [
                lambda wanted=wanted: client.drill_down(master, wanted),
                lambda wanted=wanted: client.drill_down(master, wanted, as_of=1),
            ]
        if wanted in {Level.SECTION, Level.CHUNK}:
            attempts.append(lambda wanted=wanted: client.query("records", level=wanted, corpus_ids=[library.rules]))
        if wanted > Level.RAW:
            raws = nodes_of(root, library.rules, Level.RAW)[:1]
            attempts.append(lambda wanted=wanted, raws=raws: client.roll_up(raws, wanted))
        for attempt in attempts:
            if wanted is level:
                attempt()
            else:
                with refused(Reason.PERMISSION_DENIED):
                    attempt()


def test_a_caller_who_may_not_read_raws_gets_no_text_of_a_document(library: Library) -> None:
    client = library.client(Grant(Role.READER, levels=(Level.CHUNK, Level.SECTION, Level.MASTER)))
    assert client.get_document(library.rules, library.document).text is None
    for as_of in (None, 1):
        with refused(Reason.PERMISSION_DENIED):
            client.get_document(library.rules, library.document, with_text=True, as_of=as_of)
    sections = library.client(Grant(Role.READER, levels=(Level.SECTION,)))
    for attempt in (
        lambda: sections.get_document(library.rules, library.document),
        lambda: sections.list_documents(library.rules),
    ):
        with refused(Reason.PERMISSION_DENIED):
            attempt()
    raws = library.client(Grant(Role.READER, levels=(Level.RAW,)))
    assert raws.get_document(library.rules, library.document, with_text=True).text


def test_a_query_of_everything_leaves_out_levels_that_are_not_granted(library: Library) -> None:
    client = library.client(
        Grant(Role.READER, corpus_id=library.rules, levels=(Level.CHUNK,)),
        Grant(Role.READER, corpus_id=library.others, levels=(Level.SECTION,)),
    )
    assert client.query("records", level=Level.CHUNK).revisions.keys() == {library.rules}
    assert client.query("records", level=Level.SECTION).revisions.keys() == {library.others}
    assert not client.query(level=Level.RAW).items


def test_grants_of_levels_add_up_for_each_corpus_but_not_over_corpora(library: Library) -> None:
    client = library.client(
        Grant(Role.READER, corpus_id=library.rules, levels=(Level.CHUNK,)),
        Grant(Role.REVIEWER, corpus_id=library.rules, levels=(Level.RAW,)),
        Grant(Role.READER, corpus_id=library.others, levels=(Level.SECTION,)),
    )
    client.query(level=Level.CHUNK, corpus_ids=[library.rules])
    client.query(level=Level.RAW, corpus_ids=[library.rules])
    with refused(Reason.PERMISSION_DENIED):
        client.query(level=Level.SECTION, corpus_ids=[library.rules])
    with refused(Reason.PERMISSION_DENIED):
        client.query(level=Level.RAW, corpus_ids=[library.others])


def test_a_corpus_that_is_not_granted_is_not_found(library: Library) -> None:
    root = library.server.client(OPERATOR, tenant_id=ACME_ID)
    client = library.client(Grant(Role.WRITER, corpus_id=library.rules))
    hidden = nodes_of(root, library.others, Level.CHUNK)[0]
    document = root.list_documents(library.others).items[0].id
    assert [listed.id for listed in client.list_corpora().items] == [library.rules]
    assert client.query("records").revisions.keys() == {library.rules}
    assert client.query(level=Level.RAW).revisions.keys() == {library.rules}
    attempts: list[tuple[Callable[[], object], Reason]] = [
        (lambda: client.get_corpus(library.others), Reason.CORPUS_NOT_FOUND),
        (lambda: client.get_corpus(name="others"), Reason.CORPUS_NOT_FOUND),
        (lambda: client.update_corpus(library.others, description="mine"), Reason.CORPUS_NOT_FOUND),
        (lambda: client.delete_corpus(library.others), Reason.CORPUS_NOT_FOUND),
        (lambda: client.trim_corpus(library.others), Reason.CORPUS_NOT_FOUND),
        (lambda: client.query(corpus_ids=[library.rules, library.others]), Reason.CORPUS_NOT_FOUND),
        (lambda: client.list_documents(library.others), Reason.CORPUS_NOT_FOUND),
        (lambda: client.get_document(library.others, document), Reason.CORPUS_NOT_FOUND),
        (lambda: client.remove_documents(library.others, [document]), Reason.CORPUS_NOT_FOUND),
        (lambda: client.add_documents(library.others, [NewDocument("a.txt", b"Text.")]), Reason.CORPUS_NOT_FOUND),
        (lambda: client.history(library.others), Reason.CORPUS_NOT_FOUND),
        (lambda: client.history(node_id=hidden), Reason.NODE_NOT_FOUND),
        (lambda: client.get_node(hidden), Reason.NODE_NOT_FOUND),
        (lambda: client.drill_down(hidden, Level.RAW), Reason.NODE_NOT_FOUND),
        (lambda: client.roll_up([hidden], Level.MASTER), Reason.NODE_NOT_FOUND),
        (lambda: client.create_corpus("mine"), Reason.PERMISSION_DENIED),
    ]
    for attempt, reason in attempts:
        with refused(reason):
            attempt()


@pytest.mark.parametrize("role", [Role.READER, Role.REVIEWER, Role.AUDITOR])
def test_a_caller_who_may_only_read_cannot_change_anything(library: Library, role: Role) -> None:
    client = library.client(Grant(role))
    client.query("records")
    for attempt in (
        lambda: client.create_corpus("mine"),
        lambda: client.update_corpus(library.rules, description="mine"),
        lambda: client.delete_corpus(library.rules),
        lambda: client.trim_corpus(library.rules),
        lambda: client.remove_documents(library.rules, [library.document]),
        lambda: client.add_documents(library.rules, [NewDocument("a.txt", b"Text.")]),
        client.list_tenants,
        client.list_accounts,
    ):
        with refused(Reason.PERMISSION_DENIED):
            attempt()


def test_an_operator_reads_no_content(library: Library) -> None:
    client = library.client(Grant(Role.OPERATOR))
    assert {listed.id for listed in client.list_corpora().items} == {library.rules, library.others}
    for attempt in (
        lambda: client.query("records"),
        lambda: client.list_documents(library.rules),
        lambda: client.get_document(library.rules, library.document, with_text=True),
        lambda: client.history(library.rules),
        lambda: client.add_documents(library.rules, [NewDocument("a.txt", b"Text.")]),
    ):
        with refused(Reason.PERMISSION_DENIED):
            attempt()


def test_a_writer_of_some_levels_cannot_change_a_corpus(library: Library) -> None:
    """Every change concerns all levels together."""
    client = library.client(Grant(Role.WRITER, levels=(Level.RAW, Level.CHUNK)))
    for attempt in (
        lambda: client.add_documents(library.rules, [NewDocument("a.txt", b"Text.")]),
        lambda: client.remove_documents(library.rules, [library.document]),
        lambda: client.update_corpus(library.rules, description="mine"),
        lambda: client.delete_corpus(library.rules),
        lambda: client.trim_corpus(library.rules),
        lambda: client.create_corpus("mine"),
    ):
        with refused(Reason.PERMISSION_DENIED):
            attempt()


@dataclass(frozen=True)
class Hooked:
    server: Running
    engine: HookedEngine


@pytest.fixture
def hooked(tmp_path: Path) -> Iterator[Hooked]:
    engines: list[HookedEngine] = []

    def wrap(engine: object) -> HookedEngine:
        engines.append(HookedEngine(engine))  # type: ignore[arg-type]
        return engines[0]

    with running(tmp_path, wrap=wrap) as server:
        create_tenants(server.client())
        yield Hooked(server, engines[0])


TAKEN: dict[str, tuple[Callable[[Client, UUID], object], Reason]] = {
    "grants": (lambda root, account: root.set_grants(account, []), Reason.PERMISSION_DENIED),
    "session": (lambda root, account: root.revoke_token(account), Reason.SESSION_OVER),
    "account": (lambda root, account: root.update_account(account, disabled=True), Reason.SESSION_OVER),
}


@pytest.mark.parametrize("taken", TAKEN)
@pytest.mark.parametrize("kind", ["read", "write", "upload"])
def test_a_grant_revoked_during_a_call_is_denied_to_that_call(hooked: Hooked, taken: str, kind: str) -> None:
    """It is revoked between the reads and the commit of the call. The commit conflicts and the next run is denied."""
    root = hooked.server.client(OPERATOR, tenant_id=ACME_ID)
    corpus = root.create_corpus("rules").id
    service = make_service(hooked.server, Grant(Role.WRITER))
    client = hooked.server.client(service.token)
    calls: dict[str, Callable[[], object]] = {
        "read": client.list_corpora,
        "write": lambda: client.create_corpus("mine"),
        "upload": lambda: client.add_documents(corpus, [NewDocument("a.txt", b"Some words of text.")]),
    }
    take, reason = TAKEN[taken]
    hooked.engine.hook = lambda: take(root, service.account.id)
    with refused(reason):
        calls[kind]()
    assert hooked.engine.hook is None
    assert [listed.name for listed in root.list_corpora().items] == ["rules"]
    assert not root.list_documents(corpus).items


def test_a_grant_counts_at_once(library: Library) -> None:
    root = library.server.client(OPERATOR, tenant_id=ACME_ID)
    person = make_person(library.server)
    client = library.server.client(person.token)
    with refused(Reason.PERMISSION_DENIED):
        client.list_corpora()
    root.set_grants(person.account.id, [Grant(Role.READER, corpus_id=library.rules)])
    assert [listed.id for listed in client.list_corpora().items] == [library.rules]
    root.set_grants(person.account.id, [])
    with refused(Reason.PERMISSION_DENIED):
        client.list_corpora()
