"""QueryAudit and ExportAudit, and what all commands about audit logs share: which log is meant and who may see it."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import filterfalse
from typing import Final, TypeVar
from uuid import UUID

import orjson

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server import VERSION
from drillcore_server.audit import log_store as audit_log
from drillcore_server.audit.check_log import LogChecker
from drillcore_server.audit.ndjson import LogAt, LogPages, NdjsonExport, filter_document, log_now
from drillcore_server.audit.ocsf import event
from drillcore_server.audit.search import TOGETHER, AuditFilter, FoundRecord, LogSearch, TriedEnough, until_enough
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

T = TypeVar("T")
G = TypeVar("G", bound=Granted)


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


def expected_keys(unit: Unit, call: Call, which: WhichLog) -> list[bytes]:
    """The keys that every command about this log reads first."""
    tenant = None if which.server_log else which.tenant or call.principal.tenant
    return audit_log.ends_of(unit.keys, log_of(tenant))


class NotYet(Exception):  # noqa: N818 - a signal, not an error
    """The log does not have what a call waits for. Ends the call's transaction without a record."""

    def __init__(self, record: RecordId | None = None) -> None:
        super().__init__()
        self.record = record


def read_when_there(
    unit: Unit,
    logs: AuditLogs,
    call: Call,
    access_rule: Rule[G],
    work: Callable[[Reader, G, Trail], T],
    *,
    expected: Sequence[bytes],
    look_every_s: float,
) -> T:
    """Same as `unit.read`, again and again as long as `work` raises `NotYet`. `work` decides when to give up."""
    while True:
        try:
            return unit.read(call, access_rule, work, expected=expected)
        except NotYet:
            logs.wait(look_every_s)


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
    """Matching records committed before this call, newest first. A page may be short, or even empty."""
    check_filter(wanted)
    limit = PageLimit(page_size(size), unit.page_bytes_max)

    def work(tr: Reader, granted: Granted, trail: Trail) -> FoundRecords:
        log = log_of(granted.tenant)
        note_filter(trail, wanted)
        listing = f"audit records of {log} {filter_document(wanted)}"
        # Two more than fit on the page: one shows that there are more, and one may be of this very call.
        together = min(TOGETHER, limit.items + 2)
        found = logs.search.find(tr, log, wanted, after=read_token(listing, token), together=together)
        stopped_at: list[bytes] = []
        others = filterfalse(lambda record: _is_of(record, call), until_enough(found, stopped_at))
        records, more = fill_page(_sized(others), limit)
        trail.detail["records"] = len(records)
        ends = [records[-1].cursor] if more else stopped_at
        return FoundRecords(records, make_token(listing, ends[0]) if ends else "")

    return unit.read(call, auditor_of(which), work, expected=expected_keys(unit, call, which))


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
    rule, expected = auditor_of(wanted.which), expected_keys(unit, call, wanted.which)
    if wanted.filter.record is not None:
        expected.append(unit.keys.audit_place(RecordId(wanted.filter.record)))
    at = _begin_export(unit, logs, call, wanted)

    def run(work: Callable[[Reader], T]) -> T:
        return unit.look(call, rule, lambda tr, _granted: work(tr), expected=expected)

    if wanted.format is AuditFormat.NDJSON:
        return NdjsonExport(unit.keys, logs.search, at, wanted.filter).lines(run)
    pages = LogPages(unit.keys, logs.search, at, wanted.filter)
    events = pages.each(run, lambda _tr, page: [event(found, VERSION) for found in page])
    return (orjson.dumps(found, option=orjson.OPT_APPEND_NEWLINE) for found in events)


def _newest_waiting(tr: Reader, logs: AuditLogs, log: UUID) -> RecordId | None:
    """The newest record that the log lacks. Raises `NotYet` if too many records wait to find it."""
    try:
        return logs.search.newest_waiting(tr, log)
    except TriedEnough:
        raise NotYet from None


def _begin_export(unit: Unit, logs: AuditLogs, call: Call, wanted: Wanted) -> LogAt:
    """Records the export. Waits a few seconds before, until the log has every record committed before this call."""
    deadline_s = time.monotonic() + min(_WAIT_S_MAX, call.timeout_s / 2)
    expected = expected_keys(unit, call, wanted.which)
    awaited: RecordId | None = None

    def check_complete(tr: Reader, log: UUID) -> None:
        if time.monotonic() >= deadline_s:
            return
        if awaited is None:
            waiting = _newest_waiting(tr, logs, log)
        else:
            waiting = awaited if audit_log.place_of(tr, unit.keys, awaited) is None else None
        if waiting is not None:
            raise NotYet(waiting)

    def begin(tr: Reader, granted: Granted, trail: Trail) -> LogAt:
        log = log_of(granted.tenant)
        check_complete(tr, log)
        at = log_now(tr, unit.keys, logs.signing, log)
        note_filter(trail, wanted.filter)
        trail.detail |= {"format": wanted.format.value, "size": at.size}
        return at

    while True:
        further = [] if awaited is None else [unit.keys.audit_place(awaited)]
        try:
            return unit.read(call, auditor_of(wanted.which), begin, expected=[*expected, *further])
        except NotYet as missing:
            awaited = missing.record
            logs.wait(_POLL_S)
