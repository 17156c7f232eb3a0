"""QueryAudit and ExportAudit, and what all commands about audit logs share: which log is meant and who may see it."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import filterfalse
from typing import Final, TypeVar

import orjson

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server import VERSION
from drillcore_server.audit import log_store as audit_log
from drillcore_server.audit.check_log import LogChecker
from drillcore_server.audit.ndjson import LogAt, LogPages, NdjsonExport, filter_document, log_now
from drillcore_server.audit.ocsf import event
from drillcore_server.audit.search import AuditFilter, FoundRecord, LogSearch
from drillcore_server.kernel import access
from drillcore_server.kernel.access import Granted, Principal, Rule
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.journal import SigningKeys, log_of
from drillcore_server.kernel.pages import PageLimit, fill_page, make_token, page_size, read_token
from drillcore_server.kernel.trail import Action, Trail
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.storage.audit_records import RecordOpener
from drillcore_server.storage.ids import RecordId, TenantId
from drillcore_server.storage.keyspace import Keyspace


@dataclass(frozen=True, slots=True)
class AuditLogs:
    """The parts with which commands read and check logs."""

    signing: SigningKeys
    opener: RecordOpener
    search: LogSearch
    checker: LogChecker
    wait: Callable[[float], None]
    """Waits until records may have been put in order, at most for so many seconds."""


@dataclass(frozen=True, slots=True)
class WhichLog:
    """A tenant's log, or the server's own."""

    tenant: TenantId | None
    server_log: bool

    def __post_init__(self) -> None:
        if self.server_log and self.tenant is not None:
            message = "the server's own log belongs to no tenant: set either tenant_id or server_log"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="server_log")


def auditor_of(which: WhichLog) -> Rule[Granted]:
    """Only an auditor of the whole tenant may see its log; only an operator may see the server's own."""
    if which.server_log:
        return access.operator

    def rule(tr: Reader, keys: Keyspace, principal: Principal, now: datetime) -> Granted:
        granted = access.in_tenant(which.tenant, Permission.AUDIT)(tr, keys, principal, now)
        granted.check_everything()
        return granted

    return rule


def participant_of(which: WhichLog) -> Rule[Granted]:
    """Allows everybody who may have records of their own calls in a log."""
    return access.operator if which.server_log else access.in_tenant(which.tenant, Permission.READ, Permission.AUDIT)


TEXT_CHARACTERS_MAX: Final = 256
"""The longest operator or request id in a filter."""
_OPEN: Final = frozenset({"corpus_id", "node_id", "record_id", "action"})
"""Parts of a filter that say nothing about a person."""
_OVERHEAD_BYTES: Final = 500
"""Bytes of leaf, salts and ids."""


@dataclass(frozen=True, slots=True)
class FoundRecords:
    records: list[FoundRecord]
    next_token: str = ""


def query_audit(
    unit: Unit, logs: AuditLogs, call: Call, *, which: WhichLog, wanted: AuditFilter, size: int, token: str
) -> FoundRecords:
    """Matching records committed before this call, newest first."""
    check_filter(wanted)
    limit = PageLimit(page_size(size), unit.page_bytes_max)

    def work(tr: Reader, granted: Granted, trail: Trail) -> FoundRecords:
        log = log_of(granted.tenant)
        note_filter(trail, wanted)
        listing = f"audit records of {log} {filter_document(wanted)}"
        found = logs.search.find(tr, log, wanted, after=read_token(listing, token))
        others = filterfalse(lambda record: _is_of(record, call), found)
        records, more = fill_page(_sized(others), limit)
        trail.detail["records"] = len(records)
        return FoundRecords(records, make_token(listing, records[-1].cursor) if more else "")

    return unit.read(call, auditor_of(which), work)


def check_filter(wanted: AuditFilter) -> None:
    """Raises `BadInput` for a filter that can match nothing."""
    if wanted.action and wanted.action not in Action.__members__:
        message = f"there is no such action; use one of {', '.join(Action.__members__)}"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="filter.action")
    if wanted.since is not None and wanted.until is not None and wanted.since >= wanted.until:
        raise BadInput(Reason.INVALID_ARGUMENT, "from must be before until", field="filter.from")
    for name, text in (("operator", wanted.operator), ("request_id", wanted.request_id)):
        if len(text) > TEXT_CHARACTERS_MAX:
            message = f"{name} must have at most {TEXT_CHARACTERS_MAX} characters"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field=f"filter.{name}")


def note_filter(trail: Trail, wanted: AuditFilter) -> None:
    """Puts the filter into the audit record. What may name a person goes into the private part."""
    said = filter_document(wanted)
    open_part = {name: value for name, value in said.items() if name in _OPEN}
    rest = {name: value for name, value in said.items() if name not in _OPEN}
    if open_part:
        trail.detail["filter"] = open_part
    if rest:
        trail.private["filter"] = rest


def _is_of(found: FoundRecord, call: Call) -> bool:
    """Whether a record is of this very call, from an earlier attempt."""
    if call.request_id.encode() not in found.opened.body:
        return False
    body = orjson.loads(found.opened.body)
    return bool(body["request_id"] == call.request_id and body.get("operator", "") == call.principal.id)


def _sized(found: Iterator[FoundRecord]) -> Iterator[tuple[FoundRecord, int]]:
    return ((record, record.opened.size_bytes + _OVERHEAD_BYTES) for record in found)


T = TypeVar("T")
_WAIT_S_MAX: Final = 5.0
"""How long to wait until the log has what was committed before the export began."""
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
    """The lines of the export, showing the log as it is now. They are read as they are consumed.

    The export is recorded before the first line. The caller's permission is checked again with each page.
    """
    check_filter(wanted.filter)
    rule = auditor_of(wanted.which)
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
    return (orjson.dumps(found, option=orjson.OPT_APPEND_NEWLINE) for found in events)


def _await_log(unit: Unit, logs: AuditLogs, call: Call, rule: Rule[Granted]) -> None:
    """Waits a few seconds until the log has every record committed before this call."""

    def last_unplaced(tr: Reader, granted: Granted) -> RecordId | None:
        newest = next(logs.search.find(tr, log_of(granted.tenant), AuditFilter()), None)
        return RecordId(newest.opened.leaf.record) if newest is not None and newest.index is None else None

    awaited = unit.look(call, rule, last_unplaced)
    deadline_s = time.monotonic() + min(_WAIT_S_MAX, call.timeout_s / 2)
    while awaited is not None and time.monotonic() < deadline_s:
        if unit.look(call, rule, lambda tr, _granted: audit_log.place_of(tr, unit.keys, awaited)) is not None:
            return
        logs.wait(_POLL_S)
