"""Slices through gRPC: of conversations and of knowledge, at every revision, several at once, and as files."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drillcore import slices
from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import facts_pb2
from drillcore_proto.v1 import graphs_pb2 as pb
from drillcore_server.graphs import slice_model
from drillcore_server.graphs.slice_model import single
from drillcore_server.graphs.turn_graph import TurnGraph, TurnGraphs
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.storage.ids import Revision
from drillcore_server.storage.sealed import SealedRecords
from drillcore_server.vectors.stored_vectors import as_stored
from tests.support.callers.graphs import GOLDEN_EDGES, REFERENCE, GraphCaller, edge, edges, name, talk, turn
from tests.support.callers.hierarchies import put, two_sections
from tests.support.callers.knowledge import CHUNK, LEVELS, MASTER, RAW, SECTION, File, at_revision, refused
from tests.support.data.texts import REGULATIONS
from tests.support.fixtures import Filled
from tests.support.round_trips.measured import cost_of
from tests.support.servers.running import ACME, Running, create_tenants, running
from tests.support.stores.aged import corpus_in, keys_of
from tests.support.stores.trails import records

KINDS = {MASTER: "master", SECTION: "section", CHUNK: "chunk", RAW: "raw"}


@pytest.fixture(scope="module")
def caller(shared: Running) -> Iterator[GraphCaller]:
    with GraphCaller(shared, ACME) as found:
        yield found


@pytest.fixture
def corpus(caller: GraphCaller) -> str:
    return caller.corpus(f"talks {uuid4()}")


@pytest.fixture(scope="module")
def anchors(caller: GraphCaller, filled: Filled) -> list[str]:
    """A node of each level, and two facts."""
    nodes = [caller.query(filled.corpus, level=level)[0].id for level in LEVELS]
    return [*nodes, *(fact.fact_id for fact in caller.list(filled.corpus)[::20])]


def moved(told: list[pb.Turn], links: list[pb.Edge], by: int) -> tuple[list[pb.Turn], list[pb.Edge]]:
    """The same conversation under other ids, because a tenant can use each id only once."""
    own = {told_turn.turn_id: str(UUID(int=UUID(told_turn.turn_id).int + by)) for told_turn in told}
    for told_turn in told:
        told_turn.turn_id = own[told_turn.turn_id]
    for link in links:
        link.parent, link.child = own[link.parent], own[link.child]
    return told, links


def a_talk(turns: int, seed: int = 0) -> tuple[list[pb.Turn], list[pb.Edge]]:
    return moved(*talk(turns, seed), by=uuid4().int >> 64 << 64)


def test_a_slice_of_a_conversation_is_recorded_by_its_anchor_policy_and_id(
    shared: Running, caller: GraphCaller, corpus: str
) -> None:
    """Turns have no content, and these three values with the revision identify exactly the turns of the slice."""
    told, links = a_talk(40)
    put_at = caller.put_turns(corpus, told, links).revision
    request = str(uuid4())
    (found,) = caller.slices(told[0].turn_id, request_id=request, policy=pb.SlicePolicy(max_nodes=7))
    assert len(found.nodes) == 7
    (body,) = records(shared, request_id=request)
    assert body["nodes"] == [told[0].turn_id]
    assert body["corpora"] == {corpus: put_at}
    assert body["detail"]["slices"] == [found.slice_id]
    assert body["detail"]["policy"]["max_nodes"] == 7


def test_a_slice_of_knowledge_is_recorded_with_all_its_nodes(
    shared: Running, caller: GraphCaller, anchors: list[str]
) -> None:
    request = str(uuid4())
    (found,) = caller.slices(anchors[1], request_id=request)
    (body,) = records(shared, request_id=request)
    assert sorted(body["nodes"]) == [node.id for node in found.nodes]


def test_the_golden_vectors_come_through_the_protocol(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        create_tenants(server.client())
        with GraphCaller(server, ACME) as own:
            corpus = own.corpus()
            own.put_turns(corpus, [turn(n) for n in range(1, 7)], edges(GOLDEN_EDGES))
            for policy in ("slice_policy_v1", "slice_policy_v1_ref"):
                found = own.slice(1, policy=pb.SlicePolicy(policy_id=policy))
                assert (found.params_hash, found.slice_id) == ("02005444cae1117d", "5d90b92e253778cf")
                assert (found.policy_id, found.schema_version, found.revision) == (policy, "1.0.0", 1)
            assert [node.distance for node in found.nodes] == [0, 1, 1, 1, 2, 2]
            assert own.slice(1, policy=pb.SlicePolicy(max_nodes=3)).params_hash == "72097b33b768458d"
            assert [(e.parent, e.child) for e in found.edges] == [(name(a), name(b)) for a, b, _ in GOLDEN_EDGES]


def test_a_hundred_slices_are_equal(caller: GraphCaller, corpus: str) -> None:
    told, links = a_talk(400, seed=5)
    caller.put_turns(corpus, told, links)
    answers = {caller.slice(told[200].turn_id, format=pb.SLICE_FORMAT_BINARY).SerializeToString() for _ in range(100)}
    assert len(answers) == 1


def test_a_hundred_slices_of_knowledge_are_equal(caller: GraphCaller, anchors: list[str]) -> None:
    for anchor in anchors:
        answers = {caller.slice(anchor, format=pb.SLICE_FORMAT_BINARY).SerializeToString() for _ in range(20)}
        assert len(answers) == 1


@pytest.mark.parametrize("policy_id", [slice_model.POLICY, slice_model.REFERENCE_POLICY])
def test_a_slice_of_knowledge_is_the_same_however_much_is_read_ahead(
    caller: GraphCaller, anchors: list[str], policy_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = pb.SlicePolicy(policy_id=policy_id)
    expected = [caller.slice(anchor, policy=policy) for anchor in anchors]
    for ahead in (1, 3, 1_000):
        monkeypatch.setattr(slice_model, "_PREPARED_AHEAD", ahead)
        assert [caller.slice(anchor, policy=policy) for anchor in anchors] == expected


def test_a_slice_of_knowledge_takes_few_round_trips(shared: Running, caller: GraphCaller, anchors: list[str]) -> None:
    for anchor in anchors:
        nodes = len(caller.slice(anchor).nodes)
        cost = cost_of(shared, "Slice", lambda: caller.slice(anchor))  # noqa: B023 - run at once
        assert cost.round_trips <= 35 < nodes


def test_a_slice_of_earlier_turns_takes_few_round_trips(shared: Running, caller: GraphCaller, corpus: str) -> None:
    told, links = a_talk(120, seed=9)
    caller.put_turns(corpus, told, links)
    caller.put_turns(corpus, a_talk(1)[0])
    for anchor in _ids(told[::40]):
        earlier = partial(caller.slice, anchor, corpus_id=corpus, as_of=at_revision(1))
        nodes = len(earlier().nodes)
        assert nodes > 60
        assert cost_of(shared, "Slice", earlier).round_trips <= 45


def test_memory_and_store_give_the_same_slices_at_every_revision(caller: GraphCaller, corpus: str) -> None:
    """The head is sliced in memory, which follows the changes. Earlier revisions are read from the store."""
    chance = random.Random(7)
    told, links = a_talk(120, seed=9)
    caller.put_turns(corpus, told[:60], [link for link in links if _within(link, told[:60])])
    seen = {1: caller.slices(*_ids(told[:60:6]))}
    for step in range(12):
        _change(caller, corpus, chance, told, links, step)
        there = [turn.turn_id for turn in caller.turns(corpus)]
        seen[caller.head(corpus)] = caller.slices(*chance.sample(there, 10))
    assert len(seen) > 10
    for revision, before in seen.items():
        again = caller.slices(*(slice_.anchor for slice_ in before), as_of=at_revision(revision), corpus_id=corpus)
        assert again == before
    assert len({slice_.slice_id for before in seen.values() for slice_ in before}) > 50


def _ids(turns: list[pb.Turn]) -> list[str]:
    return [turn.turn_id for turn in turns]


def _within(link: pb.Edge, turns: list[pb.Turn]) -> bool:
    return {link.parent, link.child} <= set(_ids(turns))


def _change(
    caller: GraphCaller, corpus: str, chance: random.Random, told: list[pb.Turn], links: list[pb.Edge], step: int
) -> None:
    """Changes the corpus in turn by new turns, other saliences, fewer turns and other edges."""
    there = [turn.turn_id for turn in caller.turns(corpus)]
    if step % 4 == 0:
        new = told[60 + 5 * step : 60 + 5 * step + 20]
        known = {*there, *_ids(new)}
        caller.put_turns(corpus, new, [link for link in links if {link.parent, link.child} <= known])
    elif step % 4 == 1:
        found = chance.sample(caller.turns(corpus), 15)
        for found_turn in found:
            found_turn.salience, found_turn.phase = chance.random(), chance.randint(1, 5)
        caller.put_turns(corpus, found)
    elif step % 4 == 2:
        gone = chance.sample(there, 5)
        request = pb.RemoveTurnsRequest(corpus_id=corpus, turn_ids=gone, edges=caller.edges(corpus)[::11])
        caller.graphs.RemoveTurns(request, **caller.options())
    else:
        pairs = [chance.sample(there, 2) for _ in range(10)]
        made = [pb.Edge(parent=a, child=b, edge_type=pb.EdgeType.ValueType(REFERENCE)) for a, b in pairs]
        caller.put_edges(corpus, *made)


def test_a_restarted_server_gives_the_same_slices_as_one_that_followed_changes(tmp_path: Path) -> None:
    told, links = talk(200, seed=11)
    with running(tmp_path / "data") as first:
        create_tenants(first.client())
        with GraphCaller(first, ACME) as own:
            corpus = own.corpus()
            own.put_turns(corpus, told[:100], [link for link in links if _within(link, told[:100])])
            own.slice(1)
            own.put_turns(corpus, told[100:], [link for link in links if not _within(link, told[:100])])
            followed = own.slices(*_ids(told[::20]))
    with running(tmp_path / "data") as second, GraphCaller(second, ACME) as own:
        assert own.slices(*_ids(told[::20])) == followed


def test_a_reader_that_began_before_the_last_change_does_not_reload_everything(
    caller: GraphCaller, corpus: str, shared: Running
) -> None:
    told, links = a_talk(20)
    caller.put_turns(corpus, told[:10])
    caller.put_turns(corpus, told[10:], links)
    graphs, own, keys = TurnGraphs(shared.engine), corpus_in(shared.engine, corpus), keys_of(shared, corpus)
    sealed = SealedRecords(shared.server.keyring)

    def newest(revision: int) -> TurnGraph | None:
        def look(tr: Transaction) -> TurnGraph | None:
            return graphs.newest(CorpusAtRevision(tr.snapshot, own, keys, sealed, Revision(revision)))

        return shared.engine.run(look)

    first = newest(1)
    assert first is not None
    second = newest(2)
    assert second is newest(2)
    assert second is not None
    assert newest(1) is None
    assert first.node(UUID(told[15].turn_id).bytes) is None, "a state never changes"
    assert second.node(UUID(told[15].turn_id).bytes) is not None


def test_several_anchors_are_answered_in_their_order(caller: GraphCaller, corpus: str, anchors: list[str]) -> None:
    told, links = a_talk(50)
    caller.put_turns(corpus, told, links)
    wanted = [told[3].turn_id, anchors[0], told[40].turn_id, anchors[-1], told[3].turn_id]
    found = caller.slices(*wanted)
    assert [slice_.anchor for slice_ in found] == wanted
    assert found == [caller.slice(anchor) for anchor in wanted]
    assert len({slice_.corpus_id for slice_ in found}) == 2
    with refused(Reason.INVALID_ARGUMENT, field="as_of"):
        caller.slices(*wanted, as_of=at_revision(1))


def test_a_hundred_anchors_fit_and_more_are_refused(caller: GraphCaller, corpus: str) -> None:
    told, links = a_talk(1_000)
    caller.put_turns(corpus, told, links)
    assert len(caller.slices(*_ids(told[:100]))) == 100
    with refused(Reason.INVALID_ARGUMENT, field="anchors"):
        caller.slices(*_ids(told[:101]))
    with refused(Reason.INVALID_ARGUMENT, field="anchors"):
        caller.slices()
    with refused(Reason.TOO_LARGE, field="anchors"):
        caller.slices(*_ids(told[:100]), policy=pb.SlicePolicy(max_nodes=1_000, max_radius=1_000))


def test_the_reads_of_a_slice_from_the_store_are_bounded(
    caller: GraphCaller, corpus: str, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, _ = a_talk(60)
    star = [pb.Edge(parent=told[0].turn_id, child=leaf.turn_id, edge_type=pb.EDGE_TYPE_REPLY) for leaf in told[1:]]
    caller.put_turns(corpus, told, star)
    caller.put_turns(corpus, a_talk(1)[0])
    near = pb.SlicePolicy(max_nodes=5)
    before = caller.slice(told[0].turn_id, as_of=at_revision(1), policy=near)
    master = caller.query(filled.corpus, level=MASTER)[0].id
    monkeypatch.setattr(slice_model, "READ_MAX", 50)
    with refused(Reason.TOO_LARGE, field="anchors"):
        caller.slice(told[0].turn_id, as_of=at_revision(1), policy=near)
    assert caller.slice(told[0].turn_id, policy=near).slice_id == before.slice_id, (
        "the head is sliced in memory, without that limit"
    )
    monkeypatch.setattr(slice_model, "READ_MAX", 5)
    with refused(Reason.TOO_LARGE, field="anchors"):
        caller.slice(master)


def test_long_session_ids_count_towards_the_size_of_an_answer(tmp_path: Path) -> None:
    told, links = a_talk(100)
    for told_turn in told:
        told_turn.session_id = told_turn.turn_id + "\N{OLD ITALIC LETTER A}" * 900
    with running(tmp_path / "small", message_bytes_max=256 << 10) as server:
        create_tenants(server.client())
        with GraphCaller(server, ACME) as caller:
            corpus = caller.corpus()
            for start in range(0, 100, 25):
                caller.put_turns(corpus, told[start : start + 25])
            caller.put_edges(corpus, *links)
            with refused(Reason.TOO_LARGE, field="anchors"):
                caller.slice(told[0].turn_id)
            assert len(caller.slice(told[0].turn_id, policy=pb.SlicePolicy(max_nodes=20)).nodes) == 20


def test_a_missing_anchor_is_named(caller: GraphCaller, corpus: str, filled: Filled) -> None:
    told, links = a_talk(3)
    caller.put_turns(corpus, told, links)
    unknown = str(uuid4())
    with refused(Reason.ANCHOR_NOT_FOUND, saying=unknown):
        caller.slices(told[0].turn_id, unknown)
    with refused(Reason.ANCHOR_NOT_FOUND, saying=told[0].turn_id):
        caller.slice(told[0].turn_id, corpus_id=filled.corpus)
    with refused(Reason.ANCHOR_NOT_FOUND, saying=told[0].turn_id):
        caller.slice(told[0].turn_id, as_of=at_revision(0))
    with refused(Reason.REVISION_NOT_FOUND):
        caller.slice(told[0].turn_id, as_of=at_revision(99))
    with refused(Reason.INVALID_ID):
        caller.slice("x")


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"policy_id": "slice_policy_v9"}, "policy_id"),
        ({"max_nodes": 0}, "max_nodes"),
        ({"max_nodes": 10_001}, "max_nodes"),
        ({"max_radius": 1_001}, "max_radius"),
        ({"distance_decay": float("nan")}, "distance_decay"),
        ({"phase_weights": pb.PhaseWeights(synthesis=-1)}, "phase_weights"),
    ],
    ids=str,
)
def test_a_wrong_policy_is_refused(caller: GraphCaller, policy: dict[str, Any], field: str) -> None:
    with refused(Reason.INVALID_ARGUMENT, field=field):
        caller.slice(str(uuid4()), policy=pb.SlicePolicy(**policy))


def test_knowledge_is_sliced_along_its_hierarchy(caller: GraphCaller, filled: Filled) -> None:
    sections = caller.query(filled.corpus, level=SECTION)
    found = caller.slice(caller.query(filled.corpus, level=MASTER)[0].id)
    kinds = Counter(node.kind for node in found.nodes)
    assert kinds["master"] == 1
    assert kinds["section"] == len(sections)
    ids = {node.id: node for node in found.nodes}
    for section in sections:
        below = {chunk.id for chunk in caller.below(section.id, CHUNK)}
        told = {
            edge.child for edge in found.edges if edge.parent == section.id and edge.edge_type == pb.EDGE_TYPE_DEFAULT
        }
        assert told == below & ids.keys()
    for node in found.nodes:
        phases = {"master": pb.PHASE_SYNTHESIS, "section": pb.PHASE_CONSOLIDATION, "fact": pb.PHASE_CONSOLIDATION}
        assert node.phase == phases.get(node.kind, pb.PHASE_EXPLORATION)
    weights = {fact.fact_id: fact.importance_weight for fact in caller.list(filled.corpus)}
    assert all(node.salience == single(weights[node.id]) for node in found.nodes if node.kind == "fact")


def test_a_section_refers_to_the_chunks_that_its_summary_cites(caller: GraphCaller, filled: Filled) -> None:
    for section in caller.query(filled.corpus, level=SECTION)[:3]:
        found = caller.slice(section.id, policy=pb.SlicePolicy(max_radius=1, include_siblings=False))
        told = {
            edge.child for edge in found.edges if edge.edge_type == pb.EDGE_TYPE_REFERENCE and edge.parent == section.id
        }
        assert told == {citation.chunk_id for citation in section.section.citations}


def test_hierarchies_of_clients_are_sliced_by_their_own_ids(caller: GraphCaller, corpus: str) -> None:
    made = two_sections()
    section = made.nodes_of("section")[0]
    chunk = next(node.id for node in made.nodes_of("chunk") if node.parent_id == section.id)
    put(caller, corpus, made)
    near = pb.SlicePolicy(max_radius=1, include_siblings=False)
    raws = {raw.id for raw in caller.below(chunk, RAW)}
    assert {node.id for node in caller.slice(chunk, policy=near).nodes} == {chunk, section.id, *raws}
    for raw in raws:
        assert {node.id for node in caller.slice(raw, policy=near).nodes} == {raw, chunk}
    whole = caller.slice(made.master.id)
    assert {node.id for node in whole.nodes} == {node.id for node in made.nodes}


def test_a_readable_master_has_no_section_that_was_erased_since(caller: GraphCaller, corpus: str) -> None:
    """A master is sealed with the sources that it may quote, and a section with those of all its chunks."""
    zebras = {f"{n}.txt": f"Zebras {n} must graze near rivers of type {n}. " * 3 for n in range(25)}
    caller.add(corpus, *(File(name, text, name) for name, text in {**REGULATIONS, **zebras}.items()))
    master, before = caller.master(corpus), {node.id for node in caller.query(corpus, level=SECTION)}
    assert before <= {node.id for node in caller.slice(master.id).nodes}
    caller.erase(corpus, "24.txt")
    left = {node.id for node in caller.query(corpus, level=SECTION, as_of=at_revision(1))}
    found = caller.slice(master.id, as_of=at_revision(1))
    assert left < before
    assert {node.id for node in found.nodes if node.kind == "section"} == left


def test_every_node_and_fact_can_be_an_anchor(caller: GraphCaller, filled: Filled, anchors: list[str]) -> None:
    for anchor, kind in zip(anchors, [*(KINDS[level] for level in LEVELS), "fact", "fact"], strict=False):
        found = caller.slice(anchor)
        (own,) = [node for node in found.nodes if node.id == anchor]
        assert (own.kind, own.distance, found.corpus_id) == (kind, 0, filled.corpus)
        assert not own.HasField("turn")


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_invariants_hold_for_knowledge(caller: GraphCaller, anchors: list[str], data: st.DataObject) -> None:
    anchor = data.draw(st.sampled_from(anchors))
    policy = pb.SlicePolicy(
        policy_id=data.draw(st.sampled_from(["slice_policy_v1", "slice_policy_v1_ref"])),
        max_nodes=data.draw(st.integers(1, 60)),
        max_radius=data.draw(st.integers(0, 4)),
        include_siblings=data.draw(st.booleans()),
        max_siblings_per_node=data.draw(st.integers(0, 8)),
        distance_decay=data.draw(st.sampled_from([0.0, 0.5, 0.9, 1.0])),
    )
    found = caller.slice(anchor, policy=policy)
    ids = [node.id for node in found.nodes]
    links = [(edge.parent, edge.child, edge.edge_type) for edge in found.edges]
    assert anchor in ids
    assert len(ids) <= policy.max_nodes
    assert ids == sorted(set(ids))
    assert links == sorted(set(links))
    assert all(edge.parent in ids and edge.child in ids for edge in found.edges)
    assert caller.slice(anchor, policy=policy) == found


@pytest.fixture(scope="module")
def likenesses(caller: GraphCaller) -> tuple[str, list[str], np.ndarray[Any, Any]]:
    """Facts with given vectors, many of which are similar; some vectors are equal."""
    corpus, chance = caller.corpus(f"alike {uuid4()}"), np.random.default_rng(3)
    centres = chance.normal(size=(6, 16))
    rows = centres[chance.integers(0, 6, 150)] + 0.6 * chance.normal(size=(150, 16))
    rows = as_stored(np.concatenate([rows, rows[:10]]))
    drafts = [
        facts_pb2.FactDraft(
            content=f"Fact number {place} of those whose vectors are given, and it is long enough.",
            source_id="given",
            embedding=row.astype(float).tolist(),
        )
        for place, row in enumerate(rows)
    ]
    ids = list(caller.put(corpus, *drafts, embedding_model="given").fact_ids)
    return corpus, ids, rows


def expected_likeness(ids: list[str], rows: np.ndarray[Any, Any]) -> dict[str, set[str]]:
    """The five nearest facts of each, found by comparing all: at least 0.6 similar, ties to the smaller id."""
    units = rows.astype(np.float32)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    cosines = np.round((units @ units.T).astype(np.float64), 6)
    found = {}
    for place, identity in enumerate(ids):
        order = sorted(
            (-cosines[place, candidate], ids[candidate]) for candidate in range(len(ids)) if candidate != place
        )
        found[identity] = {neighbour for score, neighbour in order[:5] if -score >= 0.6}
    return found


def test_facts_refer_to_the_five_most_similar_facts(
    caller: GraphCaller, likenesses: tuple[str, list[str], np.ndarray[Any, Any]]
) -> None:
    _, ids, rows = likenesses
    expected = expected_likeness(ids, rows)
    assert sum(map(len, expected.values())) > 300
    found = caller.slice(ids[0], policy=pb.SlicePolicy(max_nodes=10_000, max_radius=1_000))
    inside = {node.id for node in found.nodes}
    wanted = {tuple(sorted((fact_id, neighbour))) for fact_id in inside for neighbour in expected[fact_id] & inside}
    assert {(edge.parent, edge.child) for edge in found.edges} == wanted
    assert all(edge.edge_type == pb.EDGE_TYPE_REFERENCE for edge in found.edges)
    assert all(expected[fact_id] <= inside for fact_id in inside), "every reference was followed"


def test_facts_that_are_not_searched_are_in_no_slice(
    caller: GraphCaller, likenesses: tuple[str, list[str], np.ndarray[Any, Any]]
) -> None:
    corpus, ids, _ = likenesses
    revision, before = caller.head(corpus), caller.slice(ids[0])
    neighbour = next(node.id for node in before.nodes if node.id != ids[0] and node.distance == 1)
    caller.archive(neighbour)
    assert neighbour not in {node.id for node in caller.slice(ids[0]).nodes}
    with refused(Reason.ANCHOR_NOT_FOUND, saying=neighbour):
        caller.slice(neighbour)
    caller.set_status(ids[1], facts_pb2.FACT_STATUS_DELETED)
    with refused(Reason.ANCHOR_NOT_FOUND, saying=ids[1]):
        caller.slice(ids[1])
    assert caller.slice(ids[0], as_of=at_revision(revision)) == before
    caller.restore(neighbour)
    assert neighbour in {node.id for node in caller.slice(ids[0]).nodes}


def test_earlier_knowledge_is_sliced_as_it_was(caller: GraphCaller, corpus: str) -> None:
    caller.add(corpus, File("a.txt", REGULATIONS["records.txt"], "a"))
    anchors = [caller.query(corpus, level=level)[0].id for level in LEVELS] + [caller.list(corpus)[0].fact_id]
    before = caller.slices(*anchors, corpus_id=corpus)
    caller.add(corpus, File("b.txt", REGULATIONS["food.txt"], "b"))
    assert caller.slices(*anchors, corpus_id=corpus) != before
    assert caller.slices(*anchors, corpus_id=corpus, as_of=at_revision(1)) == before


def test_erased_knowledge_is_in_no_slice_of_any_revision(caller: GraphCaller, corpus: str) -> None:
    caller.add(corpus, File("a.txt", REGULATIONS["records.txt"], "a"), File("b.txt", REGULATIONS["food.txt"], "b"))
    gone = {fact.fact_id for fact in caller.list(corpus) if fact.source_id == "b"}
    kept = [fact.fact_id for fact in caller.list(corpus) if fact.source_id == "a"]
    caller.erase(corpus, "b")
    for revision in (1, 2):
        found = caller.slice(kept[0], as_of=at_revision(revision))
        assert not gone & {node.id for node in found.nodes}
        with refused(Reason.ANCHOR_NOT_FOUND):
            caller.slice(next(iter(gone)), as_of=at_revision(revision))


@pytest.mark.parametrize("kind", [pb.SLICE_FORMAT_JSON, pb.SLICE_FORMAT_BINARY])
def test_a_file_has_the_same_slice_as_the_answer(
    caller: GraphCaller, corpus: str, anchors: list[str], kind: Any
) -> None:
    told, links = a_talk(80)
    told[0].trajectory.CopyFrom(pb.Trajectory(depth=1.5, complexity=1e-7))
    caller.put_turns(corpus, told, links)
    for anchor in (told[0].turn_id, *anchors):
        answer = caller.slice(anchor, format=kind)
        made = slices.read(answer.file)
        assert (made.slice_id, made.params_hash, made.policy_id) == (
            answer.slice_id,
            answer.params_hash,
            answer.policy_id,
        )
        assert (str(made.corpus_id), made.revision, str(made.anchor)) == (answer.corpus_id, answer.revision, anchor)
        for node, shown in zip(made.nodes, answer.nodes, strict=True):
            assert (str(node.id), node.kind, node.salience, node.distance) == (
                shown.id,
                shown.kind,
                shown.salience,
                shown.distance,
            )
            assert node.phase == pb.Phase.Name(shown.phase).removeprefix("PHASE_").lower()
            if node.turn is not None:
                assert node.turn.session_id == shown.turn.session_id
                assert node.turn.created_at == shown.turn.created_at.ToDatetime(tzinfo=node.turn.created_at.tzinfo)
                assert node.turn.trajectory["depth"] == shown.turn.trajectory.depth
                assert node.turn.trajectory["complexity"] == shown.turn.trajectory.complexity
        named = [(str(edge.parent), str(edge.child), edge.edge_type.upper()) for edge in made.edges]
        assert named == [
            (edge.parent, edge.child, pb.EdgeType.Name(edge.edge_type).removeprefix("EDGE_TYPE_"))
            for edge in answer.edges
        ]


def test_a_binary_file_is_compact(caller: GraphCaller, corpus: str) -> None:
    told, links = a_talk(256)
    caller.put_turns(corpus, told, links)
    policy = pb.SlicePolicy(max_radius=1_000)
    binary = caller.slice(told[0].turn_id, format=pb.SLICE_FORMAT_BINARY, policy=policy)
    text = caller.slice(told[0].turn_id, format=pb.SLICE_FORMAT_JSON, policy=policy)
    assert len(binary.file) < len(text.file) / 4
    assert json.loads(text.file)["slice_id"] == binary.slice_id


def test_a_changed_file_is_detected(caller: GraphCaller, anchors: list[str]) -> None:
    binary = caller.slice(anchors[0], format=pb.SLICE_FORMAT_BINARY).file
    for place in range(0, len(binary), 37):
        with pytest.raises(slices.InvalidSlice):
            slices.read(binary[:place] + bytes([binary[place] ^ 1]) + binary[place + 1 :])
        with pytest.raises(slices.InvalidSlice):
            slices.read(binary[:place])
    told = json.loads(caller.slice(anchors[0], format=pb.SLICE_FORMAT_JSON).file)
    for change in (
        {"nodes": told["nodes"][1:]},
        {"nodes": told["nodes"][::-1]},
        {"edges": told["edges"][1:]},
        {"policy": {**told["policy"], "max_nodes": 7}},
        {"anchor": told["nodes"][1]["id"]},
        {"policy_id": "slice_policy_v2"},
        {"edges": None},
    ):
        with pytest.raises(slices.InvalidSlice):
            slices.read(json.dumps({**told, **change}).encode())
    for nothing in (b"", b"{}", b"[]", b"DCSLICE1", b"\xff", msgpack.packb([1, 2])):
        with pytest.raises(slices.InvalidSlice):
            slices.read(nothing)


def test_a_slice_has_only_edges_between_its_own_nodes(caller: GraphCaller, corpus: str) -> None:
    first = uuid4().int >> 64 << 64
    caller.put_turns(corpus, [turn(first + n) for n in range(1, 5)], [edge(first + 1, first + n) for n in (2, 3, 4)])
    found = caller.slice(first + 1, policy=pb.SlicePolicy(max_nodes=3))
    assert [edge.child for edge in found.edges] == [name(first + 2), name(first + 3)]
