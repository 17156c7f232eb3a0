"""A hierarchy made by a client is stored unchanged, as one revision, and every read finds it."""

from __future__ import annotations

import random
from uuid import UUID, uuid4

import pytest

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import documents_pb2 as pb
from drillcore_proto.v1 import nodes_pb2
from drillcore_server.fsck.check_store import Fsck
from drillcore_server.storage.store import open_store
from tests.support.callers.hierarchies import (
    PARAGRAPHS,
    Made,
    add_chunk,
    new_document,
    put,
    requests,
    send,
    span,
    two_sections,
    whole_text,
    with_vectors,
)
from tests.support.callers.knowledge import CHUNK, RAW, SECTION, Caller, File, at_revision, refused
from tests.support.data.texts import REGULATIONS, notice
from tests.support.fixtures import new_corpus
from tests.support.servers.running import GLOBEX, Running
from tests.support.servers.trees import assert_whole, walk


def assert_agrees(server: Running) -> None:
    """Asserts that fsck finds no problem."""
    own = server.server
    report = Fsck(server.engine, own._keys, own.keyring, open_store(server.engine)[1].store_id).run()
    assert report.problems == ()


@pytest.fixture
def made() -> Made:
    return two_sections()


def test_a_hierarchy_is_read_back_as_it_was_put(library: Caller, corpus: str, made: Made, shared: Running) -> None:
    done = put(library, corpus, made)
    assert done == pb.PutHierarchyDone(revision=1, documents=2, sections=2, chunks=4, raws=8)
    children: dict[str, set[str]] = {}
    for node in made.nodes:
        children.setdefault(node.parent_id, set()).add(node.id)
    for node in made.nodes:
        found = library.node(node.id)
        assert (found.id, found.parent_id, found.corpus_id, found.version) == (node.id, node.parent_id, corpus, 1)
        assert found.created_by == "ann@acme"
        assert set(found.child_ids) == children.get(node.id, set())
        assert found.WhichOneof("content") == node.WhichOneof("content")
    assert_whole(walk(library, corpus))
    assert_agrees(shared)


def test_the_content_of_nodes_is_kept(library: Caller, corpus: str, made: Made) -> None:
    put(library, corpus, made)
    master = library.node(made.master.id).master
    assert (master.summary, list(master.keywords)) == (
        "Deviations, training, release and storage.",
        ["deviation", "release"],
    )
    assert master.processing == nodes_pb2.Processing(processor="theirs", version="7")
    assert [(finding.kind, finding.text) for finding in master.findings] == [
        (finding.kind, finding.text) for finding in made.master.master.findings
    ]
    section = made.nodes_of("section")[0]
    found = library.node(section.id).section
    assert (found.title, found.category, found.summary) == ("Records", "records", "What is said of records.")
    assert [(citation.chunk_id, citation.span) for citation in found.citations] == [
        (citation.chunk_id, citation.span) for citation in section.section.citations
    ]
    assert found.entities == section.section.entities
    chunk = made.nodes_of("chunk")[0]
    kept = library.node(chunk.id).chunk
    assert (kept.summary, list(kept.headings), kept.page) == ("In short: Records.", ["Records"], 1)
    assert (kept.source_id, kept.span) == ("manual.txt", span(0, len(PARAGRAPHS[0] + PARAGRAPHS[1])))
    assert [(quote.text, quote.weight) for quote in kept.quotes] == [(PARAGRAPHS[0][4:20], 0.25)]
    assert kept.processing.fallback_reason == "was asleep"
    assert kept.tokens > 0
    raw = made.nodes_of("raw")[1]
    assert library.node(raw.id).raw.content == raw.raw.content == PARAGRAPHS[1]


def test_nodes_may_come_in_any_order(library: Caller, corpus: str, made: Made) -> None:
    random.Random(1).shuffle(made.nodes)
    put(library, corpus, made)
    assert_whole(walk(library, corpus))


