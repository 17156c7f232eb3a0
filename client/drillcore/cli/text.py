"""Results as people read them in a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from drillcore._results import Corpus, LegalHold, Sharing, Tenant


def record(thing: Tenant | Corpus) -> Table:
    """One thing: a line for each of its fields."""
    return pairs((field.name, one_line(getattr(thing, field.name))) for field in dataclasses.fields(thing))


def pairs(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Names of fields and what is in them."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name.replace("_", " "), value)
    return table


def listing(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Several things: a line for each."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column == "id")
    for row in rows:
        table.add_row(*map(one_line, row))
    return table


def printable(text: str) -> str:
    """The text with control characters made visible: names come from others, and a terminal obeys such characters."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def prose(text: str) -> Text:
    """Text of several lines, each with its control characters made visible."""
    return Text("\n".join(printable(line.rstrip("\r")) for line in text.split("\n")))


def first_words(text: str, width: int) -> str:
    """The beginning of a text in one line of up to `width` characters."""
    line = " ".join(printable(word) for word in text[: 4 * width].split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def one_line(value: object) -> Text:
    if value is None:
        return Text("")
    if isinstance(value, datetime):
        return Text(value.astimezone().isoformat(sep=" ", timespec="seconds"))
    if isinstance(value, LegalHold | Sharing):
        return Text(_held(value) if isinstance(value, LegalHold) else _shared(value))
    if isinstance(value, Mapping):
        return Text(printable(", ".join(f"{key}={value[key]}" for key in sorted(value))))
    return Text(printable(", ".join(map(str, value)) if isinstance(value, tuple) else str(value)))


def _held(hold: LegalHold) -> str:
    state = "on since" if hold.on else "released"
    return f"{state} {one_line(hold.at)}, {printable(hold.by)}: {printable(hold.reason)}"


def _shared(sharing: Sharing) -> str:
    readers = "every tenant" if sharing.everyone else ", ".join(map(str, sharing.tenant_ids))
    return f"with {readers}, since {one_line(sharing.at)}, by {printable(sharing.by)}"
