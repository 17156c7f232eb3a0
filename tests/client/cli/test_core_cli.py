"""`drillcore core`, `quads`, `explain`, `turns` and `slice` against real servers, as a user runs them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyoxigraph
import pytest
from click.testing import CliRunner, Result

from drillcore import Client, NewDocument, NewFact
from drillcore.cli import main
from drillcore_formats.slices import read
from tests.support.servers.running import ACME, ACME_ID, OPERATOR, Running, create_tenants, running

Run = Callable[..., Result]
Answer = Callable[..., Any]

SOP = (
    "# Records\n\nThe sponsor keeps the training records of every site for five years after the end of the trial. "
    "The investigator signs each record on the day on which it is made.\n"
)
FACT = "Vials of the vaccine are stored in the freezer at eighty degrees below zero until they are used."
DERIVED = "<http://www.w3.org/ns/prov#wasDerivedFrom>"
FIRST, SECOND, THIRD = (f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2, 3))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "data") as found:
        create_tenants(found.client())
        yield found


@pytest.fixture
def acme(server: Running) -> Client:
    client = server.client(ACME)
    corpus = client.create_corpus("rules").id
    client.add_documents(corpus, [NewDocument("sop-7.md", SOP.encode(), source_id="sop-7")])
    client.put_facts(corpus, [NewFact(FACT, source_id="sop-8")])
    return client


def commands(server: Running, home: Path) -> Run:
    """Runs commands as an operator who acts in a tenant: exports need more rights than the tenant's own token has."""
    environment = {
        "HOME": str(home),
        "NO_COLOR": "1",
        "DRILLCORE_CLIENT_ADDRESS": server.address,
        "DRILLCORE_CLIENT_TOKEN": OPERATOR,
        "DRILLCORE_CLIENT_TENANT_ID": str(ACME_ID),
    }

    def run(*arguments: str, text: str | None = None) -> Result:
        return CliRunner(env=environment).invoke(main, arguments, input=text)

    return run


