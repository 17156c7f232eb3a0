"""A corpus with a client's vectors is searched by the client's vectors and never mixed with those of another model."""

from __future__ import annotations

import math
from typing import Any

import pytest

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import nodes_pb2
from tests.documents.test_put_hierarchy import assert_agrees
from tests.support.callers.hierarchies import Made, put, two_sections, with_vectors
from tests.support.callers.knowledge import CHUNK, MASTER, RAW, SECTION, Caller, File, at_revision, refused
from tests.support.data.texts import notice
from tests.support.servers.running import Running


@pytest.fixture
def made(library: Caller, corpus: str) -> Made:
    """A stored hierarchy with vectors of four components."""
    made = with_vectors(two_sections())
    put(library, corpus, made, embedding_model="theirs-4")
    return made


def test_vectors_are_kept_at_length_one(library: Caller, corpus: str, made: Made) -> None:
    for node in made.nodes_of("chunk"):
        found = library.node(node.id, with_embedding=True).chunk
        length = math.sqrt(sum(component * component for component in node.chunk.embedding))
        assert list(found.embedding) == pytest.approx(
            [component / length for component in node.chunk.embedding], abs=4e-3
        )
        assert found.embedding_model == "theirs-4"


def test_chunks_are_found_by_a_vector_the_nearest_first(library: Caller, corpus: str, made: Made) -> None:
    for node in made.nodes_of("chunk"):
        hits = library.hits(corpus, level=CHUNK, vector=node.chunk.embedding, embedding_model="theirs-4")
        assert hits[0].node.id == node.id
        assert hits[0].score == pytest.approx(1.0, abs=1e-3)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert len(hits) == 4


def test_sections_are_found_by_the_sum_of_their_chunks(library: Caller, corpus: str, made: Made) -> None:
    first = made.nodes_of("section")[0].id
    sums = [0.0] * 4
    for node in made.nodes_of("chunk"):
        if node.parent_id == first:
            sums = [a + b for a, b in zip(sums, node.chunk.embedding, strict=True)]
    hits = library.hits(corpus, level=SECTION, vector=sums, embedding_model="theirs-4")
    assert (hits[0].node.id, len(hits)) == (first, 2)
    assert hits[0].score == pytest.approx(1.0, abs=1e-3)


def test_pages_of_a_search_by_vector_follow_each_other(library: Caller, corpus: str, made: Made) -> None:
    asked: dict[str, Any] = {"vector": [1.0, 0.2, 0.1, 0.3], "embedding_model": "theirs-4"}
    whole = [hit.node.id for hit in library.hits(corpus, level=CHUNK, **asked)]
    pages = list(library.pages_of_query(corpus, level=CHUNK, page_size=3, **asked))
    assert [hit.node.id for page in pages for hit in page.hits] == whole
    with refused(Reason.INVALID_PAGE_TOKEN):
        library.hits(
            corpus,
            level=CHUNK,
            vector=[1.0, 0.2, 0.1, 0.4],
            embedding_model="theirs-4",
            page_token=pages[0].next_page_token,
        )


def test_a_text_or_a_vector_of_another_model_is_refused(library: Caller, corpus: str, made: Made) -> None:
    with refused(Reason.MODEL_MISMATCH):
        library.hits(corpus, level=CHUNK, text="deviation")
    with refused(Reason.MODEL_MISMATCH):
        library.hits(corpus, level=CHUNK, vector=[1.0] * 4, embedding_model="others")