def test_documents_are_registered_with_their_text(library: Caller, corpus: str, made: Made) -> None:
    put(library, corpus, made)
    for sent in made.documents:
        found = library.document(corpus, sent.id)
        assert found.text == whole_text()
        assert (found.document.source_id, found.document.source_version) == (sent.source_id, 1)
        assert (found.document.chunks, found.document.raws) == (2, 4)
    assert library.document(corpus, made.documents[0].id).document.metadata == {"site": "12"}


def test_raws_are_drilled_down_to_rolled_up_from_and_have_a_history(library: Caller, corpus: str, made: Made) -> None:
    put(library, corpus, made)
    chunk = made.nodes_of("chunk")[0]
    raws = [node.id for node in made.nodes_of("raw") if node.parent_id == chunk.id]
    assert [node.id for node in library.below(chunk.id, RAW)] == raws
    assert [node.id for page in library.pages_below(made.master.id, RAW, page_size=3) for node in page.nodes] == [
        node.id for node in library.below(made.master.id, RAW)
    ]
    rolled = library.roll_up(*raws, target=SECTION)
    assert [node.id for node in rolled.nodes] == [chunk.parent_id]
    assert [entry.revision for entry in library.history(node_id=raws[0])] == [1]
    put(library, corpus, made)
    assert [entry.revision for entry in library.history(node_id=raws[0])] == [2, 1]


def test_a_raw_without_an_id_gets_one_that_leads_to_it(library: Caller, corpus: str, made: Made) -> None:
    for node in made.nodes_of("raw"):
        node.id = ""
    put(library, corpus, made)
    chunk = made.nodes_of("chunk")[0]
    below = library.below(chunk.id, RAW)
    assert [node.raw.content for node in below] == list(PARAGRAPHS[:2])
    for node in below:
        found = library.node(node.id)
        assert (found.parent_id, found.raw) == (chunk.id, node.raw)
    assert len({node.id for node in library.below(made.master.id, RAW)}) == 8


def test_the_new_revision_is_exactly_the_hierarchy_and_the_one_before_is_still_there(
    library: Caller, corpus: str, made: Made, shared: Running
) -> None:
    library.add_texts(corpus, REGULATIONS)
    before = walk(library, corpus)
    assert put(library, corpus, made).revision == 2
    after = walk(library, corpus)
    assert set(after.documents) == {document.id for document in made.documents}
    assert {*after.sections, *after.chunks, *after.raws, after.master.id} == {node.id for node in made.nodes}
    assert walk(library, corpus, 1) == before
    for gone in (before.master.id, *before.sections, *before.chunks, *before.raws):
        with refused(Reason.NODE_NOT_FOUND):
            library.node(gone)
        assert library.node(gone, as_of=at_revision(1)).id == gone
    assert library.hits(corpus, level=CHUNK, text="deviation", page_size=100)
    assert len(library.hits(corpus, level=CHUNK, text="deviation")) == 4
    assert_agrees(shared)


def test_a_node_put_again_is_its_next_version(library: Caller, corpus: str, made: Made, shared: Running) -> None:
    put(library, corpus, made)
    first = walk(library, corpus)
    made.nodes_of("section")[0].section.summary = "Something else."
    put(library, corpus, made)
    second = walk(library, corpus)
    for earlier, later in (
        (first.master, second.master),
        *zip(first.chunks.values(), second.chunks.values(), strict=True),
    ):
        assert (later.id, later.version, later.created_at) == (earlier.id, 2, earlier.created_at)
    section = made.nodes_of("section")[0].id
    assert library.node(section).section.summary == "Something else."
    assert library.node(section, as_of=at_revision(1)).section.summary == "What is said of records."
    assert_agrees(shared)


def test_a_node_that_was_removed_comes_back_as_its_next_version(library: Caller, corpus: str, made: Made) -> None:
    put(library, corpus, made)
    put(library, corpus, two_sections())
    put(library, corpus, made)
    for node in made.nodes:
        assert library.node(node.id).version == 2
    assert [entry.revision for entry in library.history(node_id=made.master.id)] == [3, 1]
    assert [entry.revision for entry in library.history(node_id=made.nodes_of("raw")[0].id)] == [3, 2, 1]
    assert [document.source_version for document in library.list_documents(corpus)] == [1, 1]


