"""AddDocuments: each document is added, updated, left unchanged or refused with a reason, and keeps its characters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from drillcore_proto.reasons import REQUEST_ID_HEADER, SERVER_VERSION_HEADER, Reason
from drillcore_proto.v1 import documents_pb2 as pb
from drillcore_proto.v1.nodes_pb2 import Filters
from drillcore_server import VERSION
from drillcore_server.kernel.named import METADATA_ENTRIES_MAX, METADATA_VALUE_CHARACTERS_MAX
from tests.support.callers.knowledge import (
    ADDED,
    CHUNK,
    FAILED,
    MASTER,
    RAW,
    UNCHANGED,
    UPDATED,
    Caller,
    File,
    at_revision,
    files,
    parts,
    refused,
)
from tests.support.data.texts import REGULATIONS, notice
from tests.support.fixtures import new_corpus
from tests.support.servers.running import ACME, Running, create_tenants, running
from tests.support.servers.trees import assert_whole, walk

RECORDS = REGULATIONS["records.txt"]
HTML = """<!doctype html><html><head><title>Release of aircraft</title></head><body><h1>Release to service</h1>
<p>No aircraft shall be operated unless an authorised engineer has released it.</p><script>ignored()</script>
<p>The release shall be entered in the technical log.</p></body></html>"""
MARKDOWN = """# Hygiene

## Storage

Chilled meat shall be stored at no more than 7 degrees.

## Staff

