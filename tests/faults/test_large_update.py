"""An update of any size is atomic, both for concurrent readers and when the server is killed in the middle.

The test runs a real server, a client, and readers in processes of their own. DRILLCORE_SOAK=1 takes 200 MB of text in
100,000 nodes, and 21 MB of documents. Otherwise it takes a hundredth, and the limits of small revisions are lower.
Run it with -s to see sizes, times and the server's memory.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import CliRunner

from drillcore import AddResult, Client, DocumentOutcome, Progress, PutProgress, PutResult, Unavailable
from drillcore.cli import main
from drillcore_fdb.engine import Transaction
from drillcore_server.app.config import EngineSettings
from drillcore_server.app.factories import open_engine
from drillcore_server.kernel import corpus_store as corpora
from drillcore_server.kernel import revisions
from drillcore_server.storage.ids import CorpusId, TenantId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.store import open_store
from tests.support.paths import ROOT
from tests.support.processes.drillcore_process import Serving, serving
from tests.support.processes.edition_readers import Plan, Seen, read_once, reading
from tests.support.processes.editions import MODEL, RAWS, Edition, Size, documents
from tests.support.processes.memory import Peak, own_bytes, peak_of

SOAK = os.environ.get("DRILLCORE_SOAK") == "1"
HIERARCHY = Size(300, 399, 83, 2_680) if SOAK else Size(6, 15, 41, 2_720)
DOCUMENTS, DOCUMENT_CHARACTERS = (1_400, 15_000) if SOAK else (25, 5_000)
ADDED_CHARACTERS = DOCUMENTS * DOCUMENT_CHARACTERS
KILLED_AT = 40 if SOAK else 10
"""The batch before which the server is killed: some batches are staged, many are not."""
LIMITS = ("0", "0", "0") if SOAK else ("10000", "40000", "1")
"""The limits of a small revision and of a batch, and how long a dead writer's claim lasts. 0: unchanged."""
SERVER = [sys.executable, str(ROOT / "tests/support/processes/telling_server.py"), *LIMITS]
NO_COMMUNITIES = {"DRILLCORE_COMMUNITIES_NEW_FACTS_MIN": "1000000"}
"""Without this, the server would make revisions of its own for communities. Here a revision is an edition."""
MIB = 1 << 20


@dataclass(frozen=True)
class Corpus:
    """An embedded store with a corpus, and the server on it."""

    directory: Path
    tenant: UUID
    id: UUID

    @contextmanager
    def served(self) -> Iterator[tuple[Serving, Client]]:
        with serving(self.directory, command=SERVER, **NO_COMMUNITIES) as server, server.client() as client:
            yield server, client

    def plan(self, server: Serving, documents: int, put: Size | None) -> Plan:
        token = server.document["serving"]["token_file"]
        return Plan(server.address, token, str(self.tenant), str(self.id), documents, put)

    def staged(self) -> tuple[bool, int]:
        """Whether the next revision is claimed, and how many of its batches are staged. Only while no server runs."""
        engine = open_engine(EngineSettings(data_dir=self.directory / "data"))
        try:
            root, _ = open_store(engine)
            space = Keyspace(root)

            def work(tr: Transaction) -> tuple[bool, int]:
                keys = space.of_corpus(corpora.get(tr, space, TenantId(self.tenant), CorpusId(self.id)).number)
                return revisions.get_claim(tr, keys) is not None, len(list(tr.range(*keys.all_staged())))

            return engine.run(work)
        finally:
            engine.close()

    def assert_agrees(self) -> None:
        """Asserts that `drillcore fsck` finds no problem."""
        checked = CliRunner(env={"DRILLCORE_SOAK": None}).invoke(
            main, ["fsck", "--json", "--data-dir", str(self.directory / "data")]
        )
        assert checked.exit_code == 0, checked.output
        assert json.loads(checked.stdout)["corpora"] == 1


