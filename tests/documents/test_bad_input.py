"""Bad uploads: each document has an outcome and a reason, good documents are added, and none is added in part.

DRILLCORE_SOAK=1 tests the full sizes: a paragraph of 50 MB, and 10,000 files in one call.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pypdfium2
import pytest
from click.testing import CliRunner

from drillcore.cli import main
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import documents_pb2 as pb
from drillcore_server.documents import add as add_documents
from tests.documents.test_parsing_docx import docx, paragraph, table
from tests.support.callers.knowledge import ADDED, FAILED, RAW, Added, Caller, File, files, parts, refused
from tests.support.data.encrypted_pdf import encrypted_pdf
from tests.support.data.texts import REGULATIONS, notice
from tests.support.fixtures import new_corpus
from tests.support.servers.running import ACME, ACME_ID, Running, create_tenants, running
from tests.support.servers.trees import Tree, assert_whole, walk

SOAK = os.environ.get("DRILLCORE_SOAK") == "1"
PARAGRAPH_BYTES = 50_000_000 if SOAK else 1_500_000
TINY_FILES = 10_000 if SOAK else 1_200

SENTENCE = "Each lot shall be sampled before it is released."
BROKEN_PDF = encrypted_pdf(SENTENCE, user="", owner="boss")
BAD: dict[str, tuple[bytes, str]] = {
    "utf-8.txt": ("Über die Prüfung ".encode() + b"\xff\xfe\xc3", "BROKEN_ENCODING"),
    "cut.txt": ("Jede Charge ist zu prüfen. ".encode() * 9 + "ü".encode()[:1], "BROKEN_ENCODING"),
    "empty.txt": (b"", "EMPTY"),
    "empty.md": (b"\n\n", "EMPTY"),
    "empty.html": (b"<html><body> </body></html>", "EMPTY"),
    "empty.jsonl": (b"", "EMPTY"),
    "blank.jsonl": (b"\n \n", "EMPTY"),
    "empty.docx": (docx(""), "EMPTY"),
    "empty.pdf": (b"", "EMPTY"),
    "only a mark.txt": (b"\xef\xbb\xbf", "EMPTY"),
    "locked.pdf": (encrypted_pdf(SENTENCE, user="secret", owner="boss"), "ENCRYPTED"),
    "malformed.pdf": (b"%PDF-1.7\nthis is not a PDF at all\n%%EOF", "MALFORMED"),
    "half.pdf": (BROKEN_PDF[: len(BROKEN_PDF) // 3], "MALFORMED"),
    "bomb.docx": (docx(paragraph("x"), {"word/media/image1.bin": bytes(50_000_000)}), "TOO_LARGE"),
    "bomb of text.docx": (docx(paragraph("x" * 40_000_000)), "TOO_LARGE"),
    "half.docx": (docx(paragraph(SENTENCE))[:300], "MALFORMED"),
}


@dataclass(frozen=True)
class Site:
    server: Running
    caller: Caller
    corpus: str

    def add(self, *sent: File) -> Added:
        return self.caller.add(self.corpus, *sent)

    def tree(self) -> Tree:
        return walk(self.caller, self.corpus)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A server with an empty corpus. At the end, fsck must find no problem in its store."""
    with running(tmp_path / "data") as server:
        create_tenants(server.client())
        caller = Caller(server.address, ACME)
        yield Site(server, caller, new_corpus(server))
        caller.close()
    checked = CliRunner().invoke(main, ["fsck", "--data-dir", str(tmp_path / "data"), "--json"])
    assert (checked.exit_code, json.loads(checked.stdout)["problems"]) == (0, []), checked.output


def test_the_locked_pdf_is_really_locked() -> None:
    """It opens with its password only."""
    content, _ = BAD["locked.pdf"]
    with pypdfium2.PdfDocument(content, password="secret") as document:
        assert document[0].get_textpage().get_text_range() == SENTENCE
    with pytest.raises(pypdfium2.PdfiumError):
        pypdfium2.PdfDocument(content, password="wrong")


