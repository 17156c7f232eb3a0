"""`drillcore corpus share|unshare`, regions of tenants and corpora, and --residency, against a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from drillcore.cli import main
from tests.support.fixtures import TenantFactory
from tests.support.servers.running import ACME, ACME_ID, GLOBEX_ID, OPERATOR, Running

Run = Callable[..., Result]


@pytest.fixture
def run(server: Running, tenant: TenantFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    environment = {"DRILLCORE_CLIENT_ADDRESS": server.address, "HOME": str(tmp_path), "NO_COLOR": "1"}
    return lambda *arguments: CliRunner(env=environment).invoke(main, arguments)


@pytest.fixture
def root(run: Run) -> Callable[..., Any]:
    """The --json answer of a command to an operator who acts in globex."""

    def root(*arguments: str) -> Any:
        result = run("--token", OPERATOR, "--tenant", "globex", *arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return root


def listed(run: Run, *flags: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("--token", ACME, *flags, "corpus", "list", "--json").stdout)["corpora"]
    return found


def test_an_operator_shares_a_corpus_and_stops_sharing_it(run: Run, root: Callable[..., Any]) -> None:
    root("corpus", "create", "rules")
    assert listed(run) == []
    shared = root("corpus", "share", "rules", "--with", "acme")
    assert (shared["sharing"]["everyone"], shared["sharing"]["tenant_ids"]) == (False, [str(ACME_ID)])
    (seen,) = listed(run)
    assert (seen["name"], seen["shared"], seen["tenant_id"]) == ("rules", True, None)
    assert "shared with us" in run("--token", ACME, "corpus", "list").stdout
    assert root("corpus", "share", "rules", "--everyone")["sharing"]["everyone"] is True
    assert "with every tenant" in run("--token", OPERATOR, "--tenant", "globex", "corpus", "get", "rules").stdout
    assert root("corpus", "unshare", "rules")["sharing"] is None
    assert listed(run) == []


def test_the_receiver_of_a_share_must_be_named_exactly_once(run: Run) -> None:
    for flags in ((), ("--everyone", "--with", "acme")):
        result = run("--token", OPERATOR, "--tenant", "globex", "corpus", "share", "rules", *flags)
        assert result.exit_code == 2
        assert "--everyone" in result.output


def test_regions_are_set_for_tenants_and_corpora_and_for_a_single_command(run: Run, root: Callable[..., Any]) -> None:
    assert root("tenant", "update", "globex", "--region", "eu", "--region", "us")["allowed_regions"] == ["eu", "us"]
    assert root("corpus", "create", "here", "--region", "eu")["region"] == "eu"
    refused = run("--token", OPERATOR, "--tenant", str(GLOBEX_ID), "corpus", "create", "elsewhere", "--region", "jp")
    assert refused.exit_code == 1
    assert "REGION_NOT_ALLOWED" in refused.output
    assert root("corpus", "create", "there", "--residency", "us")["region"] == "us"
    assert [corpus["name"] for corpus in root("corpus", "list", "--residency", "eu")["corpora"]] == ["here"]
    assert root("tenant", "update", "globex", "--every-region")["allowed_regions"] == []
    root("corpus", "create", "nowhere")
    assert root("corpus", "update", "nowhere", "--region", "jp")["region"] == "jp"
    assert root("tenant", "create", "bound", "--region", "eu")["allowed_regions"] == ["eu"]
