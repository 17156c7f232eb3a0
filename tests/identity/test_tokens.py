"""Tokens of service accounts are shown once, expire, and can be revoked at once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from drillcore import Client, Grant, Role, SettingsError
from drillcore_proto.reasons import Reason
from drillcore_server.app.config import ServerSettings, TokenSettings
from drillcore_server.identity.sessions import forget_sessions
from drillcore_server.kernel import session_store as sessions
from tests.support.fixtures import TenantFactory
from tests.support.servers.people import age_session, make_person, make_service, refused
from tests.support.servers.running import ACME_ID, AUTH, GLOBEX_ID, OPERATOR, SETTINGS, Running, running
from tests.support.stores.trails import records

DAY_S = 86_400.0


@pytest.fixture
def acme_server(server: Running, tenant: TenantFactory) -> Running:
    return server


@pytest.fixture
def root(acme_server: Running) -> Client:
    """An operator's client that acts in acme."""
    return acme_server.client(OPERATOR, tenant_id=ACME_ID)


def test_a_token_acts_for_its_account(acme_server: Running) -> None:
    service = make_service(acme_server, Grant(Role.WRITER))
    client = acme_server.client(service.token)
    assert client.server_info().principal == str(service.account.id)
    assert client.create_corpus("rules").created_by == str(service.account.id)


def test_a_repeated_creation_shows_the_same_token(root: Client, acme_server: Running) -> None:
    account = make_service(acme_server).account.id
    made = [root.create_token(account, "job", request_id="one") for _ in range(2)]
    assert made[0] == made[1]
    assert made[0].token != root.create_token(account, "job").token
    assert len(root.list_tokens(account)) == 3


def test_a_token_lives_as_long_as_asked_and_no_longer_than_allowed(root: Client, acme_server: Running) -> None:
    account = make_service(acme_server).account.id
    for asked, given in ((0.0, AUTH.token_s_max), (DAY_S, DAY_S), (AUTH.token_s_max, AUTH.token_s_max)):
        info = root.create_token(account, "job", lifetime_s=asked).info
        assert (info.expires_at - info.created_at).total_seconds() == given
    for asked in (AUTH.token_s_max + 1, -1.0, float("nan"), float("inf")):
        with refused(Reason.INVALID_ARGUMENT):
            root.create_token(account, "job", lifetime_s=asked)


def test_an_expired_token_is_refused(acme_server: Running) -> None:
    token = make_service(acme_server).token
    age_session(acme_server, token, unused_for=timedelta(), opened_before=timedelta(seconds=AUTH.token_s_max - 60))
    acme_server.client(token).server_info()
    age_session(acme_server, token, unused_for=timedelta(), opened_before=timedelta(seconds=120))
    with refused(Reason.SESSION_OVER):
        acme_server.client(token).server_info()


def test_an_unused_token_does_not_expire_early(acme_server: Running) -> None:
    token = make_service(acme_server).token
    age_session(acme_server, token, unused_for=timedelta(days=30))
    acme_server.client(token).server_info()


def test_a_revoked_token_is_refused_at_once_also_by_another_server(acme_server: Running, root: Client) -> None:
    service = make_service(acme_server)
    other_token = root.create_token(service.account.id, "other")
    client = acme_server.client(service.token)
    client.server_info()
    first = next(token for token in root.list_tokens(service.account.id) if token.id != other_token.info.id)
    assert root.revoke_token(service.account.id, first.id) == 1
    with refused(Reason.SESSION_OVER):
        client.server_info()
    acme_server.client(other_token.token).server_info()
    assert [token.revoked for token in root.list_tokens(service.account.id)] == [True, False]
    assert root.revoke_token(service.account.id, first.id) == 0


def test_all_tokens_are_revoked_together(acme_server: Running, root: Client) -> None:
    service = make_service(acme_server)
    more = [root.create_token(service.account.id, f"job {n}").token for n in range(3)]
    assert root.revoke_token(service.account.id) == 4
    for token in (service.token, *more):
        with refused(Reason.SESSION_OVER):
            acme_server.client(token).server_info()


def test_everybody_may_end_their_own_sessions_and_no_others(acme_server: Running) -> None:
    person, other_person = make_person(acme_server), make_person(acme_server)
    mine = acme_server.client(person.token)
    (session,) = mine.list_tokens(person.account.id)
    assert session.session
    with refused(Reason.PERMISSION_DENIED):
        mine.list_tokens(other_person.account.id)
    with refused(Reason.PERMISSION_DENIED):
        mine.revoke_token(other_person.account.id)
    assert mine.revoke_token(person.account.id, session.id) == 1
    with refused(Reason.SESSION_OVER):
        mine.server_info()
    acme_server.client(other_person.token).server_info()


def test_people_cannot_have_service_tokens(acme_server: Running, root: Client) -> None:
    with refused(Reason.INVALID_ARGUMENT):
        root.create_token(make_person(acme_server).account.id, "mine")


def test_a_disabled_account_gets_no_token(acme_server: Running, root: Client) -> None:
    account = make_service(acme_server).account.id
    root.update_account(account, disabled=True)
    with refused(Reason.ACCOUNT_DISABLED):
        root.create_token(account, "job")