WRONG: dict[str, tuple[Reason, dict[str, Any]]] = {
    "short": (Reason.INVALID_VECTOR, {"vector": [1.0] * 3}),
    "long": (Reason.INVALID_VECTOR, {"vector": [1.0] * 5}),
    "longer than any": (Reason.INVALID_VECTOR, {"vector": [1.0] * 4_097}),
    "not a number": (Reason.INVALID_VECTOR, {"vector": [1.0, float("nan"), 0.0, 0.0]}),
    "infinite": (Reason.INVALID_VECTOR, {"vector": [1.0, float("-inf"), 0.0, 0.0]}),
    "zero": (Reason.INVALID_VECTOR, {"vector": [0.0] * 4}),
    "with a text": (Reason.INVALID_ARGUMENT, {"vector": [1.0] * 4, "text": "deviation"}),
    "without a model": (Reason.INVALID_ARGUMENT, {"vector": [1.0] * 4, "embedding_model": ""}),
    "a model without a vector": (Reason.INVALID_ARGUMENT, {}),
    "of masters": (Reason.INVALID_ARGUMENT, {"vector": [1.0] * 4, "level": MASTER}),
    "of raws": (Reason.INVALID_ARGUMENT, {"vector": [1.0] * 4, "level": RAW}),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_unusable_query_vector_is_refused(library: Caller, corpus: str, made: Made, wrong: str) -> None:
    reason, fields = WRONG[wrong]
    for level in (CHUNK, SECTION):
        with refused(reason):
            library.hits(corpus, **{"level": level, "embedding_model": "theirs-4", **fields})


def test_an_ingested_corpus_is_searched_by_a_vector_of_the_servers_model(library: Caller, corpus: str) -> None:
    library.add_texts(corpus, {"a.txt": notice(1), "b.txt": notice(2)})
    for node in library.query(corpus, level=CHUNK):
        content = library.node(node.id, with_embedding=True).chunk
        hits = library.hits(corpus, level=CHUNK, vector=content.embedding, embedding_model=content.embedding_model)
        assert hits[0].node.id == node.id
    with refused(Reason.INVALID_VECTOR):
        library.hits(corpus, level=CHUNK, vector=[1.0, 2.0], embedding_model=content.embedding_model)


def test_documents_cannot_be_added_beside_another_models_vectors_but_can_be_removed(
    library: Caller, corpus: str, made: Made, shared: Running
) -> None:
    with refused(Reason.MODEL_MISMATCH):
        library.add(corpus, File("a.txt", notice(1)))
    library.remove(corpus, made.documents[0].id)
    kept = [node for node in made.nodes_of("chunk") if node.chunk.document_id != made.documents[0].id]
    hits = library.hits(corpus, level=CHUNK, vector=kept[0].chunk.embedding, embedding_model="theirs-4")
    assert next(hit.node.id for hit in hits) == kept[0].id
    assert {hit.node.id for hit in hits} == {node.id for node in kept}
    with refused(Reason.MODEL_MISMATCH):
        library.add(corpus, File("a.txt", notice(1)))
    assert_agrees(shared)
    library.remove(corpus, made.documents[1].id)
    library.add_texts(corpus, {"a.txt": notice(1)})
    assert library.hits(corpus, level=CHUNK, text="inspector")


def test_a_search_follows_a_corpus_from_one_model_to_another(library: Caller, corpus: str, made: Made) -> None:
    """This holds even if the index in memory is of the revision before and the ids are the same."""
    asked: dict[str, Any] = {"vector": [1.0, 0.0, 0.0, 0.0], "embedding_model": "theirs-4"}
    before = library.hits(corpus, level=CHUNK, **asked)
    put(library, corpus, with_vectors(made.copy(), 6), embedding_model="theirs-6")
    hits = library.hits(
        corpus, level=CHUNK, vector=[*made.nodes_of("chunk")[1].chunk.embedding[:], 0, 0], embedding_model="theirs-6"
    )
    assert {hit.node.id for hit in hits} == {node.id for node in made.nodes_of("chunk")}
    with refused(Reason.MODEL_MISMATCH):
        library.hits(corpus, level=CHUNK, **asked)
    assert library.hits(corpus, level=CHUNK, as_of=at_revision(1), **asked) == before
    for node in made.nodes_of("chunk"):
        del node.chunk.embedding[:]
    put(library, corpus, made)
    assert len(library.hits(corpus, level=CHUNK, text="deviation")) == 4
    assert library.hits(corpus, level=CHUNK, as_of=nodes_pb2.AsOf(revision=1), **asked) == before