def test_an_ingested_hierarchy_is_put_again_under_its_own_ids(library: Caller, corpus: str, shared: Running) -> None:
    """A client does this when it reads a hierarchy, changes a summary, and puts it back."""
    ids = library.add_texts(corpus, {"a.txt": notice(1, 6), "b.txt": notice(2)})
    before = walk(library, corpus)
    made = Made([pb.HierarchyDocument(id=ids[name], source_id=name, title=name) for name in ids])
    made.nodes.append(pb.HierarchyNode(id=before.master.id, master=nodes_pb2.MasterContent(summary="New.")))
    for stored_section in before.sections.values():
        content = nodes_pb2.SectionContent(title=stored_section.section.title, category=stored_section.section.category)
        made.nodes.append(pb.HierarchyNode(id=stored_section.id, parent_id=stored_section.parent_id, section=content))
    for stored_chunk in before.chunks.values():
        chunk = nodes_pb2.ChunkContent(document_id=stored_chunk.chunk.document_id)
        made.nodes.append(pb.HierarchyNode(id=stored_chunk.id, parent_id=stored_chunk.parent_id, chunk=chunk))
    for stored_raw in before.raws.values():
        raw = nodes_pb2.RawContent(
            document_id=stored_raw.raw.document_id, span=stored_raw.raw.span, content=stored_raw.raw.content
        )
        made.nodes.append(pb.HierarchyNode(id=stored_raw.id, parent_id=stored_raw.parent_id, raw=raw))
    put(library, corpus, made)
    after = walk(library, corpus)
    assert_whole(after)
    assert (set(after.raws), set(after.chunks)) == (set(before.raws), set(before.chunks))
    assert {stored_chunk.version for stored_chunk in after.chunks.values()} == {2}
    assert walk(library, corpus, 1) == before
    assert {document.source_version for document in library.list_documents(corpus)} == {1}, "their content is the same"
    assert library.add(corpus, File("a.txt", notice(1, 6))).done.unchanged == 1
    assert_agrees(shared)


def test_a_source_with_other_content_is_its_next_version_and_a_removed_source_can_come_back(
    library: Caller, corpus: str, made: Made
) -> None:
    library.add_texts(corpus, {"manual.txt": notice(1), "other.txt": notice(2)})
    put(library, corpus, made)
    found = {document.source_id: document.source_version for document in library.list_documents(corpus)}
    assert found == {"manual.txt": 2, "copy.txt": 1}
    added = library.add(corpus, File("other.txt", notice(2)), File("copy.txt", whole_text()))
    assert (added.done.added, added.done.unchanged) == (1, 1)
    found = {document.source_id: document.source_version for document in library.list_documents(corpus)}
    assert found == {"manual.txt": 2, "copy.txt": 1, "other.txt": 2}


def test_documents_are_added_to_and_removed_from_a_hierarchy_that_was_put(
    library: Caller, corpus: str, made: Made, shared: Running
) -> None:
    for chunk in made.nodes_of("chunk")[:2]:
        del chunk.chunk.quotes[:]
    del made.nodes_of("section")[0].section.citations[:]
    put(library, corpus, made)
    library.add_texts(corpus, {"a.txt": notice(1), "more.txt": whole_text() + PARAGRAPHS[0]})
    assert_whole(walk(library, corpus))
    assert_agrees(shared)
    gone = made.documents[0].id
    library.remove(corpus, gone)
    tree = walk(library, corpus)
    assert_whole(tree)
    assert gone not in tree.documents
    with refused(Reason.NODE_NOT_FOUND):
        library.node(made.nodes_of("raw")[0].id)
    assert_agrees(shared)
    library.remove(corpus, *tree.documents)
    assert_agrees(shared)


