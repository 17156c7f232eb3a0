"""Conversation graphs through gRPC: turns are stored, listed, replaced, removed, refused, and seen at each revision."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from drillcore import Grant, Level, Role
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import graphs_pb2 as pb
from tests.support.callers.erasures import problems, sealed_under
from tests.support.callers.graphs import BRANCH, REPLY, GraphCaller, edge, edges, name, talk, turn
from tests.support.callers.knowledge import at_revision, refused
from tests.support.round_trips.measured import cost_of
from tests.support.servers.people import make_person
from tests.support.servers.running import ACME, ACME_ID, GLOBEX, GLOBEX_ID, Running, create_tenants, running
from tests.support.stores.aged import age, keys_of
from tests.support.stores.trails import records


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "data") as found:
        create_tenants(found.client())
        yield found


@pytest.fixture
def caller(server: Running) -> Iterator[GraphCaller]:
    with GraphCaller(server, ACME) as found:
        yield found


@pytest.fixture
def corpus(caller: GraphCaller) -> str:
    return caller.corpus()


def test_turns_come_back_unchanged(caller: GraphCaller, corpus: str) -> None:
    put = turn(
        1,
        session_id="Ünï",
        role=pb.TURN_ROLE_TOOL,
        phase=pb.PHASE_SYNTHESIS,
        salience=0.3,
        trajectory=pb.Trajectory(depth=1.5, sibling_order=2, homogeneity=0.1, temporal=-3, complexity=0.25),
        created_at=Timestamp(seconds=1_700_000_000, nanos=123_456_000),
    )
    done = caller.put_turns(corpus, [put, turn(2)], [edge(1, 2, BRANCH)])
    assert (done.revision, done.added, done.replaced, done.edges_added) == (1, 2, 0, 1)
    (page,) = caller.turn_pages(corpus)
    assert page.turns[0] == put
    assert page.turns[1].HasField("created_at"), "the default is the present time"
    assert list(page.edges) == [edge(1, 2, BRANCH)]
    assert page.revision == 1


def test_listings_are_ordered_by_turn_id_with_the_edges_to_each_turn(caller: GraphCaller, corpus: str) -> None:
    made, told = talk(50, seed=3)
    caller.put_turns(corpus, made[::-1], told[::-1])
    pages = list(caller.turn_pages(corpus, page_size=7))
    assert len(pages) == 8
    assert [turn.turn_id for page in pages for turn in page.turns] == [sent.turn_id for sent in made]
    listed = [(edge.child, edge.parent, edge.edge_type) for page in pages for edge in page.edges]
    assert listed == sorted(listed)
    assert len(listed) == len(told)


def test_a_session_is_listed_by_itself_and_its_id_is_case_sensitive(caller: GraphCaller, corpus: str) -> None:
    caller.put_turns(corpus, [turn(1, session_id="a"), turn(2, session_id="A"), turn(3, session_id="a")])
    assert [turn.turn_id for turn in caller.turns(corpus, session_id="a")] == [name(1), name(3)]
    assert [turn.turn_id for turn in caller.turns(corpus, session_id="A", page_size=1)] == [name(2)]
    caller.put_turns(corpus, [turn(1, session_id="A")])
    assert [turn.turn_id for turn in caller.turns(corpus, session_id="A")] == [name(1), name(2)]
    assert [turn.turn_id for turn in caller.turns(corpus, session_id="a", as_of=at_revision(1))] == [name(1), name(3)]
    assert not caller.turns(corpus, session_id="other")


def test_a_changed_turn_is_replaced_and_an_equal_one_makes_no_revision(
    server: Running, caller: GraphCaller, corpus: str
) -> None:
    at = Timestamp(seconds=1_700_000_000)
    first = [turn(1, created_at=at), turn(2, created_at=at)]
    caller.put_turns(corpus, first, [edge(1, 2)])
    same = caller.put_turns(corpus, first, [edge(1, 2)])
    assert (same.revision, same.added, same.replaced, same.edges_added) == (1, 0, 2, 0)
    changed = caller.put_turns(corpus, [turn(1, salience=0.9), turn(3)], [edge(1, 2), edge(1, 3)])
    assert (changed.revision, changed.added, changed.replaced, changed.edges_added) == (2, 1, 1, 1)
    assert [round(turn.salience, 3) for turn in caller.turns(corpus)] == [0.9, 0.5, 0.5]
    known = caller.put_edges(corpus, edge(1, 2), edge(1, 3))
    assert (known.revision, known.added, known.known) == (2, 0, 2)
    more = caller.put_edges(corpus, edge(1, 2), edge(2, 3), edge(1, 2, BRANCH))
    assert (more.revision, more.added, more.known) == (3, 2, 1)
    assert problems(server) == ()


def test_a_turn_is_removed_with_its_edges_and_earlier_revisions_keep_it(
    server: Running, caller: GraphCaller, corpus: str
) -> None:
    caller.put_turns(corpus, [turn(n) for n in range(1, 5)], edges([(1, 2, REPLY), (2, 3, REPLY), (3, 4, REPLY)]))
    done = caller.remove_turns(corpus, 2, 3, edges=[edge(3, 4), edge(1, 4)])
    assert (done.revision, done.turns_removed, done.edges_removed) == (2, 2, 3)
    assert [turn.turn_id for turn in caller.turns(corpus)] == [name(1), name(4)]
    assert caller.edges(corpus) == []
    assert len(caller.edges(corpus, as_of=at_revision(1))) == 3
    with refused(Reason.TURN_NOT_FOUND, saying=name(2)):
        caller.remove_turns(corpus, 1, 2)
    nothing = caller.remove_turns(corpus, edges=[edge(1, 4)])
    assert (nothing.revision, nothing.edges_removed) == (2, 0)
    assert caller.put_turns(corpus, [turn(2)]).added == 1, "a removed id may be put again"
    assert problems(server) == ()


WRONG: dict[str, tuple[dict[str, Any], Reason, str]] = {
    "salience that is no number": ({"salience": math.nan}, Reason.INVALID_TURN, "salience"),
    "salience above 1": ({"salience": 1.001}, Reason.INVALID_TURN, "salience"),
    "salience below 0": ({"salience": -0.1}, Reason.INVALID_TURN, "salience"),
    "no phase": ({"phase": 0}, Reason.INVALID_TURN, "phase"),
    "a phase that nobody knows": ({"phase": 6}, Reason.INVALID_TURN, "phase"),
    "no role": ({"role": 0}, Reason.INVALID_TURN, "role"),
    "a role that nobody knows": ({"role": 9}, Reason.INVALID_TURN, "role"),
    "a trajectory of infinities": (
        {"trajectory": pb.Trajectory(depth=math.inf)},
        Reason.INVALID_TURN,
        "trajectory",
    ),
    "a session of 1,001 characters": ({"session_id": "s" * 1_001}, Reason.INVALID_TURN, "session_id"),
    "a time of no year": ({"created_at": Timestamp(seconds=1 << 60)}, Reason.INVALID_ARGUMENT, "created_at"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_turn_is_refused_and_nothing_is_put(caller: GraphCaller, corpus: str, case: str) -> None:
    fields, reason, field = WRONG[case]
    with refused(reason, field=field):
        caller.put_turns(corpus, [turn(1), turn(2, **fields)])
    assert not caller.turns(corpus)


def test_wrong_edges_are_refused(caller: GraphCaller, corpus: str) -> None:
    caller.put_turns(corpus, [turn(1), turn(2)])
    with refused(Reason.INVALID_TURN, saying="itself", field="child"):
        caller.put_edges(corpus, edge(1, 1))
    with refused(Reason.INVALID_TURN, field="edge_type"):
        caller.put_edges(corpus, edge(1, 2, 0))
    with refused(Reason.INVALID_TURN, field="edge_type"):
        caller.put_edges(corpus, edge(1, 2, 5))
    with refused(Reason.TURN_NOT_FOUND, saying=name(9)):
        caller.put_edges(corpus, edge(1, 2), edge(2, 9))
    with refused(Reason.TURN_NOT_FOUND, saying=name(9)):
        caller.put_turns(corpus, [turn(3)], [edge(9, 3)])
    with refused(Reason.INVALID_ARGUMENT, field="edges"):
        caller.put_edges(corpus)
    assert [turn.turn_id for turn in caller.turns(corpus)] == [name(1), name(2)]


def test_calls_have_limits(caller: GraphCaller, corpus: str) -> None:
    many = [turn(n) for n in range(1, 10_002)]
    with refused(Reason.INVALID_ARGUMENT, saying="10,000", field="turns"):
        caller.put_turns(corpus, many)
    with refused(Reason.INVALID_ARGUMENT, saying="10,000", field="edges"):
        caller.put_edges(corpus, *[edge(1, 2)] * 10_001)
    with refused(Reason.INVALID_ARGUMENT, saying="10,000", field="turns"):
        caller.remove_turns(corpus, *range(1, 10_002))
    with refused(Reason.INVALID_ARGUMENT, field="turns"):
        caller.put_turns(corpus, [])
    with refused(Reason.INVALID_ARGUMENT, field="turn_ids"):
        caller.remove_turns(corpus)
    with refused(Reason.INVALID_TURN, saying="twice", field="turn_id"):
        caller.put_turns(corpus, [turn(1), turn(1)])
    with refused(Reason.INVALID_ARGUMENT, field="source_id"):
        caller.put_turns(corpus, [turn(1)], source_id="s" * 1_001)
    assert caller.put_turns(corpus, many[:-1], [edge(n, n + 1) for n in range(1, 10_000)]).added == 10_000
    assert len(caller.turns(corpus, page_size=1_000)) == 10_000


def test_an_id_of_a_node_or_of_another_corpus_is_refused(caller: GraphCaller, corpus: str) -> None:
    second_corpus = caller.corpus("other")
    caller.add_texts(second_corpus, {"a.txt": "A record of the trial is kept for five years after the end of it. " * 3})
    taken = caller.list(second_corpus)[0].fact_id
    with refused(Reason.NODE_EXISTS):
        caller.put_turns(corpus, [pb.Turn(turn_id=taken, role=pb.TURN_ROLE_USER, phase=pb.PHASE_PLANNING)])
    caller.put_turns(corpus, [turn(1)])
    with refused(Reason.NODE_EXISTS):
        caller.put_turns(second_corpus, [turn(1)])
    with refused(Reason.NODE_NOT_FOUND):
        caller.node(name(1))
    with refused(Reason.FACT_NOT_FOUND):
        caller.get(name(1))


def test_a_repeated_request_gets_its_answer_and_is_done_once(caller: GraphCaller, corpus: str) -> None:
    first = caller.put_turns(corpus, [turn(1)], request_id="again")
    assert caller.put_turns(corpus, [turn(1)], request_id="again") == first
    assert caller.head(corpus) == 1
    with refused(Reason.REQUEST_ID_REUSED):
        caller.put_turns(corpus, [turn(2)], request_id="again")


def test_changes_and_reads_are_recorded(server: Running, caller: GraphCaller, corpus: str) -> None:
    caller.put_turns(corpus, [turn(1), turn(2)], [edge(1, 2)])
    caller.turns(corpus)
    caller.slice(1)
    caller.remove_turns(corpus, 2)
    found = {record["call"]: record for record in records(server)}
    assert found["PutTurns"]["detail"]["turns_put"] == 2
    assert set(found["PutTurns"]["nodes"]) == {name(1), name(2)}
    assert found["ListTurns"]["nodes"] == [name(1), name(2)]
    assert found["Slice"]["detail"]["slices"]
    assert found["RemoveTurns"]["detail"] | {"turns_removed": 1, "edges_removed": 1} == found["RemoveTurns"]["detail"]


def test_erasing_a_source_erases_its_turns_from_every_revision(
    server: Running, caller: GraphCaller, corpus: str
) -> None:
    caller.put_turns(corpus, [turn(1), turn(2)], [edge(1, 2)], source_id="gone")
    caller.put_turns(corpus, [turn(3), turn(4)], [edge(2, 3), edge(3, 4)], source_id="stays")
    caller.put_turns(corpus, [turn(5)], [edge(4, 5), edge(1, 5)])
    assert len(caller.slice(3).nodes) == 5, "the graph is in memory too"
    done = caller.erase(corpus, "gone")
    assert [turn.turn_id for turn in caller.turns(corpus)] == [name(3), name(4), name(5)]
    assert [turn.turn_id for turn in caller.turns(corpus, as_of=at_revision(3))] == [name(3), name(4), name(5)]
    assert {node.id for node in caller.slice(3).nodes} == {name(3), name(4), name(5)}
    assert {node.id for node in caller.slice(3, as_of=at_revision(3)).nodes} == {name(3), name(4), name(5)}
    for revision in (1, 3):
        with refused(Reason.ANCHOR_NOT_FOUND, saying=name(1)):
            caller.slice(1, as_of=at_revision(revision))
    assert problems(server) == ()
    key = done.erasure.erased_keys[0]
    assert sealed_under(server, corpus, key) > 0
    assert caller.purge(corpus).finished
    assert sealed_under(server, corpus, key) == 0
    assert problems(server) == ()
    assert len(caller.edges(corpus)) == 2, "edges between remaining turns stay"
    assert len(caller.edges(corpus, as_of=at_revision(3))) == 2


def test_a_trim_keeps_present_turns_and_frees_the_ids_of_removed_ones(
    server: Running, caller: GraphCaller, corpus: str
) -> None:
    made, told = talk(30)
    caller.put_turns(corpus, made, told)
    caller.put_turns(corpus, [turn(1, salience=1.0)])
    caller.remove_turns(corpus, 30)
    age(server, corpus, 10)
    caller.put_turns(corpus, [turn(31)])
    before = caller.slice(1)
    client = server.client(ACME)
    client.update_corpus(corpus, retention_days=5)
    assert client.trim_corpus(corpus).finished
    after = caller.slice(1)
    assert (after.slice_id, after.nodes) == (before.slice_id, before.nodes)
    assert len(caller.turns(corpus)) == 30
    assert problems(server) == ()
    assert caller.put_turns(caller.corpus("other"), [turn(30)]).added == 1


def test_a_tenant_has_no_access_to_the_turns_of_another(server: Running, caller: GraphCaller, corpus: str) -> None:
    caller.put_turns(corpus, [turn(1, salience=1.0)])
    with GraphCaller(server, GLOBEX) as foreign_caller:
        own = foreign_caller.corpus()
        assert foreign_caller.put_turns(own, [turn(1, salience=0.0)]).added == 1
        assert foreign_caller.slice(1).corpus_id == own
        with refused(Reason.CORPUS_NOT_FOUND):
            foreign_caller.turns(corpus)
    assert caller.slice(1).corpus_id == corpus


def test_a_shared_corpus_can_be_sliced_but_not_changed(server: Running, caller: GraphCaller, corpus: str) -> None:
    caller.put_turns(corpus, [turn(1), turn(2)], [edge(1, 2)])
    server.client().update_corpus(corpus, tenant_id=ACME_ID, share_with=[GLOBEX_ID])
    with GraphCaller(server, GLOBEX) as reader:
        assert reader.slice(1) == caller.slice(1)
        assert reader.turns(corpus) == caller.turns(corpus)
        with refused(Reason.PERMISSION_DENIED):
            reader.put_turns(corpus, [turn(3)])


def test_turns_need_a_grant_for_all_levels(server: Running, caller: GraphCaller, corpus: str) -> None:
    caller.put_turns(corpus, [turn(1)])
    person = make_person(server, Grant(Role.READER, levels=[Level.MASTER]))
    with GraphCaller(server, person.token) as reader:
        for ask in (lambda: reader.slice(1), lambda: reader.turns(corpus)):
            with refused(Reason.PERMISSION_DENIED):
                ask()


def test_fsck_finds_an_edge_that_leads_nowhere(server: Running, caller: GraphCaller, corpus: str) -> None:
    caller.put_turns(corpus, [turn(1), turn(2)], [edge(1, 2)])
    keys = keys_of(server, corpus)
    entry = server.engine.run(lambda tr: next(iter(tr.range(*keys.all_graph_entries()))))
    server.engine.run(lambda tr: tr.clear(entry[0]))
    assert any("index lacks" in problem for problem in problems(server))
    server.engine.run(lambda tr: tr.set(*entry))
    assert problems(server) == ()
    turns = server.engine.run(lambda tr: list(tr.range(*keys.turns())))
    server.engine.run(lambda tr: tr.clear(turns[1][0]))
    found = problems(server)
    assert any("needs the missing turn" in problem for problem in found)
    assert any("leads nowhere" in problem for problem in found)


def test_a_restart_gives_the_same_slices(tmp_path: Path) -> None:
    made, told = talk(300, seed=8)
    with running(tmp_path / "again") as first:
        create_tenants(first.client())
        with GraphCaller(first, ACME) as caller:
            corpus = caller.corpus()
            caller.put_turns(corpus, made, told)
            before = [caller.slice(n) for n in range(1, 300, 30)]
    with running(tmp_path / "again") as second, GraphCaller(second, ACME) as caller:
        assert [caller.slice(n) for n in range(1, 300, 30)] == before


def test_many_turns_are_listed_put_and_removed_in_as_few_round_trips_as_one(
    server: Running, caller: GraphCaller, corpus: str
) -> None:
    def costs(first: int, count: int) -> list[int]:
        turns, joined = [turn(number) for number in range(first, first + count)], pairs(first, count)
        made = {
            "PutTurns": lambda: caller.put_turns(corpus, turns, joined),
            "PutEdges": lambda: caller.put_edges(corpus, *pairs(first, count, BRANCH)),
            "ListTurns": lambda: caller.turns(corpus),
            "RemoveTurns": lambda: caller.remove_turns(corpus, *range(first, first + count)),
        }
        return [cost_of(server, method, make).round_trips for method, make in made.items()]

    costs(1, 2)  # makes keys
    assert costs(10, 40) == costs(60, 2)


def pairs(first: int, count: int, kind: pb.EdgeType.ValueType = REPLY) -> list[pb.Edge]:
    """Edges between turns with following numbers."""
    return [edge(number, number + 1, kind) for number in range(first, first + count - 1)]
