"""The index of sections through the real server: vectors of sections follow their chunks at every revision."""

from __future__ import annotations

from pathlib import Path

from tests.support.callers.knowledge import SECTION, Caller, File, at_revision
from tests.support.data.texts import REGULATIONS
from tests.support.servers.running import ACME, Running, create_tenants, running


def scores(caller: Caller, corpus: str, revision: int) -> dict[str, float]:
    """The score of every section."""
    hits = caller.hits(corpus, level=SECTION, text="safety of clinical trials", as_of=at_revision(revision))
    return {hit.node.id: hit.score for hit in hits}


def opened(server: Running) -> Caller:
    return Caller(server.address, ACME)


def test_sections_updated_in_memory_equal_sections_read_from_the_store(tmp_path: Path) -> None:
    """After documents were added and removed, a server has the same vectors of sections as a server started later."""
    with running(tmp_path) as server:
        create_tenants(server.client())
        corpus, caller = str(server.client(ACME).create_corpus("plan").id), opened(server)
        ids = caller.add_texts(corpus, REGULATIONS)
        followed = [scores(caller, corpus, 1)]
        further = [
            File(f"new {name}", text.replace("shall", "may"), f"new {name}") for name, text in REGULATIONS.items()
        ]
        caller.add(corpus, *further)
        followed.append(scores(caller, corpus, 2))
        caller.remove(corpus, ids["trials.txt"], ids["food.txt"])
        followed.append(scores(caller, corpus, 3))
        caller.close()
    with running(tmp_path) as server:
        caller = opened(server)
        read = [scores(caller, corpus, revision) for revision in (1, 2, 3)]
        caller.close()
    assert followed == read
    moved = [section for section in read[0].keys() & read[2].keys() if read[0][section] != read[2][section]]
    assert moved, "without moved sections this test proves nothing"
