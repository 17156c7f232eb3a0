"""Listings stop after as many records as one transaction reads in time, and go on with a token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drillcore_proto.v1 import facts_pb2, sources_pb2
from tests.support.callers.erasures import ErasingCaller
from tests.support.callers.facts import FactCaller
from tests.support.callers.knowledge import at_revision
from tests.support.servers.running import ACME, OPERATOR, create_tenants, running

TEXT = "The firm must keep records of every transaction for at least {} years after it was made."
FACTS = 7


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[FactCaller]:
    with running(tmp_path) as server:
        create_tenants(server.client(OPERATOR))
        with FactCaller(server, ACME) as found:
            yield found


@pytest.fixture
def corpus(caller: FactCaller) -> str:
    """A corpus whose revisions each add a fact of another source, and then a document."""
    made = caller.corpus()
    for number in range(FACTS):
        caller.put(made, facts_pb2.FactDraft(content=TEXT.format(number), source_id=f"letter {number % 2}"))
    for number in range(3):
        caller.add_texts(made, {f"{number}.txt": f"A heading {number}\n\n{TEXT.format(100 + number)}"})
    return made


@pytest.fixture(autouse=True, params=[("LISTED_KEYS_MAX", 2), ("LISTED_BYTES_MAX", 200)], ids=["keys", "bytes"])
def little_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    limit, value = request.param
    monkeypatch.setattr(f"drillcore_server.kernel.corpus_at_revision.{limit}", value)
    monkeypatch.setattr("drillcore_server.facts.filters._INDEXED_MAX", 2)


def test_facts_of_an_early_revision_are_found_among_many_later_ones(caller: FactCaller, corpus: str) -> None:
    pages = list(caller.pages(corpus, as_of=at_revision(1)))
    assert len(pages) > FACTS / 2, "each looks at two keys"
    assert [fact.content for page in pages for fact in page.facts] == [TEXT.format(0)]


def test_all_facts_are_listed_in_order_whatever_a_page_looks_at(caller: FactCaller, corpus: str) -> None:
    ids = [fact.fact_id for fact in caller.list(corpus)]
    assert ids == sorted(ids)
    assert len(ids) == len(set(ids)) == FACTS + 3
    assert [fact.fact_id for fact in caller.list(corpus, page_size=1)] == ids


def test_a_filter_that_allows_nothing_ends_page_after_page(caller: FactCaller, corpus: str) -> None:
    pages = list(caller.pages(corpus, filters=facts_pb2.FactFilters(metadata={"site": "none"})))
    assert len(pages) > FACTS / 2
    assert not any(page.facts for page in pages)


def test_facts_of_a_source_are_found_even_if_it_has_too_many_for_the_index(caller: FactCaller, corpus: str) -> None:
    found = caller.list(corpus, filters=facts_pb2.FactFilters(source_ids=["letter 0"]))
    assert sorted(fact.content for fact in found) == [TEXT.format(number) for number in range(0, FACTS, 2)]


def test_documents_of_an_early_revision_are_found_among_many_later_ones(caller: FactCaller, corpus: str) -> None:
    assert caller.list_documents(corpus, as_of=at_revision(FACTS)) == []
    assert len(list(caller.pages_of_documents(corpus, as_of=at_revision(FACTS)))) > 1
    assert len(caller.list_documents(corpus)) == 3


def test_sources_of_an_early_revision_are_found_among_many_later_ones(caller: FactCaller, corpus: str) -> None:
    found, token, pages = list[str](), "", 0
    with ErasingCaller(caller.server, ACME) as sources:
        while token or not pages:
            request = sources_pb2.ListSourcesRequest(corpus_id=corpus, as_of=at_revision(1), page_token=token)
            page = sources.sources.ListSources(request, **sources.options())
            found += [source.source_id for source in page.sources]
            token, pages = page.next_page_token, pages + 1
    assert found == ["letter 0"]
    assert pages > 1