@pytest.fixture
def run(server: Running, acme: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return commands(server, here)


def answered(run: Run, *arguments: str, **options: Any) -> Any:
    result = run(*arguments, "--json", **options)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def answer(run: Run) -> Answer:
    return lambda *arguments, **options: answered(run, *arguments, **options)


def reason(result: Result) -> str:
    assert result.exit_code == 1, result.output
    return str(json.loads(result.stdout)["error"]["reason"])


def test_quads_are_put_matched_and_removed(run: Run, answer: Answer) -> None:
    quad = '<urn:sop:7> <urn:replaces> <<( _:old <urn:of> "1"@en )>> <urn:graph:sops> .'
    put = answer("quads", "put", quad, '<urn:sop:7> <urn:title> "Records"', "--corpus", "rules", "--source", "sop-7")
    assert (put["added"], put["known"]) == (2, 0)
    assert run("quads", "match", "--corpus", "rules", "-g", "<urn:graph:sops>").stdout == f"{quad}\n"
    (matched,) = answer("quads", "match", "--corpus", "rules", "-o", '"Records"', "--default-graph")["quads"]
    assert (matched["subject"], matched["source_ids"], matched["derived"]) == ("<urn:sop:7>", ["sop-7"], False)
    assert answer("quads", "remove", "-s", "<urn:sop:7>", "--corpus", "rules", "--yes")["removed"] == 2
    assert run("quads", "match", "--corpus", "rules", "-s", "<urn:sop:7>").stdout == ""
    before = run("quads", "match", "--corpus", "rules", "-s", "<urn:sop:7>", "--as-of", str(put["revision"]))
    assert len(before.stdout.splitlines()) == 2


def test_quads_that_only_the_server_makes_are_refused(run: Run) -> None:
    quad = f"<urn:drillcore:fact:{FIRST}> <urn:p> <urn:o> <urn:graph:source>"
    assert reason(run("quads", "put", quad, "--corpus", "rules", "--json")) == "RESERVED_QUAD"


def test_files_of_quads_are_imported_and_exported(run: Run, answer: Answer, tmp_path: Path) -> None:
    Path("in.ttl").write_text('@prefix e: <urn:e:> .\ne:a e:b "c"@en , <rel> ; e:d [ e:f 1 ] .\n')
    done = answer("quads", "import", "in.ttl", "--corpus", "rules", "-g", "<urn:g>", "--base", "http://example.org/")
    assert done["added"] == 4
    exported = answer("quads", "export", "--corpus", "rules", "--output", "out.nq", "-g", "<urn:g>")
    found = list(pyoxigraph.parse(path="out.nq"))
    assert (exported["quads"], len(found)) == (4, 4)
    assert {str(triple.graph_name) for triple in found} == {"<urn:g>"}
    shown = run("quads", "match", "--corpus", "rules", "-g", "<urn:g>").stdout.splitlines()
    assert sorted(shown) == sorted(Path("out.nq").read_text().splitlines())
    Path("bad.nq").write_text("<urn:s> <urn:p> <urn:o> .\n<urn:s> urn:p .\n")
    refused = json.loads(run("quads", "import", "bad.nq", "--corpus", "rules", "--json").stdout)["error"]
    assert (refused["reason"], "line 2" in refused["message"]) == ("UNPARSABLE", True)


def test_provenance_is_matched_and_explained_to_the_character(run: Run, answer: Answer) -> None:
    drawn = answer("fact", "list", "--corpus", "rules", "--source", "sop-7")["facts"][0]
    iri = f"<urn:drillcore:fact:{drawn['id']}>"
    (quad,) = answer("quads", "match", "--corpus", "rules", "-s", iri, "-p", DERIVED)["quads"]
    assert (quad["object"], quad["graph"]) == (f"<urn:drillcore:chunk:{drawn['chunk_id']}>", "<urn:graph:source>")
    found = answer("explain", iri, "--corpus", "rules")
    kinds = [step["kind"] for step in found["steps"]]
    assert (kinds[0], {*kinds}) == ("fact", {"fact", "chunk", "raw", "document", "source"})
    span = found["steps"][0]["span"]
    assert found["steps"][0]["text"] == SOP[span["start"] : span["end"]]
    assert f"   | {found['steps'][0]['text'].splitlines()[0]}" in run("explain", drawn["id"]).stdout


def test_a_core_moves_a_corpus_to_a_fresh_server(server: Running, run: Run, answer: Answer, tmp_path: Path) -> None:
    run("quads", "put", "<urn:s> <urn:p> <urn:o>", "--corpus", "rules", "--source", "sop-7")
    done = answer("core", "export", "--corpus", "rules", "--output", "rules.core")
    key = server.server.logs.signing.signer(1).verifier.encode()
    assert answer("core", "verify", "rules.core", "--key", key)["core"]["statement"]["sha256"] == done["sha256"]
    assert answer("core", "inspect", "rules.core")["parts"]["fact"] == done["counts"]["facts"]
    assert "full, with sources" in run("core", "inspect", "rules.core").stdout
    with running(tmp_path / "other") as second_server:
        create_tenants(second_server.client())
        there = commands(second_server, tmp_path)
        assert there("corpus", "create", "moved").exit_code == 0
        stored = answered(there, "core", "import", "rules.core", "--corpus", "moved", "--key", key)
        assert (stored["kind"], stored["signed_by"]) == ("full", key.partition("+")[0])
        assert {skipped["reason"] for skipped in stored["skipped"]} == {"DERIVED"}
        moved = ("documents", "sections", "chunks", "facts", "sources")
        assert [stored["counts"][count] for count in moved] == [done["counts"][count] for count in moved]
        (hit, *_) = answered(there, "fact", "search", "frozen vials", "--corpus", "moved")["hits"]
        assert hit["fact"]["content"] == FACT
        assert there("quads", "match", "--corpus", "moved", "-s", "<urn:s>").stdout == "<urn:s> <urn:p> <urn:o> .\n"
        again = answered(there, "core", "export", "--corpus", "moved", "--output", "again.core")
        assert again["sha256"] == done["sha256"]
        refused = there("core", "import", "rules.core", "--corpus", "moved", "--json")
        assert reason(refused) == "CORPUS_NOT_EMPTY"


def test_an_export_continues_a_partial_file(run: Run, answer: Answer) -> None:
    whole = answer("core", "export", "--corpus", "rules", "--output", "rules.core")
    content = Path("rules.core").read_bytes()
    Path(f".other.core.{whole['revision']}.part").write_bytes(content[:1000])
    run("quads", "put", "<urn:s> <urn:p> <urn:o>", "--corpus", "rules")
    again = answer("core", "export", "--corpus", "rules", "--output", "other.core")
    assert (again["sha256"], again["revision"]) == (whole["sha256"], whole["revision"])
    assert Path("other.core").read_bytes() == content
    Path(f".third.core.{whole['revision']}.part").write_bytes(b"x" + content[1:2000])
    third = answer("core", "export", "--corpus", "rules", "--output", "third.core")
    assert third["sha256"] == whole["sha256"], "a partial file of another core is started again"


def test_a_signature_by_another_key_is_refused(server: Running, run: Run, answer: Answer, tmp_path: Path) -> None:
    answer("core", "export", "--corpus", "rules", "--output", "rules.core")
    with running(tmp_path / "other") as second_server:
        create_tenants(second_server.client())
        there = commands(second_server, tmp_path)
        there("corpus", "create", "moved")
        key = second_server.server.logs.signing.signer(1).verifier.encode()
        refused = there("core", "import", "rules.core", "--corpus", "moved", "--key", key, "--json")
        assert reason(refused) == "CORE_UNSIGNED"


def test_turns_are_put_listed_sliced_and_removed(run: Run, answer: Answer) -> None:
    turn = {"sessionId": "s", "role": "user", "phase": "planning", "salience": 0.5}
    lines = [{"turn": {"turnId": turn_id, **turn}} for turn_id in (FIRST, SECOND, THIRD)]
    lines += [{"edge": {"parent": FIRST, "child": child, "edgeType": "reply"}} for child in (SECOND, THIRD)]
    put = answer("turns", "put", "-", "--corpus", "rules", text="\n".join(map(json.dumps, lines)))
    assert (put["added"], put["edges_added"]) == (3, 2)
    listed = answer("turns", "list", "--corpus", "rules", "--session", "s", "--all", "--page-size", "1")
    assert ([listed_turn["id"] for listed_turn in listed["turns"]], len(listed["edges"])) == ([FIRST, SECOND, THIRD], 2)
    (found,) = answer("slice", SECOND)["slices"]
    assert [node["id"] for node in found["nodes"]] == [FIRST, SECOND, THIRD]
    (small,) = answer("slice", SECOND, "--max-nodes", "1", "--output", "slice.bin", "--format", "binary")["slices"]
    made = read(Path("slice.bin").read_bytes())
    assert (made.slice_id, len(made.nodes)) == (small["slice_id"], 1)
    assert small["slice_id"] != found["slice_id"]
    assert reason(run("slice", "00000000-0000-4000-8000-00000000000f", "--json")) == "ANCHOR_NOT_FOUND"
    assert answer("turns", "remove", FIRST, "--corpus", "rules", "--yes")["edges_removed"] == 2


def test_a_slice_of_knowledge_is_the_same_each_time(run: Run, answer: Answer) -> None:
    fact = answer("fact", "list", "--corpus", "rules", "--source", "sop-7")["facts"][0]["id"]
    first, second = (answer("slice", fact, "--corpus", "rules")["slices"] for _ in range(2))
    assert first == second
    assert {node["kind"] for node in first[0]["nodes"]} >= {"fact", "chunk", "section", "master"}
    assert first[0]["slice_id"] in run("slice", fact).stdout
