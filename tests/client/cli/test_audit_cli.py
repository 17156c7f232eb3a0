"""`drillcore audit`, `sign` and `signatures` against a real server, with output for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner, Result

from drillcore import Client, Level, NewDocument, Role
from drillcore.cli import main
from tests.support.data.texts import REGULATIONS
from tests.support.servers.running import ACME, OPERATOR, Running, create_tenants, running
from tests.support.servers.signatories import QUICK, Person, person

Run = Callable[..., Result]
Answer = Callable[..., Any]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "data", auth=QUICK) as found:
        create_tenants(found.client())
        yield found


@pytest.fixture
def section(server: Running) -> UUID:
    writer = server.client(ACME)
    corpus = writer.create_corpus("rules")
    writer.add_documents(corpus.id, [NewDocument("records.txt", REGULATIONS["records.txt"].encode())])
    return writer.query(level=Level.SECTION, corpus_ids=[corpus.id]).items[0].node.id


@pytest.fixture
def signer(server: Running) -> Person:
    return person(server, "ann", Role.AUDITOR, name="Ann Auditor")


@pytest.fixture
def auditor(signer: Person) -> Client:
    return signer.log_in()


@pytest.fixture
def run(server: Running, auditor: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    environment = {"HOME": str(here), "NO_COLOR": "1", "TZ": "UTC", "DRILLCORE_CLIENT_ADDRESS": server.address}

    def run(*arguments: str, text: str | None = None, token: str | None = None) -> Result:
        given = {**environment, "DRILLCORE_CLIENT_TOKEN": token or str(auditor.settings.token)}
        return CliRunner(env=given).invoke(main, arguments, input=text)

    return run


@pytest.fixture
def answer(run: Run) -> Answer:
    def answer(*arguments: str, **options: Any) -> Any:
        result = run(*arguments, "--json", **options)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return answer


@pytest.fixture
def key(answer: Answer) -> str:
    """The file with the server's public key."""
    Path("server.vkey").write_text(answer("audit", "keys")["keys"][0]["key"] + "\n", encoding="utf-8")
    return "server.vkey"


def test_records_are_listed_and_shown(run: Run, answer: Answer, section: UUID) -> None:
    listed = answer("audit", "query", "--corpus", "rules", "--action", "create")
    assert [record["body"]["call"] for record in listed["records"]] == ["AddDocuments", "CreateCorpus"]
    shown = run("audit", "query", "--corpus", "rules", "--page-size", "1").stdout.splitlines()
    assert shown[0].split() == ["index", "at", "operator", "action", "call", "outcome", "request", "id"]
    assert shown[-1].startswith("There are more: --page-token")
    record = listed["records"][0]["id"]
    detail = run("audit", "show", record)
    assert "AddDocuments" in detail.stdout
    assert run("audit", "show", str(UUID(int=5))).exit_code == 1


def test_a_reason_is_on_the_record(run: Run, answer: Answer, section: UUID) -> None:
    answer("show", str(section), "--reason", "asked by the inspector: § 11.10")
    (found,) = answer("audit", "query", "--action", "access", "--node", str(section), "--page-size", "1")["records"]
    assert found["private"]["reason"] == "asked by the inspector: § 11.10"


def test_an_export_is_verified_offline(run: Run, key: str, section: UUID) -> None:
    made = run("audit", "export", "audit.ndjson")
    assert made.exit_code == 0, made.output
    size = Path("audit.ndjson").stat().st_size
    assert made.stdout == f"wrote {size:,} bytes to audit.ndjson\n"
    assert Path("audit.ndjson").stat().st_mode & 0o077 == 0
    assert run("audit", "export", "rules.ndjson", "--corpus", "rules").exit_code == 0
    verified = run("verify", "audit.ndjson", "rules.ndjson", "--key", key)
    assert verified.exit_code == 0, verified.output


def test_an_export_that_fails_leaves_no_file(run: Run, section: UUID) -> None:
    refused = run("audit", "export", "audit.ndjson", "--action", "everything")
    assert (refused.exit_code, refused.stderr.split(":")[0]) == (1, "INVALID_ARGUMENT")
    missing = run("audit", "export", "nowhere/audit.ndjson")
    assert (missing.exit_code, missing.stderr.split(":")[0]) == (2, "FILE_NOT_WRITTEN")
    assert list(Path().iterdir()) == []


def test_events_are_exported_for_other_tools(run: Run, section: UUID) -> None:
    assert run("audit", "export", "events.json", "--format", "ocsf").exit_code == 0
    events = [json.loads(line) for line in Path("events.json").read_text(encoding="utf-8").splitlines()]
    assert {event["class_uid"] for event in events} == {3002, 6003}


