"""`drillcore tenant` and `drillcore corpus`, with output for people and as JSON."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from drillcore.cli import main
from drillcore_proto.reasons import Reason
from drillcore_proto.v1.corpora_pb2 import TrimCorpusResponse
from tests.support.servers.in_memory_server import Peer, because, running

TENANT = "11111111-1111-1111-1111-111111111111"

Run = Callable[..., Result]


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running() as peer:
        yield peer


@pytest.fixture
def run(peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command against the peer, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    environment = {"DRILLCORE_CLIENT_ADDRESS": peer.address, "HOME": str(tmp_path), "NO_COLOR": "1"}

    def run(*arguments: str, text: str | None = None) -> Result:
        return CliRunner(env=environment).invoke(main, arguments, input=text)

    return run


@pytest.fixture
def answer(run: Run) -> Callable[..., Any]:
    """Runs a command with --json and returns the document."""

    def answer(*arguments: str) -> Any:
        result = run(*arguments, "--json")
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        return json.loads(result.stdout)

    return answer


def test_an_error_names_the_flag_that_helps(run: Callable[..., Any]) -> None:
    refused = run("corpus", "create", "trials")
    assert refused.exit_code == 1
    assert "TENANT_REQUIRED: name a tenant: name it with --tenant, or set tenant_id" in refused.stderr


def test_a_tenants_life_in_json(answer: Callable[..., Any]) -> None:
    created = answer("tenant", "create", "acme", "--set", "region=eu", "--set", "note=a=b", "--id", TENANT)
    assert created == {
        "id": TENANT,
        "name": "acme",
        "metadata": {"region": "eu", "note": "a=b"},
        "created_at": "2026-01-02T03:04:05+00:00",
        "created_by": "test",
        "updated_at": "2026-01-02T03:04:06+00:00",
        "version": 1,
        "allowed_regions": [],
    }
    assert answer("tenant", "get", "acme") == answer("tenant", "get", TENANT) == created
    assert answer("tenant", "list") == {"tenants": [created], "next_page_token": ""}
    updated = answer("tenant", "update", "acme", "--name", "apex", "--set", "region=us", "--unset", "note")
    assert (updated["name"], updated["metadata"]) == ("apex", {"region": "us"})
    assert answer("tenant", "delete", "apex", "--yes") == {"deleted": TENANT}
    assert answer("tenant", "list")["tenants"] == []


def test_a_corpus_life_in_json(answer: Callable[..., Any]) -> None:
    create = ("corpus", "create", "trials", "--description", "Phase II", "--set", "a=b", "--tenant", TENANT)
    created = answer(*create)
    assert (created["tenant_id"], created["name"], created["description"]) == (TENANT, "trials", "Phase II")
    assert answer("corpus", "get", "trials") == answer("corpus", "get", created["id"]) == created
    assert answer("corpus", "list") == {"corpora": [created], "next_page_token": ""}
    updated = answer("corpus", "update", "trials", "--description", "", "--set", "c=d", "--unset", "a")
    assert (updated["name"], updated["description"], updated["metadata"]) == ("trials", "", {"c": "d"})
    assert answer("corpus", "delete", created["id"], "--yes") == {"deleted": created["id"]}


def test_people_see_a_record_line_by_line(run: Run) -> None:
    result = run("tenant", "create", "acme", "--set", "region=eu", "--id", TENANT)
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["id", TENANT] in lines
    assert ["name", "acme"] in lines
    assert ["metadata", "region=eu"] in lines


def test_people_see_a_list_as_a_table_and_how_to_get_the_next_page(run: Run) -> None:
    for name in "abc":
        run("tenant", "create", name)
    page = run("tenant", "list", "--page-size", "2").stdout
    assert page.split()[:4] == ["id", "name", "version", "metadata"]
    assert "There are more: --page-token 2, or --all" in page
    rest = run("tenant", "list", "--page-size", "2", "--page-token", "2").stdout
    assert " c " in rest
    assert rest == "\n".join(line.rstrip() for line in rest.splitlines()) + "\n"
    assert "There are more" not in rest


def test_all_pages_are_listed_on_request(answer: Callable[..., Any]) -> None:
    for name in "abcde":
        answer("tenant", "create", name)
        answer("corpus", "create", name, "--tenant", TENANT)
    assert [tenant["name"] for tenant in answer("tenant", "list", "--all")["tenants"]] == list("abcde")
    assert [corpus["name"] for corpus in answer("corpus", "list", "--all")["corpora"]] == list("abcde")


def test_a_tenant_may_be_given_by_name(answer: Callable[..., Any]) -> None:
    answer("tenant", "create", "acme", "--id", TENANT)
    assert answer("corpus", "create", "trials", "--tenant", "acme")["tenant_id"] == TENANT
    assert answer("--tenant", "acme", "corpus", "create", "more")["tenant_id"] == TENANT


def test_a_default_tenant_that_does_not_exist_yet_can_be_created(run: Run) -> None:
    assert run("--tenant", "acme", "tenant", "create", "acme").exit_code == 0


def test_request_id_expected_version_and_token_are_sent(answer: Callable[..., Any], peer: Peer, tmp_path: Path) -> None:
    (tmp_path / "operator.token").write_text("secret\n")
    created = answer("tenant", "create", "acme", "--request-id", "r1", "--token-file", "operator.token")
    answer("tenant", "update", created["id"], "--name", "b", "--expected-version", "1", "--request-id", "r2")
    answer("tenant", "delete", created["id"], "--yes", "--expected-version", "2", "--request-id", "r3")
    assert peer.request_ids() == ["r1", "r2", "r3"]
    assert peer.seen[0][1]["authorization"] == "Bearer secret"
    assert [request.expected_version for request in peer.requests[1:]] == [1, 2]


def test_a_deletion_asks_for_confirmation(run: Run, peer: Peer) -> None:
    run("tenant", "create", "acme")
    refused = run("tenant", "delete", "acme", text="n\n")
    assert (refused.exit_code, len(peer.records)) == (1, 1)
    assert "Delete the tenant acme?" in refused.stderr
    assert refused.stdout == ""
    assert run("tenant", "delete", "acme", text="y\n").exit_code == 0
    assert peer.records == {}


def test_a_deletion_in_json_must_say_yes(run: Run, peer: Peer) -> None:
    run("tenant", "create", "acme")
    result = run("tenant", "delete", "acme", "--json")
    assert (result.exit_code, len(peer.records)) == (2, 1)
    assert "--yes" in json.loads(result.stdout)["error"]["message"]


def test_a_failed_call_prints_one_line_with_its_reason_and_exits_with_1(run: Run) -> None:
    result = run("corpus", "get", "nothing")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("CORPUS_NOT_FOUND: there is no such thing (request ")
    assert len(result.stderr.splitlines()) == 1


def test_a_failed_call_in_json_prints_one_document_with_reason_and_request_id(run: Run, peer: Peer) -> None:
    peer.failures = [because(Reason.TENANT_EXISTS, "there is one")]
    result = run("--json", "tenant", "create", "acme", "--request-id", "r1")
    assert (result.exit_code, result.stderr) == (1, "")
    expected = {"reason": "TENANT_EXISTS", "message": "there is one", "request_id": "r1"}
    assert json.loads(result.stdout) == {"error": expected}


@pytest.mark.parametrize("group", ["tenant", "corpus"])
def test_an_update_without_changes_is_refused(run: Run, group: str) -> None:
    result = run(group, "update", str(uuid.uuid4()))
    assert result.exit_code == 2
    assert "give at least one thing to change" in result.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        ["tenant", "create", "a", "--set", "novalue"],
        ["tenant", "create", "a", "--set", "=value"],
        ["tenant", "create", "a", "--id", "no-uuid"],
        ["tenant", "create", "a", "--request-id", "größe"],
        ["tenant", "create", "\udcff"],
        ["tenant", "list", "--page-size", "-1"],
        ["tenant", "list", "--page-size", str(2**40)],
        ["tenant", "list", "--timeout", "0"],
        ["tenant", "list", "--timeout", "soon"],
        ["tenant", "list", "--token", "two words"],
        ["tenant", "list", "--token-file", "missing"],
        ["tenant", "list", "--config", "missing.toml"],
        ["tenant", "list", "--token", "secret", "--address", "example.org:7600"],
        ["tenant", "nonsense"],
        ["nonsense"],
        ["tenant", "list", "--nonsense"],
        ["tenant", "create"],
    ],
    ids=" ".join,
)
def test_wrong_usage_makes_no_call_and_exits_with_2(run: Run, peer: Peer, wrong: list[str]) -> None:
    plain, as_json = run(*wrong), run(*wrong, "--json")
    assert (plain.exit_code, plain.stdout) == (2, "")
    assert plain.stderr
    assert (as_json.exit_code, as_json.stderr) == (2, "")
    assert json.loads(as_json.stdout)["error"]["reason"] in {"INVALID_USAGE", "INVALID_SETTINGS"}
    assert peer.seen == []


def test_flags_after_the_command_win_over_those_before_it_and_flags_over_variable_and_file(
    run: Run, peer: Peer, tmp_path: Path
) -> None:
    (tmp_path / "drillcore.toml").write_text('[client]\naddress = "127.0.0.1:1"\ntoken = "from-file"')
    run("tenant", "list")
    run("--token", "before", "tenant", "list")
    run("--token", "before", "tenant", "list", "--token", "after")
    sent = [metadata["authorization"] for _, metadata in peer.seen]
    assert sent == ["Bearer from-file", "Bearer before", "Bearer after"]


def test_names_cannot_control_the_terminal(run: Run, answer: Callable[..., Any]) -> None:
    answer("tenant", "create", "\x1b[31mred [bold]x[/bold] :smile:")
    for command in (["tenant", "list"], ["tenant", "get", "\x1b[31mred [bold]x[/bold] :smile:"]):
        shown = run(*command).stdout
        assert "\\x1b[31mred [bold]x[/bold] :smile:" in shown
        assert "\x1b" not in shown


@pytest.fixture
def trials(answer: Callable[..., Any]) -> str:
    return str(answer("corpus", "create", "trials", "--tenant", TENANT)["id"])


def test_a_retention_policy_is_set_and_removed(answer: Callable[..., Any], trials: str) -> None:
    assert answer("corpus", "get", "trials")["retention_days"] is None
    assert answer("corpus", "update", "trials", "--retention-days", "3650")["retention_days"] == 3650
    assert answer("corpus", "update", "trials", "--set", "a=b")["retention_days"] == 3650
    assert answer("corpus", "update", "trials", "--keep-everything")["retention_days"] is None


def test_a_hold_is_set_and_released_with_a_reason(run: Run, answer: Callable[..., Any], trials: str) -> None:
    held = answer("corpus", "hold", "trials", "--reason", "Case 17")["legal_hold"]
    assert held == {"on": True, "reason": "Case 17", "by": "test", "at": "2026-01-02T03:04:06+00:00"}
    assert "on since 2026-01-0" in run("corpus", "get", trials).stdout
    assert ", test: Case 17" in run("corpus", "get", trials).stdout
    released = answer("corpus", "release", trials, "--reason", "settled", "--request-id", "r1")["legal_hold"]
    assert (released["on"], released["reason"]) == (False, "settled")
    assert "released 2026-01-0" in run("corpus", "get", trials).stdout


def test_a_hold_is_sent_with_request_id_and_expected_version(run: Run, peer: Peer, trials: str) -> None:
    for command in ("hold", "release"):
        run("corpus", command, trials, "--reason", "why", "--expected-version", "4", "--request-id", command)
    assert peer.request_ids()[-2:] == ["hold", "release"]
    assert [request.expected_version for request in peer.requests[-2:]] == [4, 4]


def test_a_trim_is_repeated_until_it_is_finished(run: Run, answer: Callable[..., Any], peer: Peer, trials: str) -> None:
    def answers(oldest: int) -> list[TrimCorpusResponse]:
        begun = TrimCorpusResponse(oldest_revision=oldest, records_removed=900, finished=False)
        return [begun, TrimCorpusResponse(oldest_revision=oldest, records_removed=334, finished=True)]

    peer.trims = answers(7)
    assert answer("corpus", "trim", "trials") == {"oldest_revision": 7, "records_removed": 1234, "finished": True}
    assert len(set(peer.request_ids())) == len(peer.request_ids())
    peer.trims = answers(7)
    assert run("corpus", "trim", "trials").stdout == "1,234 records removed; the oldest revision is 7\n"
    peer.trims = [TrimCorpusResponse(finished=True)]
    assert run("corpus", "trim", "trials").stdout == "0 records removed; every revision is kept\n"


@pytest.mark.parametrize(
    "wrong",
    [
        ["update", "trials", "--retention-days", "0"],
        ["update", "trials", "--retention-days", "soon"],
        ["update", "trials", "--retention-days", "5", "--keep-everything"],
        ["hold", "trials"],
        ["release", "trials"],
        ["trim"],
    ],
    ids=" ".join,
)
def test_wrong_usage_of_retention_makes_no_call(run: Run, peer: Peer, wrong: list[str]) -> None:
    assert run("corpus", *wrong).exit_code == 2
    assert peer.seen == []
