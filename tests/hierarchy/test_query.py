"""Query: nodes of one level, by filters and by meaning, of one corpus, several, or all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import uuid4

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from drillcore_proto.reasons import Reason
from drillcore_proto.v1.nodes_pb2 import AsOf, Entity, Filters, Node, QueryRequest
from tests.support.callers.knowledge import CHUNK, LEVELS, MASTER, RAW, SECTION, Caller, File, refused
from tests.support.data.texts import REGULATIONS, notice
from tests.support.fixtures import Filled, new_corpus
from tests.support.servers.running import ACME, GLOBEX, Running, create_tenants, running

QUESTIONS = {
    "How soon must a breach of personal data be reported to the authority?": "privacy.txt",
    "turbine blades inspected with a borescope": "aviation.txt",
    "audit trails must be secure and time-stamped": "records.txt",
    "report of suspicious transactions by a bank": "laundering.txt",
    "at which temperature is chilled meat stored": "food.txt",
    "limit for sulphur dioxide from boilers": "emissions.txt",
    "brakes of a train are tested before it departs": "railways.txt",
    "informed consent of participants of a clinical trial": "trials.txt",
}


def moment(at: datetime) -> Timestamp:
    found = Timestamp()
    found.FromDatetime(at)
    return found


def ids(nodes: list[Node]) -> list[str]:
    return [node.id for node in nodes]


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_gives_all_its_nodes_once(library: Caller, filled: Filled, level: int) -> None:
    tree = filled.tree
    expected = {MASTER: {tree.master.id}, SECTION: set(tree.sections), CHUNK: set(tree.chunks), RAW: set(tree.raws)}
    found = library.query(filled.corpus, level=level)
    assert sorted(ids(found)) == sorted(expected[level])
    assert {node.level for node in found} == {level}
    assert {node.corpus_id for node in found} == {filled.corpus}


@pytest.mark.parametrize("level", [SECTION, CHUNK, RAW])
@pytest.mark.parametrize("page_size", [1, 3, 1_000])
def test_pages_are_complete_and_in_one_order(library: Caller, filled: Filled, level: int, page_size: int) -> None:
    whole = ids(library.query(filled.corpus, level=level))
    pages = list(library.pages_of_query(filled.corpus, level=level, page_size=page_size))
    assert [hit.node.id for page in pages for hit in page.hits] == whole
    assert all(len(page.hits) == page_size for page in pages[:-1])
    assert len(pages) == max(1, -(-len(whole) // page_size)), "the last page is not an empty one"


@pytest.mark.parametrize(("question", "name"), QUESTIONS.items(), ids=QUESTIONS.values())
def test_a_question_finds_the_document_that_answers_it(
    library: Caller, filled: Filled, question: str, name: str
) -> None:
    chunks = library.hits(filled.corpus, level=CHUNK, text=question)
    assert chunks[0].node.chunk.document_id == filled.ids[name]
    assert chunks[0].node.chunk.source_id == name
    best = library.query(filled.corpus, level=SECTION, text=question)[0]
    assert chunks[0].node.id in filled.tree.sections[best.id].child_ids


def test_the_text_of_a_chunk_finds_that_chunk_first(library: Caller, filled: Filled) -> None:
    for chunk in list(filled.tree.chunks.values())[::3]:
        text = filled.tree.text(chunk.chunk.document_id)[chunk.chunk.span.start : chunk.chunk.span.end]
        assert library.hits(filled.corpus, level=CHUNK, text=text, page_size=1)[0].node.id == chunk.id


@pytest.mark.parametrize("level", [SECTION, CHUNK])
def test_hits_of_a_text_come_once_and_best_first(library: Caller, filled: Filled, level: int) -> None:
    whole = library.hits(filled.corpus, level=level, text="time limits for reports")
    assert all(earlier.score >= later.score for earlier, later in pairwise(whole))
    assert all(-1.0 <= hit.score <= 1.0 + 1e-6 for hit in whole)
    assert sorted(hit.node.id for hit in whole) == sorted(
        filled.tree.chunks if level == CHUNK else filled.tree.sections
    )
    paged = library.hits(filled.corpus, level=level, text="time limits for reports", page_size=2)
    assert paged == whole


def test_without_a_text_there_is_no_score(library: Caller, filled: Filled) -> None:
    assert not any(hit.HasField("score") for hit in library.hits(filled.corpus, level=CHUNK))


@pytest.mark.parametrize("level", [MASTER, RAW])
def test_only_sections_and_chunks_are_searched_by_meaning(library: Caller, filled: Filled, level: int) -> None:
    with refused(Reason.INVALID_ARGUMENT, field="text"):
        library.query(filled.corpus, level=level, text="reports")


def test_a_query_must_name_a_level(library: Caller, filled: Filled) -> None:
    for level in (0, 9):
        with refused(Reason.INVALID_ARGUMENT, field="level"):
            library.query(filled.corpus, level=level)


def test_a_text_may_have_any_characters_up_to_a_limit(library: Caller, filled: Filled) -> None:
    for text in ("?", " ", "🧪", "\x00", "\u202e", "ص", "a" * 10_000):
        assert library.query(filled.corpus, level=CHUNK, text=text)
    with refused(Reason.TOO_LARGE, field="text"):
        library.query(filled.corpus, level=CHUNK, text="a" * 10_001)


def test_a_category_gives_its_sections_and_their_chunks(library: Caller, filled: Filled) -> None:
    tree = filled.tree
    categories = {section.section.category for section in tree.sections.values()}
    assert len(categories) > 1
    for category in categories:
        sections = {section_id for section_id, section in tree.sections.items() if section.section.category == category}
        filters = Filters(categories=[category])
        assert set(ids(library.query(filled.corpus, level=SECTION, filters=filters))) == sections
        chunks = {chunk_id for chunk_id, chunk in tree.chunks.items() if chunk.parent_id in sections}
        assert set(ids(library.query(filled.corpus, level=CHUNK, filters=filters))) == chunks
        by_meaning = library.query(filled.corpus, level=CHUNK, filters=filters, text="reports")
        assert set(ids(by_meaning)) == chunks
        raws = {raw_id for raw_id, raw in tree.raws.items() if raw.parent_id in chunks}
        assert set(ids(library.query(filled.corpus, level=RAW, filters=filters))) == raws
    several = library.query(filled.corpus, level=SECTION, filters=Filters(categories=categories))
    assert set(ids(several)) == set(tree.sections)
    assert library.query(filled.corpus, level=SECTION, filters=Filters(categories=["no such"])) == []


def test_an_entity_gives_the_chunks_that_name_it(library: Caller, filled: Filled) -> None:
    named = {(entity.type, entity.value) for chunk in filled.tree.chunks.values() for entity in chunk.chunk.entities}
    assert {"regulation", "amount", "email"} <= {kind for kind, _ in named}
    for kind, value in named:
        expected = {
            chunk_id
            for chunk_id, chunk in filled.tree.chunks.items()
            if any((entity.type, entity.value) == (kind, value) for entity in chunk.chunk.entities)
        }
        filters = Filters(entities=[Entity(type=kind, value=value)])
        assert set(ids(library.query(filled.corpus, level=CHUNK, filters=filters))) == expected, (kind, value)


def test_an_entity_without_a_value_matches_all_entities_of_its_type(library: Caller, filled: Filled) -> None:
    expected = {
        chunk_id
        for chunk_id, chunk in filled.tree.chunks.items()
        if any(entity.type == "regulation" for entity in chunk.chunk.entities)
    }
    filters = Filters(entities=[Entity(type="regulation")])
    assert set(ids(library.query(filled.corpus, level=CHUNK, filters=filters))) == expected
    sections = {filled.tree.chunks[chunk_id].parent_id for chunk_id in expected}
    assert set(ids(library.query(filled.corpus, level=SECTION, filters=filters))) == sections


def test_several_entities_must_all_be_named(library: Caller, filled: Filled) -> None:
    both = Filters(entities=[Entity(type="email"), Entity(type="regulation")])
    expected = {
        chunk_id
        for chunk_id, chunk in filled.tree.chunks.items()
        if {"email", "regulation"} <= {entity.type for entity in chunk.chunk.entities}
    }
    assert set(ids(library.query(filled.corpus, level=CHUNK, filters=both))) == expected


def test_a_document_or_its_source_gives_its_nodes(library: Caller, filled: Filled) -> None:
    for name, document_id in filled.ids.items():
        expected = {chunk.id for chunk in filled.tree.chunks.values() if chunk.chunk.document_id == document_id}
        for filters in (Filters(document_ids=[document_id]), Filters(source_ids=[name])):
            assert set(ids(library.query(filled.corpus, level=CHUNK, filters=filters))) == expected
            raws = library.query(filled.corpus, level=RAW, filters=filters)
            assert (
                "".join(raw.raw.content for raw in sorted(raws, key=lambda raw: raw.raw.span.start))
                == (REGULATIONS[name])
            )


def test_filters_must_all_hold(library: Caller, filled: Filled) -> None:
    records, privacy = filled.ids["records.txt"], filled.ids["privacy.txt"]
    neither = Filters(document_ids=[records], source_ids=["privacy.txt"])
    assert library.query(filled.corpus, level=CHUNK, filters=neither) == []
    either = library.query(filled.corpus, level=CHUNK, filters=Filters(document_ids=[records, privacy]))
    assert {chunk.chunk.document_id for chunk in either} == {records, privacy}
    email = Filters(document_ids=[records], entities=[Entity(type="email")])
    assert library.query(filled.corpus, level=CHUNK, filters=email) == []


def test_a_filter_for_an_unknown_value_finds_nothing(library: Caller, filled: Filled) -> None:
    for filters in (Filters(document_ids=[str(uuid4())]), Filters(source_ids=["none"])):
        for level in (SECTION, CHUNK, RAW):
            assert library.query(filled.corpus, level=level, filters=filters) == []
        assert library.query(filled.corpus, level=CHUNK, filters=filters, text="reports") == []
    with refused(Reason.INVALID_ID, field="document_ids"):
        library.query(filled.corpus, level=CHUNK, filters=Filters(document_ids=["x"]))


def test_filters_hold_for_masters_too(library: Caller, filled: Filled) -> None:
    """Otherwise a query of all corpora would give masters of corpora without a match."""
    absent, present = Filters(document_ids=[str(uuid4())]), Filters(source_ids=["food.txt"])
    assert library.query(filled.corpus, level=MASTER, filters=absent) == []
    assert ids(library.query(filled.corpus, level=MASTER, filters=present)) == [filled.tree.master.id]


def test_filters_by_time_give_the_nodes_added_in_that_time(library: Caller, corpus: str) -> None:
    old = library.add_texts(corpus, {"old.txt": REGULATIONS["food.txt"]})["old.txt"]
    new = library.add_texts(corpus, {"new.txt": REGULATIONS["aviation.txt"]})["new.txt"]
    between = {document.id: document for document in library.list_documents(corpus)}[new].created_at
    after, before = Filters(created_after=between), Filters(created_before=between)
    for filters, expected in ((after, new), (before, old)):
        chunks = library.query(corpus, level=CHUNK, filters=filters)
        raws = library.query(corpus, level=RAW, filters=filters)
        assert {node.chunk.document_id for node in chunks} == {node.raw.document_id for node in raws} == {expected}
    assert library.query(corpus, level=CHUNK, filters=Filters(created_after=between, created_before=between)) == []


@pytest.mark.parametrize("seconds", [-(1 << 62), -62_135_596_801, 253_402_300_800, 1 << 62])
def test_an_invalid_time_is_refused(library: Caller, filled: Filled, seconds: int) -> None:
    """A timestamp can hold years that Python's calendar does not have."""
    wrong = Timestamp(seconds=seconds)
    with refused(Reason.INVALID_ARGUMENT):
        library.query(filled.corpus, level=CHUNK, filters=Filters(created_after=wrong))
    with refused(Reason.INVALID_ARGUMENT):
        library.query(filled.corpus, level=CHUNK, as_of=AsOf(time=wrong))
    with refused(Reason.INVALID_ARGUMENT):
        library.node(filled.tree.master.id, as_of=AsOf(time=wrong))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server for queries of all corpora. Other tests make no corpora on it."""
    with running(tmp_path_factory.mktemp("many")) as server:
        create_tenants(server.client())
        yield server


@pytest.fixture
def alone(many: Running) -> Iterator[Caller]:
    """A tenant without corpora."""
    with many.client(ACME) as client:
        for corpus in list(client.iter_corpora()):
            client.delete_corpus(corpus.id)
    caller = Caller(many.address, ACME)
    yield caller
    caller.close()


def test_all_corpora_means_all_of_the_tenant(many: Running, alone: Caller) -> None:
    assert alone.query(level=CHUNK) == []
    theirs = Caller(many.address, GLOBEX)
    theirs.add_texts(new_corpus(many, GLOBEX), {"theirs.txt": REGULATIONS["food.txt"]})
    theirs.close()
    corpora = [new_corpus(many) for _ in range(3)]
    for corpus, (name, text) in zip(corpora, REGULATIONS.items(), strict=False):
        alone.add_texts(corpus, {name: text})
    for text in ("", "reports"):
        (page,) = alone.pages_of_query(level=CHUNK, text=text)
        assert {hit.node.corpus_id for hit in page.hits} == set(corpora)
        assert page.revisions == dict.fromkeys(corpora, 1)
    assert len(alone.query(level=MASTER)) == 3
    with many.client(ACME) as client:
        client.delete_corpus(corpora[0])
    assert {node.corpus_id for node in alone.query(level=CHUNK)} == set(corpora[1:])


def test_too_many_corpora_are_refused_rather_than_cut_off(
    many: Running, alone: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are more corpora than a query searches. The caller must know that some would be left out."""
    monkeypatch.setattr("drillcore_server.hierarchy.query.CORPORA_MAX", 2)
    for number in range(3):
        alone.add_texts(new_corpus(many), {"a.txt": notice(number)})
    with refused(Reason.INVALID_ARGUMENT, field="corpus_ids"):
        alone.query(level=CHUNK)


