"""Queries find every matching record, whether it is in the log yet or not, page by page and in either order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice, product
from pathlib import Path
from uuid import UUID

import orjson
import pytest

from drillcore_fdb.engine import Transaction
from drillcore_fdb.round_trips import counted
from drillcore_formats.audit.leaves import SERVER_LOG
from drillcore_server.audit import log_store as audit_log
from drillcore_server.audit import search as search_module
from drillcore_server.audit.search import AuditFilter, FoundRecord, LogSearch
from drillcore_server.kernel.access import Principal, PrincipalKind
from drillcore_server.kernel.trail import Trail
from drillcore_server.storage.ids import CorpusId, DocumentId, NodeId, PrincipalId, RecordId
from tests.support.stores.audited import OTHER, TENANT, Audited, audited

START = datetime(2026, 1, 1, tzinfo=UTC)
CORPORA = [CorpusId(UUID(int=number)) for number in range(10, 13)]
NODES = [NodeId(UUID(int=number)) for number in range(20, 26)]
DOCUMENTS = [DocumentId(UUID(int=number)) for number in range(30, 33)]
OPERATORS = ["alice", "bob", "a very long name " * 10]
ACTIONS = ["GetCorpus", "UpdateCorpus", "DeleteCorpus"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    with audited(tmp_path_factory.mktemp("search") / "store") as opened:
        yield opened


@pytest.fixture(scope="module")
def made(store: Audited) -> list[dict[str, object]]:
    """Bodies of a tenant's records, in the order of the commits; the last 40 are not in the log yet."""
    dice = random.Random(9)
    for number in range(200):
        touched = dice.choice(CORPORA), dice.sample(NODES, 2), dice.choice([None, *DOCUMENTS])

        def touch(trail: Trail, touched: tuple[CorpusId, list[NodeId], DocumentId | None] = touched) -> None:
            trail.touch_corpus(touched[0])
            trail.touch_node_ids(touched[1])
            trail.touch_documents([touched[2]] if touched[2] else [])

        principal = Principal(PrincipalId(dice.choice(OPERATORS)), None, PrincipalKind.SERVER)
        # These calls took long: their times are not in the order of their commits.
        at = START + timedelta(minutes=number * 10 - dice.choice([0, 0, 0, 500]))
        call = store.call(dice.choice(ACTIONS), f"made-{number}", principal, at=at)
        store.record(dice.choice([TENANT, TENANT, OTHER]), touch, call)
        # Several calls within an hour, so that the records of an hour come in more than one batch.
        if number % 4 == 3 and number < 155:
            store.sequence()
    return [orjson.loads(store.opener.body(record)[1]) for _, record in store.stored() if record.log == TENANT]


def search(store: Audited) -> LogSearch:
    return LogSearch(store.keys, store.opener, store.terms)


def ids(found: list[FoundRecord]) -> list[str]:
    return [str(record.opened.leaf.record) for record in found]


def asked(body: dict[str, object], wanted: AuditFilter) -> bool:
    at = datetime.fromisoformat(str(body["at"]))
    return (
        (wanted.corpus is None or str(wanted.corpus) in body.get("corpora", {}))  # type: ignore[operator]
        and (wanted.node is None or str(wanted.node) in [*body.get("nodes", []), *body.get("documents", [])])  # type: ignore[misc]
        and wanted.operator in {"", body["operator"]}
        and wanted.action in {"", body["action"]}
        and wanted.request_id in {"", body["request_id"]}
        and (wanted.since is None or at >= wanted.since)
        and (wanted.until is None or at < wanted.until)
        and (wanted.record is None or str(wanted.record) == body["id"])
    )


FILTERS = [
    AuditFilter(),
    *(AuditFilter(corpus=corpus) for corpus in CORPORA),
    AuditFilter(node=NODES[0]),
    AuditFilter(node=DOCUMENTS[1]),
    *(AuditFilter(operator=operator) for operator in OPERATORS),
    AuditFilter(action="UPDATE"),
    AuditFilter(request_id="made-199"),
    AuditFilter(request_id="made-3"),
    AuditFilter(operator="alice", action="DELETE", corpus=CORPORA[1]),
    AuditFilter(node=NODES[3], operator="bob"),
    AuditFilter(since=START + timedelta(hours=5)),
    AuditFilter(until=START + timedelta(hours=9, minutes=20)),
    AuditFilter(since=START + timedelta(hours=5), until=START + timedelta(hours=9)),
    AuditFilter(since=START + timedelta(hours=20), until=START + timedelta(hours=32), operator="alice"),
    AuditFilter(since=START + timedelta(days=400)),
    AuditFilter(until=START - timedelta(days=400)),
    AuditFilter(since=START + timedelta(hours=6), until=START + timedelta(hours=5)),
    AuditFilter(operator="nobody"),
    AuditFilter(corpus=UUID(int=999)),
]


