"""Audit records, reviews and signatures as people read them in a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from drillcore._audit_results import AuditRecord, Review
from drillcore._signature_results import Signature
from drillcore.cli.text import first_words, listing, one_line, pairs, printable

_FINDINGS_WIDTH: Final = 60


def records_table(records: Iterable[AuditRecord]) -> Table:
    """A line for each record."""
    columns = ["index", "at", "operator", "action", "call", "outcome", "request", "id"]
    return listing(columns, map(_record_row, records))


def _record_row(record: AuditRecord) -> tuple[object, ...]:
    body = record.body
    who = body.get("operator_login") or body.get("operator", "")
    index = "" if record.index is None else record.index
    return index, body["at"], who, body["action"], body["call"], body["outcome"], body["request_id"], record.id


def record_table(record: AuditRecord) -> Table:
    """All of a record: a line for each of its fields."""
    index = "not in the log yet" if record.index is None else record.index
    private = "erased" if record.erased else record.private
    rows = [("index", index), *record.body.items(), ("private part", private)]
    return pairs((name, _value(value)) for name, value in rows if name != "private" and value is not None)


def _value(value: object) -> Text:
    if isinstance(value, Mapping | list):
        return Text("\n").join(Text(printable(line)) for line in _lines(value))
    return one_line(value)


def _lines(value: Mapping[str, Any] | list[Any]) -> Iterator[str]:
    if isinstance(value, list):
        yield from (one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in value)
        return
    for name, inner in value.items():
        yield f"{name}: {inner if isinstance(inner, str) else json.dumps(inner, ensure_ascii=False)}"


def reviews_table(reviews: Iterable[Review]) -> Table:
    columns = ["id", "first", "last", "by", "at", "signed by", "findings"]
    return listing(columns, map(_review_row, reviews))


def _review_row(review: Review) -> tuple[object, ...]:
    signers = ", ".join(one.signer_name for one in review.signatures) or "nobody yet"
    findings = first_words(review.findings, _FINDINGS_WIDTH)
    return review.id, review.first, review.last, review.created_by, review.created_at, signers, findings


def signatures_table(signatures: Iterable[Signature]) -> Table:
    columns = ["id", "signed", "version", "by", "at", "meaning"]
    return listing(columns, map(_signature_row, signatures))


def _signature_row(signature: Signature) -> tuple[object, ...]:
    target = f"{signature.target.kind.value} {signature.target.id}"
    who = f"{signature.signer_name} ({signature.signer_login}){_elsewhere(signature)}"
    return signature.id, target, signature.target.version, who, signature.signed_at, signature.meaning


def signature_text(signature: Signature) -> str:
    """A signature in one line: name, time and meaning."""
    return f"{signature.signer_name}{_elsewhere(signature)}, {one_line(signature.signed_at)}: {signature.meaning}"


def _elsewhere(signature: Signature) -> str:
    """The server that shows it does not vouch for what came with a core."""
    return " on another server" if signature.foreign else ""
