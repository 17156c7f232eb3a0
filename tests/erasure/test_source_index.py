"""The index by source leads to everything that a key has sealed, whoever wrote it and however, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from drillcore_fdb.engine import Transaction
from drillcore_proto.v1 import facts_pb2
from drillcore_server.erasure import purge_store
from drillcore_server.erasure.purge import Purger
from drillcore_server.kernel import by_source, revise
from drillcore_server.storage.ids import SourceId
from drillcore_server.storage.keyring import KeyNumber
from tests.support.callers.communities import CommunityCaller
from tests.support.callers.core_exports import CoreCaller, auditor, corpus_number, fill, serving
from tests.support.callers.cores import handbook, import_requests
from tests.support.callers.erasures import MARKED, OTHER, problems, sealed_under
from tests.support.callers.hierarchies import put, two_sections
from tests.support.callers.knowledge import CHUNK, SECTION, File, at_revision
from tests.support.data.texts import REGULATIONS
from tests.support.servers.running import ACME, GLOBEX, Running
from tests.support.stores.aged import age, corpus_in, keys_of

LONG = f"{OTHER}\nA keeper must also say where the register of birds is kept, and who keeps it while he is away.\n"
FACT = "The keeper of the register answers for every entry that is made in it while he is in office."


@pytest.fixture
def parties(tmp_path: Path) -> Iterator[tuple[Running, CoreCaller]]:
    with serving(tmp_path / "data") as found:
        yield found


@pytest.fixture
def server(parties: tuple[Running, CoreCaller]) -> Running:
    return parties[0]


@pytest.fixture
def caller(parties: tuple[Running, CoreCaller]) -> CoreCaller:
    return parties[1]


def number_of(server: Running, corpus: str, source: str) -> KeyNumber:
    (number,) = server.server.keyring.numbers(corpus_number(server, corpus), [SourceId(source)])
    return number


def listed(server: Running, corpus: str, number: int) -> int:
    """How many keys the index has under an encryption key."""
    keys = keys_of(server, corpus)
    found = server.engine.run(lambda tr: list(by_source.scan(tr, keys, keys.all_by_source(number))))
    return sum(len(listing.keys) for listing in found)


def purge_all(server: Running, caller: CoreCaller, corpus: str, *sources: str) -> None:
    """Erases sources and purges them. Nothing of them may be left, in the store or in the index."""
    numbers = [number_of(server, corpus, source) for source in sources]
    for source in sources:
        caller.erase(corpus, source)
    assert sum(sealed_under(server, corpus, number) for number in numbers) > 0
    assert problems(server) == ()
    assert caller.purge(corpus).finished
    assert [sealed_under(server, corpus, number) for number in numbers] == [0] * len(numbers)
    assert [listed(server, corpus, number) for number in numbers] == [0] * len(numbers)
    assert problems(server) == ()


def filled(server: Running, caller: CoreCaller) -> str:
    """A corpus with something of everything, each of which was changed, too."""
    corpus = caller.corpus()
    fill(caller, corpus)
    drafts = (facts_pb2.FactDraft(content=f"{FACT} That is rule {number}.", source_id="rules") for number in range(6))
    caller.put(corpus, *drafts)
    with CommunityCaller(server, ACME) as keeper:
        keeper.recompute(corpus)
    first, *_ = documents = caller.list_documents(corpus)
    caller.add(corpus, File(first.source_id, f"{LONG}\n{MARKED}"))
    caller.remove(corpus, documents[-1].id)
    fact = next(fact.fact_id for fact in caller.list(corpus) if fact.source_id == "minutes")
    caller.update(fact, content=f"{FACT} He does so alone.")
    return corpus


def test_fsck_finds_a_record_that_the_index_lacks(server: Running, caller: CoreCaller) -> None:
    corpus = caller.corpus()
    caller.add(corpus, File("marked.md", MARKED, "marked"))
    keys, number = keys_of(server, corpus), number_of(server, corpus, "marked")
    chunk = keys.chunk(UUID(caller.query(corpus, level=CHUNK)[0].id))  # type: ignore[arg-type]

    def forget(tr: Transaction) -> None:
        (listing,) = by_source.scan(tr, keys, keys.all_by_source(number))
        by_source.put(tr, keys, listing.revision, listing.batch, {number: set(listing.keys) - {chunk}})

    server.engine.run(forget)
    assert any(f"{chunk.hex()} of revision 1 is not in the index by source" in found for found in problems(server))


def test_fsck_finds_an_entry_of_the_index_that_leads_nowhere(server: Running, caller: CoreCaller) -> None:
    corpus = caller.corpus()
    caller.add(corpus, File("marked.md", MARKED, "marked"), File("other.md", OTHER, "other"))
    keys, number = keys_of(server, corpus), number_of(server, corpus, "marked")
    (other,) = [found.id for found in caller.query(corpus, level=CHUNK) if found.chunk.source_id == "other"]
    wrong = [keys.chunk(uuid4()), keys.chunk(UUID(other))]  # type: ignore[arg-type]

    def add(tr: Transaction) -> None:
        (listing,) = by_source.scan(tr, keys, keys.all_by_source(number))
        by_source.put(tr, keys, listing.revision, listing.batch, {number: {*listing.keys, *wrong}})

    server.engine.run(add)
    found = problems(server)
    assert len(found) == 2
    assert all(
        any(f"{key.hex()} of revision 1 under the key {number}" in problem for problem in found) for key in wrong
    )


def test_fsck_finds_a_lost_list(server: Running, caller: CoreCaller) -> None:
    corpus = caller.corpus()
    caller.add(corpus, File("marked.md", MARKED, "marked"))
    keys, number = keys_of(server, corpus), number_of(server, corpus, "marked")
    server.engine.run(lambda tr: tr.clear_range(*keys.all_by_source(number)))
    entries = [key for key in problems(server) if "is not in the index by source" in key]
    assert len(entries) > 5, "records and the entries that lead to them"


@pytest.mark.parametrize("batch_bytes", [1, 3_000_000])
def test_whatever_is_written_is_listed_however_it_is_cut_into_batches(
    server: Running, caller: CoreCaller, monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    """With batches of one write, an entry must still be listed under the keys of the record that it follows."""
    monkeypatch.setattr(revise, "BATCH_BYTES_MAX", batch_bytes)
    monkeypatch.setattr(revise, "SMALL_BYTES_MAX", batch_bytes)
    corpus, foreign = filled(server, caller), caller.corpus("foreign")
    requests = import_requests(foreign, handbook(), source_id="trust")
    list(caller.cores.ImportCore(requests, **caller.options()))
    assert problems(server) == ()
    with auditor(server) as eve:
        core = eve.export(corpus).data
    with CoreCaller(server, GLOBEX) as other:
        copy = other.corpus()
        list(other.cores.ImportCore(import_requests(copy, core), **other.options()))
        assert problems(server) == ()
        other.erase(copy, "minutes", purge_now=True)
    purge_all(server, caller, foreign, "trust")
    purge_all(server, caller, corpus, "minutes", "rules", "a graph", "talks", *list(REGULATIONS)[:2])


def test_a_client_s_hierarchy_is_listed_under_the_sources_of_each_of_its_versions(
    server: Running, caller: CoreCaller
) -> None:
    """A chunk keeps its id while its document moves to another source."""
    corpus, made = caller.corpus(), two_sections()
    put(caller, corpus, made)
    moved = made.copy()
    moved.documents[0].source_id = "another.txt"
    put(caller, corpus, moved)
    put(caller, corpus, made)
    assert problems(server) == ()
    purge_all(server, caller, corpus, "manual.txt")
    purge_all(server, caller, corpus, "another.txt")
    purge_all(server, caller, corpus, "copy.txt")


def test_a_key_that_leaves_a_section_and_joins_it_again_is_listed_again(server: Running, caller: CoreCaller) -> None:
    corpus = caller.corpus()
    caller.add(corpus, File("other.md", OTHER, "other"))
    for edition in range(3):
        marked = caller.add(corpus, File("marked.md", f"{MARKED}\nThis is edition {edition} of it.\n", "marked"))
        caller.add(corpus, File("more.md", f"{LONG} It may be kept in edition {edition} of the register.", "more"))
        caller.remove(corpus, marked.outcomes[0].document_id)
    revisions = range(1, caller.head(corpus) + 1)
    assert len({node.id for at in revisions for node in caller.query(corpus, level=SECTION, as_of=at_revision(at))}) < 3
    assert problems(server) == ()
    purge_all(server, caller, corpus, "marked")


def test_a_key_that_joins_a_trimmed_section_stays_listed(server: Running, caller: CoreCaller) -> None:
    """The list is of a revision that is trimmed. It still leads to the section's later versions."""
    corpus = caller.corpus()
    caller.add(corpus, File("marked.md", MARKED, "marked"))
    for edition in range(4):
        caller.add(corpus, File("more.md", f"{LONG} It may be kept in edition {edition} of the register.", "more"))
    server.client(ACME).update_corpus(UUID(corpus), retention_days=1)
    age(server, corpus, 10)
    caller.add(corpus, File("other.md", OTHER, "other"))
    assert server.client(ACME).trim_corpus(UUID(corpus)).finished
    assert problems(server) == ()
    purge_all(server, caller, corpus, "marked")


