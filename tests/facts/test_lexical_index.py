"""The lexical index through the real server: facts are found by their words at once and at every revision."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drillcore_fdb.engine import Transaction
from drillcore_proto.v1 import facts_pb2 as pb
from drillcore_server.facts.lexical.lexical_cache import LexicalIndexes
from drillcore_server.facts.lexical.lexical_index import LexicalIndex
from drillcore_server.facts.words import question
from drillcore_server.kernel import revisions
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.kernel.errors import Missing
from drillcore_server.storage.ids import Revision
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.sealed import SealedRecords
from drillcore_server.storage.store import open_store
from tests.facts.test_fact_index import corpus_of
from tests.support.callers.erasures import MARKED, MARKER, OTHER, ErasingCaller, problems
from tests.support.callers.hierarchies import put as put_hierarchy
from tests.support.callers.hierarchies import two_sections
from tests.support.callers.knowledge import files
from tests.support.servers.running import ACME, OPERATOR, create_tenants, running
from tests.support.stores.aged import age

HERONS = "Every keeper of herons reports the number of his herons to the authority in spring."
OTTERS = "A licence for otters is given for one year, and only to those who have a pond."


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[ErasingCaller]:
    with running(tmp_path) as server, ErasingCaller(server, ACME) as found:
        create_tenants(server.client(OPERATOR))
        yield found


def index(
    caller: ErasingCaller, indexes: LexicalIndexes | None = None, revision: Revision | None = None
) -> LexicalIndex:
    """The index at the head or another revision, from the server's own indexes or from others."""
    server, engine, corpus = caller.server.server, caller.server.engine, corpus_of(caller)
    keys = Keyspace(open_store(engine)[0]).of_corpus(corpus.number)

    def work(tr: Transaction) -> LexicalIndex:
        sealed = SealedRecords(server.keyring)
        sealed.follow_erasures(tr.snapshot, keys)
        at = revisions.head(tr, keys) if revision is None else revision
        return (indexes or server.indexes.words).at(CorpusAtRevision(tr.snapshot, corpus, keys, sealed, at))

    return engine.run(work)


def found(caller: ErasingCaller, text: str, revision: int | None = None) -> list[str]:
    at = None if revision is None else Revision(revision)
    followed = index(caller, revision=at).search(text, 10)
    assert followed == index(caller, LexicalIndexes(caller.server.engine), at).search(text, 10), (
        "the index must equal one that was just read"
    )
    return [str(fact) for fact, _ in followed]


def put(caller: ErasingCaller, corpus: str, *contents: str, source: str = "manual") -> list[str]:
    return list(caller.put(corpus, *(pb.FactDraft(content=content, source_id=source) for content in contents)).fact_ids)


def test_a_fact_is_found_by_its_words_as_soon_as_it_is_put(caller: ErasingCaller) -> None:
    corpus = caller.corpus()
    herons, otters = put(caller, corpus, HERONS, OTTERS)
    assert found(caller, "heron") == [herons]
    assert found(caller, "ponds for otters, or herons") == [otters, herons]
    (more,) = put(caller, corpus, "Herons are counted twice a year by the authority, in spring and in autumn.")
    assert set(found(caller, "herons")) == {herons, more}
    assert found(caller, "badgers") == []


def test_a_fact_whose_content_changes_is_found_by_the_new_words_alone(caller: ErasingCaller) -> None:
    corpus = caller.corpus()
    (fact,) = put(caller, corpus, HERONS)
    caller.update(fact, content=OTTERS)
    assert found(caller, "herons") == []
    assert found(caller, "otters") == [fact]
    assert found(caller, "herons", 1) == [fact], "the earlier revision has the old words"


@pytest.mark.parametrize("status", [pb.FACT_STATUS_DELETED, pb.FACT_STATUS_QUARANTINED])
def test_a_fact_out_of_the_index_is_not_found(caller: ErasingCaller, status: pb.FactStatus.ValueType) -> None:
    corpus = caller.corpus()
    herons, otters = put(caller, corpus, HERONS, OTTERS)
    caller.set_status(herons, status, reason="so")
    assert found(caller, "herons otters") == [otters]
    caller.archive(otters)
    assert found(caller, "herons otters") == []
    caller.restore(otters)
    assert found(caller, "herons otters") == [otters]
    assert set(found(caller, "herons otters", 1)) == {herons, otters}


def test_titles_and_source_names_are_matched_too(caller: ErasingCaller) -> None:
    corpus = caller.corpus()
    text = f"# Waterfowl act\n\n## Wading birds\n\n{HERONS}\n"
    caller.add(corpus, *files({"BirdsAct-2015.md": text}))
    lexical = index(caller)
    for word, level in {"wading": "headings", "waterfowl": "title", "2015": "title", "herons": "content"}.items():
        matches = lexical.matches(question(word))
        assert matches is not None
        assert getattr(matches.chunks, level).max() > 0, word


