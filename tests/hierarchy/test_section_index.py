"""The index of sections through the real server: each section is where its chunks put it, at every revision."""

from __future__ import annotations

from pathlib import Path

from tests.support.callers.knowledge import SECTION, Caller, File, at_revision
from tests.support.data.texts import REGULATIONS
from tests.support.servers.running import ACME, Running, create_tenants, running


def scores(caller: Caller, corpus: str, revision: int) -> dict[str, float]:
    """Of every section."""
    hits = caller.hits(corpus, level=SECTION, text="safety of clinical trials", as_of=at_revision(revision))
    return {hit.node.id: hit.score for hit in hits}


def opened(server: Running) -> Caller:
    return Caller(server.address, ACME)


def test_sections_that_were_followed_are_where_those_are_that_were_read(tmp_path: Path) -> None:
    """After documents came into them and left them again, a server has them where the next one reads them."""
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
    moved = [one for one in read[0].keys() & read[2].keys() if read[0][one] != read[2][one]]
    assert moved, "else this proves nothing"