def test_a_fact_whose_chosen_id_looks_like_one_of_a_block_follows_its_own_source(
    server: Running, caller: CoreCaller
) -> None:
    """Purging the source of the block leaves the other fact with all its index entries."""
    corpus = caller.corpus()
    (first,) = caller.put(corpus, facts_pb2.FactDraft(content=FACT, source_id="block")).fact_ids
    chosen = str(UUID(int=UUID(first).int + 9))
    draft = facts_pb2.FactDraft(content=f"{FACT} Always.", source_id="own", ttl="P900D", fact_id=chosen)
    caller.put(corpus, draft)
    assert problems(server) == ()
    purge_all(server, caller, corpus, "block")
    assert [fact.fact_id for fact in caller.list(corpus)] == [chosen]
    purge_all(server, caller, corpus, "own")


@pytest.mark.parametrize("page_keys", [1, 4])
@pytest.mark.parametrize("trims", [False, True])
def test_a_purge_that_is_interrupted_after_every_page_removes_all(
    server: Running, caller: CoreCaller, monkeypatch: pytest.MonkeyPatch, page_keys: int, trims: bool
) -> None:
    corpus = filled(server, caller)
    monkeypatch.setattr(purge_store, "_PAGE_KEYS", page_keys)
    numbers = [number_of(server, corpus, source) for source in ("minutes", "rules")]
    for source in ("minutes", "rules"):
        caller.erase(corpus, source)
    purger = Purger(server.engine, server.server._unit)
    client = server.client(ACME)
    if trims:
        client.update_corpus(UUID(corpus), retention_days=1)
        age(server, corpus, 10)
        caller.add(corpus, File("last.md", OTHER, "last"))
    found, rounds = corpus_in(server.engine, corpus), 0
    is_enough = cycle([False, True])
    while not purger.purge_by_itself(found.tenant_id, found.id, datetime.now(UTC), is_enough.__next__).finished:
        rounds += 1
        if trims and rounds == 2:
            assert client.trim_corpus(UUID(corpus)).finished
        if rounds % 5 == 1:
            assert problems(server) == ()
    assert rounds >= 2
    assert [sealed_under(server, corpus, number) for number in numbers] == [0, 0]
    assert [listed(server, corpus, number) for number in numbers] == [0, 0]
    assert problems(server) == ()