def test_each_bad_document_has_its_reason_and_the_good_ones_are_added(site: Site) -> None:
    sent = [*files({name: content for name, (content, _) in BAD.items()}), *files(REGULATIONS)]
    added = site.add(*sent[::-2], *sent[-2::-2])
    failed = {name: outcome for name, outcome in added.by_name.items() if outcome.kind == FAILED}
    assert {name: outcome.reason for name, outcome in failed.items()} == {
        name: reason for name, (_, reason) in BAD.items()
    }
    assert all(outcome.message and not outcome.document_id for outcome in failed.values())
    assert {name for name, outcome in added.by_name.items() if outcome.kind == ADDED} == set(REGULATIONS)
    tree = site.tree()
    assert {document.source_id for document in tree.documents.values()} == set(REGULATIONS)
    assert_whole(tree)


def test_an_upload_of_only_bad_documents_stores_nothing(site: Site) -> None:
    added = site.add(*files({name: content for name, (content, _) in BAD.items()}))
    assert (added.done.failed, added.done.revision) == (len(BAD), 0)
    assert site.caller.list_documents(site.corpus) == []


def test_a_pdf_that_is_encrypted_but_open_to_everybody_is_read(site: Site) -> None:
    (outcome,) = site.add(File("open.pdf", encrypted_pdf(SENTENCE, user="", owner="boss"))).outcomes
    assert site.caller.text(site.corpus, outcome.document_id) == SENTENCE


def test_right_to_left_text_is_quoted_exactly(site: Site) -> None:
    text = "\n\n".join(
        f"المادة {number}: يجب على الشركة حفظ السجلات لمدة {number} سنوات. تبدأ المدة في 1 مارس.\n"
        f"סעיף {number}: החברה תשמור את הרשומות (ISO {number}) במשך {number} שנים. \u202bנכתב\u202c."
        for number in range(1, 120)
    )
    (outcome,) = site.add(File("rtl.txt", text)).outcomes
    tree = site.tree()
    assert_whole(tree)
    assert tree.text(outcome.document_id) == text
    assert len(tree.chunks) > 3
    for raw in tree.raws.values():
        assert text[raw.raw.span.start : raw.raw.span.end] == raw.raw.content
    quotes = [quote for chunk in tree.chunks.values() for quote in chunk.chunk.quotes]
    assert quotes
    assert all(text[quote.span.start : quote.span.end] == quote.text for quote in quotes)


def test_control_characters_are_kept_and_harm_nothing(site: Site) -> None:
    controls = "".join(map(chr, [*range(1, 9), 11, 12, *range(14, 32), *range(127, 160), 0x2028, 0x202E, 0xFFFE]))
    text = "\n\n".join(f"Clause {number}{controls[number % len(controls)]} shall hold." for number in range(200))
    (outcome,) = site.add(File("controls.txt", text)).outcomes
    assert outcome.kind == ADDED
    assert site.caller.text(site.corpus, outcome.document_id) == text
    assert_whole(site.tree())


