"""The copies for people contain every text, signature and audit record of the JSON copy.

White space is ignored, since lines are broken anew. A character may be written as its number, U+XXXX. Letters that
a PDF joins (Arabic) are compared as separate letters, and words of right-to-left scripts are compared one by one, since
PDF readers assemble mixed lines in different ways.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pypdfium2
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from drillcore_server.exports.copies import HumanCopy, MarkdownFile, Member, copy_for_people, copy_json
from drillcore_server.exports.pdf import fonts as scripts
from drillcore_server.exports.pdf.typeset import BOTTOM, LEFT, RIGHT, TOP
from drillcore_server.exports.pdf.volumes import PdfFiles
from tests.support.data.exported_corpora import ABOUT, MEANING, SIGNED_AT, SIGNER, TEXTS, Desk

FORMATS = ["markdown", "pdf"]


def copied(desk: Desk, kind: str, files: ExitStack) -> list[Member]:
    walk = desk.walk()
    human: HumanCopy = (
        MarkdownFile(walk, ABOUT, files) if kind == "markdown" else PdfFiles(desk.pdf, walk, ABOUT, files)
    )
    return copy_for_people(walk, human, desk.trail().lines(), lambda _: None).members


def read(members: list[Member], kind: str) -> str:
    """All text that a reader sees, without running titles."""
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
    """The text without white space and without the marks that pdfium puts where a word was cut at the end of a line."""
    return re.sub(r"[\s\x02\ufffe]+", "", unicodedata.normalize("NFKC", text))


def is_told(text: str, said: str) -> bool:
    """Whether a squeezed text contains the other text, each character as it is or as its number."""
    if scripts.is_right_to_left(text):
        return all(is_told(word, said) for word in re.findall(r"\w+", text) if word != text)
    return squeezed(text) in said or re.search(_folded(text), said) is not None


def _folded(text: str) -> str:
    kept = [character for character in text if not character.isspace()]
    return "".join(
        f"(?:{re.escape(unicodedata.normalize('NFKC', character))}|U\\+{ord(character):04X})" for character in kept
    )


def texts_in(value: Any) -> Iterator[str]:
    """Every text and number of a JSON value."""
    if isinstance(value, dict):
        for child in value.values():
            yield from texts_in(child)
    elif isinstance(value, list):
        for child in value:
            yield from texts_in(child)
    elif isinstance(value, str) and value:
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield json.dumps(value)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_text_of_the_json_copy_is_in_the_copy_for_people(desk: Desk, files: ExitStack, kind: str) -> None:
    (json_copy,) = copy_json(desk.walk(), files, lambda _: None).members
    content = json.loads(b"".join(json_copy.read()))
    said = squeezed(read(copied(desk, kind, files), kind))
    missing = [text for text in dict.fromkeys(texts_in(content)) if not is_told(text, said)]
    assert missing == []
    assert len(list(texts_in(content))) > 500


@pytest.mark.parametrize("kind", FORMATS)
def test_every_signature_is_shown_with_name_time_and_meaning(desk: Desk, files: ExitStack, kind: str) -> None:
    said = squeezed(read(copied(desk, kind, files), kind))
    shown = f"Signed electronically by {SIGNER}Date and time:{SIGNED_AT}Meaning:{MEANING}"
    signed = [item.content for item in desk.walk().items() if item.content.get("signatures")]
    assert len(re.findall(_folded(shown), said)) == len(signed) > 10


@pytest.mark.parametrize("kind", FORMATS)
def test_every_audit_record_is_shown(desk: Desk, files: ExitStack, kind: str) -> None:
    said = squeezed(read(copied(desk, kind, files), kind))
    lines = list(map(json.loads, desk.trail().lines()))
    assert sum("leaf" in line for line in lines) >= 3
    for line in lines:
        for part in (line.get("body", {}), line.get("private", {})):
            assert [text for text in texts_in(part) if not is_told(text, said)] == []


@pytest.mark.parametrize("kind", FORMATS)
def test_a_copy_that_leaves_something_out_is_found_out(desk: Desk, files: ExitStack, kind: str) -> None:
    """The comparison itself fails if a word is missing or replaced."""
    said = squeezed(read(copied(desk, kind, files), kind))
    sentence = re.findall("The [^.]+[.]", TEXTS["consent"])[0]
    assert is_told(sentence, said)
    assert not is_told(sentence.replace("informed ", ""), said)
    assert not is_told(sentence.replace("informed", "uninformed"), said)
    assert is_told("The bell \x07 rings", said)
    assert not is_told("The bell \x08 rings", said)


def test_no_content_can_look_like_structure(desk: Desk, files: ExitStack) -> None:
    (member,) = copied(desk, "markdown", files)
    tokens = MarkdownIt("commonmark").enable("table").parse(b"".join(member.read()).decode())
    headings = [tokens[place + 1].content for place, token in enumerate(tokens) if token.type == "heading_open"]
    assert not any("not a heading" in heading for heading in headings)
    inline = [child.content for token in tokens for child in token.children or () if child.type == "html_inline"]
    assert not any(token.type == "html_block" for token in tokens)
    assert all(re.fullmatch(r'<a id="part-\d+">|</a>', tag) for tag in inline)
    anchors = [tag for tag in inline if tag != "</a>"]
    assert len(anchors) == len(set(anchors)), "an anchor in a document is not rendered as an anchor"
    fences = [token.content for token in tokens if token.type == "fence"]
    assert any("```` fenced" in fence and "Mallory" in fence for fence in fences)


def test_contents_lead_to_their_parts(desk: Desk, files: ExitStack) -> None:
    (member,) = copied(desk, "markdown", files)
    source = b"".join(member.read()).decode()
    links = re.findall(r"\]\(#(part-\d+)\)", source.split("## Corpus")[0])
    assert links == re.findall(r'<a id="(part-\d+)"></a>\n', source)
    assert len(links) >= 6


@pytest.mark.parametrize("kind", FORMATS)
def test_an_empty_corpus_says_that_there_is_nothing(empty: Desk, files: ExitStack, kind: str) -> None:
    said = read(copied(empty, kind, files), kind)
    for part in ("Documents", "Revisions", "Knowledge"):
        assert re.search(rf"{part}:?\s+none", said), part


def test_all_copies_share_the_digest_of_the_json_copy(desk: Desk, files: ExitStack) -> None:
    walk = desk.walk()
    digest = copy_json(walk, files, lambda _: None).content_digest
    for human in (MarkdownFile(walk, ABOUT, files), PdfFiles(desk.pdf, walk, ABOUT, files)):
        assert copy_for_people(walk, human, (), lambda _: None).content_digest == digest