def test_proofs_checkpoints_and_pairs_are_verified_offline(run: Run, answer: Answer, key: str, section: UUID) -> None:
    record = answer("audit", "query", "--action", "create", "--page-size", "1")["records"][0]["id"]
    assert run("audit", "proof", record, "-o", "record.proof").exit_code == 0
    assert run("audit", "checkpoint", "-o", "checkpoint").exit_code == 0
    assert answer("audit", "checkpoint")["checkpoint"].startswith("drillcore-")
    pair = run("audit", "consistency", "checkpoint", "-o", "pair.json")
    assert pair.exit_code == 0, pair.output
    verified = run("verify", "record.proof", "pair.json", "--key", key)
    assert verified.exit_code == 0, verified.output
    assert run("audit", "consistency", "record.proof").exit_code == 2
    assert run("audit", "proof").exit_code == 2


def test_the_server_verifies_its_own_records(run: Run, answer: Answer, section: UUID) -> None:
    found = answer("audit", "verify")
    assert (found["verified"], found["erased"], found["problems"]) == (found["tree_size"], 0, [])
    assert run("audit", "verify").stdout.endswith("records verified, 0 erased with proof, 0 problems\n")


def test_a_node_is_signed_after_it_was_shown(run: Run, answer: Answer, signer: Person, section: UUID) -> None:
    typed = f"ann\n{signer.password}\n"
    signed = run("sign", "node", str(section), "--meaning", "approved", text=typed)
    assert signed.exit_code == 0, signed.output
    assert "Your signature would mean: approved" in signed.stderr
    assert f'"id": "{section}"' in signed.stderr
    assert signer.password not in signed.output
    assert "Ann Auditor (ann)" in signed.stdout
    again = run("sign", "node", str(section), "--meaning", "read again", text=f"{signer.password}\n")
    assert again.exit_code == 0, again.output
    assert [signature["meaning"] for signature in answer("signatures", "node", str(section))["signatures"]] == [
        "approved",
        "read again",
    ]
    assert run("signatures", "node").exit_code == 2


def test_signatures_are_shown_with_the_node(run: Run, signer: Person, section: UUID) -> None:
    Path("password").write_text(signer.password, encoding="utf-8")
    given = ["--login", "ann", "--password-file", "password"]
    made = run("sign", "node", str(section), "--meaning", "approved", *given, "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["signer_name"] == "Ann Auditor"
    shown = run("show", str(section)).stdout
    assert any(line.startswith("signatures") and line.endswith(": approved") for line in shown.splitlines())
    for command in (["tree", "rules"], ["query", "--level", "section", "--corpus", "rules"]):
        assert "(signed by Ann Auditor)" in run(*command).stdout


def test_a_wrong_password_signs_nothing(run: Run, answer: Answer, section: UUID) -> None:
    refused = run("sign", "node", str(section), "--meaning", "approved", text="ann\nwrong\n")
    assert (refused.exit_code, refused.stderr.splitlines()[-1].split(":")[0]) == (1, "LOGIN_FAILED")
    assert answer("signatures")["signatures"] == []
    asked = run("sign", "node", str(section), "--meaning", "approved", "--json")
    assert (asked.exit_code, json.loads(asked.stdout)["error"]["reason"]) == (2, "INVALID_USAGE")


def test_a_range_of_the_log_is_reviewed_and_signed(run: Run, answer: Answer, signer: Person, section: UUID) -> None:
    made = answer("audit", "review", "0", "1", "--findings", "no objection")
    assert "nobody yet" in run("audit", "reviews").stdout
    signed = run("sign", "review", made["id"], "--meaning", "reviewed", text=f"ann\n{signer.password}\n")
    assert signed.exit_code == 0, signed.output
    (listed,) = answer("audit", "reviews")["reviews"]
    assert listed["signed"]
    assert "Ann Auditor" in run("audit", "reviews").stdout


def test_operators_rotate_the_key_after_a_confirmation(run: Run, answer: Answer, key: str, section: UUID) -> None:
    assert run("audit", "rotate-key", token=OPERATOR, text="n\n").exit_code == 1
    rotated = answer("audit", "rotate-key", "--yes", token=OPERATOR)
    keys = answer("audit", "keys", "--server-log", token=OPERATOR)["keys"]
    assert [number["number"] for number in keys] == [1, 2]
    assert keys[1]["key"] == rotated["key"]
    assert run("audit", "rotate-key", "--yes").exit_code == 1
