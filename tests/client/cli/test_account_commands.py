"""`drillcore login`, `account` and `token`, against a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from drillcore.cli import main
from tests.support.fixtures import TenantFactory
from tests.support.servers.people import FIRST, PASSWORD, make_person, make_service
from tests.support.servers.running import OPERATOR, Running

Run = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "operator.token").write_text(OPERATOR)
    (tmp_path / "first").write_text(FIRST + "\n")
    (tmp_path / "password").write_text(PASSWORD + "\n")
    return tmp_path


@pytest.fixture
def run(server: Running, tenant: TenantFactory, home: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command against the server, without a token unless the command names one."""
    monkeypatch.chdir(home)
    environment = {"DRILLCORE_CLIENT_ADDRESS": server.address, "HOME": str(home), "NO_COLOR": "1"}
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)

    def run(*arguments: str, typed: str | None = None) -> Result:
        return CliRunner(env=environment).invoke(main, arguments, input=typed)

    return run


@pytest.fixture
def root(run: Run) -> Callable[..., Any]:
    """The --json answer of a command to an operator who acts in acme."""

    def root(*arguments: str) -> Any:
        result = run("--token-file", "operator.token", "--tenant", "acme", *arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return root


def test_an_operator_sets_up_accounts_until_a_person_can_read(run: Run, root: Callable[..., Any], home: Path) -> None:
    """The accounts are made in order: an operator's, an administrator's, a reader's."""
    made = run(
        *("--token-file", "operator.token", "account", "create", "boss", "--server", "--name", "Boss"),
        *("--grant", "operator"),
        typed=f"{FIRST}\n{FIRST}\n",
    )
    assert made.exit_code == 0, made.output
    assert FIRST not in made.output
    logged_in = run("login", "boss", typed=f"{FIRST}\n{PASSWORD}\n{PASSWORD}\n")
    assert logged_in.exit_code == 0, logged_in.output
    assert "must be changed" in logged_in.stderr
    assert "logged in as boss" in logged_in.stdout
    kept = home / ".config" / "drillcore" / "session"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert json.loads(kept.read_text())["token"] not in logged_in.output
    whoami = run("whoami")
    assert "boss" in whoami.stdout
    assert "operator" in whoami.stdout
    created = run(
        *("--tenant", "acme", "account", "create", "ann", "--name", "Ann", "--grant", "reader"),
        *("--password-file", "first"),
    )
    assert created.exit_code == 0, created.output
    assert run("--tenant", "acme", "corpus", "list").exit_code == 0
    assert run("logout").exit_code == 0
    assert not kept.exists()
    assert "UNAUTHENTICATED" in run("--tenant", "acme", "corpus", "list").stderr


def test_a_session_is_kept_in_the_named_file(run: Run, server: Running, home: Path) -> None:
    person = make_person(server)
    done = run("login", person.login, "--password-file", "password", "--session-file", "mine", "--json")
    document = json.loads(done.stdout)
    assert document["account_id"] == str(person.account.id)
    assert "token" not in document
    assert json.loads(run("whoami", "--session-file", "mine", "--json").stdout)["account"]["login"] == person.login
    assert run("whoami").exit_code == 1


def test_a_session_is_sent_to_no_other_server(run: Run, server: Running, home: Path) -> None:
    person = make_person(server)
    run("login", person.login, "--password-file", "password", "--session-file", "mine")
    document = json.loads((home / "mine").read_text())
    (home / "mine").write_text(json.dumps({**document, "address": "elsewhere.example:7600"}))
    assert "UNAUTHENTICATED" in run("whoami", "--session-file", "mine").stderr


@pytest.mark.parametrize(("mode", "content"), [(0o644, None), (0o600, ""), (0o600, "[]"), (0o600, '{"token": "x"}')])
def test_an_invalid_or_unprotected_session_file_is_refused(
    run: Run, server: Running, home: Path, mode: int, content: str | None
) -> None:
    person = make_person(server)
    run("login", person.login, "--password-file", "password", "--session-file", "mine")
    if content is not None:
        (home / "mine").write_text(content)
    (home / "mine").chmod(mode)
    result = run("whoami", "--session-file", "mine")
    assert (result.exit_code, "mine" in result.stderr) == (2, True)


def test_a_given_token_takes_precedence_over_the_session(run: Run, server: Running) -> None:
    person = make_person(server)
    run("login", person.login, "--password-file", "password")
    assert json.loads(run("whoami", "--token-file", "operator.token", "--json").stdout)["principal"] == "root"


def test_no_password_is_taken_from_the_command_line(run: Run) -> None:
    for command in (("login", "ann"), ("account", "create", "ann"), ("account", "password")):
        for flag in ("--password", "--new-password", "--old-password"):
            assert run(*command, flag, PASSWORD).exit_code == 2


def test_with_json_no_question_is_asked(run: Run, server: Running) -> None:
    result = run("login", "ann", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["reason"] == "INVALID_USAGE"


def test_a_password_may_come_from_stdin(run: Run, server: Running) -> None:
    person = make_person(server)
    assert run("login", person.login, "--password-file", "-", typed=PASSWORD + "\n").exit_code == 0


def test_an_accounts_life(root: Callable[..., Any], run: Run, server: Running) -> None:
    root("corpus", "create", "rules")
    made = root("account", "create", "ann", "--name", "Ann", "--no-password", "--grant", "reader:rules:section,master")
    assert (made["login"], made["grants"][0]["role"], made["grants"][0]["levels"]) == ("ann", "reader", [2, 3])
    assert root("account", "show", "ann") == made
    assert root("account", "show", made["id"]) == made
    assert root("account", "update", "ann", "--name", "Ann Other")["name"] == "Ann Other"
    assert [
        grant["role"] for grant in root("account", "grant", "ann", "--grant", "auditor", "--grant", "writer")["grants"]
    ] == [
        "auditor",
        "writer",
    ]
    assert root("account", "grant", "ann")["grants"] == []
    root("account", "unlock", "ann")
    assert root("account", "disable", "ann", "--yes")["disabled"]
    assert not root("account", "update", "ann", "--enable")["disabled"]
    root("account", "password", "ann", "--new-password-file", "first")
    assert [account["login"] for account in root("account", "list")["accounts"]] == ["ann"]
    shown = run("--token-file", "operator.token", "--tenant", "acme", "account", "show", "ann")
    assert "Ann Other" in shown.stdout


def test_a_person_changes_their_own_password(run: Run, server: Running, home: Path) -> None:
    person = make_person(server)
    run("login", person.login, "--password-file", "password")
    (home / "new").write_text("a third passphrase of mine\n")
    changed = run("account", "password", "--old-password-file", "password", "--new-password-file", "new")
    assert changed.exit_code == 0, changed.output
    assert "LOGIN_FAILED" in run("login", person.login, "--password-file", "password").stderr
    assert run("login", person.login, "--password-file", "new").exit_code == 0


def test_a_tokens_life(root: Callable[..., Any], run: Run, server: Running, home: Path) -> None:
    service = make_service(server).account.login
    made = root("token", "create", service, "nightly", "--days", "1", "--output", "job.token")
    assert "token" not in made
    assert (home / "job.token").stat().st_mode & 0o777 == 0o600
    assert run("whoami", "--token-file", "job.token").exit_code == 0
    assert len(root("token", "list", service)["tokens"]) == 2
    assert root("token", "revoke", service, made["info"]["id"]) == {"revoked": 1}
    assert "SESSION_OVER" in run("whoami", "--token-file", "job.token").stderr
    shown = root("token", "create", service, "another")
    assert run("whoami", "--token", shown["token"]).exit_code == 0
    assert root("token", "revoke", service, "--all") == {"revoked": 2}
    assert run("token", "revoke", service).exit_code == 2


@pytest.mark.parametrize("bad", ["root", "reader:rules:top", "", "@acme"])
def test_an_invalid_grant_is_refused(run: Run, bad: str) -> None:
    result = run("--token-file", "operator.token", "account", "grant", "ann", "--grant", bad)
    assert result.exit_code == 2


def test_grants_of_an_operators_account_name_tenants_and_corpora(run: Run, root: Callable[..., Any]) -> None:
    corpus = root("corpus", "create", "rules")["id"]
    made = run(
        *("--token-file", "operator.token", "account", "create", "boss", "--server", "--name", "Boss"),
        *("--no-password", "--grant", "reader@acme:rules", "--json"),
    )
    (grant,) = json.loads(made.stdout)["grants"]
    assert (grant["corpus_id"], grant["tenant_id"]) == (corpus, root("tenant", "get", "acme")["id"])
