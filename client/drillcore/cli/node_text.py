"""Nodes as people read them in a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

from rich.table import Table
from rich.text import Text

from drillcore._node_results import (
    ChunkContent,
    Citation,
    Content,
    Entity,
    Finding,
    Level,
    MasterContent,
    Node,
    Processing,
    RawContent,
    SectionContent,
    Span,
    Statistics,
)
from drillcore._signature_results import Signature
from drillcore.cli.audit_text import signature_text
from drillcore.cli.text import counted, first_words, one_line, pairs, printable, prose

LABEL_WIDTH: Final = 80
HEADING_WIDTH: Final = 50
_PROSE: Final = {"summary", "content"}


def node_record(node: Node) -> Table:
    """All of a node: a line, or several, for each of its fields and those of its content."""
    return pairs([*_rows(node), *_rows(node.content)])


def _rows(thing: Node | Content) -> Iterator[tuple[str, Text]]:
    for field in dataclasses.fields(thing):
        value = getattr(thing, field.name)
        if isinstance(value, Content):
            continue  # has rows of its own
        if isinstance(value, str) and field.name in _PROSE:
            yield field.name, prose(value)
        elif isinstance(value, tuple):
            yield field.name, Text("\n").join(one_line(_described(one)) for one in value)
        else:
            yield field.name, one_line(_described(value))


def _described(value: object) -> object:
    """Parts of a node in words; what is no part of its own as it is."""
    words = value
    match value:
        case None:
            words = "-"
        case Level():
            words = f"{value.name.lower()} ({value.value})"
        case Span():
            words = f"{value.start}-{value.end}"
        case Entity():
            words = f"{value.type}: {value.value}"
        case Citation():
            words = f"{value.text} [{_place(value)}]" if value.text else _place(value)
        case Finding():
            words = f"{value.kind}: {value.text} [{_place(value.citation)}]"
        case Signature():
            words = signature_text(value)
        case Statistics() | Processing():
            fields = ((one.name, getattr(value, one.name)) for one in dataclasses.fields(value))
            words = ", ".join(f"{name.replace('_', ' ')} {inner}" for name, inner in fields if inner != "")
    return words


def _place(citation: Citation) -> str:
    return f"document {citation.document_id}, {citation.span.start}-{citation.span.end}"


def label(node: Node) -> str:
    """A node in one line, with who signed it."""
    signers = ", ".join(dict.fromkeys(printable(one.signer_name) for one in node.signatures))
    return _label(node.content) + (f" (signed by {signers})" if signers else "")


def _label(content: Content) -> str:
    match content:
        case MasterContent(statistics=numbers):
            nouns = {"document": numbers.documents, "section": numbers.sections, "chunk": numbers.chunks}
            return ", ".join(counted(number, noun) for noun, number in {**nouns, "token": numbers.tokens}.items())
        case SectionContent():
            counts = f"{counted(content.document_count, 'document')}, {counted(content.chunk_count, 'chunk')}"
            category = f" [{printable(content.category)}]" if content.category else ""
            return f"{first_words(content.title, LABEL_WIDTH)}{category} ({counts})"
        case ChunkContent():
            parts = [first_words(content.headings[-1], HEADING_WIDTH)] if content.headings else []
            return ": ".join([*parts, first_words(content.summary, LABEL_WIDTH)])
        case RawContent():
            return first_words(content.content, LABEL_WIDTH)
