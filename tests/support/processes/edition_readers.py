"""Readers of a corpus in editions, in a process of their own: `python -m tests.support.processes.edition_readers PLAN`.

The readers read through gRPC without pause, each in its own way, from when they print "reading" until stdin closes,
and then once more. All of an answer, and all pages of a listing, must be of one edition and complete. A reader that
begins after another has seen an edition must see that edition or a later one. At the end they print what they saw.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import UUID

import numpy as np
import pytest

from drillcore import Client, Entity, Hit, Level, Node
from drillcore._api.documents import Document
from tests.support.processes.editions import DIMENSIONS, GROUPS, MODEL, RAWS, Edition, Size, mentioned
from tests.support.processes.killed import process

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
MENTIONS = {Level.MASTER: 12, Level.SECTION: 5, Level.CHUNK: 5, Level.RAW: 1}
"""How often a node of a hierarchy that was put names its edition."""
PAGE_SIZE = 60
LONG_PAGE_SIZE = 500
THREADS = 2
"""How many threads read at once. Each has ways of reading of its own."""


@dataclass(frozen=True)
class Plan:
    """The server, the corpus and its expected size."""

    address: str
    token_file: str
    tenant_id: str
    corpus_id: str
    documents: int
    put: Size | None
    """The size of the hierarchy that was put; None if documents were added instead."""


class SomePage(Protocol[T_co]):
    @property
    def items(self) -> Sequence[T_co]: ...
    @property
    def next_page_token(self) -> str: ...


@dataclass
class Seen:
    """What a way of reading has seen so far."""

    answers: int = 0
    slowest_s: float = 0.0
    slowest_call: str = ""
    editions: list[int] = field(default_factory=list)


Way = Callable[[Seen], int]
"""Reads for a while and returns the edition that everything it read was of."""


class Readers:
    def __init__(self, client: Client, plan: Plan) -> None:
        self.client = client
        self.plan = plan
        self.corpus = UUID(plan.corpus_id)
        self.master = client.query(level=Level.MASTER, corpus_ids=[self.corpus]).items[0].node.id
        self.latest = 0
        """The newest edition that any reader has seen."""
        self.stop = threading.Event()
        self._turn = 0

    def timed(self, seen: Seen, name: str, call: Callable[..., T], *args: Any, **options: Any) -> T:
        started = time.perf_counter()
        answer = call(*args, timeout_s=60.0, **options)
        took_s = time.perf_counter() - started
        seen.answers += 1
        if took_s > seen.slowest_s:
            seen.slowest_s, seen.slowest_call = took_s, name
        return answer

    def listed(
        self, seen: Seen, name: str, call: Callable[..., SomePage[T]], *args: Any, page_size: int, **options: Any
    ) -> list[T]:
        """All items, page by page."""
        items: list[T] = []
        token = ""
        while True:
            page = self.timed(seen, name, call, *args, page_size=page_size, page_token=token, **options)
            items += page.items
            token = page.next_page_token
            if not token:
                return items

    def next_turn(self) -> int:
        self._turn += 1
        return self._turn

    def read_on(self, ways: Mapping[str, Way], ready: threading.Barrier) -> dict[str, Seen]:
        """Reads in each of these ways in turn until told to stop, and then once more."""
        seen = {name: Seen() for name in ways}

        def read_all() -> None:
            for name, way in ways.items():
                self._read(way, seen[name])

        try:
            read_all()
            ready.wait()
            while not self.stop.is_set():
                read_all()
            read_all()
        except BaseException:
            ready.abort()
            raise
        return seen

    def _read(self, way: Way, seen: Seen) -> None:
        floor = self.latest
        edition = way(seen)
        assert edition >= floor, f"edition {edition} was read after {floor}"
        self.latest = max(self.latest, edition)
        if edition not in seen.editions:
            seen.editions.append(edition)


def edition_of(said: Sequence[object], times: int | None = None) -> int:
    """The edition that everything in `said` is of."""
    assert said, "nothing was read"
    counts = [mentioned(text) for text in said]
    editions = {number for found in counts for number in found}
    assert len(editions) == 1, f"the answer is of several editions: {editions}"
    for text, found in zip(said, counts, strict=True):
        assert found if times is None else len(found) == times, f"{len(found)} mentions in {text!r}"
    return editions.pop()


def edition_of_nodes(nodes: Sequence[Node], revision: int | None = None, *, put: bool = True) -> int:
    """The edition of nodes of one level, all read at the revision that has it."""
    assert nodes, "there are no nodes"
    assert len({node.id for node in nodes}) == len(nodes), "a node is there twice"
    edition = edition_of([node.content for node in nodes], MENTIONS[nodes[0].level] if put else None)
    assert {node.revision for node in nodes} == {edition if revision is None else revision}
    assert revision in {None, edition}
    return edition


def edition_of_documents(documents: Sequence[Document], count: int) -> int:
    edition = edition_of([(document.title, document.metadata) for document in documents])
    assert len({document.id for document in documents}) == len(documents) == count
    assert {document.revision for document in documents} == {edition}
    return edition


class PutReaders(Readers):
    """Readers of a hierarchy that was put, so that everything in it is known."""

    @property
    def size(self) -> Size:
        assert self.plan.put is not None
        return self.plan.put

    def ways(self) -> dict[str, Way]:
        return {
            "GetNode": self.with_children,
            "Query by category": self.by_category,
            "Query by entity": self.by_entity,
            "Query by vector": self.by_vector,
            "DrillDown level by level": self.level_by_level,
            "DrillDown to all chunks": self.all_chunks,
            "documents": self.documents,
        }

    def with_children(self, seen: Seen) -> int:
        master = self.timed(seen, "master", self.client.get_node, self.master)
        edition = edition_of_nodes([master])
        assert set(master.child_ids) == Edition(edition, self.size).sections()
        return edition

    def by_category(self, seen: Seen) -> int:
        names = ["edition 1", "edition 2"]
        hits = self._query(seen, "sections", level=Level.SECTION, categories=names)
        edition = edition_of_nodes([hit.node for hit in hits])
        assert {hit.node.id for hit in hits} == Edition(edition, self.size).sections()
        return edition

    def by_entity(self, seen: Seen) -> int:
        group = self.next_turn() % GROUPS
        hits = self._query(seen, "chunks of a group", entities=[Entity("group", str(group))])
        edition = edition_of_nodes([hit.node for hit in hits])
        assert {hit.node.id for hit in hits} == Edition(edition, self.size).group(group)
        return edition

    def by_vector(self, seen: Seen) -> int:
        """Scores show whose vectors were compared."""
        sought = np.random.default_rng(self.next_turn()).normal(size=DIMENSIONS)
        sought /= np.linalg.norm(sought)
        found = self.timed(
            seen,
            "best chunks",
            self.client.query,
            vector=sought.tolist(),
            embedding_model=MODEL,
            corpus_ids=[self.corpus],
            page_size=20,
        )
        edition = edition_of_nodes([hit.node for hit in found.items])
        best = np.sort(Edition(edition, self.size).vectors() @ sought)[::-1][:20]
        # A stored vector has a byte for each component, which moves a score a little.
        assert [hit.score for hit in found.items] == pytest.approx(best.tolist(), abs=1e-2)
        return edition

    def level_by_level(self, seen: Seen) -> int:
        """Reads from the master down to the raws, at the revision of the first answer."""
        sections = self.listed(
            seen, "sections", self.client.drill_down, self.master, Level.SECTION, page_size=PAGE_SIZE
        )
        edition = edition_of_nodes(sections)
        wanted = Edition(edition, self.size)
        assert {node.id for node in sections} == wanted.sections()
        place = self.next_turn() % self.size.sections
        section = wanted.id_of("section", place)
        chunks = self._below(seen, "chunks", section, Level.CHUNK, edition)
        assert {node.id for node in chunks} == wanted.members(place)
        raws = self._below(seen, "raws", section, Level.RAW, edition)
        assert len(raws) == len(chunks) * RAWS
        of_one = self._below(seen, "raws of a chunk", chunks[0].id, Level.RAW, edition)
        assert {node.parent_id for node in of_one} == {chunks[0].id}
        assert len(of_one) == RAWS
        return edition

    def all_chunks(self, seen: Seen) -> int:
        """Reads slowly, so that an update happens in the middle."""
        chunks = self.listed(
            seen, "a page of all chunks", self.client.drill_down, self.master, Level.CHUNK, page_size=LONG_PAGE_SIZE
        )
        assert len(chunks) == self.size.chunks
        return edition_of_nodes(chunks)

    def documents(self, seen: Seen) -> int:
        found = self.listed(seen, "list", self.client.list_documents, self.corpus, page_size=PAGE_SIZE)
        edition = edition_of_documents(found, self.plan.documents)
        document = found[self.next_turn() % len(found)].id
        whole = self.timed(seen, "text", self.client.get_document, self.corpus, document, as_of=edition, with_text=True)
        assert whole.text is not None
        said = mentioned(whole.text)
        assert (set(said), len(said)) == ({edition}, self.size.chunks_per_document * RAWS)
        return edition

    def _query(self, seen: Seen, name: str, **options: Any) -> list[Hit]:
        return self.listed(seen, name, self.client.query, corpus_ids=[self.corpus], page_size=PAGE_SIZE, **options)

    def _below(self, seen: Seen, name: str, node: UUID, level: Level, edition: int) -> list[Node]:
        found = self.listed(seen, name, self.client.drill_down, node, level, page_size=PAGE_SIZE, as_of=edition)
        assert edition_of_nodes(found) == edition
        return found


class AddReaders(Readers):
    """Readers of documents that were added. The server has made their nodes."""

    def ways(self) -> dict[str, Way]:
        return {
            "GetNode": self.with_children,
            "Query by text": self.by_text,
            "DrillDown to all chunks": self.all_chunks,
            "documents": self.documents,
        }

    def with_children(self, seen: Seen) -> int:
        master = self.timed(seen, "master", self.client.get_node, self.master)
        edition = edition_of_nodes([master], put=False)
        sections = self.listed(
            seen, "sections", self.client.drill_down, self.master, Level.SECTION, page_size=PAGE_SIZE, as_of=edition
        )
        assert edition_of_nodes(sections, edition, put=False) == edition
        assert len(sections) == master.child_count
        return edition

    def by_text(self, seen: Seen) -> int:
        found = self.timed(
            seen, "best chunks", self.client.query, f"rule {self.next_turn()}", corpus_ids=[self.corpus], page_size=50
        )
        return edition_of_nodes([hit.node for hit in found.items], put=False)

    def all_chunks(self, seen: Seen) -> int:
        chunks = self.listed(
            seen, "a page of all chunks", self.client.drill_down, self.master, Level.CHUNK, page_size=LONG_PAGE_SIZE
        )
        edition = edition_of_nodes(chunks, put=False)
        master = self.timed(seen, "master", self.client.get_node, self.master, as_of=edition)
        assert len(chunks) == master.content.statistics.chunks  # type: ignore[union-attr]
        return edition

    def documents(self, seen: Seen) -> int:
        found = self.listed(seen, "list", self.client.list_documents, self.corpus, page_size=PAGE_SIZE)
        edition = edition_of_documents(found, self.plan.documents)
        document = found[self.next_turn() % len(found)].id
        whole = self.timed(seen, "text", self.client.get_document, self.corpus, document, as_of=edition, with_text=True)
        assert set(mentioned(whole.text)) == {edition}
        return edition


def opened(plan: Plan) -> Client:
    return Client(plan.address, token=Path(plan.token_file).read_text().strip(), tenant_id=plan.tenant_id)


def read_once(plan: Plan) -> dict[str, int]:
    """The edition that each way of reading finds now."""
    with opened(plan) as client:
        return {name: way(Seen()) for name, way in _readers(client, plan).ways().items()}


def _readers(client: Client, plan: Plan) -> PutReaders | AddReaders:
    return PutReaders(client, plan) if plan.put is not None else AddReaders(client, plan)


@dataclass
class Reading:
    """What each way of reading has seen, once the block has ended."""

    seen: dict[str, Seen] = field(default_factory=dict)


@contextmanager
def reading(plan: Plan) -> Iterator[Reading]:
    """Readers at work during the block. Raises AssertionError at its end if they read something wrong."""
    result = Reading()
    with process("-m", "tests.support.processes.edition_readers", json.dumps(asdict(plan))) as readers:
        assert readers.stdin is not None
        assert readers.stdout is not None
        assert readers.stdout.readline() == b"reading\n"
        yield result
        readers.stdin.close()
        written = readers.stdout.read()
        assert readers.wait() == 0, "a reader failed; stderr says why"
        result.seen.update({name: Seen(**seen) for name, seen in json.loads(written).items()})


def main(written: str) -> None:
    fields = json.loads(written)
    plan = Plan(**{**fields, "put": Size(**fields["put"]) if fields["put"] else None})
    with opened(plan) as client:
        readers = _readers(client, plan)
        ways = list(readers.ways().items())
        ready = threading.Barrier(THREADS + 1)
        with ThreadPoolExecutor(THREADS) as threads:
            found = [threads.submit(readers.read_on, dict(ways[thread::THREADS]), ready) for thread in range(THREADS)]
            try:
                ready.wait()
                print("reading", flush=True)
                sys.stdin.read()
            except threading.BrokenBarrierError:
                pass  # the reader that failed says why
            finally:
                readers.stop.set()
            print(json.dumps({name: asdict(seen) for result in found for name, seen in result.result().items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