@pytest.mark.parametrize(("wanted", "oldest_first"), list(product(FILTERS, [True, False])))
def test_a_filter_finds_just_the_records_that_match_in_order(
    store: Audited, made: list[dict[str, object]], wanted: AuditFilter, oldest_first: bool
) -> None:
    expected = [body["id"] for body in made if asked(body, wanted)]
    found = store.run(lambda tr: list(search(store).find(tr.snapshot, TENANT, wanted, oldest_first=oldest_first)))
    assert ids(found) == (expected if oldest_first else expected[::-1])


def test_the_filters_of_these_tests_find_something_in_the_log_and_after_it(
    store: Audited, made: list[dict[str, object]]
) -> None:
    found = store.run(lambda tr: list(search(store).find(tr.snapshot, TENANT, AuditFilter(operator="alice"))))
    assert {record.index is None for record in found} == {True, False}
    assert 10 < len(found) < len(made)


def test_a_record_is_found_by_its_id_in_its_own_log_only(store: Audited, made: list[dict[str, object]]) -> None:
    for body in (made[0], made[-1]):
        record = RecordId(UUID(str(body["id"])))
        found = store.run(lambda tr, record=record: search(store).get(tr.snapshot, TENANT, record))  # type: ignore[misc]
        assert found is not None
        assert orjson.loads(found.opened.body) == body
        assert store.run(lambda tr, record=record: search(store).get(tr.snapshot, OTHER, record)) is None  # type: ignore[misc]


@pytest.mark.parametrize("oldest_first", [True, False])
def test_pages_leave_nothing_out_though_records_come_and_are_put_in_order_meanwhile(
    tmp_path: Path, oldest_first: bool
) -> None:
    with audited(tmp_path / "store") as store:
        records = [store.record() for _ in range(20)]
        store.sequence()
        records += [store.record() for _ in range(20)]
        seen: list[str] = []
        cursor: bytes | None = None
        page_number = 0
        while True:
            page = store.run(
                lambda tr, cursor=cursor: list(  # type: ignore[misc]
                    islice(
                        search(store).find(tr, SERVER_LOG, AuditFilter(), oldest_first=oldest_first, after=cursor), 7
                    )
                )
            )
            if not page:
                break
            seen += ids(page)
            cursor = page[-1].cursor
            page_number += 1
            if page_number == 2:
                store.sequence()
                store.record()
        expected = list(map(str, records))
        assert seen[: len(expected)] == (expected if oldest_first else expected[::-1])
        assert len(seen) == len(expected) + (1 if oldest_first else 0)


def test_a_log_that_stopped_still_shows_later_records(tmp_path: Path) -> None:
    with audited(tmp_path / "store") as store:
        first = store.record()
        store.sequence()
        store.run(lambda tr: audit_log.set_head(tr, store.keys, SERVER_LOG, _stopped(store)))
        later = [store.record(), store.record()]
        store.sequence()
        found = store.run(lambda tr: list(search(store).find(tr, SERVER_LOG, AuditFilter(), oldest_first=True)))
        assert ids(found) == list(map(str, [first, *later]))
        assert [record.index for record in found] == [0, None, None]