CELLS = [(f"parameter {row}", f"{row * 3} mg", f"method {row % 7}") for row in range(150)]
TABLES = {
    "tables.html": "<html><body>"
    + "".join(
        "<table>" + "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in part) + "</table>"
        for part in (CELLS[:75], CELLS[75:])
    )
    + "</body></html>",
    "tables.md": "| name | value | how |\n|---|---|---|\n"
    + "\n".join(f"| {' | '.join(row)} |" for row in CELLS)
    + "\n",
    "tables.docx": docx(table(*CELLS[:75]) + table(*CELLS[75:])),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_document_that_is_all_tables_keeps_every_cell(site: Site, name: str) -> None:
    (outcome,) = site.add(File(name, TABLES[name])).outcomes
    assert outcome.kind == ADDED
    tree = site.tree()
    text = tree.text(outcome.document_id)
    for row in CELLS:
        places = [text.find(row[0])] + [text.find(cell, text.find(row[0])) for cell in row[1:]]
        assert -1 < places[0] < places[1] < places[2], row
    assert_whole(tree)


@pytest.mark.parametrize("kind", ["sentences", "one word"])
def test_one_huge_paragraph_is_added_whole(site: Site, kind: str) -> None:
    unit = f"{SENTENCE} " if kind == "sentences" else "x"
    text = (unit * (PARAGRAPH_BYTES // len(unit)))[:PARAGRAPH_BYTES]
    sent = parts(site.corpus, [File("small.txt", notice(1)), File("huge.txt", text)])
    events = list(site.caller.documents.AddDocuments(sent, **site.caller.options(timeout_s=1_800)))
    assert events[-1].done.added == 2
    (huge,) = [document for document in site.caller.list_documents(site.corpus) if document.source_id == "huge.txt"]
    assert huge.characters == len(text)
    master = site.caller.master(site.corpus)
    content = {
        raw.raw.span.start: raw.raw.content
        for raw in site.caller.below(master.id, RAW, page_size=1_000)
        if raw.raw.document_id == huge.id
    }
    assert "".join(content[start] for start in sorted(content)) == text


def tiny(number: int) -> str:
    return f"File {number} says that lot {number * 7} shall be kept."


def test_many_tiny_files_in_one_call_are_one_revision(site: Site) -> None:
    sent = [
        File(f"{number:05}.txt", f"File {number} says that lot {number * 7} shall be kept.")
        for number in range(TINY_FILES)
    ]
    options = site.caller.options("tiny", timeout_s=1_800)
    first = list(site.caller.documents.AddDocuments(parts(site.corpus, sent), **options))
    assert (first[-1].done.added, first[-1].done.revision) == (TINY_FILES, 1)
    again = list(site.caller.documents.AddDocuments(parts(site.corpus, sent), **options))
    assert again[-1] == first[-1]
    assert len(site.caller.list_documents(site.corpus, page_size=1_000)) == TINY_FILES


def test_many_tiny_files_go_in_through_the_command_line(site: Site, tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    for number in range(TINY_FILES):
        (folder / f"{number:05}.txt").write_text(tiny(number))
    (folder / "bad.txt").write_bytes(b"")
    command = ["ingest", str(folder), "--base", str(folder), "--corpus", site.corpus, "--json"]
    environment = {"DRILLCORE_CLIENT_ADDRESS": site.server.address, "DRILLCORE_CLIENT_TOKEN": ACME}
    done = CliRunner(env={**environment, "DRILLCORE_CLIENT_TENANT_ID": str(ACME_ID)}).invoke(main, command)
    result = json.loads(done.stdout)
    assert (done.exit_code, result["added"], result["failed"]) == (1, TINY_FILES, 1)


def test_more_documents_than_a_call_can_answer_for_are_refused_while_they_come(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(add_documents, "OUTCOMES_BYTES_MAX", 10_000)
    sent = 0

    def requests(kind: str) -> Iterator[pb.AddDocumentsRequest]:
        nonlocal sent
        yield next(parts(site.corpus, []))
        for sent in range(1_000_000):
            content = SENTENCE if kind == "good" or sent == 0 else ""
            yield from list(parts(site.corpus, [File(f"{sent} {'n' * 900}", f"{sent} {content}" if content else "")]))[
                1:-1
            ]

    for kind in ("good", "bad"):
        with refused(Reason.TOO_LARGE, field="header"):
            site.caller.send(requests(kind))
        assert sent < 100_000
    lines = "\n".join(json.dumps({"id": number, "text": SENTENCE}) for number in range(1_000))
    with refused(Reason.TOO_LARGE, field="header"):
        site.add(File("many.jsonl", lines))
    assert site.caller.head(site.corpus) == 0


def test_the_largest_outcome_of_a_call_can_be_stored(site: Site) -> None:
    """The names are random, so that they do not compress. Their outcome is one record of one transaction."""
    count = add_documents.OUTCOMES_BYTES_MAX // 1_100
    names = [os.urandom(500).hex() for _ in range(count)]
    first = site.caller.add(
        site.corpus, File("good.txt", notice(1)), *(File(name, "") for name in names), request_id="m"
    )
    assert (first.done.added, first.done.failed) == (1, count)
    again = site.caller.add(
        site.corpus, File("good.txt", notice(1)), *(File(name, "") for name in names), request_id="m"
    )
    assert again.by_name == first.by_name
