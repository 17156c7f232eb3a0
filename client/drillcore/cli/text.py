"""Results and errors as people read them in a terminal."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from drillcore._api.corpora import LegalHold, Sharing
from drillcore._api.node_data import Span
from drillcore._remedies import REMEDIES
from drillcore.errors import DrillcoreError
from drillcore_formats.plugins import CommandError
from drillcore_proto.reasons import Reason

GAP: Final = "gap"
"""The detail of an error, in JSON, that says what an envelope lacks for an accepted tier."""
_REQUEST_ID: Final = "request_id"


def record(thing: Any, *, prose_fields: Collection[str] = (), hidden: Collection[str] = ()) -> Table:
    """A dataclass, with a line for each field that is not hidden. `prose_fields` may take several lines."""
    names = [field.name for field in dataclasses.fields(thing) if field.name not in hidden]
    values = ((name, getattr(thing, name)) for name in names)
    return pairs((name, prose(value) if name in prose_fields else one_line(value)) for name, value in values)


def pairs(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Names and values in two columns."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name.replace("_", " "), value)
    return table


def listing(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table with a line for each row."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column == "id")
    for row in rows:
        table.add_row(*map(one_line, row))
    return table


def printable(text: str) -> str:
    """The text with its control characters escaped: other people wrote it, and a terminal would obey them."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def prose(text: str) -> Text:
    """A text of several lines with its control characters escaped."""
    return Text("\n".join(printable(line.rstrip("\r")) for line in text.split("\n")))


def first_words(text: str, width: int) -> str:
    """The beginning of a text in one line of at most `width` characters."""
    line = " ".join(printable(word) for word in text[: 4 * width].split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def one_line(value: object) -> Text:
    """Any field of a result in one line."""
    return Text(_one_line(value))


def _one_line(value: object) -> str:
    match value:
        case None:
            line = ""
        case datetime():
            line = value.astimezone().isoformat(sep=" ", timespec="seconds")
        case LegalHold():
            state = "on since" if value.on else "released"
            line = f"{state} {one_line(value.at)}, {printable(value.by)}: {printable(value.reason)}"
        case Sharing():
            readers = "every tenant" if value.everyone else ", ".join(map(str, value.tenant_ids))
            line = f"with {readers}, since {one_line(value.at)}, by {printable(value.by)}"
        case Span():
            line = f"{value.start}-{value.end}"
        case enum.Enum():
            line = str(value.value).lower()
        case Mapping():
            line = printable(", ".join(f"{key}={value[key]}" for key in sorted(value)))
        case tuple():
            line = ", ".join(map(_one_line, value))
        case _:
            line = printable(str(value))
    return line


def error_text(error: DrillcoreError | CommandError) -> str:
    """What went wrong and, where a flag or a setting helps, which one."""
    remedy = REMEDIES.get(error.reason_name) if isinstance(error, DrillcoreError) else None
    return f"{error.message}: {remedy.command}" if remedy else error.message


def error_details(error: Exception) -> dict[str, object]:
    """What the server said about an error beside its message, without the request id, which is shown elsewhere."""
    if not isinstance(error, DrillcoreError):
        return {}
    found: dict[str, object] = {name: text for name, text in error.metadata.items() if name != _REQUEST_ID}
    return found | ({GAP: _parsed(error.metadata[GAP])} if GAP in found else {})


def gap_lines(error: Exception) -> Iterator[str]:
    """What an envelope lacks for an accepted tier, a line for each. Other errors have no such lines."""
    if not isinstance(error, DrillcoreError) or error.reason is not Reason.QUALITY_NOT_MET:
        return
    details = {name: value for name, value in error_details(error).items() if not name.startswith("CRP-")}
    gap = details.pop(GAP, {})
    rows = details | (dict(gap) if isinstance(gap, Mapping) else {GAP: gap})
    width = max((len(name) for name in rows), default=0)
    for name, value in rows.items():
        label = printable(name.replace("_", " "))
        for line in _detail_lines(value):
            yield f"  {label:{width}}  {line}"
            label = ""


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _detail_lines(value: object) -> list[str]:
    """A list of sentences or of objects takes a line for each; everything else takes one line."""
    if isinstance(value, list) and any(isinstance(item, Mapping) or " " in str(item) for item in value):
        return [_detail(item) for item in value]
    return [_detail(value)]


def _detail(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.3f}"
        case list():
            return ", ".join(map(_detail, value))
        case Mapping():
            return ", ".join(
                f"{printable(str(name)).replace('_', ' ')} {_detail(part)}" for name, part in value.items()
            )
    return printable(str(value))