Persons who are ill shall not handle food.
"""
JSON_LINES = "\n".join(
    json.dumps({"id": key, "title": f"Rule {key}", "text": text, "edition": "2024"})
    for key, text in (("a", notice(1)), ("b", notice(2)))
)

BROKEN: dict[str, tuple[bytes, str]] = {
    "empty.txt": (b"", "EMPTY"),
    "blank.txt": (b" \n\t\n", "EMPTY"),
    "damaged.txt": ("Über die Prüfung ".encode() + b"\xff\xfe\xc3", "BROKEN_ENCODING"),
    "binary.txt": (bytes(range(256)) * 20, "NOT_TEXT"),
    "malformed.pdf": (b"%PDF-1.7\nthis is not a PDF at all\n%%EOF", "MALFORMED"),
    "malformed.docx": (b"PK\x03\x04 and no more", "MALFORMED"),
    "protected.docx": (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500) + "EncryptedPackage".encode("utf-16-le"),
        "ENCRYPTED",
    ),
    "picture.png": (b"\x89PNG\r\n\x1a\n" + bytes(50), "UNSUPPORTED"),
    "line.jsonl": (b"{not json}", "MALFORMED"),
}

EXACT = {
    "carriage returns": "Clause one.\r\nClause two.\r\n\r\nClause three.\r\rClause four.\n\r\n",
    "no line end": "One clause",
    "blank lines around": "\n\n \n  Clause one.\n\n\n\n\nClause two.\t\n \n",
    "right to left": "المادة: يجب على الشركة حفظ السجلات.\n\nהחברה תשמור את הרשומות.\n",
    "emoji": "Class 🧪 items 👩🏽‍🔬 shall be 🏷️ marked.\n\nSee 🇪🇺.",
    "combining characters": "Cafe\u0301 and Caf\u00e9 are kept apart. A\u030a\u0323 as well.",
    "control characters": "Page one.\x0cPage two.\n\nBell\x07, null\x00 and escape\x1b[0m are kept as they are.",
    "line separators": "One\u2028two\u2029three\u0085four\x0bfive\x1csix. A whole sentence follows here.",
    "invisible characters": "Zero\u200bwidth, soft\u00adhyphen, no\u00a0break, \u202eover\u202c, mark \ufeff within.",
    "outside of the first plane": "\U0001d504\U0001d52f\U0001d531 1: \U00020bb7\u91ce\u5bb6 are listed \U0010fffd.",
    "one long line": "The operator shall keep the log of the boiler. " * 400,
    "one long word": "x" * 20_000,
    "only numbers": "\n".join(f"{n}\t{n * n}\t{n**3}" for n in range(300)),
}


@pytest.mark.parametrize("text", EXACT.values(), ids=EXACT.keys())
def test_the_text_of_a_document_is_its_original_characters(library: Caller, corpus: str, text: str) -> None:
    (outcome,) = library.add(corpus, File("exact.txt", text)).outcomes
    assert outcome.kind == ADDED
    found = library.document(corpus, outcome.document_id)
    assert found.text == text
    assert found.document.characters == len(text)
    assert found.document.content_hash == hashlib.sha256(text.encode()).hexdigest()
    tree = walk(library, corpus)
    assert tree.text(outcome.document_id) == text
    assert_whole(tree)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-le"])
def test_other_encodings_give_the_same_characters_and_a_note(library: Caller, corpus: str, encoding: str) -> None:
    (outcome,) = library.add(corpus, File("records.txt", RECORDS.encode(encoding))).outcomes
    found = library.document(corpus, outcome.document_id)
    assert found.text == RECORDS
    assert any("decoded as" in note for note in found.document.preprocessing)


def test_a_document_in_parts_is_the_same_as_in_one_piece(library: Caller, corpus: str) -> None:
    text = EXACT["right to left"] * 3
    (outcome,) = library.send(parts(corpus, [File("parts.txt", text)], part_bytes=7)).outcomes
    assert library.text(corpus, outcome.document_id) == text


def test_a_plain_text_keeps_its_source_title_and_metadata(library: Caller, corpus: str) -> None:
    file = File("records.txt", RECORDS, source_id="registry/11", metadata={"region": "US", "ключ": "значение"})
    added = library.add(corpus, file)
    assert (added.done.revision, added.done.added, added.kinds) == (1, 1, [ADDED])
    (document,) = library.list_documents(corpus)
    assert document == library.document(corpus, added.ids["records.txt"]).document
    assert (document.corpus_id, document.source_id, document.source_version) == (corpus, "registry/11", 1)
    assert (document.title, document.media_type) == ("records", "text/plain")
    assert document.metadata == {"region": "US", "ключ": "значение"}
    assert document.created_by == "ann@acme"


def test_markdown_has_its_headings(library: Caller, corpus: str) -> None:
    (outcome,) = library.add(corpus, File("hygiene.md", MARKDOWN)).outcomes
    found = library.document(corpus, outcome.document_id)
    assert (found.text, found.document.media_type, found.document.title) == (MARKDOWN, "text/markdown", "Hygiene")
    headings = {heading for chunk in library.query(corpus, level=CHUNK) for heading in chunk.chunk.headings}
    assert headings == {"Hygiene"}, "the headings that the whole chunk stands under"


def test_html_gives_its_text(library: Caller, corpus: str) -> None:
    (outcome,) = library.add(corpus, File("release.html", HTML)).outcomes
    found = library.document(corpus, outcome.document_id)
    assert found.document.media_type == "text/html"
    assert found.document.title == "Release of aircraft"
    assert "The release shall be entered in the technical log." in found.text
    assert "ignored" not in found.text
    assert "<p>" not in found.text
    assert_whole(walk(library, corpus))


def test_each_json_line_is_a_document(library: Caller, corpus: str) -> None:
    added = library.add(corpus, File("rules.jsonl", JSON_LINES))
    assert (added.kinds, added.done.added) == ([ADDED, ADDED], 2)
    documents = {document.source_id: document for document in library.list_documents(corpus)}
    assert documents.keys() == {"rules.jsonl#a", "rules.jsonl#b"}
    assert documents["rules.jsonl#a"].title == "Rule a"
    assert documents["rules.jsonl#b"].metadata["edition"] == "2024"
    assert library.text(corpus, documents["rules.jsonl#b"].id) == notice(2)


def test_a_bad_line_of_json_lines_leaves_the_others(library: Caller, corpus: str) -> None:
    added = library.add(
        corpus, File("rules.jsonl", JSON_LINES + '\nnot json\n{"id": "a", "text": "Again."}\n{"id": 1}')
    )
    assert sorted(added.kinds) == [ADDED, ADDED, FAILED, FAILED, FAILED]
    reasons = sorted(outcome.reason for outcome in added.outcomes if outcome.kind == FAILED)
    assert reasons == ["DUPLICATE_ID", "MALFORMED", "MALFORMED"]
    messages = sorted(outcome.message for outcome in added.outcomes if outcome.kind == FAILED)
    assert [message.split()[:2] for message in messages] == [["line", "3"], ["line", "4"], ["line", "5"]]
    assert len(library.list_documents(corpus)) == 2


@pytest.mark.parametrize("field", ["id", "title", "text", "metadata", "other"])
def test_a_lone_surrogate_in_a_json_line_is_no_defect(library: Caller, corpus: str, field: str) -> None:
    """UTF-8 cannot encode it, so such a line is either stored with a replacement mark or refused."""
    line = {"id": "a", "title": "Rule", "text": notice(1), field: "odd \ud800 one"}
    if field == "metadata":
        line["metadata"] = {"odd \udfff key": "odd \ud800 value"}
    (outcome,) = library.add(corpus, File("odd.jsonl", json.dumps(line))).outcomes
    assert outcome.kind in {ADDED, FAILED}
    if outcome.kind == ADDED:
        assert library.document(corpus, outcome.document_id).text
        assert len(library.list_documents(corpus)) == 1


@pytest.mark.parametrize(("content", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_a_document_that_cannot_be_parsed_fails_with_its_reason(
    library: Caller, corpus: str, content: bytes, reason: str
) -> None:
    added = library.add(corpus, File("broken", content, media_type="application/jsonl" if b"{not" in content else ""))
    (outcome,) = added.outcomes
    assert (outcome.kind, outcome.reason, outcome.document_id) == (FAILED, reason, "")
    assert outcome.message
    assert (added.done.failed, added.done.revision) == (1, 0), "a call that changes nothing makes no revision"
    assert library.list_documents(corpus) == []


def test_good_documents_are_added_though_others_fail(library: Caller, corpus: str) -> None:
    mixed = [*files({name: content for name, (content, _) in BROKEN.items()}), *files(REGULATIONS)]
    added = library.add(corpus, *mixed[::-2], *mixed[-2::-2])
    assert {name for name, outcome in added.by_name.items() if outcome.kind == ADDED} == set(REGULATIONS)
    assert {name: outcome.reason for name, outcome in added.by_name.items() if outcome.kind == FAILED} == {
        name: reason for name, (_, reason) in BROKEN.items()
    }
    assert (added.done.revision, added.done.added, added.done.failed) == (1, len(REGULATIONS), len(BROKEN))
    tree = walk(library, corpus)
    assert {document: tree.text(document) for document in tree.documents} == {
        added.ids[name]: text for name, text in REGULATIONS.items()
    }
    assert_whole(tree)


def test_a_source_that_comes_twice_in_one_call_is_refused_the_second_time(library: Caller, corpus: str) -> None:
    added = library.add(corpus, File("a.txt", notice(1)), File("a.txt", notice(2)), File("b.txt", notice(3)))
    assert added.kinds.count(ADDED) == 2
    (failed,) = [outcome for outcome in added.outcomes if outcome.kind == FAILED]
    assert (failed.name, failed.reason) == ("a.txt", "DUPLICATE_SOURCE")
    assert sorted(library.text(corpus, document.id) for document in library.list_documents(corpus)) == [
        notice(1),
        notice(3),
    ]


def test_a_source_that_comes_twice_is_refused_also_if_it_was_unchanged_the_first_time(
    library: Caller, corpus: str
) -> None:
    library.add(corpus, File("a.txt", notice(1)))
    added = library.add(corpus, File("a.txt", notice(1)), File("a.txt", notice(2)))
    assert added.kinds == [UNCHANGED, FAILED]
    assert added.outcomes[1].reason == "DUPLICATE_SOURCE"
    assert added.done.revision == 1


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with small limits for an upload."""
    path: Path = tmp_path_factory.mktemp("small")
    with running(path, upload_bytes_max=100_000, message_bytes_max=64 << 10) as server:
        create_tenants(server.client())
        yield server


