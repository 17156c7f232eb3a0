"""What a server says of a refusal beside its message: as JSON, and for people where it is worth a line of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from drillcore.cli.text import printable
from drillcore.errors import DrillcoreError
from drillcore_proto.reasons import Reason

GAP: Final = "gap"
"""The detail, in JSON, that says what an envelope lacks for an accepted tier."""
_REQUEST_ID: Final = "request_id"


def details(error: Exception) -> dict[str, object]:
    """All that the server said of the refusal, but for the request id, which has a place of its own."""
    if not isinstance(error, DrillcoreError):
        return {}
    found: dict[str, object] = {name: one for name, one in error.metadata.items() if name != _REQUEST_ID}
    return found | ({GAP: _parsed(error.metadata[GAP])} if GAP in found else {})


def gap_lines(error: Exception) -> Iterator[str]:
    """What is missing for an envelope of an accepted tier, a line for each; nothing for other errors."""
    if not isinstance(error, DrillcoreError) or error.reason is not Reason.QUALITY_NOT_MET:
        return
    told = {name: one for name, one in details(error).items() if not name.startswith("CRP-")}
    gap = told.pop(GAP, {})
    rows = told | (dict(gap) if isinstance(gap, Mapping) else {GAP: gap})
    width = max((len(name) for name in rows), default=0)
    for name, value in rows.items():
        for line in _lines(value):
            yield f"  {printable(name.replace('_', ' ')):{width}}  {line}"
            name = ""  # noqa: PLW2901  # what follows belongs to the same


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _lines(value: object) -> list[str]:
    """A list of sentences, or of things that have parts, takes a line for each of them."""
    if isinstance(value, list) and any(isinstance(one, Mapping) or " " in str(one) for one in value):
        return [_told(one) for one in value]
    return [_told(value)]


def _told(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.3f}"
        case list():
            return ", ".join(map(_told, value))
        case Mapping():
            return ", ".join(f"{printable(str(name)).replace('_', ' ')} {_told(one)}" for name, one in value.items())
    return printable(str(value))