class Clock:
    """Notes when something happened, in seconds since the start."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self.at_s: dict[str, float] = {}

    def note(self, event: str) -> None:
        self.at_s[event] = round(time.perf_counter() - self._started, 1)


@contextmanager
def new_corpus(directory: Path) -> Iterator[tuple[Corpus, Serving, Client]]:
    with serving(directory, command=SERVER, **NO_COMMUNITIES) as server, server.client() as client:
        tenant = client.create_tenant("acme").id
        yield Corpus(directory, tenant, client.create_corpus("rules", tenant_id=tenant).id), server, client


def put(client: Client, corpus: Corpus, number: int) -> tuple[PutResult, Clock]:
    """Puts edition `number` as revision `number`. The clock has when it was received, prepared and done."""
    clock, edition = Clock(), Edition(number, HIERARCHY)

    def listen(progress: PutProgress) -> None:
        clock.note("prepared" if progress.chunks_prepared else "received")

    done = client.put_hierarchy(
        corpus.id, edition.parts(), embedding_model=MODEL, tenant_id=corpus.tenant, on_event=listen
    )
    clock.note("done")
    size = HIERARCHY
    assert done == PutResult(number, size.documents, size.sections, size.chunks, size.chunks * RAWS)
    return done, clock


def add(client: Client, corpus: Corpus, number: int) -> tuple[AddResult, Clock]:
    clock = Clock()

    def listen(event: DocumentOutcome | Progress) -> None:
        if isinstance(event, Progress):
            clock.note("prepared")

    sent = documents(number, DOCUMENTS, DOCUMENT_CHARACTERS)
    done = client.add_documents(corpus.id, sent, tenant_id=corpus.tenant, on_event=listen)
    clock.note("done")
    counts = (0, DOCUMENTS) if number > 1 else (DOCUMENTS, 0)
    assert (done.added, done.updated, done.failed) == (*counts, 0)
    assert done.revision >= number  # a search for communities after a start makes a revision too
    return done, clock


Write = Callable[[Client, Corpus, int], tuple[PutResult | AddResult, Clock]]


@dataclass(frozen=True)
class Kind:
    write: Write
    documents: int
    put: Size | None
    characters: int
    own_bytes_max: int
    """The most memory of its own that the server may take above what it had before the first update."""


# A hierarchy that is put is held encoded. For documents that are added, a spool holds up to about 128 MiB, the cache of
# embeddings holds up to 64 MiB, and planning and the readers' search hold the ids and vectors of all chunks.
KINDS = {
    "PutHierarchy": Kind(put, HIERARCHY.documents, HIERARCHY, HIERARCHY.characters, 3 * HIERARCHY.characters),
    "AddDocuments": Kind(add, DOCUMENTS, None, ADDED_CHARACTERS, 192 * MIB + 8 * ADDED_CHARACTERS),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def tell(title: str, clock: Clock, peak: Peak) -> None:
    print(f"\n{title}: {clock.at_s} s, {peak.own / MIB:.0f} MiB, with files {peak.resident / MIB:.0f} MiB", flush=True)


def tell_readers(seen: dict[str, Seen]) -> None:
    for name, reads in seen.items():
        print(
            f"  {name}: {reads.answers} answers, slowest {reads.slowest_s:.2f} s ({reads.slowest_call})",
            flush=True,
        )


@pytest.mark.timeout(3_600 if SOAK else 120)
def test_readers_see_one_whole_edition_at_a_time_and_never_an_older_one(tmp_path: Path, kind: Kind) -> None:
    with new_corpus(tmp_path) as (corpus, server, client):
        pid = server.process.pid
        idle = own_bytes(pid)
        with peak_of(pid) as first:
            _, clock = kind.write(client, corpus, 1)
        tell(f"edition 1, {kind.characters:,} characters, after {idle / MIB:.0f} MiB", clock, first)
        plan = corpus.plan(server, kind.documents, kind.put)
        with peak_of(pid) as second, reading(plan) as readers:
            _, clock = kind.write(client, corpus, 2)
        tell("edition 2", clock, second)
        tell_readers(readers.seen)
        assert {name: seen.editions for name, seen in readers.seen.items()} == {name: [1, 2] for name in readers.seen}
        if SOAK:
            assert max(first.own, second.own) - idle < kind.own_bytes_max
        server.stop()
    assert corpus.staged() == (False, 0)
    corpus.assert_agrees()


@pytest.mark.timeout(3_600 if SOAK else 120)
def test_a_server_killed_while_it_stages_an_edition_still_has_the_previous_one(tmp_path: Path, kind: Kind) -> None:
    with new_corpus(tmp_path) as (corpus, server, client):
        kind.write(client, corpus, 1)
        with ThreadPoolExecutor(1) as thread:
            under_way = thread.submit(kind.write, client, corpus, 2)
            wait_for_second_staging(server)
            server.process.kill()
            with pytest.raises(Unavailable):
                under_way.result()
    claimed, batches = corpus.staged()
    assert claimed
    assert batches >= KILLED_AT
    corpus.assert_agrees()
    with corpus.served() as (server, client):
        plan = corpus.plan(server, kind.documents, kind.put)
        assert set(read_once(plan).values()) == {1}
        _, clock = kind.write(client, corpus, 2)
        print(f"\nedition 2 again: {clock.at_s} s", flush=True)
        assert set(read_once(plan).values()) == {2}
        server.stop()
    assert corpus.staged() == (False, 0)
    corpus.assert_agrees()


def wait_for_second_staging(server: Serving) -> None:
    """Returns when the server is about to stage batch KILLED_AT of a second revision."""
    assert server.process.stdout is not None
    stagings = 0
    for line in server.process.stdout:
        stagings += line == "stage 0\n"
        if stagings == 2 and line == f"stage {KILLED_AT}\n":
            return
    raise AssertionError("the server ended before that")