@pytest.fixture
def to_small(small: Running) -> Iterator[Caller]:
    caller = Caller(small.address, ACME)
    yield caller
    caller.close()


def test_an_upload_over_the_limit_fails_alone(small: Running, to_small: Caller) -> None:
    corpus = new_corpus(small)
    sent = [File("first.txt", notice(1)), File("large.txt", notice(2) * 250), File("last.txt", notice(3))]
    added = to_small.send(parts(corpus, sent, part_bytes=20_000))
    assert {name: outcome.kind for name, outcome in added.by_name.items()} == {
        "first.txt": ADDED,
        "large.txt": FAILED,
        "last.txt": ADDED,
    }
    assert added.by_name["large.txt"].reason == "TOO_LARGE"
    assert "100000" in added.by_name["large.txt"].message.replace(",", "")
    assert len(to_small.list_documents(corpus)) == 2


def test_a_list_of_documents_is_readable_though_it_is_larger_than_a_message(small: Running, to_small: Caller) -> None:
    corpus = new_corpus(small)
    metadata = {f"key {number}": "x" * 4_000 for number in range(5)}
    for number in range(6):
        to_small.add(corpus, File(f"{number}.txt", notice(number), metadata=metadata))
    listed = to_small.list_documents(corpus)
    assert sorted(document.source_id for document in listed) == [f"{number}.txt" for number in range(6)]