@pytest.mark.parametrize("reverse", [False, True])
def test_records_of_all_buckets_come_in_the_order_of_their_commits_however_many_are_read_at_once(
    store: Audited, made: list[dict[str, object]], reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def places(after: audit_log.Place) -> list[audit_log.Place]:
        found = store.run(lambda tr: list(audit_log.records_after(tr, store.keys, after, 1, reverse=reverse)))
        return [(position.incarnation, position.versionstamp) for position, _ in found]

    monkeypatch.setattr(audit_log, "_FROM_EACH_BUCKET", 1_000)
    whole = places(audit_log.BEGINNING)
    assert len(whole) >= len(made)
    assert whole == sorted(whole, reverse=reverse)
    monkeypatch.setattr(audit_log, "_FROM_EACH_BUCKET", 3)
    assert places(audit_log.BEGINNING) == whole
    for after in whole[::17]:
        assert places(after) == [place for place in whole if place > after]


def test_a_page_of_records_takes_as_many_round_trips_as_one_record(
    store: Audited, made: list[dict[str, object]]
) -> None:
    def trips(wanted: AuditFilter, count: int) -> int:
        with counted() as total:
            found = store.run(lambda tr: list(islice(search(store).in_log(tr.snapshot, TENANT, wanted), count)))
        assert len(found) == count
        return total.count

    for wanted in (AuditFilter(), AuditFilter(operator="alice"), AuditFilter(operator="alice", action="ACCESS")):
        assert trips(wanted, 10) == trips(wanted, 1) <= 7


@pytest.mark.parametrize("oldest_first", [True, False])
def test_a_search_that_tries_much_in_vain_stops_and_goes_on_where_it_stopped(
    store: Audited, made: list[dict[str, object]], oldest_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "TRIED_MAX", 10)
    monkeypatch.setattr(search_module, "_TRIED_TOGETHER", 5)
    for wanted in (
        AuditFilter(operator="alice", action="DELETE", corpus=CORPORA[1]),
        AuditFilter(operator="bob", since=START + timedelta(hours=5)),
    ):
        found: list[FoundRecord] = []
        stops: list[bytes] = [b""]
        for stop in stops:
            found += _up_to_a_stop(store, wanted, oldest_first, stop or None, stops)
        expected = [body["id"] for body in made if asked(body, wanted)]
        assert ids(found) == (expected if oldest_first else expected[::-1])
        assert len(stops) > 2


@pytest.mark.parametrize(("limit", "value"), [("TRIED_MAX", 3), ("TRIED_BYTES_MAX", 1_000)])
@pytest.mark.parametrize("oldest_first", [True, False])
@pytest.mark.parametrize("sequenced_after", [1, 3, None])
def test_a_search_among_waiting_records_of_other_logs_stops_and_goes_on(
    tmp_path: Path,
    oldest_first: bool,
    limit: str,
    value: int,
    sequenced_after: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search_module, limit, value)
    with audited(tmp_path / "store") as store:
        mine: list[RecordId] = []
        for number in range(40):
            record = store.record(TENANT if number in {2, 3, 20, 31} else OTHER)
            mine += [record] if number in {2, 3, 20, 31} else []
            if number == 9:
                store.sequence()
        found: list[FoundRecord] = []
        stops: list[bytes] = [b""]
        for page, stop in enumerate(stops, 1):
            found += _up_to_a_stop(store, AuditFilter(), oldest_first, stop or None, stops)
            if page == sequenced_after:
                store.sequence()
        assert len(stops) > (sequenced_after or 5)
    assert ids(found) == list(map(str, mine if oldest_first else mine[::-1]))


def test_it_is_not_said_that_a_record_is_missing_if_many_others_wait(
    store: Audited, made: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing, placed = RecordId(UUID(int=1)), RecordId(UUID(str(made[0]["id"])))
    assert not store.run(lambda tr: search(store).may_be_waiting(tr.snapshot, TENANT, missing))
    monkeypatch.setattr(search_module, "TRIED_MAX", 10)
    assert store.run(lambda tr: search(store).may_be_waiting(tr.snapshot, TENANT, missing))
    assert store.run(lambda tr: search(store).get(tr.snapshot, TENANT, placed)) is not None


def _up_to_a_stop(
    store: Audited, wanted: AuditFilter, oldest_first: bool, after: bytes | None, stops: list[bytes]
) -> list[FoundRecord]:
    """What a search finds until it has tried enough. Then it adds the cursor where it stopped to `stops`."""

    def work(tr: Transaction) -> list[FoundRecord]:
        found = search(store).find(tr.snapshot, TENANT, wanted, oldest_first=oldest_first, after=after)
        return list(search_module.until_enough(found, stops))

    return store.run(work)


def _stopped(store: Audited) -> audit_log.Head:
    return replace(store.head(), problem="damaged")


def test_keys_of_the_indexes_do_not_reveal_who_did_what(store: Audited, made: list[dict[str, object]]) -> None:
    keys = store.run(lambda tr: b"".join(key for key, _ in tr.range(*store.keys.audit_indexed(TENANT, 3, b""))))
    assert keys
    assert b"alice" not in keys
