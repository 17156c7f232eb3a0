"""ExportAudit."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import orjson

from drillcore_fdb.engine import Reader
from drillcore_server.audit.journal import log_of
from drillcore_server.audit.ndjson import LogAt, LogPages, NdjsonExport, log_now
from drillcore_server.audit.ocsf import event
from drillcore_server.audit.search import AuditFilter
from drillcore_server.auth.access import Granted, Rule
from drillcore_server.commands.audit_logs import AuditLogs, WhichLog, auditing
from drillcore_server.commands.query_audit import check_filter, note_filter
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.ids import RecordId
from drillcore_server.store import audit_log
from drillcore_server.version import VERSION

T = TypeVar("T")
_WAIT_S_MAX: Final = 5.0
"""For the log to have what was committed before the export began."""
_POLL_S: Final = 0.2


class AuditFormat(enum.Enum):
    NDJSON = "ndjson"
    OCSF = "ocsf"


@dataclass(frozen=True, slots=True)
class Wanted:
    which: WhichLog
    filter: AuditFilter
    format: AuditFormat


def export_audit(unit: Unit, logs: AuditLogs, call: Call, wanted: Wanted) -> Iterator[bytes]:
    """The lines of the export, of the log as it is when it begins; read as they are consumed.

    It is on the record before there is a first line. Whether the caller may see the log is looked at with each page.
    """
    check_filter(wanted.filter)
    rule = auditing(wanted.which)
    _await_log(unit, logs, call, rule)

    def begin(tr: Reader, granted: Granted, trail: Trail) -> LogAt:
        at = log_now(tr, unit.keys, logs.signing, log_of(granted.tenant))
        note_filter(trail, wanted.filter)
        trail.detail |= {"format": wanted.format.value, "size": at.size}
        return at

    at = unit.read(call, rule, begin)

    def run(work: Callable[[Reader], T]) -> T:
        return unit.look(call, rule, lambda tr, _granted: work(tr))

    if wanted.format is AuditFormat.NDJSON:
        return NdjsonExport(unit.keys, logs.search, at, wanted.filter).lines(run)
    events = LogPages(unit.keys, logs.search, at, wanted.filter).each(run, lambda _tr, found: event(found, VERSION))
    return (orjson.dumps(one, option=orjson.OPT_APPEND_NEWLINE) for one in events)


def _await_log(unit: Unit, logs: AuditLogs, call: Call, rule: Rule[Granted]) -> None:
    """Waits a little until the log has every record of a call that was answered before this one."""

    def last_unplaced(tr: Reader, granted: Granted) -> RecordId | None:
        newest = next(logs.search.find(tr, log_of(granted.tenant), AuditFilter()), None)
        return RecordId(newest.opened.leaf.record) if newest is not None and newest.index is None else None

    awaited = unit.look(call, rule, last_unplaced)
    deadline_s = time.monotonic() + min(_WAIT_S_MAX, call.timeout_s / 2)
    while awaited is not None and time.monotonic() < deadline_s:
        if unit.look(call, rule, lambda tr, _granted: audit_log.place_of(tr, unit.keys, awaited)) is not None:
            return
        logs.wait(_POLL_S)
