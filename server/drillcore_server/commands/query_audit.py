"""QueryAudit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import filterfalse
from typing import Final

import orjson

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.audit.journal import log_of
from drillcore_server.audit.ndjson import filter_document
from drillcore_server.audit.search import AuditFilter, FoundRecord
from drillcore_server.auth.access import Granted
from drillcore_server.commands.audit_logs import AuditLogs, WhichLog, auditing
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.audit import Action, Trail
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.pages import PageLimit, fill_page, make_token, page_size, read_token

TEXT_CHARACTERS_MAX: Final = 256
"""Of an operator or a request id."""
_OPEN: Final = frozenset({"corpus_id", "node_id", "record_id", "action"})
"""Parts of a filter that tell of no person."""
_OVERHEAD_BYTES: Final = 500
"""Of leaf, salts and ids."""


@dataclass(frozen=True, slots=True)
class FoundRecords:
    records: list[FoundRecord]
    next_token: str = ""


def query_audit(
    unit: Unit, logs: AuditLogs, call: Call, *, which: WhichLog, wanted: AuditFilter, size: int, token: str
) -> FoundRecords:
    """Records that a filter asks for, newest first: every one whose call was answered before this one was made."""
    check_filter(wanted)
    limit = PageLimit(page_size(size), unit.page_bytes_max)

    def work(tr: Reader, granted: Granted, trail: Trail) -> FoundRecords:
        log = log_of(granted.tenant)
        note_filter(trail, wanted)
        listing = f"audit records of {log} {filter_document(wanted)}"
        found = logs.search.find(tr, log, wanted, after=read_token(listing, token))
        others = filterfalse(lambda one: _is_of(one, call), found)
        records, more = fill_page(_sized(others), limit)
        trail.detail["records"] = len(records)
        return FoundRecords(records, make_token(listing, records[-1].cursor) if more else "")

    return unit.read(call, auditing(which), work)


def check_filter(wanted: AuditFilter) -> None:
    """Raises `BadInput` for a filter that can match nothing."""
    if wanted.action and wanted.action not in Action.__members__:
        message = f"there is no such action; there are {', '.join(Action.__members__)}"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="filter.action")
    if wanted.since is not None and wanted.until is not None and wanted.since >= wanted.until:
        raise BadInput(Reason.INVALID_ARGUMENT, "from must be before until", field="filter.from")
    for name, text in (("operator", wanted.operator), ("request_id", wanted.request_id)):
        if len(text) > TEXT_CHARACTERS_MAX:
            message = f"{name} has over {TEXT_CHARACTERS_MAX} characters"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field=f"filter.{name}")


def note_filter(trail: Trail, wanted: AuditFilter) -> None:
    """What was asked for, for the record."""
    said = filter_document(wanted)
    open_part = {name: value for name, value in said.items() if name in _OPEN}
    rest = {name: value for name, value in said.items() if name not in _OPEN}
    if open_part:
        trail.detail["filter"] = open_part
    if rest:
        trail.private["filter"] = rest


def _is_of(found: FoundRecord, call: Call) -> bool:
    """Whether a record is of the very call that asks, made before."""
    if call.request_id.encode() not in found.opened.body:
        return False
    body = orjson.loads(found.opened.body)
    return bool(body["request_id"] == call.request_id and body.get("operator", "") == call.principal.id)


def _sized(found: Iterator[FoundRecord]) -> Iterator[tuple[FoundRecord, int]]:
    return ((one, one.opened.size_bytes + _OVERHEAD_BYTES) for one in found)
