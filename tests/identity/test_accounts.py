"""Accounts: which tenant they belong to, who manages them, and that logins and bindings are unique."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from drillcore import Account, AccountKind, Client, Grant, Level, Role
from drillcore_proto.reasons import Reason
from tests.support.fixtures import TenantFactory
from tests.support.servers.people import FIRST, PASSWORD, Person, administrator, make_person, make_service, refused
from tests.support.servers.running import ACME_ID, GLOBEX_ID, Running, create_tenants, running
from tests.support.stores.trails import records

SHA256 = "ab" * 32


@pytest.fixture
def acme_server(server: Running, tenant: TenantFactory) -> Running:
    return server


@pytest.fixture
def admin(acme_server: Running) -> Client:
    """A person who operates acme."""
    return administrator(acme_server)


def test_a_created_account_is_read_back_unchanged(operator: Client, acme_server: Running) -> None:
    corpus = operator.create_corpus("rules", tenant_id=ACME_ID).id
    grants = [Grant(Role.READER), Grant(Role.REVIEWER, corpus_id=corpus, levels=(Level.SECTION, Level.MASTER))]
    made = operator.create_account(
        "ann@acme", name="Ann Example", grants=grants, certificate_sha256=[SHA256.upper()], tenant_id=ACME_ID
    )
    assert (made.kind, made.login, made.name, made.tenant_id) == (
        AccountKind.PERSON,
        "ann@acme",
        "Ann Example",
        ACME_ID,
    )
    assert made.grants == (
        Grant(Role.READER, ACME_ID),
        Grant(Role.REVIEWER, ACME_ID, corpus, (Level.SECTION, Level.MASTER)),
    )
    assert (made.created_by, made.version, made.disabled) == ("root", 1, False)
    assert made.certificate_sha256 == (SHA256,)
    assert (made.password_changed_at, made.locked_until) == (None, None)
    assert operator.get_account(made.id, tenant_id=ACME_ID) == made
    assert operator.get_account(login="ANN@acme", tenant_id=ACME_ID) == made


def test_a_repeated_creation_makes_one_account(operator: Client, acme_server: Running) -> None:
    made = [
        operator.create_account("ann", name="Ann", password=FIRST, tenant_id=ACME_ID, request_id="one")
        for _ in range(2)
    ]
    assert made[0] == made[1]
    with refused(Reason.REQUEST_ID_REUSED):
        operator.create_account("ann", name="Ann", password=PASSWORD, tenant_id=ACME_ID, request_id="one")


def test_a_login_is_never_given_twice(operator: Client, acme_server: Running) -> None:
    ann = operator.create_account("ann", name="Ann", tenant_id=ACME_ID)
    operator.update_account(ann.id, disabled=True, tenant_id=ACME_ID)
    for tenant in (ACME_ID, GLOBEX_ID):
        with refused(Reason.ACCOUNT_EXISTS):
            operator.create_account("Ann", name="Ann Other", tenant_id=tenant)


def test_a_certificate_or_subject_is_bound_to_one_account_only(operator: Client, acme_server: Running) -> None:
    ann = operator.create_account(
        "ann",
        name="Ann",
        certificate_sha256=[SHA256],
        oidc_issuer="https://id.example",
        oidc_subject="1",
        tenant_id=ACME_ID,
    )
    operator.update_account(
        ann.id, remove_certificate_sha256=[SHA256], oidc_issuer="", oidc_subject="", tenant_id=ACME_ID
    )
    bob = operator.create_account("bob", name="Bob", tenant_id=GLOBEX_ID)
    with refused(Reason.ACCOUNT_EXISTS):
        operator.update_account(bob.id, add_certificate_sha256=[SHA256], tenant_id=GLOBEX_ID)
    with refused(Reason.ACCOUNT_EXISTS):
        operator.update_account(bob.id, oidc_issuer="https://id.example", oidc_subject="1", tenant_id=GLOBEX_ID)
    again = operator.update_account(ann.id, add_certificate_sha256=[SHA256], tenant_id=ACME_ID)
    assert again.certificate_sha256 == (SHA256,)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"login": ""}, Reason.INVALID_ARGUMENT),
        ({"login": "two words"}, Reason.INVALID_ARGUMENT),
        ({"login": "x" * 201}, Reason.INVALID_ARGUMENT),
        ({"login": "a\u200bb"}, Reason.INVALID_ARGUMENT),
        ({"name": ""}, Reason.INVALID_ARGUMENT),
        ({"name": " Ann"}, Reason.INVALID_ARGUMENT),
        ({"password": "short"}, Reason.PASSWORD_REFUSED),
        ({"kind": AccountKind.SERVICE, "password": FIRST}, Reason.INVALID_ARGUMENT),
        ({"certificate_sha256": ["abcd"]}, Reason.INVALID_ARGUMENT),
        ({"certificate_sha256": ["zz" * 32]}, Reason.INVALID_ARGUMENT),
        ({"certificate_sha256": [f"{n:064x}" for n in range(21)]}, Reason.TOO_LARGE),
        ({"oidc_issuer": "https://id.example"}, Reason.INVALID_ARGUMENT),
        ({"oidc_subject": "x"}, Reason.INVALID_ARGUMENT),
        ({"oidc_issuer": "x" * 501, "oidc_subject": "x"}, Reason.TOO_LARGE),
        ({"grants": [Grant(Role.READER, GLOBEX_ID)]}, Reason.INVALID_ARGUMENT),
        ({"grants": [Grant(Role.READER, corpus_id=uuid4())]}, Reason.CORPUS_NOT_FOUND),
        ({"grants": [Grant(Role.OPERATOR, levels=(Level.RAW,))]}, Reason.INVALID_ARGUMENT),
        ({"server_account": True}, Reason.INVALID_ARGUMENT),
        ({"tenant_id": None}, Reason.TENANT_REQUIRED),
        ({"tenant_id": uuid4()}, Reason.TENANT_NOT_FOUND),
    ],
)
def test_an_invalid_account_is_refused(
    operator: Client, acme_server: Running, fields: dict[str, Any], reason: Reason
) -> None:
    asked = {"login": "ann", "name": "Ann Example", "tenant_id": ACME_ID, **fields}
    with refused(reason):
        operator.create_account(**asked)
    assert not operator.list_accounts(tenant_id=ACME_ID).items


def test_each_tenants_accounts_are_listed_page_by_page(operator: Client, acme_server: Running) -> None:
    mine = [operator.create_account(f"a{n}", name="Ann", tenant_id=ACME_ID).id for n in range(5)]
    operator.create_account("bob", name="Bob", tenant_id=GLOBEX_ID)
    operator.create_account("root-ann", name="Ann", server_account=True)
    assert [account.id for account in operator.iter_accounts(tenant_id=ACME_ID, page_size=2)] == mine
    assert [account.login for account in operator.iter_accounts(server_accounts=True)] == ["root-ann"]
    page = operator.list_accounts(tenant_id=ACME_ID, page_size=2)
    with refused(Reason.INVALID_PAGE_TOKEN):
        operator.list_accounts(tenant_id=GLOBEX_ID, page_token=page.next_page_token)


def test_a_tenants_administrator_manages_its_accounts(admin: Client, acme_server: Running) -> None:
    made = admin.create_account("bob", name="Bob", grants=[Grant(Role.AUDITOR)], password=FIRST)
    assert made.tenant_id == ACME_ID
    assert made.created_by != "root"
    assert admin.update_account(made.id, name="Bob Other").name == "Bob Other"
    assert admin.set_grants(made.id, [Grant(Role.WRITER)]).grants == (Grant(Role.WRITER, ACME_ID),)
    admin.set_password("a new one from above", account_id=made.id)
    assert {account.login for account in admin.list_accounts().items} > {"bob"}


def test_a_tenants_administrator_reaches_no_other_account(admin: Client, acme_server: Running) -> None:
    """Accounts of other tenants and of the server are not found, whatever the administrator tries."""
    root = acme_server.client()
    gus = root.create_account("gus", name="Gus", tenant_id=GLOBEX_ID)
    boss = root.create_account("boss", name="Boss", server_account=True)
    attempts: list[Callable[[Account], object]] = [
        lambda account: admin.get_account(account.id),
        lambda account: admin.get_account(login=account.login),
        lambda account: admin.update_account(account.id, disabled=True),
        lambda account: admin.set_grants(account.id, [Grant(Role.OPERATOR)]),
        lambda account: admin.set_password(PASSWORD, account_id=account.id),
        lambda account: admin.create_token(account.id, "mine"),
        lambda account: admin.list_tokens(account.id),
        lambda account: admin.revoke_token(account.id),
    ]
    for attempt in attempts:
        for account in (gus, boss):
            with refused(Reason.ACCOUNT_NOT_FOUND):
                attempt(account)
    with refused(Reason.TENANT_NOT_FOUND):
        admin.list_accounts(tenant_id=GLOBEX_ID)
    with refused(Reason.TENANT_NOT_FOUND):
        admin.create_account("spy", name="Spy", tenant_id=GLOBEX_ID)
    with refused(Reason.PERMISSION_DENIED):
        admin.create_account("spy", name="Spy", server_account=True)
    with refused(Reason.PERMISSION_DENIED):
        admin.list_accounts(server_accounts=True)
    with refused(Reason.INVALID_ARGUMENT):
        admin.create_account("spy", name="Spy", grants=[Grant(Role.READER, GLOBEX_ID)])


@pytest.mark.parametrize("role", [Role.READER, Role.WRITER, Role.REVIEWER, Role.AUDITOR])
def test_nobody_else_manages_accounts(acme_server: Running, role: Role) -> None:
    person = make_person(acme_server, Grant(role))
    mine = acme_server.client(person.token)
    for attempt in (
        lambda: mine.create_account("spy", name="Spy"),
        mine.list_accounts,
        lambda: mine.set_grants(person.account.id, [Grant(Role.OPERATOR)]),
        lambda: mine.update_account(person.account.id, name="Somebody Else"),
    ):
        with refused(Reason.PERMISSION_DENIED):
            attempt()


def test_an_operator_of_one_corpus_manages_no_accounts(acme_server: Running, operator: Client) -> None:
    corpus = operator.create_corpus("rules", tenant_id=ACME_ID).id
    mine = acme_server.client(make_person(acme_server, Grant(Role.OPERATOR, corpus_id=corpus)).token)
    with refused(Reason.PERMISSION_DENIED):
        mine.list_accounts()


def test_all_callers_see_their_own_account(acme_server: Running) -> None:
    person = make_person(acme_server)
    assert acme_server.client(person.token).get_account(person.account.id).login == person.login
    with refused(Reason.PERMISSION_DENIED):
        acme_server.client(person.token).get_account(make_person(acme_server).account.id)


def test_an_operators_account_may_be_for_some_tenants(acme_server: Running) -> None:
    person = make_person(acme_server, Grant(Role.OPERATOR, ACME_ID), Grant(Role.READER, ACME_ID), tenant=None)
    client = acme_server.client(person.token)
    client.list_accounts(tenant_id=ACME_ID)
    client.list_corpora(tenant_id=ACME_ID)
    for tenant in (GLOBEX_ID, uuid4()):
        with refused(Reason.PERMISSION_DENIED):
            client.list_corpora(tenant_id=tenant)
    for attempt in (client.list_tenants, lambda: client.create_account("x", name="X", server_account=True)):
        with refused(Reason.PERMISSION_DENIED):
            attempt()


def test_a_grant_for_a_corpus_names_its_tenant_in_an_operators_account(acme_server: Running, operator: Client) -> None:
    corpus = operator.create_corpus("rules", tenant_id=ACME_ID).id
    with refused(Reason.TENANT_REQUIRED):
        operator.create_account("boss", name="Boss", server_account=True, grants=[Grant(Role.READER, corpus_id=corpus)])
    with refused(Reason.CORPUS_NOT_FOUND):
        operator.create_account(
            "boss", name="Boss", server_account=True, grants=[Grant(Role.READER, GLOBEX_ID, corpus)]
        )


def test_operators_cannot_end_their_own_operator_role(acme_server: Running) -> None:
    boss = make_person(acme_server, Grant(Role.OPERATOR), tenant=None)
    client = acme_server.client(boss.token)
    with refused(Reason.PERMISSION_DENIED):
        client.update_account(boss.account.id, disabled=True)
    with refused(Reason.PERMISSION_DENIED):
        client.set_grants(boss.account.id, [Grant(Role.READER)])
    client.set_grants(boss.account.id, [Grant(Role.READER), Grant(Role.OPERATOR)])


def test_disabling_an_account_ends_its_sessions_and_tokens_and_enabling_does_not_restore_them(
    acme_server: Running,
) -> None:
    root = acme_server.client()
    person, service = make_person(acme_server), make_service(acme_server)
    for holder in (person, service):
        acme_server.client(holder.token).server_info()
        root.update_account(holder.account.id, disabled=True, tenant_id=ACME_ID)
        with refused(Reason.SESSION_OVER):
            acme_server.client(holder.token).server_info()
        root.update_account(holder.account.id, disabled=False, tenant_id=ACME_ID)
        with refused(Reason.SESSION_OVER):
            acme_server.client(holder.token).server_info()


def test_an_update_of_an_account_checks_the_expected_version(admin: Client) -> None:
    made = admin.create_account("bob", name="Bob")
    assert admin.update_account(made.id, name="Bob B", expected_version=1).version == 2
    with refused(Reason.VERSION_MISMATCH):
        admin.update_account(made.id, name="Bob C", expected_version=1)
    with refused(Reason.VERSION_MISMATCH):
        admin.set_grants(made.id, [], expected_version=1)


def test_changes_are_on_the_record_with_the_account_before_and_after(admin: Client, acme_server: Running) -> None:
    made = admin.create_account("bob", name="Bob", password=FIRST, request_id="create")
    admin.set_grants(made.id, [Grant(Role.AUDITOR)], request_id="grant")
    admin.update_account(made.id, disabled=True, request_id="disable")
    admin.set_password(PASSWORD, account_id=made.id, request_id="password")
    (created,), (granted,) = records(acme_server, request_id="create"), records(acme_server, request_id="grant")
    (disabled,), (changed,) = records(acme_server, request_id="disable"), records(acme_server, request_id="password")
    assert [record["action"] for record in (created, granted, disabled, changed)] == [
        "CREATE",
        "GRANT",
        "UPDATE",
        "UPDATE",
    ]
    for record in (created, granted, disabled, changed):
        assert record["detail"]["account_id"] == str(made.id)
        assert record["log"] == str(ACME_ID)
    assert created["opened"]["after"]["login"] == "bob"
    assert granted["opened"]["before"]["grants"] == []
    assert granted["opened"]["after"]["grants"][0]["role"] == "auditor"
    assert (disabled["opened"]["before"]["disabled"], disabled["opened"]["after"]["disabled"]) == (False, True)
    assert "opened" not in changed


def test_changes_of_the_servers_accounts_are_in_the_servers_own_log(acme_server: Running) -> None:
    acme_server.client().create_account("boss", name="Boss", server_account=True, request_id="create")
    (record,) = records(acme_server, request_id="create")
    assert record["log"] == str(UUID(int=0))


def test_the_first_operators_token_is_made_only_while_no_account_can_operate(tmp_path: Path) -> None:
    file = tmp_path / "operator.token"
    with running(tmp_path, tokens=()) as server:
        token = file.read_text().strip()
        (notice,) = [line for line in server.log_lines() if "made a token" in line["event"]]
        assert notice["file"] == str(file)
        assert "account create" in notice["create"]
        root = server.client(token)
        root.create_account("boss", name="Boss", grants=[Grant(Role.OPERATOR)], password=FIRST, server_account=True)
    with running(tmp_path, tokens=()) as server:
        assert server.client(token).server_info().principal == "operator"
        assert any("still there: remove it" in line["event"] for line in server.log_lines())
    file.unlink()
    with running(tmp_path, tokens=()) as server:
        assert not file.exists()
        with refused(Reason.UNAUTHENTICATED):
            server.client(token).server_info()
        opened = server.client(None).login("boss", FIRST, new_password=PASSWORD)
        server.client(opened.token).create_tenant("acme")


def test_an_account_that_cannot_operate_the_server_does_not_count_as_an_operator(tmp_path: Path) -> None:
    file = tmp_path / "operator.token"
    with running(tmp_path) as server:
        create_tenants(server.client())
        make_person(server, Grant(Role.READER), tenant=None)
        make_person(server, Grant(Role.OPERATOR, ACME_ID), tenant=None)
        make_person(server, Grant(Role.OPERATOR))
        gone: Person = make_person(server, Grant(Role.OPERATOR), tenant=None)
        server.client().update_account(gone.account.id, disabled=True)
        assert not file.exists()
    with running(tmp_path, tokens=()):
        assert file.exists()
