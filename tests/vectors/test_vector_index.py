"""Vector indexes: what a state finds, whatever was added, removed, put into the graph or rebuilt since."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import UUID

import numpy as np
import pytest

from drillcore_server.vectors import index_keeper as index_upkeep
from drillcore_server.vectors.vector_index import VectorIndex
from tests.support.data.vectors import DIMENSIONS, SMALL, Items, ids, index_of, items, never, one_id, plain_search, rows

QUERIES = rows(20, seed=99)


def grown(vectors: Items) -> VectorIndex[UUID]:
    """An index with all of its vectors in the graph."""
    index = index_of(vectors)
    index_upkeep.grow_graph(index, never)
    assert index.log.graph is not None
    assert index.log.graph.count == len(vectors)
    return index


def test_a_search_finds_what_comparing_every_vector_finds() -> None:
    vectors = items(40)
    index = index_of(vectors)
    assert index.is_exact
    for query in QUERIES:
        expected = plain_search(vectors, query, 7)
        found = index.search(query, 7)
        assert ids(found) == ids(expected)
        assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=2e-6)


def test_equal_scores_go_by_id_and_only_so_many_are_found_as_asked_for() -> None:
    same = rows(1)[0]
    index = index_of({one_id(place): same for place in (5, 3, 9, 1)})
    assert ids(index.search(same, 3)) == [one_id(1), one_id(3), one_id(5)]
    assert ids(list(index.ranking(same))) == [one_id(1), one_id(3), one_id(5), one_id(9)]


def test_the_graph_finds_nearly_all_that_exact_search_finds_with_the_same_scores() -> None:
    index = grown(items(2_000))
    assert not index.is_exact
    hits = 0
    for query in QUERIES:
        exact, near = index.search(query, 10, exact=True), index.search(query, 10)
        assert set(near) & set(exact) == {pair for pair in near if pair[0] in ids(exact)}
        hits += len(set(near) & set(exact))
    assert hits >= 0.95 * 10 * len(QUERIES)


def test_the_same_vectors_in_the_same_order_are_found_alike() -> None:
    first, second = grown(items(1_000)), grown(items(1_000))
    assert [first.search(query, 10) for query in QUERIES] == [second.search(query, 10) for query in QUERIES]


def test_what_is_added_is_found_by_the_next_search_before_it_is_in_the_graph() -> None:
    index = grown(items(500))
    fresh = rows(1, seed=7)[0]
    changed = index.changed({one_id(10_000): fresh})
    assert changed.search(fresh, 1) == [(one_id(10_000), 1.0)]
    assert changed.log.graph is index.log.graph
    assert one_id(10_000) not in ids(index.search(fresh, 500))
    assert (len(index), len(changed)) == (500, 501)


def test_what_is_removed_is_not_found_by_the_next_search() -> None:
    vectors = items(500)
    index = grown(vectors)
    best = ids(index.search(QUERIES[0], 10))
    changed = index.changed(dict.fromkeys(best))
    rest = {one: row for one, row in vectors.items() if one not in best}
    assert ids(changed.search(QUERIES[0], 10)) == ids(plain_search(rest, QUERIES[0], 10))
    assert ids(index.search(QUERIES[0], 10)) == best
    assert best[0] not in changed
    assert set(changed.ids()) == rest.keys()


def test_a_changed_vector_is_found_where_it_is_now_and_earlier_states_find_it_where_it_was() -> None:
    vectors = items(500)
    before = grown(vectors)
    moved = rows(1, seed=8)[0]
    after = before.changed({one_id(3): moved})
    assert after.search(moved, 1) == [(one_id(3), 1.0)]
    assert before.search(vectors[one_id(3)], 1) == [(one_id(3), 1.0)]
    assert after.search(vectors[one_id(3)], 1)[0][0] != one_id(3)
    assert len(after) == len(before)
    assert before.search(vectors[one_id(3)], 1, {one_id(3)}) == [(one_id(3), 1.0)]
    assert np.array_equal(before.kept(one_id(3)), vectors[one_id(3)])


def test_states_that_part_from_the_same_one_do_not_see_each_other() -> None:
    base = grown(items(500))
    ours, theirs = rows(2, seed=9)
    left, right = base.changed({one_id(900): ours}), base.changed({one_id(900): theirs, one_id(1): None})
    for state in (left, right):
        index_upkeep.grow_graph(state, never)
    assert left.search(ours, 1) == [(one_id(900), 1.0)]
    assert right.search(theirs, 1) == [(one_id(900), 1.0)]
    assert one_id(1) in left
    assert one_id(1) not in right
    assert (len(left), len(right)) == (501, 500)


def test_an_earlier_state_finds_the_same_after_what_was_beside_the_graph_is_in_it() -> None:
    early = grown(items(500))
    late = early.changed(items(300, first=1_000))
    before = [(early.search(query, 10), late.search(query, 10, exact=True)) for query in QUERIES]
    index_upkeep.grow_graph(late, never)
    assert late.log.graph is not None
    assert late.log.graph.count == 800
    assert not set(items(300, first=1_000)) & {one for query in QUERIES for one in ids(early.search(query, 500))}
    assert [(early.search(query, 10), late.search(query, 10)) for query in QUERIES] == before


def test_a_filter_is_kept_whether_few_or_many_are_allowed() -> None:
    vectors = items(1_000)
    index = grown(vectors)
    for share in (200, 10, 3, 2):
        allowed = set(list(vectors)[::share])
        for query in QUERIES:
            found = index.search(query, 5, allowed)
            assert ids(found) == ids(plain_search(vectors, query, 5, allowed))
    assert index.search(QUERIES[0], 5, {one_id(77_777)}) == []
    assert index.search(QUERIES[0], 5, set()) == []


def test_as_many_as_there_are_are_found_though_most_are_gone() -> None:
    index = grown(items(1_000))
    left = index.changed(dict.fromkeys(list(items(1_000))[:-60]))
    assert not left.is_exact
    assert len(left.search(QUERIES[0], 60)) == 60
    assert len(left.search(QUERIES[0], 1_000)) == 60


def test_a_ranking_tells_of_each_once_the_best_first() -> None:
    vectors = items(800)
    index = grown(vectors)
    ranked = list(index.ranking(QUERIES[0]))
    assert sorted(ids(ranked)) == sorted(vectors)
    assert ids(ranked)[:10] == ids(plain_search(vectors, QUERIES[0], 10))
    assert ids(ranked)[-200:] == ids(plain_search(vectors, QUERIES[0], 800))[-200:]
    allowed = set(list(vectors)[:300])
    assert set(ids(list(index.ranking(QUERIES[0], allowed)))) == allowed


def test_rows_have_length_1_and_come_in_the_order_asked_for() -> None:
    vectors = items(30)
    index = index_of(vectors)
    wanted = [one_id(9), one_id(2), one_id(20)]
    found = index.rows(wanted)
    assert found.shape == (3, DIMENSIONS)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1, abs=1e-6)
    for row, one in zip(found, wanted, strict=True):
        assert index.search(row, 1)[0][0] == one
    with pytest.raises(KeyError):
        index.rows([one_id(31)])


def test_a_rebuilt_index_finds_the_same_without_what_is_gone() -> None:
    vectors = items(1_500)
    index = grown(vectors).changed(dict.fromkeys(list(vectors)[:400]))
    assert index_upkeep.wants_rebuild(index)
    fresh = index_upkeep.rebuilt(index, never)
    assert fresh is not None
    assert fresh.log is not index.log
    assert fresh.log.size == len(fresh) == 1_100
    assert not index_upkeep.wants_rebuild(fresh)
    for query in QUERIES:
        assert fresh.search(query, 10, exact=True) == index.search(query, 10, exact=True)
        assert len(set(fresh.search(query, 10)) & set(index.search(query, 10))) >= 9


@pytest.mark.parametrize(("days", "due"), [(29, False), (31, True)])
def test_what_is_gone_for_a_month_leaves_the_graph_for_good(days: int, due: bool) -> None:
    vectors = items(1_500)
    index = grown(vectors)
    assert index.log.gone_since_s is None
    index = index.changed({one_id(3): None})
    index.log.gone_since_s = time.time() - days * 86_400
    assert index_upkeep.wants_rebuild(index) == due
    index.changed({one_id(4): None})
    assert index.log.gone_since_s < time.time() - 28 * 86_400, "what was gone first counts"
    fresh = index_upkeep.rebuilt(index, never)
    assert fresh is not None
    assert (fresh.log.size, fresh.log.gone_since_s) == (1_499, None)


def test_what_changes_during_a_rebuild_is_not_lost() -> None:
    vectors = items(1_500)
    index = grown(vectors).changed(dict.fromkeys(list(vectors)[:400]))
    fresh = index_upkeep.rebuilt(index, never)
    assert fresh is not None
    moved, added = rows(2, seed=11)
    now = index.changed({one_id(500): moved, one_id(501): None}).changed({one_id(9_000): added})
    caught_up = index_upkeep.caught_up(fresh, index, now)
    assert caught_up.log is fresh.log
    assert sorted(caught_up.ids()) == sorted(now.ids())
    for query in (*QUERIES, moved, added):
        assert caught_up.search(query, 10, exact=True) == now.search(query, 10, exact=True)


def test_a_rebuild_that_is_told_to_stop_leaves_all_as_it_was() -> None:
    index = grown(items(1_500))
    assert index_upkeep.rebuilt(index, lambda: True) is None
    assert index.search(QUERIES[0], 10) == grown(items(1_500)).search(QUERIES[0], 10)


def test_a_graph_that_was_not_finished_is_used_and_finished_later() -> None:
    vectors = items(1_500)
    index = index_of(vectors)
    answers = iter([False, False, True, True])
    index_upkeep.grow_graph(index, lambda: next(answers))
    assert index.log.graph is not None
    assert 0 < index.log.graph.count < 1_500
    for query in QUERIES:
        assert len(set(index.search(query, 10)) & set(index.search(query, 10, exact=True))) >= 9
    index_upkeep.grow_graph(index, never)
    assert index.log.graph.count == 1_500


def test_searches_go_on_while_the_index_grows_is_put_into_the_graph_and_rebuilt() -> None:
    """Each state finds exactly its own, at every moment."""
    index = grown(items(600))
    stop = threading.Event()
    states = [(index, set(items(600)))]

    def search() -> int:
        count = 0
        while not stop.is_set():
            for state, own in states[-3:]:
                found = ids(state.search(QUERIES[count % len(QUERIES)], 10))
                assert len(set(found)) == 10
                assert set(found) <= own
                count += 1
        return count

    with ThreadPoolExecutor(3) as threads:
        searching = [threads.submit(search) for _ in range(3)]
        try:
            for step in range(12):
                state, own = states[-1]
                gone, came = sorted(own)[step * 40 : step * 40 + 40], items(60, first=2_000 + step * 60)
                state = state.changed(dict.fromkeys(gone) | came)
                states.append((state, own - set(gone) | came.keys()))
                index_upkeep.grow_graph(state, never)
                if index_upkeep.wants_rebuild(state):
                    fresh = index_upkeep.rebuilt(state, never)
                    assert fresh is not None
                    states.append((fresh, states[-1][1]))
        finally:
            stop.set()
        assert all(one.result() > 10 for one in searching)


def test_of_an_erased_vector_nothing_is_left() -> None:
    vectors = items(500)
    index = grown(vectors)
    query = vectors[one_id(3)]
    changed = index.changed({one_id(3): None}, erased=[one_id(3)])
    assert index_upkeep.has_erased(index.log)
    index_upkeep.blank_erased(index.log)
    assert not index_upkeep.has_erased(index.log)
    assert not index.log.rows(np.array([3])).any()
    graph = index.log.graph
    assert graph is not None
    assert not np.any(graph._vectors()[3])
    assert one_id(3) not in ids(changed.search(query, 100))
    assert index.search(query, 500, exact=True)[-1][1] < 1 - 1e-3
    rest = {one: row for one, row in vectors.items() if one != one_id(3)}
    assert ids(changed.search(QUERIES[0], 5)) == ids(plain_search(rest, QUERIES[0], 5))


def test_of_an_erased_vector_no_earlier_one_is_left_either() -> None:
    """Whether it had another vector before, or was removed before; and each is blanked once."""
    moved, again = rows(2, seed=11)
    index = grown(items(500)).changed({one_id(3): moved}).changed({one_id(4): None})
    former = sorted(index.former())
    assert former == [one_id(3), one_id(4)]
    changed = index.changed({one_id(3): None, one_id(5): again}, erased=[one_id(3), one_id(4), one_id(5)])
    changed = changed.changed({one_id(6): None}, erased=[one_id(4), one_id(6)])
    log = changed.log
    assert log.erased == [3, 4, 5, 500, 6]
    index_upkeep.blank_erased(log)
    assert log.graph is not None
    assert not log.rows(np.array([3, 4, 5, 6, 500])).any()
    assert not np.any(log.graph._vectors()[3:7])
    assert changed.search(again, 1) == [(one_id(5), 1.0)]


def test_what_is_erased_during_a_rebuild_is_not_in_what_was_rebuilt() -> None:
    index = grown(items(1_500))
    fresh = index_upkeep.rebuilt(index, never)
    assert fresh is not None
    now = index.changed({one_id(3): None}, erased=[one_id(3)])
    caught_up = index_upkeep.caught_up(fresh, index, now)
    assert index_upkeep.has_erased(caught_up.log)
    assert not caught_up.log.rows(np.array([3])).any()


def test_vectors_of_another_length_follow_only_on_none() -> None:
    index = index_of(items(5))
    longer = rows(1, dimensions=2 * DIMENSIONS)[0]
    with pytest.raises(AssertionError, match="wrong length"):
        index.changed({one_id(9): longer})
    changed = index.changed(dict.fromkeys(items(5)) | {one_id(9): longer})
    assert changed.dimensions == 2 * DIMENSIONS
    assert changed.search(longer, 3) == [(one_id(9), 1.0)]


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_vectors_that_are_not_made_of_numbers_are_not_taken(broken: float) -> None:
    row = rows(1)[0].copy()
    row[3] = broken
    with pytest.raises(AssertionError, match="not made of numbers"):
        index_of({one_id(1): row})
    with pytest.raises(AssertionError, match="not made of numbers"):
        index_of(items(3)).search(row, 1)


def test_an_empty_index_finds_nothing() -> None:
    index = index_of({})
    assert (len(index), index.dimensions, index.ids()) == (0, 0, [])
    assert index.search(rows(1)[0], 5) == []
    assert list(index.ranking(rows(1)[0])) == []
    assert len(index.changed(items(3))) == 3


def test_a_small_index_has_no_graph() -> None:
    assert not index_upkeep.wants_graph(index_of(items(50)))
    assert index_upkeep.wants_graph(index_of(items(51)))
    assert not index_upkeep.wants_graph(index_of(items(51), replace(SMALL, exact_below=51)))