def test_filters_find_the_nodes_that_were_put(library: Caller, corpus: str, made: Made) -> None:
    put(library, corpus, made)
    chunks = made.nodes_of("chunk")
    named = nodes_pb2.Filters(entities=[nodes_pb2.Entity(type="duration", value="1 hours")])
    assert {node.id for node in library.query(corpus, level=CHUNK, filters=named)} == {chunks[2].id, chunks[3].id}
    in_category = nodes_pb2.Filters(categories=["release"])
    assert [node.id for node in library.query(corpus, level=SECTION, filters=in_category)] == [
        made.nodes_of("section")[1].id
    ]
    of_source = nodes_pb2.Filters(source_ids=["copy.txt"])
    assert {node.id for node in library.query(corpus, level=CHUNK, filters=of_source)} == {chunks[1].id, chunks[3].id}


def overlapping() -> Made:
    """One document: its first chunk has a gap, the second overlaps the first, the third leaves out its end."""
    made = Made([new_document("gaps.txt")])
    document, text = made.documents[0].id, whole_text()
    section = made.add(made.add(master=nodes_pb2.MasterContent()).id, section=nodes_pb2.SectionContent()).id
    add_chunk(made, section, document, [(0, text[:20]), (30, text[30:50])])
    add_chunk(made, section, document, [(15, text[15:60])])
    add_chunk(made, section, document, [(60, text[60:])])
    return made


def test_overlapping_chunks_are_joined_by_position(library: Caller, corpus: str, shared: Running) -> None:
    made = overlapping()
    put(library, corpus, made)
    assert library.text(corpus, made.documents[0].id) == whole_text()
    assert_agrees(shared)


def test_chunks_that_begin_at_the_same_character_keep_their_own_text(
    library: Caller, corpus: str, shared: Running
) -> None:
    made, text = Made([new_document("twice.txt")]), whole_text()
    section = made.add(made.add(master=nodes_pb2.MasterContent()).id, section=nodes_pb2.SectionContent()).id
    ends = (30, 50, len(text))
    chunks = [add_chunk(made, section, made.documents[0].id, [(0, text[:end])]) for end in ends]
    put(library, corpus, made)
    assert_agrees(shared)
    raws = [library.below(chunk, RAW) for chunk in chunks]
    assert [[raw.raw.content for raw in found] for found in raws] == [[text[:end]] for end in ends]


def test_text_that_moves_is_not_left_at_its_earlier_place(library: Caller, corpus: str, shared: Running) -> None:
    made = overlapping()
    put(library, corpus, made)
    moved, text = made.copy(), whole_text()
    for raw in moved.nodes_of("raw"):
        raw.raw.span.start, raw.raw.span.end = raw.raw.span.start + 7, raw.raw.span.end + 7
    put(library, corpus, moved)
    assert_agrees(shared)
    third = made.nodes_of("chunk")[2].id
    (raw,) = library.below(third, RAW)
    assert (raw.raw.span.start, raw.raw.content) == (67, text[60:])
    (before,) = library.below(third, RAW, as_of=at_revision(1))
    assert (before.raw.span.start, before.raw.content) == (60, text[60:])


def test_quotes_beside_a_gap_are_the_original_characters(library: Caller, corpus: str) -> None:
    made, text = overlapping(), whole_text()
    chunk = made.nodes_of("chunk")[0]
    for start, end in ((5, 20), (30, 44), (31, 50)):
        chunk.chunk.quotes.append(nodes_pb2.Citation(span=span(start, end)))
    put(library, corpus, made)
    quotes = library.node(chunk.id).chunk.quotes
    assert [quote.text for quote in quotes] == [text[5:20], text[30:44], text[31:50]]


