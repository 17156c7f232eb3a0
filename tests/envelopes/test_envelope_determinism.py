"""The same request on the same state gives the same bytes: on another server, after a restart, in another store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from drillcore_proto.v1 import envelopes_pb2 as pb
from drillcore_proto.v1 import facts_pb2
from drillcore_server.app.config import EngineSettings, Settings
from drillcore_server.app.main import Server
from drillcore_server.kernel.telemetry import LogFormat, make_logger
from drillcore_server.vectors.settings import VectorSettings
from tests.facts.test_fact_index import tend
from tests.support.callers.envelopes import EnvelopeCaller
from tests.support.paths import GOLDEN_FILES
from tests.support.servers.running import ACME, OPERATOR, SETTINGS, Running, create_tenants, running

QUERY = "how long does the site keep records of deviations, and who signs them?"
SITES = 60
GRAPH = VectorSettings(exact_below=20)
"""Settings with which the corpus is large enough for a graph."""
GOLDEN = GOLDEN_FILES / "envelopes.json"
"""For each policy, the facts of an envelope in order, each with its relevance and composite score."""


def texts() -> list[str]:
    things = ("deviations", "training", "complaints", "visits", "samples")
    said = "Site {} keeps its records of {} for {} years, and its manager signs them."
    return [said.format(number, things[number % 5], number % 7 + 2) for number in range(SITES)]


def fill(caller: EnvelopeCaller, start: int = 1) -> str:
    """Puts facts with fixed ids, in an order that depends on `start`. Returns the corpus."""
    corpus = caller.corpus()
    drafts = [
        facts_pb2.FactDraft(fact_id=f"{number:08x}-0000-4000-8000-000000000000", content=text, source_id="sites")
        for number, text in enumerate(texts())
    ]
    turned = drafts[start:] + drafts[:start]
    for first in range(0, SITES, 20):
        caller.put(corpus, *turned[first : first + 20])
    return corpus


def packed(caller: EnvelopeCaller, corpus: str, **fields: object) -> bytes:
    return caller.pack(QUERY, corpus, **fields).envelope.SerializeToString(deterministic=True)


@pytest.mark.parametrize("policy", ["fused-1", "cosine-1"])
@pytest.mark.parametrize("vectors", [None, GRAPH], ids=["few", "many"])
def test_a_restart_changes_no_byte(tmp_path: Path, policy: str, vectors: VectorSettings | None) -> None:
    """A graph may miss different facts after a restart, so every vector is compared."""
    asked = {"scoring": pb.ScoringOptions(policy=policy), "exact": vectors is not None}
    with running(tmp_path, vectors=vectors) as server:
        create_tenants(server.client(OPERATOR))
        with EnvelopeCaller(server, ACME) as caller:
            corpus = fill(caller)
            before = packed(caller, corpus, **asked)
    with running(tmp_path, vectors=vectors) as server, EnvelopeCaller(server, ACME) as caller:
        assert packed(caller, corpus, **asked) == before


@pytest.mark.parametrize("policy", ["fused-1", "cosine-1"])
@pytest.mark.parametrize("vectors", [None, GRAPH], ids=["compared", "graph"])
def test_an_envelope_does_not_depend_on_how_candidates_were_found(
    tmp_path: Path, policy: str, vectors: VectorSettings | None
) -> None:
    """This holds on any Python and processor and with any graph library, since candidates are scored again exactly."""
    with running(tmp_path, vectors=vectors) as server:
        create_tenants(server.client(OPERATOR))
        with EnvelopeCaller(server, ACME) as caller:
            corpus = fill(caller)
            caller.pack(QUERY, corpus)
            tend(caller)
            envelope = caller.pack(QUERY, corpus, scoring=pb.ScoringOptions(policy=policy)).envelope
    assert envelope.exact == (vectors is None)
    found = [[fact.fact_id, round(fact.relevance_score, 6), round(fact.composite_score, 6)] for fact in envelope.facts]
    assert found == json.loads(GOLDEN.read_text(encoding="utf-8"))[policy]


def _beside(folder: Path) -> Path:
    """The folder of another server on the same store, with a copy of the keys."""
    other_folder = folder / "another server"
    store = {str(folder): ["kv", "indexes", other_folder.name]}
    shutil.copytree(folder, other_folder, ignore=lambda place, names: [*store.get(place, []), *({"LOCK"} & set(names))])
    return other_folder


def test_two_servers_on_one_store_pack_the_same_and_see_each_others_writes_at_once(tmp_path: Path) -> None:
    with running(tmp_path) as first_server, EnvelopeCaller(first_server, ACME) as first:
        create_tenants(first_server.client(OPERATOR))
        corpus = fill(first)
        before = packed(first, corpus)
        folder = _beside(tmp_path)
        settings = Settings(server=SETTINGS, engine=EngineSettings(data_dir=folder))
        server = Server(settings, first_server.engine, make_logger(LogFormat.JSON, first_server.log))
        second_server = Running(server, first_server.engine, server.start(), first_server.log)
        try:
            with EnvelopeCaller(second_server, ACME) as second:
                assert packed(second, corpus) == before
                changed = texts()[7].replace("Site 7", "Site 7 of the company")
                first.update("00000007-0000-4000-8000-000000000000", content=changed)
                assert packed(second, corpus) == packed(first, corpus) != before
                etag = first.pack(QUERY, corpus).envelope.etag
                assert second.pack(QUERY, corpus, if_match=etag).not_modified
        finally:
            second_server.clients.close()
            server.stop()


def test_the_history_of_a_store_does_not_matter(tmp_path: Path) -> None:
    """The facts were put in another order, and some were deleted. Only the revision numbers may differ."""
    made = []
    for name, start in (("one", 0), ("other", 17)):
        with running(tmp_path / name) as server:
            create_tenants(server.client(OPERATOR))
            with EnvelopeCaller(server, ACME) as caller:
                corpus = fill(caller, start)
                if start:
                    gone = facts_pb2.FactDraft(content=f"{texts()[0]} For ever.", source_id="sites")
                    (fact,) = caller.put(corpus, gone).fact_ids
                    caller.set_status(fact, facts_pb2.FACT_STATUS_DELETED)
                made.append(caller.pack(QUERY, corpus).envelope)
    assert [(fact.fact_id, fact.relevance_score, fact.composite_score) for fact in made[0].facts] == [
        (fact.fact_id, fact.relevance_score, fact.composite_score) for fact in made[1].facts
    ]
    assert made[0].text == made[1].text
    assert made[0].etag == made[1].etag


def test_an_envelope_says_whether_every_vector_was_compared(tmp_path: Path) -> None:
    with running(tmp_path, vectors=GRAPH) as server:
        create_tenants(server.client(OPERATOR))
        with EnvelopeCaller(server, ACME) as caller:
            corpus = fill(caller)
            caller.pack(QUERY, corpus)
            tend(caller)
            few = caller.corpus("few")
            caller.put(few, facts_pb2.FactDraft(content=texts()[0], source_id="sites"))
            assert [caller.pack(QUERY, *corpora).envelope.exact for corpora in ((corpus,), (few,), (corpus, few))] == [
                False, True, False,
            ]  # fmt: skip
            assert caller.pack(QUERY, corpus, few, exact=True).envelope.exact
