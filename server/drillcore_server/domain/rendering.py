"""Facts as a text for a prompt, each with the number that it is cited by.

    Markdown: [1] content              XML: <facts>                       JSON: [{"n":1,"text":"content"},
              [2, stale] content            <fact n="1">content</fact>          {"n":2,"note":"stale","text":"content"}]
                                            </facts>

What a fact says can never be taken for another fact, for its number or for its note: XML and JSON quote it; in Markdown
a bracket before a digit gets a backslash, and lines after the first are indented.

A part is the piece of the text that a fact takes, with the line end after it: there tiktoken's encodings have no token
across, so that the counts of parts add up to that of the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final, Protocol

from drillcore_server.domain.envelopes import Candidate, GroundingMode, RenderFormat

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


def render(facts: Sequence[Candidate], form: RenderFormat) -> str:
    """The whole text, the facts numbered from 1 in the order given. Without facts, nothing."""
    if not facts:
        return ""
    opening, closing = frame(form)
    return opening + _joined(facts, form).removesuffix(_between(form)) + closing


def part(fact: Candidate, number: int, form: RenderFormat) -> str:
    """What the fact takes of the text, if it has that number."""
    return _FORMS[form](fact, number) + _between(form)


def frame(form: RenderFormat) -> tuple[str, str]:
    """What stands before the first and after the last part."""
    return _FRAMES[form]


def _joined(facts: Sequence[Candidate], form: RenderFormat) -> str:
    return "".join(part(fact, number, form) for number, fact in enumerate(facts, 1))


def _between(form: RenderFormat) -> str:
    return ",\n" if form is RenderFormat.JSON else "\n"


def _markdown(fact: Candidate, number: int) -> str:
    escaped = _NUMBER_LOOKALIKE.sub(r"\1\1\[", fact.content) if "[" in fact.content else fact.content
    return f"[{', '.join((str(number), *_notes(fact)))}] {_INDENT.join(escaped.splitlines())}"


def _xml(fact: Candidate, number: int) -> str:
    text = _NOT_XML.sub("\ufffd", fact.content)
    # A bare > is allowed but in this one place, and comparisons are frequent.
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("]]>", "]]&gt;").replace("\r", "&#13;")
    note = f' note="{", ".join(_notes(fact))}"' if _notes(fact) else ""
    return f'<fact n="{number}"{note}>{text}</fact>'


def _json(fact: Candidate, number: int) -> str:
    note = {"note": ", ".join(_notes(fact))} if _notes(fact) else {}
    return _to_json({"n": number, **note, "text": fact.content})


def _notes(fact: Candidate) -> tuple[str, ...]:
    """What a model should know of the fact beside what it says."""
    return (STALE,) * fact.stale + (ANSWER,) * fact.is_answer


_FORMS: Final = {RenderFormat.MARKDOWN: _markdown, RenderFormat.XML: _xml, RenderFormat.JSON: _json}
_FRAMES: Final = {
    RenderFormat.MARKDOWN: ("", ""),
    RenderFormat.XML: ("<facts>\n", "\n</facts>"),
    RenderFormat.JSON: ("[", "]"),
}