@pytest.mark.parametrize(
    ("characters", "left_out"), [(0, 1), (0, 0), (500, None)], ids=["gap", "begins late", "ends early"]
)
def test_a_text_that_its_raws_do_not_cover_is_not_shown(
    library: Caller, corpus: str, characters: int, left_out: int | None, shared: Running
) -> None:
    made = overlapping()
    gone = "" if left_out is None else made.nodes_of("chunk")[left_out].id
    made.nodes = [node for node in made.nodes if gone not in {node.id, node.parent_id} or not gone]
    made.documents[0].characters = characters
    put(library, corpus, made)
    with refused(Reason.TEXT_INCOMPLETE):
        library.text(corpus, made.documents[0].id)
    (found,) = library.list_documents(corpus)
    assert (found.characters, found.content_hash) == (characters or len(whole_text()), "")
    assert_agrees(shared)


def test_a_hash_is_accepted_where_raws_leave_gaps_and_checked_where_they_do_not(library: Caller, corpus: str) -> None:
    made = overlapping()
    made.documents[0].content_hash = "ab" * 32
    with refused(Reason.INVALID_HIERARCHY):
        put(library, corpus, made)
    made.documents[0].characters = 500
    put(library, corpus, made)
    (found,) = library.list_documents(corpus)
    assert found.content_hash == "ab" * 32


def test_a_corpus_at_another_revision_than_expected_is_left_alone(library: Caller, corpus: str, made: Made) -> None:
    put(library, corpus, made, expected_revision=0)
    with refused(Reason.VERSION_MISMATCH):
        put(library, corpus, two_sections(), expected_revision=0)
    assert library.head(corpus) == 1
    assert put(library, corpus, two_sections(), expected_revision=1).revision == 2


def test_a_repeated_request_is_done_once_and_another_under_its_id_refused(
    library: Caller, corpus: str, made: Made
) -> None:
    first = put(library, corpus, made, request_id=f"put {corpus}")
    put(library, corpus, two_sections())
    assert put(library, corpus, made, request_id=f"put {corpus}") == first
    assert library.head(corpus) == 2
    made.nodes_of("raw")[0].raw.content = "X" + PARAGRAPHS[0][1:]
    with refused(Reason.REQUEST_ID_REUSED):
        put(library, corpus, made, request_id=f"put {corpus}")


def test_a_stream_without_its_end_stores_nothing(library: Caller, corpus: str, made: Made) -> None:
    with refused(Reason.CANCELLED):
        send(library, iter(list(requests(corpus, made))[:-1]))
    with refused(Reason.INVALID_ARGUMENT, field="end"):
        put(library, corpus, made, end=pb.PutHierarchyEnd(documents=2, nodes=len(made.nodes) + 1))
    assert library.head(corpus) == 0


def test_documents_come_before_nodes(library: Caller, corpus: str, made: Made) -> None:
    sent = list(requests(corpus, made))
    sent[1], sent[-2] = sent[-2], sent[1]
    with refused(Reason.INVALID_ARGUMENT, Reason.INVALID_HIERARCHY):
        send(library, iter(sent))


def test_a_master_alone_empties_a_corpus(library: Caller, corpus: str, made: Made, shared: Running) -> None:
    put(library, corpus, made)
    made = Made()
    made.add(master=nodes_pb2.MasterContent(summary="Nothing yet."))
    put(library, corpus, made)
    assert library.master(corpus).master.summary == "Nothing yet."
    assert library.query(corpus, level=CHUNK) == []
    assert_agrees(shared)
    library.add_texts(corpus, {"a.txt": notice(1)})
    assert_whole(walk(library, corpus))


def test_an_id_of_another_corpus_is_refused(library: Caller, corpus: str, made: Made, shared: Running) -> None:
    other_corpus = new_corpus(shared)
    put(library, other_corpus, made)
    for node in made.nodes:
        attempt = two_sections()
        of_level = attempt.nodes_of(str(node.WhichOneof("content")))[0]
        _rename(attempt, of_level.id, node.id)
        with refused(Reason.NODE_EXISTS):
            put(library, corpus, attempt)
    assert library.head(corpus) == 0