def test_a_text_larger_than_a_message_is_refused_with_a_reason_and_read_by_its_raws(
    small: Running, to_small: Caller
) -> None:
    corpus, text = new_corpus(small), "Each sample shall be labelled, and each label shall be read. \n\n" * 1_200
    (outcome,) = to_small.send(parts(corpus, [File("long.txt", text)], part_bytes=20_000)).outcomes
    assert outcome.kind == ADDED
    with refused(Reason.TOO_LARGE, field="with_text"):
        to_small.document(corpus, outcome.document_id)
    raws = to_small.query(corpus, level=RAW, filters=Filters(document_ids=[outcome.document_id]), page_size=1_000)
    assert "".join(raw.raw.content for raw in sorted(raws, key=lambda raw: raw.raw.span.start)) == text


@pytest.mark.parametrize(
    "name", ["n" * 300, "🧪" * 1_000, "n" * 20_000, "🧪" * 5_000, "a\x00b", "../../etc/passwd", "\u202etxt.a"]
)
def test_an_odd_name_is_kept_or_refused_with_a_reason(library: Caller, corpus: str, name: str) -> None:
    first = library.add(corpus, File(name, notice(1)))
    second = library.add(corpus, File("b.txt", notice(2), source_id=name))
    if first.kinds == [ADDED]:
        assert (first.kinds, second.kinds) == ([ADDED], [UPDATED])
        assert [document.source_id for document in library.list_documents(corpus)] == [name]
    else:
        assert len(name) > 1_000
        assert (first.kinds, second.kinds) == ([FAILED], [FAILED])
        assert {first.outcomes[0].reason, second.outcomes[0].reason} == {Reason.TOO_LARGE.name}


def test_a_very_long_id_of_a_json_line_is_no_defect(library: Caller, corpus: str) -> None:
    lines = [json.dumps({"id": key, "text": notice(place)}) for place, key in enumerate(("a", "b" * 30_000))]
    kinds = library.add(corpus, File("rules.jsonl", "\n".join(lines))).kinds
    assert sorted(kinds) in ([ADDED, FAILED], [ADDED, ADDED])


