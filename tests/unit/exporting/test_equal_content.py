"""The copies for people say what the JSON copy says: every text, every signature, every audit record.

White space is compared as one: lines are broken anew. A character may stand by its number, U+XXXX. Letters that a PDF
joins (Arabic) are compared as the letters they are, and words of scripts that run from right to left one by one, since
readers of PDF put mixed lines together in their own ways.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pypdfium2
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from drillcore_server.exporting.copies import HumanCopy, MarkdownFile, Member, copy_for_people, copy_json
from drillcore_server.exporting.pdf import scripts
from drillcore_server.exporting.pdf.files import PdfFiles, Press
from drillcore_server.exporting.pdf.fonts import Fonts
from drillcore_server.exporting.pdf.pages import BOTTOM, LEFT, RIGHT, TOP
from drillcore_server.exporting.pdf.signing import PdfSigner
from drillcore_server.exporting.walk import CorpusWalk
from tests.faults.archive import Archive
from tests.journals import STORE
from tests.unit.exporting.corpora import ABOUT, TEXTS, SignedSome, audit_lines, walk_of

FORMATS = ["markdown", "pdf"]


@pytest.fixture(scope="module")
def press(tmp_path_factory: pytest.TempPathFactory) -> Press:
    return Press(PdfSigner.made_in(tmp_path_factory.mktemp("audit"), STORE), Fonts())


def copied(walk: CorpusWalk, kind: str, press: Press, files: ExitStack) -> list[Member]:
    human: HumanCopy = MarkdownFile(walk, ABOUT, files) if kind == "markdown" else PdfFiles(press, walk, ABOUT, files)
    return copy_for_people(walk, human, audit_lines(), lambda _: None).members


def read(members: list[Member], kind: str) -> str:
    """All that a reader sees, without running titles."""
    contents = [b"".join(member.read()) for member in members]
    if kind == "markdown":
        return markdown_text(contents[0].decode())
    return "".join(pdf_text(content) for content in contents)


def markdown_text(source: str) -> str:
    tokens = MarkdownIt("commonmark").enable("table").parse(source)
    return " ".join(_said(tokens))


def _said(tokens: list[Token]) -> Iterator[str]:
    for token in tokens:
        if token.children is not None:
            yield "".join(
                child.content if child.type in {"text", "code_inline", "text_special"} else " "
                for child in token.children
            )
        elif token.type in {"fence", "code_block"}:
            yield token.content


def pdf_text(content: bytes) -> str:
    document = pypdfium2.PdfDocument(content)
    pages = (page.get_textpage().get_text_bounded(LEFT - 1, BOTTOM - 3, RIGHT + 1, TOP + 3) for page in document)
    return "\n".join(pages)


def squeezed(text: str) -> str:
    """Without white space, and without the marks that pdfium puts where a word was cut at the end of a line."""
    return re.sub(r"[\s\x02\ufffe]+", "", unicodedata.normalize("NFKC", text))


def is_told(text: str, said: str) -> bool:
    """Whether a squeezed text has it: each character as it is, or by its number."""
    if scripts.is_right_to_left(text):
        return all(is_told(word, said) for word in re.findall(r"\w+", text) if word != text)
    return squeezed(text) in said or re.search(_folded(text), said) is not None


def _folded(text: str) -> str:
    kept = [one for one in text if not one.isspace()]
    return "".join(f"(?:{re.escape(unicodedata.normalize('NFKC', one))}|U\\+{ord(one):04X})" for one in kept)


def texts_in(value: Any) -> Iterator[str]:
    """Every text and number of a JSON value."""
    if isinstance(value, dict):
        for one in value.values():
            yield from texts_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts_in(one)
    elif isinstance(value, str) and value:
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield json.dumps(value)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_text_of_the_json_copy_is_in_the_copy_for_people(
    archive: Archive, files: ExitStack, press: Press, kind: str
) -> None:
    signatures = SignedSome.of(archive, "master", "section", "chunk")
    walk = walk_of(archive, signatures)
    (json_copy,) = copy_json(walk, files, lambda _: None).members
    content = json.loads(b"".join(json_copy.read()))
    said = squeezed(read(copied(walk, kind, press, files), kind))
    missing = [text for text in dict.fromkeys(texts_in(content)) if not is_told(text, said)]
    assert missing == []
    assert len(list(texts_in(content))) > 500


@pytest.mark.parametrize("kind", FORMATS)
def test_every_signature_is_shown_with_name_time_and_meaning(
    archive: Archive, files: ExitStack, press: Press, kind: str
) -> None:
    signatures = SignedSome.of(archive, "section")
    said = squeezed(read(copied(walk_of(archive, signatures), kind, press, files), kind))
    (one, *_) = signatures.made
    shown = f"Signed electronically by {one['signer_name']}Date and time:{one['signed_at']}Meaning:{one['meaning']}"
    found = len(re.findall(_folded(shown), said))
    assert found == len(signatures.made)
    sections = sum(item.content["level"] == "section" for item in signatures.items.values())
    assert found == sections


@pytest.mark.parametrize("kind", FORMATS)
def test_every_audit_record_is_shown(archive: Archive, files: ExitStack, press: Press, kind: str) -> None:
    said = squeezed(read(copied(walk_of(archive), kind, press, files), kind))
    for line in map(json.loads, audit_lines()):
        for part in (line.get("body", {}), line.get("private", {})):
            assert [text for text in texts_in(part) if not is_told(text, said)] == []


@pytest.mark.parametrize("kind", FORMATS)
def test_a_copy_that_leaves_something_out_is_found_out(
    archive: Archive, files: ExitStack, press: Press, kind: str
) -> None:
    """The comparison itself: with a word gone, or another in its place, it fails."""
    said = squeezed(read(copied(walk_of(archive), kind, press, files), kind))
    sentence = re.findall("The [^.]+[.]", TEXTS["consent"])[0]
    assert is_told(sentence, said)
    assert not is_told(sentence.replace("informed ", ""), said)
    assert not is_told(sentence.replace("informed", "uninformed"), said)
    assert is_told("The bell \x07 rings", said)
    assert not is_told("The bell \x08 rings", said)


def test_no_content_can_look_like_structure(archive: Archive, files: ExitStack, press: Press) -> None:
    (member,) = copied(walk_of(archive, SignedSome.of(archive, "section")), "markdown", press, files)
    tokens = MarkdownIt("commonmark").enable("table").parse(b"".join(member.read()).decode())
    headings = [tokens[place + 1].content for place, token in enumerate(tokens) if token.type == "heading_open"]
    assert not any("not a heading" in one for one in headings)
    inline = [child.content for token in tokens for child in token.children or () if child.type == "html_inline"]
    assert not any(token.type == "html_block" for token in tokens)
    assert all(re.fullmatch(r'<a id="part-\d+">|</a>', one) for one in inline)
    anchors = [one for one in inline if one != "</a>"]
    assert len(anchors) == len(set(anchors)), "the document's own anchor is none"
    fences = [token.content for token in tokens if token.type == "fence"]
    assert any("```` fenced" in one and "Mallory" in one for one in fences)


def test_contents_lead_to_their_parts(archive: Archive, files: ExitStack, press: Press) -> None:
    (member,) = copied(walk_of(archive), "markdown", press, files)
    source = b"".join(member.read()).decode()
    links = re.findall(r"\]\(#(part-\d+)\)", source.split("## Corpus")[0])
    assert links == re.findall(r'<a id="(part-\d+)"></a>\n', source)
    assert len(links) >= 6


@pytest.mark.parametrize("kind", FORMATS)
def test_an_empty_corpus_says_that_there_is_nothing(empty: Archive, files: ExitStack, press: Press, kind: str) -> None:
    said = read(copied(walk_of(empty), kind, press, files), kind)
    for part in ("Documents", "Revisions", "Knowledge"):
        assert re.search(rf"{part}:?\s+none", said), part


def test_all_copies_share_the_digest_of_the_json_copy(
    archive: Archive, files: ExitStack, press: Press, tmp_path: Path
) -> None:
    walk = walk_of(archive)
    digest = copy_json(walk, files, lambda _: None).content_digest
    for human in (MarkdownFile(walk, ABOUT, files), PdfFiles(press, walk, ABOUT, files)):
        assert copy_for_people(walk, human, (), lambda _: None).content_digest == digest