def _rename(made: Made, old: str, new: str) -> None:
    """Replaces an id everywhere in the hierarchy."""
    for place, node in enumerate(made.nodes):
        data = node.SerializeToString().replace(old.encode(), new.encode())
        made.nodes[place] = pb.HierarchyNode.FromString(data)


def test_the_id_of_an_ingested_raw_cannot_be_given_to_another_node(
    library: Caller, corpus: str, shared: Running
) -> None:
    other_corpus = new_corpus(shared)
    library.add_texts(other_corpus, {"a.txt": notice(1)})
    raw = next(iter(walk(library, other_corpus).raws))
    attempt = two_sections()
    _rename(attempt, attempt.nodes_of("raw")[0].id, raw)
    with refused(Reason.NODE_EXISTS):
        put(library, corpus, attempt)
    attempt = two_sections()
    _rename(attempt, attempt.nodes_of("section")[0].id, raw)
    with refused(Reason.NODE_EXISTS):
        put(library, other_corpus, attempt)


def test_an_id_that_had_another_level_is_refused(library: Caller, corpus: str, made: Made) -> None:
    put(library, corpus, made)
    attempt = two_sections()
    _rename(attempt, attempt.nodes_of("section")[0].id, made.nodes_of("chunk")[0].id)
    with refused(Reason.NODE_EXISTS):
        put(library, corpus, attempt)


def test_nodes_with_consecutive_ids_are_not_taken_for_ingested_raws(
    library: Caller, corpus: str, shared: Running
) -> None:
    """A chunk whose id ends in zeros is not taken for an ingested one, whose raws have the ids that follow."""
    made, first = two_sections(), uuid4().int >> 16 << 16
    chunk = made.nodes_of("chunk")[0]
    old = chunk.id
    _rename(made, old, str(UUID(int=first)))
    put(library, corpus, made)
    for number, node in enumerate([*made.nodes_of("section"), made.master, *made.nodes_of("raw")], 1):
        with refused(Reason.NODE_NOT_FOUND):
            library.node(str(UUID(int=first + number)))
        _rename(made, node.id, str(UUID(int=first + number)))
    put(library, corpus, made)
    assert_whole(walk(library, corpus))
    for node in made.nodes:
        assert library.node(node.id).WhichOneof("content") == node.WhichOneof("content")
    assert_agrees(shared)


def test_another_tenant_may_have_the_same_ids(library: Caller, corpus: str, made: Made, shared: Running) -> None:
    put(library, corpus, made)
    stranger = Caller(shared.address, GLOBEX)
    theirs = new_corpus(shared, GLOBEX)
    put(stranger, theirs, made)
    assert library.node(made.master.id).corpus_id == corpus
    assert stranger.node(made.master.id).corpus_id == theirs
    stranger.close()


def test_history_names_the_call_its_documents_and_its_sections(library: Caller, corpus: str, made: Made) -> None:
    library.add_texts(corpus, {"a.txt": notice(1)})
    put(library, corpus, made)
    newest = library.history(corpus_id=corpus)[0]
    assert (newest.action, newest.documents_added, newest.documents_removed) == ("PutHierarchy", 2, 1)
    assert {section.id for section in made.nodes_of("section")} < set(newest.section_ids)


def test_a_large_hierarchy_is_stored_in_many_transactions_and_seen_at_once(
    library: Caller, corpus: str, shared: Running
) -> None:
    made = Made([new_document("large.txt")])
    section = made.add(made.add(master=nodes_pb2.MasterContent()).id, section=nodes_pb2.SectionContent()).id
    text = "".join(random.Random(3).choices("abcdefghijklmnopqrstuvwxyz     ", k=5_000_000))
    for start in range(0, len(text), 20_000):
        add_chunk(made, section, made.documents[0].id, [(start, text[start : start + 20_000])])
    with_vectors(made)
    done = put(library, corpus, made, embedding_model="theirs")
    assert (done.revision, done.chunks) == (1, 250)
    assert library.text(corpus, made.documents[0].id) == text
    assert_agrees(shared)
