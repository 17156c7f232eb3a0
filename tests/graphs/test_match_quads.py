"""MatchQuads against a plain model: all sixteen patterns, any source, pages of any size, every revision."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from drillcore_formats.quads import Blank, Iri, Quoted
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import quads_pb2 as pb
from drillcore_server.graphs import match_quads as quad_matching
from drillcore_server.graphs import quad_store as quads
from drillcore_server.graphs.quad_model import GRAPH_SOURCE, NS, PROV, RDF_TYPE, Quad, QuadPattern, iri_of, literal
from drillcore_server.storage.ids import SourceId
from tests.support.callers.knowledge import at_revision, refused
from tests.support.callers.quads import EVERY, QuadCaller, ex, pattern_message, quad
from tests.support.round_trips.measured import cost_of
from tests.support.servers.running import ACME, OPERATOR, create_tenants, running
from tests.support.stores.trails import all_records

SUBJECTS = [ex("a"), ex("b"), Blank("a"), Quoted(ex("a"), ex("p"), literal("a"))]
PREDICATES = [ex("p"), ex("q")]
OBJECTS = [*SUBJECTS, literal("a"), literal("a", language="en"), literal("a", "http://example.org/type")]
GRAPHS = ["", "http://example.org/a", "_:a"]
SOURCES = ["", "manual", "memo"]
Model = dict[Quad, set[str]]


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[QuadCaller]:
    with running(tmp_path) as server:
        create_tenants(server.client(OPERATOR))
        with QuadCaller(server, ACME) as found:
            yield found


def drawn(dice: random.Random, count: int) -> list[Quad]:
    every = [Quad(*terms) for terms in product(SUBJECTS, PREDICATES, OBJECTS, GRAPHS)]
    return dice.sample(every, count)


def filled(caller: QuadCaller, corpus: str, dice: random.Random) -> list[Model]:
    """The model of each revision, from the empty one on. Quads are put and removed at random."""
    models: list[Model] = [{}]
    for _ in range(4):
        model = {known: set(sources) for known, sources in models[-1].items()}
        source = dice.choice(SOURCES)
        if model and dice.random() < 0.4:
            gone = dice.sample(sorted(model, key=repr), len(model) // 3)
            caller.remove_quads(corpus, *gone)
            model = {known: sources for known, sources in model.items() if known not in gone}
        else:
            put = drawn(dice, 40)
            caller.put_quads(corpus, *put, source=source)
            for new in put:
                model.setdefault(new, set()).add(source)
        models.append(model)
    return models


def wanted(model: Model, pattern: QuadPattern) -> dict[Quad, tuple[str, ...]]:
    matching = {matching_quad: sources for matching_quad, sources in model.items() if pattern.matches(matching_quad)}
    if pattern.source is not None:
        return {
            matching_quad: (pattern.source,) for matching_quad, sources in matching.items() if pattern.source in sources
        }
    return {matching_quad: tuple(sorted(sources - {""})) for matching_quad, sources in matching.items()}


@pytest.mark.parametrize("seed", [1, 2])
def test_every_pattern_finds_what_the_model_has(caller: QuadCaller, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    corpus = caller.corpus()
    models = filled(caller, corpus, dice)
    monkeypatch.setattr(quad_matching, "_KEYS_MAX", 16)
    monkeypatch.setattr(quad_matching, "LOOKED_AT_MAX", 60)
    for bound in product([False, True], repeat=4):
        for _ in range(3):
            revision = dice.randrange(len(models))
            like = dice.choice([*sorted(models[revision], key=repr), *drawn(dice, 2)])
            source = dice.choice([None, None, SourceId("manual")])
            pattern = QuadPattern(
                *(term if is_bound else None for term, is_bound in zip(like, bound, strict=True)), source
            )
            found = caller.match(corpus, pattern, as_of=at_revision(revision), page_size=dice.choice([2, 7, 1_000]))
            assert found == wanted(models[revision], pattern), (revision, pattern)
    assert caller.match(corpus) == wanted(models[-1], EVERY)


def test_later_pages_are_of_the_first_pages_revision(caller: QuadCaller) -> None:
    corpus = caller.corpus()
    caller.put_quads(corpus, *(quad("a", "p", f"o{number}") for number in range(5)))
    pages = caller.match_pages(corpus, EVERY, page_size=2)
    first = next(pages)
    caller.remove_quads(corpus, pattern=pb.QuadPattern())
    rest = list(pages)
    assert [first.revision, *(page.revision for page in rest)] == [1] * (1 + len(rest))
    assert sum(len(page.quads) for page in [first, *rest] if not any(quad.derived for quad in page.quads)) == 5
    assert caller.match(corpus) == {}


def test_a_token_of_another_pattern_is_refused(caller: QuadCaller) -> None:
    corpus = caller.corpus()
    caller.put_quads(corpus, *(quad("a", "p", f"o{number}") for number in range(5)))
    token = next(caller.match_pages(corpus, EVERY, page_size=2)).next_page_token
    with refused(Reason.INVALID_PAGE_TOKEN):
        next(caller.match_pages(corpus, QuadPattern(predicate=ex("p")), page_token=token))


def test_a_page_reads_a_bounded_number_of_bytes(caller: QuadCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = caller.corpus()
    put = [quad("a", "p", literal("x" * 2_000 + str(number))) for number in range(6)]
    caller.put_quads(corpus, *put, source="manual")
    monkeypatch.setattr(quad_matching, "LOOKED_AT_BYTES_MAX", 4_000)
    pages = list(caller.match_pages(corpus, QuadPattern(predicate=ex("q"), source=SourceId("manual"))))
    assert [len(page.quads) for page in pages] == [0, 0, 0], "each page reads two quads of 2 kB"
    assert caller.match(corpus, QuadPattern(source=SourceId("manual"))) == dict.fromkeys(put, ("manual",))


def test_a_pattern_removes_large_quads_a_few_at_a_time(caller: QuadCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = caller.corpus()
    put = [quad("a", "p", literal("x" * 2_000 + str(number))) for number in range(6)]
    caller.put_quads(corpus, *put)
    held: list[int] = []
    match = quads.QuadReader.match

    def counted(*given: Any) -> Any:
        page = match(*given)
        held.append(len(page[0]))
        return page

    monkeypatch.setattr(quads, "BYTES_MAX", 4_000)
    monkeypatch.setattr(quads.QuadReader, "match", counted)
    assert caller.remove_quads(corpus, pattern=pattern_message(QuadPattern(predicate=ex("p")))).removed == 6
    assert held == [2, 2, 2]
    assert caller.match(corpus) == {}


def test_a_quad_with_more_sources_than_are_read_at_once_has_all_of_them(
    caller: QuadCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quad_matching, "_KEYS_MAX", 3)
    corpus = caller.corpus()
    for number in range(5):
        caller.put_quads(corpus, quad("a", "p", "o"), quad("b", "p", "o"), source=f"source {number}")
    pages = caller.match_pages(corpus, QuadPattern(object=ex("o")), page_size=1)
    found: dict[Quad, list[str]] = {}
    for page in pages:
        for listed in page.quads:
            found.setdefault(Quad(ex(listed.quad.subject.iri[-1]), ex("p"), ex("o")), []).extend(listed.source_ids)
    every = [f"source {number}" for number in range(5)]
    assert {matched: sorted(sources) for matched, sources in found.items()} == dict.fromkeys(found, every)
    assert found.keys() == {quad("a", "p", "o"), quad("b", "p", "o")}


def test_an_unselective_pattern_is_answered_in_bounded_pages(
    caller: QuadCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quad_matching, "LOOKED_AT_MAX", 256)
    corpus = caller.corpus()
    caller.put_quads(corpus, *(quad(f"s{number}", "p", f"o{number}") for number in range(1_000)), source="manual")
    asked = QuadPattern(object=ex("o7"), source=SourceId("manual"))
    pages = list(caller.match_pages(corpus, asked))
    assert len(pages) > 3, "no page read all the quads"
    assert sum(len(page.quads) for page in pages) == 1


def test_derived_quads_follow_stored_quads(caller: QuadCaller) -> None:
    corpus = caller.corpus()
    ids = caller.add_texts(corpus, {"records.txt": "Records of every transaction are kept for seven years. " * 5})
    document = Iri(iri_of("document", ids["records.txt"]))
    caller.put_quads(corpus, Quad(document, ex("p"), ex("o"), GRAPH_SOURCE[:-1]))
    found = [quad for page in caller.match_pages(corpus, EVERY, page_size=3) for quad in page.quads]
    derived = [quad.derived for quad in found]
    assert derived == sorted(derived)
    assert sum(derived) > 5
    about = caller.derived(corpus, QuadPattern(subject=document, graph=GRAPH_SOURCE))
    assert Quad(document, Iri(RDF_TYPE), Iri(f"{PROV}Entity"), GRAPH_SOURCE) in about
    facts = caller.derived(corpus, QuadPattern(predicate=Iri(RDF_TYPE), object=Iri(f"{NS}Fact")))
    assert facts
    assert not caller.derived(corpus, QuadPattern(source=SourceId("records.txt")))


def test_the_record_of_a_page_names_the_nodes_that_it_told_about(caller: QuadCaller) -> None:
    corpus = caller.corpus()
    caller.add_texts(corpus, {"records.txt": "Records of every transaction are kept for seven years. " * 5})
    caller.put_quads(corpus, quad("a", "p", "o"), source="manual")
    list(caller.match_pages(corpus, EVERY, page_size=1_000))
    record = next(body for body in reversed(list(all_records(caller.server))) if body["call"] == "MatchQuads")
    assert record["corpora"] == {corpus: 2}
    assert record["nodes_count"] > 1
    assert record["detail"]["quads"] > 5


def test_a_pattern_that_no_quad_can_match_is_refused(caller: QuadCaller) -> None:
    corpus = caller.corpus()
    for pattern in (
        QuadPattern(subject=literal("a")),
        QuadPattern(predicate=Blank("a")),
        QuadPattern(object=Iri("no iri")),
        QuadPattern(graph="no iri"),
    ):
        with refused(Reason.INVALID_QUAD):
            caller.match(corpus, pattern)
    with refused(Reason.INVALID_QUAD):
        empty = pb.QuadPattern(subject=pb.Term())
        caller.quads.MatchQuads(pb.MatchQuadsRequest(corpus_id=corpus, pattern=empty), **caller.options())
    assert pattern_message(EVERY) == pb.QuadPattern()


def test_many_quads_are_matched_put_and_removed_in_as_few_round_trips_as_one(caller: QuadCaller) -> None:
    corpus = caller.corpus()

    def costs(first: int, count: int) -> list[int]:
        given = [quad(f"s{number}", f"p{first}", "o") for number in range(first, first + count)]
        made: dict[str, Callable[[], object]] = {
            "PutQuads": lambda: caller.put_quads(corpus, *given, source="manual"),
            "MatchQuads": lambda: caller.match(corpus, QuadPattern(predicate=given[0].predicate)),
            "RemoveQuads": lambda: caller.remove_quads(corpus, *given),
        }
        return [cost_of(caller.server, method, make).round_trips for method, make in made.items()]

    costs(1, 2)  # makes keys, and registers the source
    assert costs(10, 60) == costs(100, 2)
