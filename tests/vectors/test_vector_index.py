"""Vector indexes: each state finds exactly its own vectors, whatever was added, removed, indexed or rebuilt since."""

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
from tests.support.data.vectors import (
    DIMENSIONS,
    SMALL,
    Items,
    ids,
    index_of,
    items,
    never,
    numbered_id,
    plain_search,
    rows,
)

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


def test_equal_scores_are_ordered_by_id_and_the_limit_is_kept() -> None:
    same = rows(1)[0]
    index = index_of({numbered_id(place): same for place in (5, 3, 9, 1)})
    assert ids(index.search(same, 3)) == [numbered_id(1), numbered_id(3), numbered_id(5)]
    assert ids(list(index.ranking(same))) == [numbered_id(1), numbered_id(3), numbered_id(5), numbered_id(9)]


def test_the_graph_finds_nearly_all_that_exact_search_finds_with_the_same_scores() -> None:
    index = grown(items(2_000))
    assert not index.is_exact
    hits = 0
    for query in QUERIES:
        exact, near = index.search(query, 10, exact=True), index.search(query, 10)
        assert set(near) & set(exact) == {pair for pair in near if pair[0] in ids(exact)}
        hits += len(set(near) & set(exact))
    assert hits >= 0.95 * 10 * len(QUERIES)


def test_the_same_vectors_in_the_same_order_give_the_same_results() -> None:
    first, second = grown(items(1_000)), grown(items(1_000))
    assert [first.search(query, 10) for query in QUERIES] == [second.search(query, 10) for query in QUERIES]


def test_an_added_vector_is_found_by_the_next_search_before_it_is_in_the_graph() -> None:
    index = grown(items(500))
    fresh = rows(1, seed=7)[0]
    changed = index.changed({numbered_id(10_000): fresh})
    assert changed.search(fresh, 1) == [(numbered_id(10_000), 1.0)]
    assert changed.log.graph is index.log.graph
    assert numbered_id(10_000) not in ids(index.search(fresh, 500))
    assert (len(index), len(changed)) == (500, 501)


def test_a_removed_vector_is_not_found_by_the_next_search() -> None:
    vectors = items(500)
    index = grown(vectors)
    best = ids(index.search(QUERIES[0], 10))
    changed = index.changed(dict.fromkeys(best))
    rest = {item_id: row for item_id, row in vectors.items() if item_id not in best}
    assert ids(changed.search(QUERIES[0], 10)) == ids(plain_search(rest, QUERIES[0], 10))
    assert ids(index.search(QUERIES[0], 10)) == best
    assert best[0] not in changed
    assert set(changed.ids()) == rest.keys()


def test_a_changed_vector_is_found_at_its_new_place_and_by_earlier_states_at_its_old_place() -> None:
    vectors = items(500)
    before = grown(vectors)
    moved = rows(1, seed=8)[0]
    after = before.changed({numbered_id(3): moved})
    assert after.search(moved, 1) == [(numbered_id(3), 1.0)]
    assert before.search(vectors[numbered_id(3)], 1) == [(numbered_id(3), 1.0)]
    assert after.search(vectors[numbered_id(3)], 1)[0][0] != numbered_id(3)
    assert len(after) == len(before)
    assert before.search(vectors[numbered_id(3)], 1, {numbered_id(3)}) == [(numbered_id(3), 1.0)]
    assert np.array_equal(before.kept(numbered_id(3)), vectors[numbered_id(3)])


def test_states_derived_from_the_same_state_do_not_see_each_others_changes() -> None:
    base = grown(items(500))
    ours, theirs = rows(2, seed=9)
    left, right = base.changed({numbered_id(900): ours}), base.changed({numbered_id(900): theirs, numbered_id(1): None})
    for state in (left, right):
        index_upkeep.grow_graph(state, never)
    assert left.search(ours, 1) == [(numbered_id(900), 1.0)]
    assert right.search(theirs, 1) == [(numbered_id(900), 1.0)]
    assert numbered_id(1) in left
    assert numbered_id(1) not in right
    assert (len(left), len(right)) == (501, 500)


def test_an_earlier_state_finds_the_same_after_newer_vectors_moved_into_the_graph() -> None:
    early = grown(items(500))
    late = early.changed(items(300, first=1_000))
    before = [(early.search(query, 10), late.search(query, 10, exact=True)) for query in QUERIES]
    index_upkeep.grow_graph(late, never)
    assert late.log.graph is not None
    assert late.log.graph.count == 800
    assert not set(items(300, first=1_000)) & {
        item_id for query in QUERIES for item_id in ids(early.search(query, 500))
    }
    assert [(early.search(query, 10), late.search(query, 10)) for query in QUERIES] == before


def test_a_filter_is_kept_whether_few_or_many_are_allowed() -> None:
    vectors = items(1_000)
    index = grown(vectors)
    for share in (200, 10, 3, 2):
        allowed = set(list(vectors)[::share])
        for query in QUERIES:
            found = index.search(query, 5, allowed)
            assert ids(found) == ids(plain_search(vectors, query, 5, allowed))
    assert index.search(QUERIES[0], 5, {numbered_id(77_777)}) == []
    assert index.search(QUERIES[0], 5, set()) == []


def test_all_remaining_vectors_are_found_though_most_are_removed() -> None:
    index = grown(items(1_000))
    left = index.changed(dict.fromkeys(list(items(1_000))[:-60]))
    assert not left.is_exact
    assert len(left.search(QUERIES[0], 60)) == 60
    assert len(left.search(QUERIES[0], 1_000)) == 60


