"""UpdateDocument: a stored document gets new content as the next version of its source, or nothing changes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import pytest

from drillcore import NewDocument, OutcomeKind
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import documents_pb2 as pb
from drillcore_server.kernel.named import METADATA_VALUE_CHARACTERS_MAX
from tests.documents.test_add_documents import BROKEN
from tests.support.callers.knowledge import (
    UNCHANGED,
    UPDATED,
    Caller,
    File,
    at_revision,
    files,
    info_of,
    refused,
    update_parts,
)
from tests.support.data.texts import REGULATIONS, notice
from tests.support.fixtures import new_corpus
from tests.support.servers.concurrently import concurrently
from tests.support.servers.running import ACME, Running, create_tenants, running
from tests.support.servers.trees import assert_whole, walk

RECORDS = REGULATIONS["records.txt"]
CHANGED = RECORDS.replace("7 years", "10 years")


def send(
    caller: Caller, sent: Iterable[pb.UpdateDocumentRequest], request_id: str | None = None
) -> pb.UpdateDocumentDone:
    *progress, last = caller.documents.UpdateDocument(iter(sent), **caller.options(request_id))
    assert {event.WhichOneof("event") for event in progress} <= {"progress"}
    assert last.WhichOneof("event") == "done"
    return last.done


def update(
    caller: Caller, corpus: str, content: str | bytes, request_id: str | None = None, **fields: Any
) -> pb.UpdateDocumentDone:
    return send(caller, update_parts(corpus, content, **fields), request_id)


@pytest.fixture
def records(library: Caller, corpus: str) -> str:
    """The id of a document of the source registry/11. The corpus has another document too."""
    sent = [File("records.txt", RECORDS, "registry/11", metadata={"region": "US"}), *files({"a.txt": notice(1)})]
    return library.add(corpus, *sent).ids["records.txt"]


@pytest.mark.parametrize("by", ["document", "source"])
def test_new_content_is_the_next_version_of_its_source(library: Caller, corpus: str, records: str, by: str) -> None:
    named = {"document_id": records} if by == "document" else {"source_id": "registry/11"}
    done = update(library, corpus, CHANGED, **named)
    assert (done.kind, done.revision, done.source_version) == (UPDATED, 2, 2)
    assert done.document_id != records
    assert done.sections_changed >= 1
    found = library.document(corpus, done.document_id)
    assert found.text == CHANGED
    assert (found.document.source_id, found.document.source_version) == ("registry/11", 2)
    assert len(library.list_documents(corpus)) == 2
    assert_whole(walk(library, corpus))


def test_earlier_revisions_keep_the_old_document(library: Caller, corpus: str, records: str) -> None:
    before = walk(library, corpus)
    new = update(library, corpus, CHANGED, document_id=records).document_id
    assert walk(library, corpus, 1) == before
    assert library.text(corpus, records, at_revision(1)) == RECORDS
    with refused(Reason.DOCUMENT_NOT_FOUND):
        library.document(corpus, records)
    with refused(Reason.DOCUMENT_NOT_FOUND):
        library.document(corpus, new, at_revision(1))


def test_the_history_says_how_many_documents_came_and_went(library: Caller, corpus: str, records: str) -> None:
    update(library, corpus, CHANGED, document_id=records)
    newest = library.history(corpus_id=corpus)[0]
    assert (newest.revision, newest.action) == (2, "UpdateDocument")
    assert (newest.documents_added, newest.documents_removed) == (1, 1)


def test_metadata_is_kept_unless_new_metadata_is_given(library: Caller, corpus: str, records: str) -> None:
    kept = update(library, corpus, CHANGED, document_id=records).document_id
    assert library.document(corpus, kept).document.metadata == {"region": "US"}
    replaced = update(library, corpus, RECORDS, document_id=kept, metadata={"edition": "2"}).document_id
    assert library.document(corpus, replaced).document.metadata == {"edition": "2"}
    cleared = update(library, corpus, CHANGED, document_id=replaced, metadata={}).document_id
    assert library.document(corpus, cleared).document.metadata == {}


def test_the_same_content_and_metadata_make_no_revision(library: Caller, corpus: str, records: str) -> None:
    before = walk(library, corpus)
    for metadata in (None, {"region": "US"}):
        done = update(library, corpus, RECORDS, document_id=records, metadata=metadata)
        assert (done.kind, done.revision, done.document_id, done.source_version) == (UNCHANGED, 1, records, 1)
    assert walk(library, corpus) == before


def test_other_metadata_alone_is_an_update(library: Caller, corpus: str, records: str) -> None:
    done = update(library, corpus, RECORDS, document_id=records, metadata={"region": "EU"})
    assert (done.kind, done.source_version) == (UPDATED, 2)
    found = library.document(corpus, done.document_id)
    assert (found.text, found.document.metadata) == (RECORDS, {"region": "EU"})


def test_an_unknown_document_or_source_is_not_found(library: Caller, corpus: str, records: str) -> None:
    gone = update(library, corpus, CHANGED, source_id="a.txt").document_id
    library.remove(corpus, gone)
    for named in (
        {"document_id": str(uuid4())},
        {"document_id": gone},
        {"source_id": "a.txt"},
        {"source_id": "never"},
        {"source_id": "records.txt"},
    ):
        with refused(Reason.DOCUMENT_NOT_FOUND):
            update(library, corpus, notice(5), **named)
    assert library.head(corpus) == 3


def test_the_expected_version_must_be_that_of_the_source(library: Caller, corpus: str, records: str) -> None:
    for wrong in (0, 2, 2**64 - 1):
        with refused(Reason.VERSION_MISMATCH):
            update(library, corpus, CHANGED, document_id=records, expected_source_version=wrong)
    assert library.head(corpus) == 1
    done = update(library, corpus, CHANGED, document_id=records, expected_source_version=1)
    assert update(library, corpus, RECORDS, source_id="registry/11", expected_source_version=2).source_version == 3
    with refused(Reason.DOCUMENT_NOT_FOUND):
        update(library, corpus, notice(3), document_id=done.document_id, expected_source_version=3)


def test_one_of_many_updates_that_expect_the_same_version_wins(library: Caller, corpus: str, records: str) -> None:
    def attempt(number: int) -> str:
        try:
            update(library, corpus, notice(number), source_id="registry/11", expected_source_version=1)
        except grpc.RpcError as error:
            return info_of(error).reason
        return "OK"

    assert sorted(concurrently(4, attempt)) == ["OK"] + [Reason.VERSION_MISMATCH.name] * 3
    assert library.head(corpus) == 2


@pytest.mark.parametrize(("content", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_content_that_cannot_be_parsed_is_refused_with_the_parsers_reason(
    library: Caller, corpus: str, records: str, content: bytes, reason: str
) -> None:
    media_type = "application/jsonl" if b"{not" in content else ""
    with pytest.raises(grpc.RpcError) as caught:
        update(library, corpus, content, document_id=records, media_type=media_type)
    info = info_of(caught.value)
    assert (info.reason, info.metadata["cause"]) == (Reason.UNPARSABLE.name, reason)
    assert (library.head(corpus), library.text(corpus, records)) == (1, RECORDS)


def test_one_json_line_is_taken_and_several_are_refused(library: Caller, corpus: str, records: str) -> None:
    lines = [json.dumps({"id": key, "text": notice(place), "edition": key}) for place, key in enumerate("ab")]
    for several in ("\n".join(lines), lines[0] + "\nno json"):
        with refused(Reason.INVALID_ARGUMENT, Reason.UNPARSABLE):
            update(library, corpus, several, document_id=records, name="new.jsonl")
    assert library.head(corpus) == 1
    done = update(library, corpus, lines[0], document_id=records, name="new.jsonl")
    found = library.document(corpus, done.document_id)
    assert (found.text, found.document.source_id) == (notice(0), "registry/11")
    assert found.document.metadata == {"region": "US", "edition": "a"}


def test_content_over_the_limit_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    with running(tmp_path, upload_bytes_max=10_000) as server:
        create_tenants(server.client())
        caller, corpus = Caller(server.address, ACME), new_corpus(server)
        caller.add(corpus, File("a.txt", notice(1)))
        with refused(Reason.TOO_LARGE, field="data"):
            update(caller, corpus, notice(2) * 100, source_id="a.txt", part_bytes=1_000)
        assert caller.head(corpus) == 1
        caller.close()


def test_metadata_over_its_limits_is_refused(library: Caller, corpus: str, records: str) -> None:
    with refused(Reason.TOO_LARGE, field="metadata"):
        update(library, corpus, CHANGED, document_id=records, metadata={"k": "v" * (METADATA_VALUE_CHARACTERS_MAX + 1)})
    assert library.head(corpus) == 1


def test_the_format_is_hinted_by_the_name_or_stays_as_it_was(library: Caller, corpus: str) -> None:
    page = "<p>Each lot shall be sampled.</p>"
    library.add(corpus, File("page", f"<html><body>{page}</body></html>"))
    as_before = update(library, corpus, page * 2, source_id="page")
    assert library.document(corpus, as_before.document_id).document.media_type == "text/html"
    as_named = update(library, corpus, page * 3, source_id="page", name="page.txt")
    assert library.document(corpus, as_named.document_id).document.media_type == "text/plain"


def test_a_stream_must_be_a_target_then_a_header_data_and_the_end(library: Caller, corpus: str, records: str) -> None:
    target, header, data, end = update_parts(corpus, CHANGED, document_id=records)
    for wrong in ([], [header, data, end], [pb.UpdateDocumentRequest()]):
        with refused(Reason.INVALID_ARGUMENT, field="target"):
            send(library, wrong)
    for wrong in ([target, data, header, end], [target, header, header, data, end], [target, header, data, target]):
        with refused(Reason.INVALID_ARGUMENT, field="part"):
            send(library, wrong)
    nobody = pb.UpdateDocumentRequest(target=pb.UpdateDocumentTarget(corpus_id=corpus))
    endless = pb.UpdateDocumentRequest(target=pb.UpdateDocumentTarget(corpus_id=corpus, source_id="s" * 100_000))
    for wrong in ([nobody, header, data, end], [endless, header, data, end]):
        with refused(Reason.INVALID_ARGUMENT, field="source_id"):
            send(library, wrong)
    assert library.head(corpus) == 1
    assert send(library, [target, data, end]).kind == UPDATED, "the header may be left out"


def test_a_stream_that_stops_before_its_end_changes_nothing(library: Caller, corpus: str, records: str) -> None:
    whole = list(update_parts(corpus, CHANGED, document_id=records))
    for count in range(1, len(whole)):
        with refused(Reason.CANCELLED):
            send(library, whole[:count])
    assert library.head(corpus) == 1


@pytest.mark.parametrize("by", ["document", "source"])
def test_a_repeated_update_is_made_once_and_gets_the_same_answer(
    library: Caller, corpus: str, records: str, by: str
) -> None:
    """This holds though the document is gone and its source no longer has the expected version."""
    named = {"document_id": records} if by == "document" else {"source_id": "registry/11"}
    first = update(library, corpus, CHANGED, f"u {corpus}", **named, expected_source_version=1)
    update(library, corpus, notice(8), source_id="registry/11")
    again = update(library, corpus, CHANGED, f"u {corpus}", **named, expected_source_version=1, part_bytes=100)
    assert again == first
    assert library.head(corpus) == 3


def test_another_update_under_the_same_request_id_is_refused(library: Caller, corpus: str, records: str) -> None:
    update(library, corpus, CHANGED, f"u {corpus}", source_id="registry/11")
    for fields in (
        {"content": notice(2), "source_id": "registry/11"},
        {"content": CHANGED, "source_id": "a.txt"},
        {"content": CHANGED, "source_id": "registry/11", "metadata": {}},
        {"content": CHANGED, "source_id": "registry/11", "name": "a.md"},
    ):
        with refused(Reason.REQUEST_ID_REUSED):
            update(library, corpus, request_id=f"u {corpus}", **fields)
    with refused(Reason.REQUEST_ID_REUSED):
        library.add(corpus, File("a.txt", notice(3)), request_id=f"u {corpus}")
    assert library.head(corpus) == 2


def test_the_same_update_several_times_at_once_is_one_revision(library: Caller, corpus: str, records: str) -> None:
    answers = concurrently(4, lambda _: update(library, corpus, CHANGED, f"u {corpus}", document_id=records))
    assert answers == [answers[0]] * 4
    assert library.head(corpus) == 2


def test_updates_of_different_documents_at_once_are_all_made(library: Caller, corpus: str) -> None:
    library.add_texts(corpus, {f"{number}.txt": notice(number) for number in range(4)})
    concurrently(4, lambda number: update(library, corpus, notice(number + 20), source_id=f"{number}.txt"))
    texts = {library.text(corpus, document.id) for document in library.list_documents(corpus)}
    assert texts == {notice(number + 20) for number in range(4)}
    assert_whole(walk(library, corpus))


def test_the_client_updates_a_document_and_reports_the_outcome(shared: Running, corpus: str, tmp_path: Path) -> None:
    with shared.client(ACME) as client:
        client.add_documents(corpus, [NewDocument("a.txt", notice(1).encode())])
        (tmp_path / "new.txt").write_text(notice(2))
        done = client.update_document(corpus, tmp_path / "new.txt", source_id="a.txt", metadata={"k": "v"})
        assert (done.kind, done.source_version, done.revision) == (OutcomeKind.UPDATED, 2, 2)
        found = client.get_document(corpus, done.document_id, with_text=True)
        assert (found.text, found.metadata) == (notice(2), {"k": "v"})
