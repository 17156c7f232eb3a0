"""Real server processes, two and three, on one cluster."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from drillcore import AuditFilter, Client, DrillcoreError, FactStatus, NewFact
from tests.cluster.conftest import the_cluster
from tests.support.servers.installation import Installation, installed
from tests.support.stores.stores import wait_until

pytestmark = pytest.mark.timeout(600)
NAMES = ("one", "two", "three")


def text(number: int) -> str:
    return f"Batch record {number} is kept in the archive of the site for ten years after its release."


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Installation]:
    with installed(tmp_path, the_cluster(), *NAMES[:2]) as found:
        yield found


def check_trail(client: Client) -> int:
    """Asserts that the tenant's log verifies. Returns how many records it has."""
    start = 0
    while True:
        check = client.verify_audit(start=start, records_max=500)
        assert check.problems == ()
        if check.finished:
            return check.tree_size
        start = check.next_start


def test_what_one_server_has_acknowledged_the_other_shows_at_once(two: Installation) -> None:
    with two.client("one") as one, two.client("two") as other:
        corpus = one.create_corpus("shared").id
        writer, reader = one, other
        for number in range(40):
            writer, reader = reader, writer
            (fact,) = writer.put_facts(corpus, [NewFact(text(number), source_id="log")]).fact_ids
            assert reader.get_facts([fact])[0].content == text(number)
            hits = reader.search_facts(text(number), corpus_ids=[corpus], limit=100).hits
            assert fact in [hit.fact.id for hit in hits]
    assert two.problems() == ()


def test_calls_of_all_servers_are_in_one_log_each_once(two: Installation) -> None:
    """Only one server has the lease of the sequencer; when it dies, another goes on where it was."""
    with two.client("one") as one, two.client("two") as other:
        corpus = one.create_corpus("shared").id
        ids = [f"call-{number}" for number in range(60)]

        def call(number: int) -> None:
            (one, other)[number % 2].get_corpus(corpus, request_id=ids[number])

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(call, range(40)))
        one.wait_proof(of_request=ids[39])
        two.kill("one")
        for number in range(41, 60, 2):
            call(number)
        other.wait_proof(of_request=ids[59])
        made = [*range(40), *range(41, 60, 2)]
        assert [len(other.query_audit(AuditFilter(request_id=ids[number])).items) for number in made] == [1] * len(made)
        assert check_trail(other) >= len(made)
    assert two.problems() == ()


@dataclass
class Creator:
    """Creates corpora through one server after the other, and remembers what was acknowledged."""

    installation: Installation
    stopping: threading.Event = field(default_factory=threading.Event)
    acknowledged: dict[str, UUID] = field(default_factory=dict)
    unanswered: dict[str, str] = field(default_factory=dict)
    """The names of requests without an answer, by request id."""

    def run(self, thread: int) -> None:
        dice = random.Random(thread)
        while not self.stopping.is_set():
            with self.installation.client(dice.choice(NAMES), attempts=1, timeout_s=10.0) as client:
                self._create_until_it_fails(client)

    def _create_until_it_fails(self, client: Client) -> None:
        while not self.stopping.is_set():
            name, request_id = f"corpus-{uuid4()}", str(uuid4())
            try:
                self.acknowledged[name] = client.create_corpus(name, request_id=request_id).id
            except DrillcoreError:
                self.unanswered[request_id] = name
                return


def test_kill_9_of_any_server_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    dice = random.Random(23)
    with installed(tmp_path, the_cluster(), *NAMES) as found:
        creator = Creator(found)
        with ThreadPoolExecutor(6) as threads:
            for thread in range(6):
                threads.submit(creator.run, thread)
            try:
                for _ in range(6):
                    enough = len(creator.acknowledged) + dice.randint(1, 100)
                    wait_until(lambda enough=enough: len(creator.acknowledged) >= enough, "more corpora are created")  # type: ignore[misc]
                    name = dice.choice(NAMES)
                    found.kill(name)
                    found.start(name).close()
            finally:
                creator.stopping.set()
        with found.client("one") as one, found.client("two") as other:
            retried = {
                name: one.create_corpus(name, request_id=request_id).id
                for request_id, name in creator.unanswered.items()
            }
            again = {
                name: other.create_corpus(name, request_id=request_id).id
                for request_id, name in creator.unanswered.items()
            }
            assert again == retried, "a retry through another server is the same call"
            known = creator.acknowledged | retried
            assert len(creator.acknowledged) > 50
            assert creator.unanswered
            assert {corpus.name: corpus.id for corpus in other.iter_corpora()} == known
            check_trail(one)
        assert found.problems() == ()


def wait_until_more(done: list[int]) -> None:
    enough = done[0] + 5
    wait_until(lambda: done[0] >= enough, "calls are answered")


def test_a_rolling_restart_fails_no_call(tmp_path: Path) -> None:
    """A client that knows all servers retries with the next one."""
    failures: list[DrillcoreError] = []
    done = [0]
    stopping = threading.Event()
    with installed(tmp_path, the_cluster(), *NAMES) as found:
        with found.client("one") as client:
            corpus = client.create_corpus("shared").id

        def work(thread: int) -> None:
            with found.client(*random.Random(thread).sample(NAMES, 3), timeout_s=30.0) as client:
                while not stopping.is_set():
                    try:
                        made = client.put_facts(corpus, [NewFact(text(done[0]), source_id="log")])
                        assert len(client.get_facts(made.fact_ids)) == 1
                    except DrillcoreError as error:
                        failures.append(error)
                    done[0] += 1

        with ThreadPoolExecutor(4) as threads:
            working = [threads.submit(work, thread) for thread in range(4)]
            try:
                for name in NAMES:
                    wait_until_more(done)
                    found.stop(name)
                    wait_until_more(done)
                    found.start(name).close()
                wait_until_more(done)
            finally:
                stopping.set()
            for future in working:
                future.result()
        assert failures == []
        assert done[0] > 20
        assert found.problems() == ()


def test_a_sweep_of_several_servers_is_done_once(tmp_path: Path) -> None:
    with installed(tmp_path, the_cluster(), *NAMES[:2], settings="[facts]\nsweep_every_s = 1\n") as found:
        with found.client("one") as client:
            corpus = client.create_corpus("shared").id
            ids = [*expire(client, corpus, range(20)), *expire(client, corpus, range(20, 40))]
            swept = client.query_audit(AuditFilter(corpus_id=corpus, operator="drillcore")).items
            changed = [node for record in swept for node in record.body["nodes"]]
            assert sorted(changed) == sorted(map(str, ids))
        assert found.problems() == ()


def expire(client: Client, corpus: UUID, numbers: range) -> Sequence[UUID]:
    """Puts facts that live for a second, and waits until a server has marked them. Returns their ids."""
    ids = client.put_facts(corpus, [NewFact(text(number), source_id="log", ttl="PT1S") for number in numbers]).fact_ids
    wait_until(lambda: all(fact.status is FactStatus.STALE for fact in client.get_facts(ids)), "the sweep")
    return ids