def test_a_ranking_lists_each_vector_once_best_first() -> None:
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
    wanted = [numbered_id(9), numbered_id(2), numbered_id(20)]
    found = index.rows(wanted)
    assert found.shape == (3, DIMENSIONS)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1, abs=1e-6)
    for row, item_id in zip(found, wanted, strict=True):
        assert index.search(row, 1)[0][0] == item_id
    with pytest.raises(KeyError):
        index.rows([numbered_id(31)])


def test_a_rebuilt_index_finds_the_same_without_removed_vectors() -> None:
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
def test_vectors_removed_a_month_ago_leave_the_graph(days: int, due: bool) -> None:
    vectors = items(1_500)
    index = grown(vectors)
    assert index.log.gone_since_s is None
    index = index.changed({numbered_id(3): None})
    index.log.gone_since_s = time.time() - days * 86_400
    assert index_upkeep.wants_rebuild(index) == due
    index.changed({numbered_id(4): None})
    assert index.log.gone_since_s < time.time() - 28 * 86_400, "the time of the first removal counts"
    fresh = index_upkeep.rebuilt(index, never)
    assert fresh is not None
    assert (fresh.log.size, fresh.log.gone_since_s) == (1_499, None)


def test_changes_during_a_rebuild_are_not_lost() -> None:
    vectors = items(1_500)
    index = grown(vectors).changed(dict.fromkeys(list(vectors)[:400]))
    fresh = index_upkeep.rebuilt(index, never)
    assert fresh is not None
    moved, added = rows(2, seed=11)
    now = index.changed({numbered_id(500): moved, numbered_id(501): None}).changed({numbered_id(9_000): added})
    caught_up = index_upkeep.caught_up(fresh, index, now)
    assert caught_up.log is fresh.log
    assert sorted(caught_up.ids()) == sorted(now.ids())
    for query in (*QUERIES, moved, added):
        assert caught_up.search(query, 10, exact=True) == now.search(query, 10, exact=True)


def test_an_interrupted_rebuild_changes_nothing() -> None:
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
    """Each state finds exactly its own vectors at every moment."""
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
        assert all(future.result() > 10 for future in searching)


def test_nothing_is_left_of_an_erased_vector() -> None:
    vectors = items(500)
    index = grown(vectors)
    query = vectors[numbered_id(3)]
    changed = index.changed({numbered_id(3): None}, erased=[numbered_id(3)])
    assert index_upkeep.has_erased(index.log)
    index_upkeep.blank_erased(index.log)
    assert not index_upkeep.has_erased(index.log)
    assert not index.log.rows(np.array([3])).any()
    graph = index.log.graph
    assert graph is not None
    assert not np.any(graph._vectors()[3])
    assert numbered_id(3) not in ids(changed.search(query, 100))
    assert index.search(query, 500, exact=True)[-1][1] < 1 - 1e-3
    rest = {item_id: row for item_id, row in vectors.items() if item_id != numbered_id(3)}
    assert ids(changed.search(QUERIES[0], 5)) == ids(plain_search(rest, QUERIES[0], 5))


def test_no_earlier_vector_of_an_erased_id_is_left_either() -> None:
    """This holds if the id had another vector before or was removed before, and each vector is blanked once."""
    moved, again = rows(2, seed=11)
    index = grown(items(500)).changed({numbered_id(3): moved}).changed({numbered_id(4): None})
    former = sorted(index.former())
    assert former == [numbered_id(3), numbered_id(4)]
    changed = index.changed(
        {numbered_id(3): None, numbered_id(5): again}, erased=[numbered_id(3), numbered_id(4), numbered_id(5)]
    )
    changed = changed.changed({numbered_id(6): None}, erased=[numbered_id(4), numbered_id(6)])
    log = changed.log
    assert log.erased == [3, 4, 5, 500, 6]
    index_upkeep.blank_erased(log)
    assert log.graph is not None
    assert not log.rows(np.array([3, 4, 5, 6, 500])).any()
    assert not np.any(log.graph._vectors()[3:7])
    assert changed.search(again, 1) == [(numbered_id(5), 1.0)]


def test_a_vector_erased_during_a_rebuild_is_not_in_the_rebuilt_index() -> None:
    index = grown(items(1_500))
    fresh = index_upkeep.rebuilt(index, never)
    assert fresh is not None
    now = index.changed({numbered_id(3): None}, erased=[numbered_id(3)])
    caught_up = index_upkeep.caught_up(fresh, index, now)
    assert index_upkeep.has_erased(caught_up.log)
    assert not caught_up.log.rows(np.array([3])).any()


def test_vectors_of_another_length_are_accepted_only_by_an_empty_index() -> None:
    index = index_of(items(5))
    longer = rows(1, dimensions=2 * DIMENSIONS)[0]
    with pytest.raises(AssertionError, match="wrong length"):
        index.changed({numbered_id(9): longer})
    changed = index.changed(dict.fromkeys(items(5)) | {numbered_id(9): longer})
    assert changed.dimensions == 2 * DIMENSIONS
    assert changed.search(longer, 3) == [(numbered_id(9), 1.0)]


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_vectors_with_nan_or_infinity_are_refused(broken: float) -> None:
    row = rows(1)[0].copy()
    row[3] = broken
    with pytest.raises(AssertionError, match="not made of numbers"):
        index_of({numbered_id(1): row})
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