def test_metadata_over_its_limits_fails_alone(library: Caller, corpus: str) -> None:
    added = library.add(
        corpus,
        File("many.txt", notice(1), metadata={f"key {number}": "" for number in range(METADATA_ENTRIES_MAX + 1)}),
        File("long.txt", notice(2), metadata={"key": "v" * (METADATA_VALUE_CHARACTERS_MAX + 1)}),
        File("rules.jsonl", json.dumps({"id": "a", "text": notice(3), "key": "v" * 1_000_000})),
        File("good.txt", notice(4), metadata={"key": "v" * METADATA_VALUE_CHARACTERS_MAX}),
    )
    assert sorted(added.kinds) == [ADDED, FAILED, FAILED, FAILED]
    assert {outcome.reason for outcome in added.outcomes if outcome.kind == FAILED} == {Reason.TOO_LARGE.name}
    assert [document.source_id for document in library.list_documents(corpus)] == ["good.txt"]


def test_a_document_without_a_name_or_a_source_is_refused(library: Caller, corpus: str) -> None:
    with refused(Reason.INVALID_ARGUMENT, field="header"):
        library.add(corpus, File("a.txt", notice(1)), File("", notice(2)))
    assert library.list_documents(corpus) == []


def test_a_stream_must_begin_with_its_target(library: Caller, corpus: str) -> None:
    whole = list(parts(corpus, [File("a.txt", notice(1))]))
    for wrong in ([], whole[1:], [pb.AddDocumentsRequest()]):
        with refused(Reason.INVALID_ARGUMENT, field="target"):
            library.send(wrong)
    assert library.head(corpus) == 0


def test_a_stream_must_be_headers_with_their_data_and_an_end_that_counts_them(library: Caller, corpus: str) -> None:
    target, header, data, end = parts(corpus, [File("a.txt", notice(1))])
    miscounted = [pb.AddDocumentsRequest(end=pb.AddDocumentsEnd(documents=count)) for count in (0, 2)]
    for wrong in (
        [target, data, end],
        [target, header, data, target, end],
        [target, header, data, pb.AddDocumentsRequest(), end],
        *([target, header, data, wrong] for wrong in miscounted),
    ):
        with refused(Reason.INVALID_ARGUMENT, field="part"):
            library.send(wrong)
    assert library.head(corpus) == 0


def test_a_stream_that_stops_before_its_end_adds_nothing(library: Caller, corpus: str) -> None:
    whole = list(parts(corpus, [File("a.txt", notice(1)), File("b.txt", notice(2))]))
    for count in range(1, len(whole)):
        with refused(Reason.CANCELLED):
            library.send(whole[:count])
    assert library.head(corpus) == 0


def test_an_upload_is_answered_with_its_request_id_and_is_one_line_of_the_log(
    shared: Running, library: Caller, corpus: str
) -> None:
    sent = parts(corpus, [File("a.txt", notice(1)), File("b.txt", notice(2))])
    answered = library.documents.AddDocuments(sent, **library.options(f"upload {corpus}"))
    assert [answer.WhichOneof("event") for answer in answered].count("outcome") == 2
    trailing = dict(answered.trailing_metadata())
    assert (trailing[REQUEST_ID_HEADER], trailing[SERVER_VERSION_HEADER]) == (f"upload {corpus}", VERSION)
    (line,) = [line for line in shared.logged_calls() if line["request_id"] == f"upload {corpus}"]
    assert (line["method"], line["outcome"], line["principal"]) == ("AddDocuments", "OK", "ann@acme")
    labels = {"method": "AddDocuments", "outcome": "OK"}
    assert shared.server.metrics.registry.get_sample_value("drillcore_calls_total", labels) >= 1


def test_a_target_alone_adds_nothing(library: Caller, corpus: str) -> None:
    added = library.add(corpus)
    assert (added.outcomes, added.done) == ([], pb.AddDocumentsDone())