def test_an_unknown_token_is_not_revoked(acme_server: Running, root: Client) -> None:
    first, second = make_service(acme_server), make_service(acme_server)
    (of_other,) = root.list_tokens(second.account.id)
    for token in (uuid4(), of_other.id):
        with refused(Reason.TOKEN_NOT_FOUND):
            root.revoke_token(first.account.id, token)


def test_a_forged_token_is_refused(acme_server: Running) -> None:
    token = make_service(acme_server).token
    for forged in (token[:-1], token + "A", token[:-1] + "!", token[3:], token.swapcase()):
        with refused(Reason.UNAUTHENTICATED):
            acme_server.client(forged).server_info()


def test_a_tokens_id_and_hash_are_no_tokens(acme_server: Running, root: Client) -> None:
    service = make_service(acme_server)
    (info,) = root.list_tokens(service.account.id)
    stored = sessions.find_session
    keys = acme_server.server._unit.keys
    (hashed,) = acme_server.engine.run(
        lambda tr: [session for session, _ in sessions.sessions_of(tr, keys, service.account.id)]  # type: ignore[arg-type]
    )
    assert acme_server.engine.run(lambda tr: stored(tr, keys, hashed)) is not None
    for guess in (info.id.hex, hashed.hex()):
        with refused(Reason.UNAUTHENTICATED):
            acme_server.client(guess).server_info()


def test_a_token_of_one_tenant_finds_nothing_of_another(acme_server: Running) -> None:
    theirs = acme_server.client().create_corpus("theirs", tenant_id=GLOBEX_ID).id
    client = acme_server.client(make_service(acme_server, Grant(Role.WRITER)).token)
    with refused(Reason.CORPUS_NOT_FOUND):
        client.get_corpus(theirs)
    with refused(Reason.TENANT_NOT_FOUND):
        client.get_corpus(theirs, tenant_id=GLOBEX_ID)
    assert not client.list_corpora().items


def test_tokens_are_on_the_record_by_their_ids(acme_server: Running, root: Client) -> None:
    account = make_service(acme_server).account.id
    made = root.create_token(account, "job", request_id="make")
    root.revoke_token(account, made.info.id, request_id="revoke")
    (created,), (revoked,) = records(acme_server, request_id="make"), records(acme_server, request_id="revoke")
    assert created["detail"] == {"account_id": str(account), "token_id": made.info.id.hex}
    assert revoked["detail"] == {"account_id": str(account), "token_id": made.info.id.hex, "revoked": 1}


def test_tokens_that_ended_long_ago_are_forgotten(acme_server: Running, root: Client) -> None:
    service = make_service(acme_server)
    standing = root.create_token(service.account.id, "standing")
    acme_server.client(service.token).logout()
    keys, now = acme_server.server._unit.keys, datetime.now(UTC)
    assert forget_sessions(acme_server.engine, keys, now - timedelta(days=1)) == 0
    assert forget_sessions(acme_server.engine, keys, now) == 1
    assert [token.id for token in root.list_tokens(service.account.id)] == [standing.info.id]
    with refused(Reason.SESSION_OVER):
        acme_server.client(service.token).server_info()
    acme_server.client(standing.token).server_info()


def test_the_number_of_tokens_of_an_account_is_limited_and_ended_tokens_make_room(
    acme_server: Running, root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 3)
    service = make_service(acme_server)
    for _ in range(2):
        root.create_token(service.account.id, "job")
    with refused(Reason.TOO_LARGE):
        root.create_token(service.account.id, "job")
    acme_server.client(service.token).logout()
    root.create_token(service.account.id, "job")
    assert len(root.list_tokens(service.account.id)) == 3


def test_a_token_of_the_settings_may_do_what_its_roles_say(tmp_path: Path) -> None:
    tokens = (*SETTINGS.tokens, TokenSettings(name="audit", token="audit-token-0123456789", roles=("auditor",)))
    with running(tmp_path, tokens=tokens) as server:
        server.client().create_tenant("acme", tenant_id=ACME_ID)
        client = server.client("audit-token-0123456789", tenant_id=ACME_ID)
        client.list_corpora()
        for attempt in (lambda: client.create_corpus("rules"), client.list_accounts, client.list_tenants):
            with refused(Reason.PERMISSION_DENIED):
                attempt()


def test_a_tenants_token_of_the_settings_does_not_manage_accounts(acme_server: Running, acme: Client) -> None:
    with refused(Reason.PERMISSION_DENIED):
        acme.list_accounts()


@pytest.mark.parametrize("name", ["", "drillcore", str(UUID(int=7))])
def test_a_token_of_the_settings_cannot_have_the_name_of_another_kind_of_caller(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be named"):
        TokenSettings(name=name, token="a-token-0123456789")


def test_roles_of_the_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="the roles are reader"):
        TokenSettings(name="ann", token="a-token-0123456789", roles=("root",))
    settings = TokenSettings(name="ann", token="a-token-0123456789", roles=("reader",))
    with pytest.raises(ValueError, match="different tenants or roles"):
        ServerSettings(tokens=(settings, replace(settings, token="b-token-0123456789", roles=("writer",))))
    assert issubclass(SettingsError, ValueError)