def test_a_new_title_is_matched_though_the_facts_stay_the_same(caller: ErasingCaller) -> None:
    corpus = caller.corpus()
    caller.add(corpus, *files({"birds": f"# Waterfowl act\n\n{HERONS}\n"}))
    caller.add(corpus, *files({"birds": f"# Gamekeeping decree\n\n{HERONS}\n"}))
    assert not titled(caller, "waterfowl")
    assert titled(caller, "decree")


def test_new_titles_of_a_hierarchy_are_matched_though_its_chunks_stay_the_same(caller: ErasingCaller) -> None:
    corpus, made = caller.corpus(), two_sections()
    put_hierarchy(caller, corpus, made)
    chunk = next(node for node in made.nodes if node.HasField("chunk"))
    caller.put(corpus, pb.FactDraft(content=HERONS, chunk_id=chunk.id))
    assert titled(caller, "manual")
    assert not titled(caller, "gamekeeping")
    made.documents[0].title, chunk.chunk.headings[:] = "Gamekeeping decree", ["Waders"]
    put_hierarchy(caller, corpus, made)
    (fact,) = caller.list(corpus)
    assert (fact.status, fact.version) == (pb.FACT_STATUS_ACTIVE, 2)
    assert titled(caller, "gamekeeping")
    assert problems(caller.server) == ()


def titled(caller: ErasingCaller, word: str) -> bool:
    matches = index(caller).matches(question(word))
    return matches is not None and matches.documents.title_shares().max() > 0


def test_a_revision_that_was_trimmed_is_not_searched(caller: ErasingCaller) -> None:
    corpus = caller.corpus()
    (fact,) = put(caller, corpus, HERONS)
    caller.update(fact, content=OTTERS)
    age(caller.server, corpus, 5)
    client = caller.server.client(ACME)
    client.update_corpus(corpus, retention_days=1)
    client.trim_corpus(corpus)
    assert found(caller, "otters") == [fact]
    with pytest.raises(Missing, match="trimmed"):
        index(caller, LexicalIndexes(caller.server.engine), Revision(1))


def test_nothing_of_an_erased_source_is_found_at_any_revision_or_kept_in_memory(caller: ErasingCaller) -> None:
    corpus = caller.corpus()
    caller.add(corpus, *files({"marked": MARKED, "other": OTHER}))
    facts = len(index(caller))
    assert found(caller, MARKER)
    assert found(caller, MARKER, 1)
    kept = caller.server.server.indexes.words
    caller.erase(corpus, "marked")
    assert not kept._states
    assert not kept._earlier
    assert found(caller, MARKER) == []
    assert found(caller, MARKER, 1) == []
    assert 0 < len(index(caller)) < facts
    assert found(caller, "kestrel")


def test_the_same_facts_have_the_same_scores_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as server, ErasingCaller(server, ACME) as caller:
        create_tenants(server.client(OPERATOR))
        corpus = caller.corpus()
        facts = put(caller, corpus, HERONS, OTTERS)
        caller.update(facts[0], content=HERONS.replace("spring", "summer"))
        put(caller, corpus, "Summer is when the authority counts the otters of each pond again.")
        before = index(caller).search("authority summer ponds", 10)
        assert len(before) == 3
    with running(tmp_path) as server, ErasingCaller(server, ACME) as caller:
        assert index(caller).search("authority summer ponds", 10) == before


@pytest.mark.parametrize(
    "text", ["", "  ", "the of and", "\0\x01", "\ud800", "\u0130" * 99, "a" * 100_000, "s " * 50_000]
)
def test_any_text_can_be_searched(caller: ErasingCaller, text: str) -> None:
    put(caller, caller.corpus(), HERONS)
    assert index(caller).search(text, 10) == []


def test_only_the_first_words_of_a_very_long_text_count(caller: ErasingCaller) -> None:
    (fact,) = put(caller, caller.corpus(), HERONS)
    noise = " ".join(f"word{number}" for number in range(10_000))
    assert found(caller, f"herons {noise}") == [fact]
    assert found(caller, f"{noise} herons") == []


def test_a_corpus_without_facts_can_be_searched(caller: ErasingCaller) -> None:
    caller.corpus()
    assert found(caller, "herons") == []


def test_only_allowed_facts_are_found(caller: ErasingCaller) -> None:
    _, otters = put(caller, caller.corpus(), HERONS, OTTERS)
    lexical = index(caller)
    (otter_fact,) = (fact for fact, _ in lexical.search("otters", 1))
    assert str(otter_fact) == otters
    assert [str(fact) for fact, _ in lexical.search("herons otters", 5, allowed=[otter_fact])] == [otters]
    assert lexical.search("herons", 5, allowed=[otter_fact]) == []