def test_several_corpora_are_ranked_together(many: Running, alone: Caller) -> None:
    names = ["privacy.txt", "aviation.txt", "food.txt"]
    corpora = {name: new_corpus(many) for name in names}
    for name, corpus in corpora.items():
        alone.add_texts(corpus, {name: REGULATIONS[name]})
    chosen = [corpora["privacy.txt"], corpora["aviation.txt"]]
    hits = alone.hits(*chosen, level=CHUNK, text="inspection of turbine blades", page_size=2)
    assert hits[0].node.corpus_id == corpora["aviation.txt"]
    assert {hit.node.corpus_id for hit in hits} == set(chosen)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_a_corpus_that_is_named_twice_is_searched_once(library: Caller, filled: Filled) -> None:
    for text in ("", "reports"):
        twice = ids(library.query(filled.corpus, filled.corpus, level=CHUNK, text=text))
        assert sorted(twice) == sorted(filled.tree.chunks)


def test_an_unknown_corpus_is_refused(library: Caller, filled: Filled) -> None:
    with refused(Reason.CORPUS_NOT_FOUND):
        library.query(filled.corpus, str(uuid4()), level=CHUNK)
    with refused(Reason.INVALID_ARGUMENT, field="corpus_ids"):
        library.query(*(str(uuid4()) for _ in range(101)), level=CHUNK)


