"""Reads JSON lines: one document on each line. A bad line is refused with its number; the other lines are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from drillcore_server.documents.model import ParsedDocument, ParseLimits, Refusal, Unparsable, UnparsableReason
from drillcore_server.documents.parsers.text_blocks import storable

_KNOWN = frozenset(("id", "title", "text", "media_type", "metadata"))

ParseLine = Callable[[str, str, Mapping[str, Any], tuple[str, ...]], ParsedDocument]
"""Takes the text, a name for messages, the line's fields and the notes so far."""


def parse_json_lines(
    text: str, *, name: str, limits: ParseLimits, parse_line: ParseLine
) -> Iterator[ParsedDocument | Unparsable]:
    if not text.strip():
        raise Refusal(UnparsableReason.EMPTY, "is empty; leave it out")
    seen: set[str] = set()
    # splitlines() would be wrong: JSON strings may contain unescaped line separators such as U+2028.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield _document(line, f"{name}:{number}", seen, limits, parse_line)
        except Refusal as refusal:
            yield refusal.about(name, number)


def _document(line: str, name: str, seen: set[str], limits: ParseLimits, parse_line: ParseLine) -> ParsedDocument:
    fields = _fields(line, limits)
    _check_fields(fields)
    identity = fields.get("id")
    if identity is not None and str(identity) in seen:
        raise Refusal(UnparsableReason.DUPLICATE_ID, "has the id of an earlier line; give each document its own id")
    text, notes = storable(fields["text"])
    document = parse_line(text, name, fields, notes)
    if identity is not None:
        seen.add(str(identity))
    return document


def _fields(line: str, limits: ParseLimits) -> dict[str, Any]:
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        fields = _fields_with_surrogates(line)
    if not isinstance(fields, dict):
        raise _malformed('is not a JSON object; write {"id": ..., "title": ..., "text": ...}')
    _check_depth(fields, limits.depth_max)
    return fields


def _fields_with_surrogates(line: str) -> Any:
    """Reads the line with Python's parser: orjson refuses escaped lone surrogates, which other programs write."""
    if "\\u" not in line and "\\U" not in line:
        raise _malformed("is not valid JSON; write one object a line")
    try:
        return json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _malformed("is not valid JSON; write one object a line") from error


def _refuse_constant(constant: str) -> None:
    raise ValueError(constant)


def _check_fields(fields: Mapping[str, Any]) -> None:
    if not isinstance(fields.get("text"), str):
        raise _malformed('has no "text" that is a string; write {"id": ..., "title": ..., "text": ...}')
    if not fields["text"].strip():
        raise Refusal(UnparsableReason.EMPTY, "has an empty text; leave the line out")
    for field, kinds in (("id", (str, int)), ("title", (str,)), ("media_type", (str,)), ("metadata", (dict,))):
        if fields.get(field) is not None and not isinstance(fields[field], kinds):
            raise _malformed(f'has a "{field}" that is not {" or ".join(kind.__name__ for kind in kinds)}')


def _check_depth(value: Any, depth_max: int) -> None:
    pending = [(value, 1)]
    while pending:
        inner, depth = pending.pop()
        if depth > depth_max:
            raise Refusal(UnparsableReason.TOO_DEEP, f"nests values over {depth_max} deep; flatten its metadata")
        if isinstance(inner, dict | list):
            children = inner.values() if isinstance(inner, dict) else inner
            pending.extend((child, depth + 1) for child in children if isinstance(child, dict | list))


def metadata(fields: Mapping[str, Any]) -> dict[str, str]:
    """Returns the line's metadata and its other fields as text. A value that is not a string is written as JSON."""
    own = {key: value for key, value in fields.items() if key not in _KNOWN}
    merged = {**own, **(fields.get("metadata") or {})}
    return {storable(key)[0]: _as_text(value) for key, value in merged.items() if value is not None}


def _as_text(value: Any) -> str:
    return storable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True))[0]


def _malformed(message: str) -> Refusal:
    return Refusal(UnparsableReason.MALFORMED, message)
