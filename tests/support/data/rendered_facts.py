"""Reads a rendered text back as a model would have to: the number, note, reference and words of each fact."""

from __future__ import annotations

import json
import re
from typing import NamedTuple
from xml.etree import ElementTree

from drillcore_server.envelopes.model import RenderFormat

HEAD = re.compile(r"\[(\d+)(?:, (stale|previous answer))?(?:, begins as (\d+))?\] ")
ESCAPED = re.compile(r"(?<!\\)(\\+)\[(?=\s*\d)")


class Read(NamedTuple):
    number: int
    note: str
    words: str
    begins_as: int = 0


def read(text: str, form: RenderFormat) -> list[Read]:
    return _READERS[form](text)


def whole(facts: list[Read]) -> list[str]:
    """The full text of each fact. If a fact refers to another, the first line of that one introduces it too."""
    words = {fact.number: fact.words for fact in facts}
    leading = {fact.begins_as for fact in facts}
    said: list[str] = []
    for fact in facts:
        if fact.begins_as:
            assert fact.begins_as < fact.number, "a fact refers to a later fact"
            assert not facts[fact.begins_as - 1].begins_as, "a fact refers to a fact that itself refers to another"
            said.append(words[fact.begins_as].split("\n", 1)[0] + " " + fact.words)
        else:
            said.append(fact.words.replace("\n", " ", 1) if fact.number in leading else fact.words)
    return said


def as_shown(content: str, form: RenderFormat) -> str:
    """The content as a format shows it. Markdown has line feeds for all line ends; XML has no control characters."""
    if form is RenderFormat.MARKDOWN:
        return "\n".join(content.splitlines())
    if form is RenderFormat.XML:
        return "".join(character if _is_xml(character) else "\ufffd" for character in content)
    return content


def _read_markdown(text: str) -> list[Read]:
    found: list[Read] = []
    for line in text.split("\n") if text else []:
        if head := HEAD.match(line):
            found.append(Read(int(head[1]), head[2] or "", line[head.end() :], int(head[3] or 0)))
        else:
            assert line.startswith("  "), "a line is neither the first of a fact nor indented"
            found.append(found[-1]._replace(words=f"{found.pop().words}\n{line[2:]}"))
    return [fact._replace(words=_unescaped(fact.words)) for fact in found]


def _unescaped(content: str) -> str:
    return ESCAPED.sub(lambda found: "\\" * (len(found[1]) // 2) + "[", content)


def _read_xml(text: str) -> list[Read]:
    facts = ElementTree.fromstring(text) if text else []
    return [
        Read(int(fact.attrib["n"]), fact.attrib.get("note", ""), fact.text or "", int(fact.attrib.get("begins-as", 0)))
        for fact in facts
    ]


def _read_json(text: str) -> list[Read]:
    return [
        Read(fact["n"], fact.get("note", ""), fact["text"], fact.get("begins_as", 0))
        for fact in json.loads(text or "[]")
    ]


def _is_xml(character: str) -> bool:
    return character in "\t\n\r" or (character >= " " and character not in "\ufffe\uffff")


_READERS = {RenderFormat.MARKDOWN: _read_markdown, RenderFormat.XML: _read_xml, RenderFormat.JSON: _read_json}
