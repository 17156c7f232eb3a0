"""Corpora of all kinds export to the same file again after they were moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import cores_pb2, facts_pb2
from tests.support.callers.core_exports import FACT, QUADS, CoreCaller, serving, turn
from tests.support.callers.cores import CoreCaller as Mover
from tests.support.callers.cores import check_store, embedded_chunks, handbook
from tests.support.callers.hierarchies import PARAGRAPHS, add_chunk, new_document, put, two_sections, with_vectors
from tests.support.callers.knowledge import RAW, File, files, refused
from tests.support.data.texts import REGULATIONS
from tests.support.fixtures import new_corpus
from tests.support.servers import migrations
from tests.support.servers.migrations import NEW, OLD, MigrationCaller
from tests.support.servers.running import ACME_ID, GLOBEX, GLOBEX_ID, OPERATOR, Running

PLAIN = cores_pb2.CORE_KIND_PLAIN


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, CoreCaller, Mover, Mover]]:
    with serving(tmp_path_factory.mktemp("here")) as (server, writer):
        own, second = Mover(server.address, OPERATOR, ACME_ID), Mover(server.address, OPERATOR, GLOBEX_ID)
        yield server, writer, own, second
        own.close()
        second.close()


def quads_alone(writer: CoreCaller, _: Mover, corpus: str) -> None:
    writer.put_quads(corpus, *QUADS)


def a_foreign_core(_: CoreCaller, own: Mover, corpus: str) -> None:
    own.send(corpus, handbook() + embedded_chunks({"urn:doc:1/c1": [1.0, 2.1], "urn:doc:1/c2": [1.0, 2.0]}))


def two_foreign_cores(writer: CoreCaller, own: Mover, corpus: str) -> None:
    a_foreign_core(writer, own, corpus)
    own.send(corpus, handbook(), source_id="b")
    own.send(corpus, embedded_chunks({"urn:doc:1/c1": [1.0, 2.1, 3.0]}), source_id="c")


def a_plain_core_of_ours(writer: CoreCaller, own: Mover, corpus: str) -> None:
    second_corpus = writer.corpus("of a plain core")
    writer.add(
        second_corpus, File("a.md", "# Title\n\nRecords are kept for five years by the quality unit of the site.\n")
    )
    own.send(corpus, own.export(second_corpus, kind=PLAIN, core_id="urn:x:plain").data)
    own.send(corpus, own.export(second_corpus, kind=cores_pb2.CORE_KIND_DOCUMENT_EMBEDDINGS).data)


def a_changed_document(writer: CoreCaller, _: Mover, corpus: str) -> None:
    (name, text), (second, second_text), *_rest = REGULATIONS.items()
    writer.add(corpus, File(name, text, "one"), File(second, second_text, "two"))
    writer.add(corpus, File(name, text[: len(text) // 2] + "\n\nAnd everything else is new in this one.\n", "one"))
    writer.remove(
        corpus, next(document.id for document in writer.list_documents(corpus) if document.source_id == "two")
    )


def a_hierarchy_with_gaps(writer: CoreCaller, _: Mover, corpus: str) -> None:
    made = two_sections()
    first = made.nodes_of("section")[0]
    document = new_document("gaps.txt")
    made.documents.append(document)
    add_chunk(made, first.id, document.id, [(10, PARAGRAPHS[0]), (200, PARAGRAPHS[1])])
    add_chunk(made, first.id, document.id, [(1_000, PARAGRAPHS[2])])
    put(writer, corpus, made)
    draft = "Records of all meetings are kept for ten years in the archive."
    writer.put(corpus, facts_pb2.FactDraft(content=draft, source_id="gaps.txt"))


def a_hierarchy_and_documents(writer: CoreCaller, _: Mover, corpus: str) -> None:
    put(writer, corpus, two_sections())
    for name, text in list(REGULATIONS.items())[:2]:
        writer.add(corpus, File(name, text))


def vectors_of_a_client(writer: CoreCaller, _: Mover, corpus: str) -> None:
    put(writer, corpus, with_vectors(two_sections()), embedding_model="theirs")


KINDS: list[Callable[[CoreCaller, Mover, str], None]] = [
    quads_alone,
    a_foreign_core,
    two_foreign_cores,
    a_plain_core_of_ours,
    a_changed_document,
    a_hierarchy_with_gaps,
    a_hierarchy_and_documents,
    vectors_of_a_client,
]


@pytest.mark.parametrize("fill", KINDS)
def test_a_moved_corpus_exports_to_the_same_file(
    here: tuple[Running, CoreCaller, Mover, Mover], fill: Callable[[CoreCaller, Mover, str], None]
) -> None:
    server, writer, own, second = here
    corpus, target = writer.corpus(fill.__name__), new_corpus(server, GLOBEX)
    fill(writer, own, corpus)
    core = own.export(corpus).data
    second.send(target, core, strict=True)
    assert second.export(target).data == core
    plain = own.export(corpus, kind=PLAIN).data
    assert second.export(target, kind=PLAIN).data == plain
    embeddings = cores_pb2.CORE_KIND_DOCUMENT_EMBEDDINGS
    assert second.export(target, kind=embeddings).data == own.export(corpus, kind=embeddings).data
    check_store(server)


def test_a_corpus_with_a_changed_embedding_model_exports_to_the_same_file(tmp_path: Path) -> None:
    with migrations.serving(tmp_path, OLD) as caller:
        corpus = caller.corpus()
        caller.add(corpus, *files(dict(list(REGULATIONS.items())[:2])))
        caller.put(corpus, facts_pb2.FactDraft(content=FACT, source_id="minutes"))
    with migrations.serving(tmp_path, NEW) as caller:
        server = caller.server
        caller.migrate(corpus)
        own, second = Mover(server.address, OPERATOR, ACME_ID), Mover(server.address, OPERATOR, GLOBEX_ID)
        target, core = new_corpus(server, GLOBEX), own.export(corpus).data
        second.send(target, core, strict=True)
        assert second.export(target).data == core
        with MigrationCaller(server, GLOBEX) as reader:
            question = "how long are records kept"
            assert reader.answers(target, question) == caller.answers(corpus, question)
            assert reader.vectors(target) == caller.vectors(corpus)
        check_store(server)
        own.close()
        second.close()


def test_an_id_that_a_raw_of_the_core_has_may_not_be_taken_in_the_tenant(
    here: tuple[Running, CoreCaller, Mover, Mover],
) -> None:
    server, writer, own, second = here
    corpus, target = writer.corpus("with raws"), new_corpus(server, GLOBEX)
    writer.add(corpus, File("a.md", "# Title\n\nRecords are kept for five years by the quality unit of the site.\n"))
    raw = writer.query(corpus, level=RAW)[0].id
    core = own.export(corpus).data
    with CoreCaller(server, GLOBEX) as theirs:
        taken = turn(0.5)
        taken.turn_id = raw
        theirs.put_turns(new_corpus(server, GLOBEX), taken)
        with refused(Reason.NODE_EXISTS):
            second.send(target, core)
        assert theirs.head(target) == 0