def test_a_query_by_revision_needs_exactly_one_corpus(library: Caller, filled: Filled, corpus: str) -> None:
    for named in ([], [filled.corpus, corpus]):
        with refused(Reason.INVALID_ARGUMENT, field="as_of"):
            library.query(*named, level=CHUNK, as_of=AsOf(revision=1))


@pytest.mark.parametrize("text", ["", "inspectors and reports"])
def test_pages_stay_at_one_revision_while_documents_come_and_go(library: Caller, corpus: str, text: str) -> None:
    added = library.add_texts(corpus, {f"{number}.txt": notice(number) for number in range(6)})
    whole = ids(library.query(corpus, level=CHUNK, text=text))
    found = []
    for number, page in enumerate(library.pages_of_query(corpus, level=CHUNK, text=text, page_size=2)):
        assert page.revisions == {corpus: 1}
        found += [hit.node.id for hit in page.hits]
        library.add_texts(corpus, {f"more {number}.txt": notice(100 + number)})
        if number == 0:
            library.remove(corpus, added["3.txt"])
    assert found == whole


@pytest.mark.parametrize("text", ["", "inspectors and reports"])
def test_pages_of_all_corpora_ignore_corpora_made_meanwhile(many: Running, alone: Caller, text: str) -> None:
    """A new corpus sorts before, between or after the corpora of the first page."""
    for number in range(3):
        corpus = new_corpus(many)
        for place in range(number + 1):
            alone.add_texts(corpus, {f"{place}.txt": notice(number * 10 + place)})
    whole = ids(alone.query(level=CHUNK, text=text))
    found = []
    for number, page in enumerate(alone.pages_of_query(level=CHUNK, text=text, page_size=1)):
        found += [hit.node.id for hit in page.hits]
        alone.add_texts(new_corpus(many), {"new.txt": notice(200 + number)})
    assert found == whole