def test_progress_counts_documents_and_characters(library: Caller, corpus: str) -> None:
    added = library.add(corpus, *files(REGULATIONS))
    assert [report.documents_prepared for report in added.progress] == list(range(1, len(REGULATIONS) + 1))
    assert added.progress[-1].characters_prepared == sum(map(len, REGULATIONS.values()))


def test_an_unchanged_document_makes_no_revision(library: Caller, corpus: str) -> None:
    first = library.add(corpus, *files(REGULATIONS))
    before = walk(library, corpus)
    again = library.add(corpus, *files(REGULATIONS))
    assert set(again.kinds) == {UNCHANGED}
    assert again.ids == first.ids
    assert (again.done.revision, again.done.unchanged, again.done.added) == (1, len(REGULATIONS), 0)
    assert walk(library, corpus) == before


def test_a_changed_document_is_an_update_and_the_old_content_stays_readable(library: Caller, corpus: str) -> None:
    old_id = library.add_texts(corpus, {"records.txt": RECORDS, "food.txt": REGULATIONS["food.txt"]})["records.txt"]
    changed = RECORDS.replace("7 years", "10 years")
    added = library.add(corpus, File("records.txt", changed), File("food.txt", REGULATIONS["food.txt"]))
    assert sorted(added.kinds) == [UPDATED, UNCHANGED]
    assert (added.done.revision, added.done.updated, added.done.unchanged) == (2, 1, 1)
    new_id = added.ids["records.txt"]
    found = library.document(corpus, new_id)
    assert (found.text, found.document.source_version, found.document.source_id) == (changed, 2, "records.txt")
    assert library.text(corpus, old_id, at_revision(1)) == RECORDS
    with refused(Reason.DOCUMENT_NOT_FOUND):
        library.document(corpus, old_id)
    with refused(Reason.DOCUMENT_NOT_FOUND):
        library.document(corpus, new_id, at_revision(1))
    for revision in (1, 2):
        assert_whole(walk(library, corpus, revision))


def test_a_document_may_change_back_and_forth(library: Caller, corpus: str) -> None:
    texts = [notice(1), notice(2), notice(1), notice(1), notice(2)]
    kinds = [library.add(corpus, File("a.txt", text)).kinds[0] for text in texts]
    assert kinds == [ADDED, UPDATED, UPDATED, UNCHANGED, UPDATED]
    (document,) = library.list_documents(corpus)
    assert (document.source_version, library.head(corpus)) == (4, 4)


def test_a_removed_source_that_comes_again_is_added_in_its_next_version(library: Caller, corpus: str) -> None:
    ids = library.add_texts(corpus, {"a.txt": notice(1)})
    library.remove(corpus, ids["a.txt"])
    added = library.add(corpus, File("a.txt", notice(1)))
    assert added.kinds == [ADDED]
    (document,) = library.list_documents(corpus)
    assert (document.id, document.source_version) == (added.ids["a.txt"], 2)


def test_the_same_content_from_two_sources_is_two_documents(library: Caller, corpus: str) -> None:
    assert library.add(corpus, File("a.txt", notice(1)), File("b.txt", notice(1))).kinds == [ADDED, ADDED]
    assert_whole(walk(library, corpus))


def test_corpora_do_not_share_sources(library: Caller, corpus: str, shared: Running) -> None:
    other_corpus = new_corpus(shared)
    assert library.add(corpus, File("a.txt", notice(1))).kinds == [ADDED]
    assert library.add(other_corpus, File("a.txt", notice(1))).kinds == [ADDED]
    assert library.master(corpus).id != library.master(other_corpus).id


def test_an_empty_corpus_has_no_nodes(library: Caller, corpus: str) -> None:
    for level in (MASTER, CHUNK):
        assert library.query(corpus, level=level) == []
    assert library.query(corpus, level=CHUNK, text="anything") == []
    assert library.list_documents(corpus) == []
    assert library.history(corpus_id=corpus) == []
