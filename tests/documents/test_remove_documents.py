"""RemoveDocuments: documents leave every level and index in one revision and stay in the earlier revisions."""

from __future__ import annotations

from uuid import uuid4

import pytest

from drillcore_proto.reasons import Reason
from drillcore_proto.v1.nodes_pb2 import Entity, Filters, Statistics
from tests.support.callers.knowledge import CHUNK, MASTER, RAW, SECTION, Caller, at_revision, refused
from tests.support.data.texts import REGULATIONS, notice
from tests.support.fixtures import new_corpus
from tests.support.servers.running import Running
from tests.support.servers.trees import assert_whole, walk


def test_a_removed_document_is_gone_from_every_level_and_index(library: Caller, corpus: str) -> None:
    ids = library.add_texts(corpus, REGULATIONS)
    before = walk(library, corpus)
    removed = library.remove(corpus, ids["privacy.txt"])
    assert (removed.revision, removed.removed) == (2, 1)
    tree = walk(library, corpus)
    assert_whole(tree)
    assert set(tree.documents) == set(ids.values()) - {ids["privacy.txt"]}
    gone = set(before.chunks) - set(tree.chunks)
    assert {before.chunks[chunk].chunk.document_id for chunk in gone} == {ids["privacy.txt"]}
    for node_id in (*gone, *(raw for raw, node in before.raws.items() if node.parent_id in gone)):
        with refused(Reason.NODE_NOT_FOUND):
            library.node(node_id)
    question = "erasure of personal data of the data subject"
    assert not gone & {hit.id for hit in library.query(corpus, level=CHUNK, text=question)}
    for filters in (
        Filters(entities=[Entity(type="email")]),
        Filters(document_ids=[ids["privacy.txt"]]),
        Filters(source_ids=["privacy.txt"]),
    ):
        assert library.query(corpus, level=CHUNK, filters=filters) == []
        assert library.query(corpus, level=CHUNK, filters=filters, as_of=at_revision(1))


def test_summaries_and_findings_no_longer_quote_removed_documents(library: Caller, corpus: str) -> None:
    ids = library.add_texts(corpus, {name: REGULATIONS[name] for name in ("food.txt", "privacy.txt")})
    library.remove(corpus, ids["privacy.txt"])
    tree = walk(library, corpus)
    said = [tree.master.master.summary, *(finding.text for finding in tree.master.master.findings)]
    said += [section.section.summary for section in tree.sections.values()]
    said += [
        *tree.master.master.keywords,
        *(word for section in tree.sections.values() for word in section.section.keywords),
    ]
    assert not [text for text in said if "personal data" in text or "controller" in text]


def test_the_master_of_an_emptied_corpus_says_that_it_is_empty(library: Caller, corpus: str) -> None:
    ids = library.add_texts(corpus, REGULATIONS)
    assert library.remove(corpus, *ids.values()).removed == len(ids)
    tree = walk(library, corpus)
    assert_whole(tree)
    assert (tree.documents, tree.sections, tree.chunks, tree.raws) == ({}, {}, {}, {})
    content = tree.master.master
    assert content.statistics == Statistics()
    assert (list(content.citations), list(content.findings), list(content.keywords)) == ([], [], [])
    assert not any(word in content.summary for text in REGULATIONS.values() for word in text.split() if len(word) > 8)
    for level in (SECTION, CHUNK, RAW):
        assert library.query(corpus, level=level) == []
    assert library.query(corpus, level=CHUNK, text="reports") == []
    assert library.query(corpus, level=SECTION, text="reports") == []
    assert library.below(tree.master.id, RAW) == []


def test_an_emptied_corpus_can_be_filled_again(library: Caller, corpus: str) -> None:
    library.remove(corpus, *library.add_texts(corpus, REGULATIONS).values())
    master = library.master(corpus)
    library.add_texts(corpus, REGULATIONS)
    tree = walk(library, corpus)
    assert_whole(tree)
    assert (tree.master.id, tree.master.version) == (master.id, master.version + 1)


def test_a_removal_that_names_an_unknown_document_removes_nothing(
    library: Caller, corpus: str, shared: Running
) -> None:
    ids = library.add_texts(corpus, {"a.txt": notice(1), "b.txt": notice(2)})
    elsewhere = library.add_texts(new_corpus(shared), {"c.txt": notice(3)})
    before = walk(library, corpus)
    for missing in (str(uuid4()), elsewhere["c.txt"], next(iter(before.chunks))):
        for order in ([ids["a.txt"], missing], [missing, ids["a.txt"]]):
            with refused(Reason.DOCUMENT_NOT_FOUND):
                library.remove(corpus, *order)
    assert walk(library, corpus) == before


def test_a_document_is_removed_once(library: Caller, corpus: str) -> None:
    ids = library.add_texts(corpus, {"a.txt": notice(1), "b.txt": notice(2)})
    assert library.remove(corpus, ids["a.txt"], ids["a.txt"]).removed == 1
    with refused(Reason.DOCUMENT_NOT_FOUND):
        library.remove(corpus, ids["a.txt"])
    assert library.head(corpus) == 2


@pytest.mark.parametrize("count", [0, 10_001])
def test_a_removal_names_some_documents_but_not_too_many(library: Caller, corpus: str, count: int) -> None:
    library.add_texts(corpus, {"a.txt": notice(1)})
    with refused(Reason.INVALID_ARGUMENT, field="document_ids"):
        library.remove(corpus, *(str(uuid4()) for _ in range(count)))
    assert library.query(corpus, level=MASTER)[0].version == 1