def first_token(caller: Caller, *corpora: str, **fields: object) -> str:
    page = next(caller.pages_of_query(*corpora, level=CHUNK, page_size=1, **fields))
    assert page.next_page_token
    return str(page.next_page_token)


def test_a_token_is_valid_in_its_own_query_only(library: Caller, filled: Filled, corpus: str) -> None:
    library.add_texts(corpus, {f"{number}.txt": notice(number) for number in range(3)})
    token = first_token(library, filled.corpus)
    for wrong in (
        {"corpora": [corpus]},
        {"corpora": [filled.corpus, corpus]},
        {"level": RAW},
        {"text": "reports"},
        {"filters": Filters(source_ids=["food.txt"])},
        {"as_of": AsOf(revision=1)},
    ):
        fields = {"corpora": [filled.corpus], "level": CHUNK, "page_token": token, **wrong}
        with refused(Reason.INVALID_PAGE_TOKEN, field="page_token"):
            library.query(*fields.pop("corpora"), **fields)
    for mangled in ("x", token[:-3], token + token, token[::-1], "a" * 100_000):
        with refused(Reason.INVALID_PAGE_TOKEN, field="page_token"):
            library.query(filled.corpus, level=CHUNK, page_token=mangled)


def test_a_token_of_another_tenants_query_is_refused(many: Running, alone: Caller) -> None:
    """Another tenant asks the same question of all corpora."""
    theirs = Caller(many.address, GLOBEX)
    for caller, token in ((alone, ACME), (theirs, GLOBEX)):
        caller.add_texts(new_corpus(many, token), {f"{number}.txt": notice(number) for number in range(3)})
    with refused(Reason.INVALID_PAGE_TOKEN, field="page_token"):
        alone.query(level=CHUNK, page_token=first_token(theirs))
    theirs.close()


def test_the_same_filters_in_another_order_are_the_same_query(library: Caller, filled: Filled) -> None:
    sources = ["food.txt", "aviation.txt", "privacy.txt"]
    token = first_token(library, filled.corpus, filters=Filters(source_ids=sources))
    request = QueryRequest(
        corpus_ids=[filled.corpus], level=CHUNK, filters=Filters(source_ids=sources[::-1]), page_token=token
    )
    assert library.nodes.Query(request, **library.options()).hits


def test_all_corpora_of_a_query_are_read_as_of_the_same_time(many: Running, alone: Caller) -> None:
    first, second = new_corpus(many), new_corpus(many)
    alone.add_texts(first, {"a.txt": notice(1)})
    at = datetime.now(UTC)
    while datetime.now(UTC) <= at + timedelta(milliseconds=1):
        pass
    alone.add(second, File("b.txt", notice(2)))
    (page,) = alone.pages_of_query(level=CHUNK, as_of=AsOf(time=moment(at)))
    assert {hit.node.corpus_id for hit in page.hits} == {first}
    assert page.revisions == {first: 1, second: 0}
