"""People log in with a password for a limited time, and guessing locks the account."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from drillcore import AsyncClient, Client, DrillcoreError, Grant, Role, SettingsError
from drillcore_fdb.engine import Engine, Transaction
from drillcore_formats.audit.leaves import SERVER_LOG
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import accounts_pb2
from drillcore_server.identity.bearer_tokens import Mint
from drillcore_server.kernel import account_store as accounts
from drillcore_server.kernel.journal import log_key
from drillcore_server.storage.ids import AccountId
from tests.support.fixtures import TenantFactory
from tests.support.servers.concurrently import concurrently
from tests.support.servers.people import FIRST, PASSWORD, age_password, age_session, make_person, make_service, refused
from tests.support.servers.running import ACME_ID, AUTH, OPERATOR, Running, create_tenants, running
from tests.support.stores.hooked_engine import HookedEngine
from tests.support.stores.trails import all_records, records

WRONG = "not the right passphrase"
LATER = timedelta(seconds=AUTH.lockout_s + 1)


@pytest.fixture
def acme_server(server: Running, tenant: TenantFactory) -> Running:
    return server


@pytest.fixture
def nobody(acme_server: Running) -> Client:
    return acme_server.client(None)


def test_a_session_acts_for_its_account(acme_server: Running, nobody: Client) -> None:
    person = make_person(acme_server, Grant(Role.READER))
    opened = nobody.login(person.login, PASSWORD)
    assert (opened.account_id, opened.tenant_id) == (person.account.id, ACME_ID)
    assert opened.idle_timeout_s == AUTH.session_idle_s
    info = acme_server.client(opened.token).server_info()
    assert (info.principal, info.tenant_id) == (str(person.account.id), ACME_ID)


def test_every_login_opens_a_session_of_its_own(acme_server: Running, nobody: Client) -> None:
    person = make_person(acme_server)
    first, second = nobody.login(person.login, PASSWORD), nobody.login(person.login, PASSWORD)
    assert first.token != second.token
    acme_server.client(first.token).logout()
    acme_server.client(second.token).server_info()


async def _log_in_async(address: str, login: str) -> str:
    async with AsyncClient(address) as client:
        return (await client.login(login, PASSWORD)).token


def test_the_async_client_logs_in_too(acme_server: Running) -> None:
    import asyncio

    person = make_person(acme_server)
    token = asyncio.run(_log_in_async(acme_server.address, person.login))
    acme_server.client(token).server_info()


def test_a_login_ignores_case_and_unicode_form(acme_server: Running, nobody: Client) -> None:
    make_person(acme_server, login="Zoë@Example.org")
    nobody.login("ZOE\u0308@EXAMPLE.ORG", PASSWORD)


def test_wrong_password_unknown_login_and_service_account_get_the_same_refusal(
    acme_server: Running, nobody: Client
) -> None:
    person, service = make_person(acme_server), make_service(acme_server)
    messages = set()
    for login in (person.login, service.login, "no-such-login"):
        with pytest.raises(DrillcoreError) as caught:
            nobody.login(login, WRONG)
        assert caught.value.reason is Reason.LOGIN_FAILED
        messages.add(caught.value.message)
    assert len(messages) == 1


def test_the_first_password_must_be_changed_at_the_first_login(acme_server: Running, nobody: Client) -> None:
    acme_server.client().create_account("ann", name="Ann", password=FIRST, tenant_id=ACME_ID)
    with refused(Reason.PASSWORD_EXPIRED):
        nobody.login("ann", FIRST)
    token = nobody.login("ann", FIRST, new_password=PASSWORD).token
    acme_server.client(token).server_info()
    nobody.login("ann", PASSWORD)
    with refused(Reason.LOGIN_FAILED):
        nobody.login("ann", FIRST)


def test_a_password_that_an_operator_sets_must_be_changed_and_ends_the_sessions(
    acme_server: Running, nobody: Client
) -> None:
    person = make_person(acme_server)
    acme_server.client().set_password("set by an operator", account_id=person.account.id, tenant_id=ACME_ID)
    with refused(Reason.SESSION_OVER):
        acme_server.client(person.token).server_info()
    with refused(Reason.PASSWORD_EXPIRED):
        nobody.login(person.login, "set by an operator")


def test_an_old_password_must_be_changed(acme_server: Running, nobody: Client) -> None:
    person = make_person(acme_server)
    age_password(acme_server, person.account.id, timedelta(seconds=AUTH.password_age_s_max - 60))
    nobody.login(person.login, PASSWORD)
    age_password(acme_server, person.account.id, timedelta(seconds=120))
    with refused(Reason.PASSWORD_EXPIRED):
        nobody.login(person.login, PASSWORD)
    nobody.login(person.login, PASSWORD, new_password="a third passphrase of mine")


def test_a_person_changes_their_password_by_giving_the_old_one(acme_server: Running, nobody: Client) -> None:
    person = make_person(acme_server)
    other_session = nobody.login(person.login, PASSWORD)
    mine = acme_server.client(person.token)
    with refused(Reason.LOGIN_FAILED):
        mine.set_password("a third passphrase of mine", old_password=WRONG)
    mine.set_password("a third passphrase of mine", old_password=PASSWORD)
    mine.server_info()
    with refused(Reason.SESSION_OVER):
        acme_server.client(other_session.token).server_info()
    nobody.login(person.login, "a third passphrase of mine")


@pytest.mark.parametrize(
    "bad", ["short", "aaaaaaaaaaaaaaaa", "Password1234!", "pat EXAMPLE forever", PASSWORD, FIRST, "x" * 2000]
)
def test_a_bad_new_password_is_refused_and_changes_nothing(acme_server: Running, nobody: Client, bad: str) -> None:
    person = make_person(acme_server)
    with refused(Reason.PASSWORD_REFUSED):
        nobody.login(person.login, PASSWORD, new_password=bad)
    with refused(Reason.PASSWORD_REFUSED):
        acme_server.client(person.token).set_password(bad, old_password=PASSWORD)
    nobody.login(person.login, PASSWORD)


def test_the_last_passwords_are_not_used_again_and_earlier_ones_are(tmp_path: Path) -> None:
    with running(tmp_path, auth=replace(AUTH, passwords_remembered=2)) as server:
        create_tenants(server.client())
        person, nobody = make_person(server), server.client(None)
        nobody.login(person.login, PASSWORD, new_password="a third passphrase of mine")
        with refused(Reason.PASSWORD_REFUSED):
            nobody.login(person.login, "a third passphrase of mine", new_password=PASSWORD)
        nobody.login(person.login, "a third passphrase of mine", new_password=FIRST)


def test_an_unused_session_ends(acme_server: Running) -> None:
    token = make_person(acme_server).token
    age_session(acme_server, token, unused_for=timedelta(seconds=AUTH.session_idle_s - 60))
    acme_server.client(token).server_info()
    age_session(acme_server, token, unused_for=timedelta(seconds=AUTH.session_idle_s - 60))
    acme_server.client(token).server_info()
    age_session(acme_server, token, unused_for=timedelta(seconds=AUTH.session_idle_s + 1))
    with refused(Reason.SESSION_OVER):
        acme_server.client(token).server_info()


def test_a_session_in_use_ends_when_its_maximum_time_is_over(acme_server: Running) -> None:
    token = make_person(acme_server).token
    age_session(acme_server, token, unused_for=timedelta(), opened_before=timedelta(seconds=AUTH.session_s_max + 1))
    with refused(Reason.SESSION_OVER):
        acme_server.client(token).server_info()


def test_logging_out_ends_the_session_and_its_retry_says_so(acme_server: Running) -> None:
    client = acme_server.client(make_person(acme_server).token)
    client.logout(request_id="out")
    client.logout(request_id="out")
    with refused(Reason.SESSION_OVER):
        client.logout()
    with refused(Reason.SESSION_OVER):
        client.list_corpora()


def test_a_static_token_has_no_session_to_end(acme_server: Running) -> None:
    with refused(Reason.INVALID_ARGUMENT):
        acme_server.client().logout()


def test_a_repeated_login_gives_the_same_session(acme_server: Running, nobody: Client) -> None:
    person = make_person(acme_server)
    first = nobody.login(person.login, PASSWORD, request_id="one")
    assert nobody.login(person.login, PASSWORD, request_id="one") == first
    assert len(acme_server.client(first.token).list_tokens(person.account.id)) == 2
    assert len(records(acme_server, request_id="one")) == 1


def test_a_repeated_login_that_changed_the_password_gives_the_same_session(
    acme_server: Running, nobody: Client
) -> None:
    person = make_person(acme_server)
    first = nobody.login(person.login, PASSWORD, new_password="a third passphrase of mine", request_id="one")
    again = nobody.login(person.login, PASSWORD, new_password="a third passphrase of mine", request_id="one")
    assert again == first


def test_a_repeated_login_does_not_bring_an_ended_session_back(acme_server: Running, nobody: Client) -> None:
    person = make_person(acme_server)
    first = nobody.login(person.login, PASSWORD, request_id="one")
    acme_server.client(first.token).logout()
    with refused(Reason.SESSION_OVER):
        nobody.login(person.login, PASSWORD, request_id="one")


def test_a_known_request_id_does_not_help_to_guess_the_password(acme_server: Running, nobody: Client) -> None:
    """This holds even while the account is locked: a repeated request counts as an attempt."""
    person = make_person(acme_server)
    nobody.login(person.login, PASSWORD, request_id="one")
    for _ in range(AUTH.failures_max):
        with refused(Reason.LOGIN_FAILED):
            nobody.login(person.login, WRONG, request_id="one")
    with refused(Reason.ACCOUNT_LOCKED):
        nobody.login(person.login, PASSWORD, request_id="one")


def test_two_people_may_use_the_same_request_id(acme_server: Running, nobody: Client) -> None:
    person, other_person = make_person(acme_server), make_person(acme_server)
    first = nobody.login(person.login, PASSWORD, request_id="login")
    second = nobody.login(other_person.login, PASSWORD, request_id="login")
    assert first.account_id != second.account_id


def test_too_many_failures_lock_the_account_for_a_while(acme_server: Running, nobody: Client) -> None:
    person = make_person(acme_server)
    for _ in range(AUTH.failures_max):
        with refused(Reason.LOGIN_FAILED):
            nobody.login(person.login, WRONG)
    with refused(Reason.ACCOUNT_LOCKED):
        nobody.login(person.login, PASSWORD)
    assert acme_server.client().get_account(person.account.id, tenant_id=ACME_ID).locked_until is not None
    age_password(acme_server, person.account.id, LATER)
    nobody.login(person.login, PASSWORD)


def test_a_lockout_is_an_alert_on_the_record_in_the_log_and_in_the_metrics(
    acme_server: Running, nobody: Client
) -> None:
    person = make_person(acme_server)
    for _ in range(AUTH.failures_max + 2):
        with contextlib.suppress(DrillcoreError):
            nobody.login(person.login, WRONG)
    (alert,) = records(acme_server, call="Alert")
    assert (alert["action"], alert["operator_kind"], alert["log"]) == ("ALERT", "server", str(ACME_ID))
    assert (alert["detail"]["kind"], alert["detail"]["account_id"]) == ("lockout", str(person.account.id))
    assert any(line["event"].startswith("account locked") for line in acme_server.log_lines())
    sample = acme_server.server.metrics.registry.get_sample_value("drillcore_account_lockouts_total")
    assert sample == 1


def test_failures_that_are_not_in_a_row_do_not_lock(acme_server: Running, nobody: Client) -> None:
    person = make_person(acme_server)
    for _ in range(2):
        for _ in range(AUTH.failures_max - 1):
            with refused(Reason.LOGIN_FAILED):
                nobody.login(person.login, WRONG)
        nobody.login(person.login, PASSWORD)


def test_an_expired_password_is_no_failure(acme_server: Running, nobody: Client) -> None:
    acme_server.client().create_account("ann", name="Ann", password=FIRST, tenant_id=ACME_ID)
    for _ in range(AUTH.failures_max + 1):
        with refused(Reason.PASSWORD_EXPIRED):
            nobody.login("ann", FIRST)


def test_an_operator_unlocks(acme_server: Running, nobody: Client) -> None:
    person = make_person(acme_server)
    for _ in range(AUTH.failures_max):
        with refused(Reason.LOGIN_FAILED):
            nobody.login(person.login, WRONG)
    acme_server.client().update_account(person.account.id, unlock=True, tenant_id=ACME_ID)
    nobody.login(person.login, PASSWORD)


def test_parallel_guesses_are_all_counted(acme_server: Running) -> None:
    person = make_person(acme_server)

    def guess(number: int) -> Reason | None:
        try:
            acme_server.client(None).login(person.login, f"{WRONG} {number}")
        except DrillcoreError as error:
            return error.reason
        return None

    outcomes = concurrently(4 * AUTH.failures_max, guess)
    assert outcomes.count(Reason.LOGIN_FAILED) == AUTH.failures_max, (
        "no more passwords are checked than failures are allowed"
    )
    assert outcomes.count(Reason.ACCOUNT_LOCKED) == 3 * AUTH.failures_max
    assert len(records(acme_server, call="Alert")) == 1


def test_wrong_old_passwords_lock_too(acme_server: Running) -> None:
    """An unattended session cannot be used to guess the password."""
    person = make_person(acme_server)
    mine = acme_server.client(person.token)
    for _ in range(AUTH.failures_max):
        with refused(Reason.LOGIN_FAILED):
            mine.set_password("a third passphrase of mine", old_password=WRONG)
    with refused(Reason.ACCOUNT_LOCKED):
        mine.set_password("a third passphrase of mine", old_password=PASSWORD)


def test_a_disabled_account_cannot_log_in_and_only_the_right_password_reveals_why(
    acme_server: Running, nobody: Client
) -> None:
    person = make_person(acme_server)
    acme_server.client().update_account(person.account.id, disabled=True, tenant_id=ACME_ID)
    with refused(Reason.LOGIN_FAILED):
        nobody.login(person.login, WRONG)
    with refused(Reason.ACCOUNT_DISABLED):
        nobody.login(person.login, PASSWORD)
    with refused(Reason.SESSION_OVER):
        acme_server.client(person.token).server_info()


def test_logins_are_on_the_record_of_the_persons_tenant(acme_server: Running, nobody: Client) -> None:
    person = make_person(acme_server)
    nobody.login(person.login, PASSWORD)
    with refused(Reason.LOGIN_FAILED):
        nobody.login(person.login, WRONG)
    *_, good, bad = records(acme_server, call="Login")
    assert {good["log"], bad["log"]} == {str(ACME_ID)}
    assert (good["operator"], good["operator_login"]) == (str(person.account.id), person.login)
    assert (good["outcome"], good["proof"]) == ("OK", "password")
    assert (bad["outcome"], bad["detail"]["account_id"]) == ("LOGIN_FAILED", str(person.account.id))
    assert bad["operator_kind"] == "nobody"


def test_no_secret_is_stored_or_logged(acme_server: Running, nobody: Client) -> None:
    person = make_person(acme_server)
    opened = nobody.login(person.login, PASSWORD)
    service = make_service(acme_server)
    with refused(Reason.LOGIN_FAILED):
        nobody.login(person.login, WRONG)
    stored = acme_server.engine.run(lambda tr: b"".join(key + value for key, value in tr.range(b"", b"\xff")))
    said = repr(list(all_records(acme_server)))
    for secret in (FIRST, PASSWORD, WRONG, opened.token, person.token, service.token):
        assert secret.encode() not in stored
        assert secret not in acme_server.log.getvalue()
        assert secret not in said


def test_the_store_alone_does_not_reveal_whether_a_guess_was_right(acme_server: Running, nobody: Client) -> None:
    """The stored hash of a request is keyed. With a plain hash, a reader of the store could try passwords."""
    person = make_person(acme_server)
    nobody.login(person.login, PASSWORD)
    request = accounts_pb2.LoginRequest(login=person.login, password=PASSWORD).SerializeToString(deterministic=True)
    plain = hashlib.sha256(b"Login\0" + request).digest()
    stored = acme_server.engine.run(lambda tr: b"".join(key + value for key, value in tr.range(b"", b"\xff")))
    assert plain[:16] not in stored


def test_a_sessions_token_cannot_be_made_again_without_the_password(acme_server: Running, nobody: Client) -> None:
    """This holds even for somebody with the store and the keyring."""
    person = make_person(acme_server)
    opened = nobody.login(person.login, PASSWORD, request_id="one")
    keyring = acme_server.server.keyring
    mint = Mint(keyring.derived(log_key(keyring, SERVER_LOG), b"bearer tokens"))
    request = accounts_pb2.LoginRequest(login=person.login, password=PASSWORD).SerializeToString(deterministic=True)
    fingerprint = hashlib.sha256(b"Login\0" + request).digest()
    known = ("session", str(person.account.id), "one")
    assert mint.token(*known, fingerprint, PASSWORD) == opened.token
    assert mint.token(*known, fingerprint, "") != opened.token
    assert mint.token(*known, b"", PASSWORD) != opened.token


def test_a_new_password_ends_the_other_sessions(acme_server: Running, nobody: Client) -> None:
    person = make_person(acme_server)
    nobody.login(person.login, PASSWORD, new_password="a third passphrase of mine")
    with refused(Reason.SESSION_OVER):
        acme_server.client(person.token).server_info()


@pytest.mark.parametrize("change", ["password", "disabled"])
def test_changes_between_the_check_and_the_commit_of_a_login_count(tmp_path: Path, change: str) -> None:
    engines: list[HookedEngine] = []

    def wrap(engine: Engine) -> Engine:
        engines.append(HookedEngine(engine))
        return engines[0]

    with running(tmp_path, wrap=wrap) as server:
        create_tenants(server.client())
        person, root = make_person(server), server.client(OPERATOR, tenant_id=ACME_ID)
        (hooked,) = engines

        def act() -> None:
            if change == "disabled":
                root.update_account(person.account.id, disabled=True)
            else:
                root.set_password("set by an operator", account_id=person.account.id)

        def at_commit(number: int) -> Callable[[], object]:
            """The attempt is counted, then forgiven; the third commit opens the session."""
            return act if number == 1 else lambda: setattr(hooked, "hook", at_commit(number - 1))

        hooked.hook = at_commit(3)
        with refused(Reason.ACCOUNT_DISABLED if change == "disabled" else Reason.CONFLICT):
            server.client(None).login(person.login, PASSWORD)
        assert all(token.revoked for token in root.list_tokens(person.account.id))


def test_passwords_are_hashed_anew_when_the_settings_change(tmp_path: Path) -> None:
    def hash_of(server: Running) -> str:
        def work(tr: Transaction) -> str:
            known = accounts.find_credential(tr, server.server._unit.keys, AccountId(person.account.id))
            assert known is not None
            return known.hash

        return server.engine.run(work)

    with running(tmp_path) as server:
        create_tenants(server.client())
        person = make_person(server)
        assert "m=64,t=1,p=1" in hash_of(server)
    with running(tmp_path, auth=replace(AUTH, argon2_memory_kib=128)) as server:
        server.client(None).login(person.login, PASSWORD)
        assert "m=128,t=1,p=1" in hash_of(server)
        server.client(None).login(person.login, PASSWORD)


def test_a_session_outlives_the_server(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        create_tenants(server.client())
        person = make_person(server)
    with running(tmp_path) as server:
        assert server.client(person.token).server_info().principal == str(person.account.id)


def test_a_bad_token_does_not_keep_anybody_from_logging_in(acme_server: Running) -> None:
    person = make_person(acme_server)
    acme_server.client("an-old-token-0123456789").login(person.login, PASSWORD)


def test_a_password_does_not_leave_the_machine_unencrypted() -> None:
    with Client("drillcore.example:7600") as client, pytest.raises(SettingsError, match="unencrypted"):
        client.login("ann", PASSWORD)


def test_a_caller_with_a_token_of_the_settings_needs_no_password(acme_server: Running) -> None:
    with refused(Reason.INVALID_ARGUMENT):
        acme_server.client(OPERATOR).set_password(PASSWORD, old_password=PASSWORD)
