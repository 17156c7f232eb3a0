"""Facts as a text for a prompt, each with the number that it is cited by.

    Markdown: [1] content              XML: <facts>                       JSON: [{"n":1,"text":"content"},
              [2, stale] content            <fact n="1">content</fact>          {"n":2,"note":"stale","text":"content"}]
                                            </facts>

One that begins as another does, by `introductions`: [3, begins as 1], <fact n="3" begins-as="1">, {"n":3,"begins_as":1.

What a fact says can never be taken for another fact, for its number, its note or what it begins as: XML and JSON quote
it; in Markdown a bracket before a digit gets a backslash, and lines after the first are indented.

A part is the piece of the text that a fact takes, with the line end after it: there tiktoken's encodings have no token
across, so that the counts of parts add up to that of the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final, Protocol

from drillcore_server.domain.envelopes import Candidate, GroundingMode, RenderFormat
from drillcore_server.domain.introductions import Said

GROUNDING_INSTRUCTIONS: Final = {
    GroundingMode.CONTEXT_STRICT: (
        "Answer using ONLY the provided context. If the context does not contain sufficient information, state that "
        "clearly."
    ),
    GroundingMode.CONTEXT_PREFERRED: (
        "Prefer the provided context when answering. If you use general knowledge, indicate this clearly."
    ),
    GroundingMode.OPEN: "",
}
"""For the system prompt."""

STALE: Final = "stale"
ANSWER: Final = "previous answer"

_NUMBER_LOOKALIKE: Final = re.compile(r"(?<!\\)(\\*)\[(?=\s*\d)")
_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INDENT: Final = "\n  "
_to_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Count(Protocol):
    """How many tokens a text has."""

    def __call__(self, text: str, /) -> int: ...


def render(facts: Sequence[Said], form: RenderFormat) -> str:
    """The whole text. Without facts, nothing."""
    if not facts:
        return ""
    opening, closing = frame(form)
    return opening + "".join(part(fact, form) for fact in facts).removesuffix(_between(form)) + closing


def part(said: Said, form: RenderFormat) -> str:
    """What a fact takes of the text."""
    return _FORMS[form](said) + _between(form)


def frame(form: RenderFormat) -> tuple[str, str]:
    """What stands before the first and after the last part."""
    return _FRAMES[form]


def _between(form: RenderFormat) -> str:
    return ",\n" if form is RenderFormat.JSON else "\n"


def _markdown(said: Said) -> str:
    words = said.words
    escaped = _NUMBER_LOOKALIKE.sub(r"\1\1\[", words) if "[" in words else words
    begins_as = (f"begins as {said.begins_as}",) if said.begins_as else ()
    return f"[{', '.join((str(said.number), *_notes(said.fact), *begins_as))}] {_INDENT.join(escaped.splitlines())}"


def _xml(said: Said) -> str:
    text = _NOT_XML.sub("\ufffd", said.words)
    # A bare > is allowed but in this one place, and comparisons are frequent.
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("]]>", "]]&gt;").replace("\r", "&#13;")
    note = f' note="{", ".join(_notes(said.fact))}"' if _notes(said.fact) else ""
    begins_as = f' begins-as="{said.begins_as}"' if said.begins_as else ""
    return f'<fact n="{said.number}"{note}{begins_as}>{text}</fact>'


def _json(said: Said) -> str:
    note = {"note": ", ".join(_notes(said.fact))} if _notes(said.fact) else {}
    begins_as = {"begins_as": said.begins_as} if said.begins_as else {}
    return _to_json({"n": said.number, **note, **begins_as, "text": said.words})


def _notes(fact: Candidate) -> tuple[str, ...]:
    """What a model should know of the fact beside what it says."""
    return (STALE,) * fact.stale + (ANSWER,) * fact.is_answer


_FORMS: Final = {RenderFormat.MARKDOWN: _markdown, RenderFormat.XML: _xml, RenderFormat.JSON: _json}
_FRAMES: Final = {
    RenderFormat.MARKDOWN: ("", ""),
    RenderFormat.XML: ("<facts>\n", "\n</facts>"),
    RenderFormat.JSON: ("[", "]"),
}
