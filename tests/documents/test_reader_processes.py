"""Workers give the same results as this process, in order, and only a bounded number of results waits."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest

from drillcore_server.documents.ingestion import reader_pool
from drillcore_server.documents.ingestion.digest import (
    Content,
    DigestedDocument,
    DocumentQuestion,
    InProcessReaders,
    content_hash,
)
from drillcore_server.documents.ingestion.prepared_documents import builtin_preparer
from drillcore_server.documents.ingestion.reader_pool import ResultQueue, Workers
from drillcore_server.documents.ingestion.reader_process import WorkerSettings
from drillcore_server.documents.parsers import Unparsable
from drillcore_server.kernel.errors import Unavailable

RULE = "# Records\n\nThe operator shall keep records of Regulation (EU) 2016/679 for 5 years.\n\nNo EUR 500 is paid."
LINES = [{"id": f"{number}", "text": f"Rule {number}. {RULE}"} for number in range(200)]
JSON_LINES = "\n".join([*map(json.dumps, LINES[:100]), "no json", *map(json.dumps, LINES[100:])])


@pytest.fixture(scope="module")
def pool() -> Iterator[Workers]:
    found = Workers(2, 60.0, WorkerSettings(None, 2 << 30))
    yield found
    found.close()


def nothing_known(asked: Sequence[DocumentQuestion]) -> list[str | None]:
    return [None] * len(asked)


@pytest.mark.parametrize(
    "content",
    [
        Content(RULE.encode(), "rule.md", ""),
        Content(b"<html><body><h1>Rule</h1><p>It must be so.</p></body></html>", "", "text/html"),
        Content(JSON_LINES.encode(), "rules.jsonl", ""),
        Content(b"\x00\x01\x02" * 100, "binary.bin", ""),
        Content(b"", "empty.txt", ""),
    ],
    ids=lambda content: content.name or "page",
)
def test_a_worker_finds_what_this_process_finds(pool: Workers, content: Content) -> None:
    in_process = InProcessReaders(builtin_preparer().digester)
    expected = list(in_process.begin(content, nothing_known).results())
    assert list(pool.begin(content, nothing_known).results()) == expected
    assert expected


def test_documents_that_have_not_changed_are_not_digested(pool: Workers) -> None:
    asked: list[DocumentQuestion] = []

    def known(batch: Sequence[DocumentQuestion]) -> list[str | None]:
        asked.extend(batch)
        texts = {line["id"]: line["text"] for line in LINES[::2]}
        return [
            content_hash(texts[document.external_id]) if document.external_id in texts else None for document in batch
        ]

    found = list(pool.begin(Content(JSON_LINES.encode(), "rules.jsonl", ""), known).results())
    documents = [result for result in found if isinstance(result, DigestedDocument)]
    assert [(document.unchanged, bool(document.chunks)) for document in documents] == [
        (True, False),
        (False, True),
    ] * 100
    assert [document.external_id for document in asked if not document.is_the_upload] == [line["id"] for line in LINES]


def test_results_beyond_the_bound_wait_in_the_worker(pool: Workers) -> None:
    with mock.patch.object(reader_pool, "UNREAD_BYTES_MAX", 10_000):
        reading = pool.begin(Content(JSON_LINES.encode(), "rules.jsonl", ""), nothing_known)
    results = reading.results()
    first = next(results)
    assert isinstance(first, DigestedDocument)
    assert first.external_id == "0"
    assert len([result for result in results if not isinstance(result, Unparsable)]) == 199


def test_uploads_that_wait_for_each_others_workers_all_end() -> None:
    """Two calls with more uploads than there are workers, and none of their results fit the bound."""
    with mock.patch.object(reader_pool, "UNREAD_BYTES_MAX", 1_000):
        pool = Workers(2, 60.0, WorkerSettings(None, 2 << 30))
        content = Content("\n".join(map(json.dumps, LINES[:20])).encode(), "rules.jsonl", "")

        def call() -> int:
            readings = [pool.begin(content, nothing_known) for _ in range(4)]
            return sum(len(list(reading.results())) for reading in readings)

        with ThreadPoolExecutor(2) as callers:
            calls = [callers.submit(call) for _ in range(2)]
            assert [future.result(timeout=30) for future in calls] == [80, 80]
        pool.close()


def test_a_caller_who_waits_for_results_is_refused_when_the_pool_closes() -> None:
    pool = Workers(1, 60.0, WorkerSettings(None, 2 << 30))
    readings = [pool.begin(Content((RULE + "\n\n").encode() * 20_000, "long.md", ""), nothing_known) for _ in range(2)]
    pool.close()
    for reading in readings:
        with pytest.raises(Unavailable):
            list(reading.results())
    with pytest.raises(Unavailable):
        pool.begin(Content(b"late", "late.txt", ""), nothing_known)


def test_a_failed_lookup_of_known_documents_reaches_the_waiting_caller(pool: Workers) -> None:
    def known(_: Sequence[DocumentQuestion]) -> list[str | None]:
        raise LookupError("the store is gone")

    with pytest.raises(LookupError, match="the store is gone"):
        list(pool.begin(Content(RULE.encode(), "rule.md", ""), known).results())
    assert list(pool.begin(Content(RULE.encode(), "rule.md", ""), nothing_known).results())


def test_a_result_queue_holds_no_more_than_its_bound() -> None:
    queue = ResultQueue(10)
    assert queue.put(b"a" * 11)
    last = threading.Thread(target=queue.put, args=(b"b",))
    last.start()
    last.join(timeout=0.1)
    assert last.is_alive(), "the second result waits"
    messages = iter(queue)
    assert next(messages) == b"a" * 11
    last.join(timeout=10)
    queue.end()
    assert list(messages) == [b"b"]


def test_a_result_queue_that_has_ended_takes_nothing_and_raises_its_error_last() -> None:
    queue = ResultQueue(10)
    assert queue.put(b"a")
    queue.end(ValueError("first"))
    queue.end(ValueError("second"))
    assert not queue.put(b"b")
    messages = iter(queue)
    assert next(messages) == b"a"
    with pytest.raises(ValueError, match="first"):
        next(messages)
