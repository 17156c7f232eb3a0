"""Audit records as events of the Open Cybersecurity Schema Framework, for tools that do not know Drillcore.

    logins and logouts     Authentication (3002)
    everything else        API Activity (6003)

Fields that the schema has no place for are in `unmapped`. Private parts are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import orjson

from drillcore_server.audit.search import FoundRecord
from drillcore_server.kernel.trail import OK, Action
from drillcore_server.storage.ids import to_microseconds

SCHEMA_VERSION: Final = "1.3.0"
AUTHENTICATION: Final = 3002
API_ACTIVITY: Final = 6003

_CREATE, _READ, _UPDATE, _DELETE, _OTHER = 1, 2, 3, 4, 99
_LOGON, _LOGOFF = 1, 2
_ACTIVITIES: Final = {
    Action.CREATE: _CREATE,
    Action.ACCESS: _READ,
    Action.EXPORT: _READ,
    Action.VERIFY: _READ,
    Action.UPDATE: _UPDATE,
    Action.GRANT: _UPDATE,
    Action.ROTATE: _UPDATE,
    Action.SIGN: _CREATE,
    Action.REVIEW: _CREATE,
    Action.DELETE: _DELETE,
    Action.ERASE: _DELETE,
    Action.TRIM: _DELETE,
}
_ACTIVITY_NAMES: Final = {_CREATE: "Create", _READ: "Read", _UPDATE: "Update", _DELETE: "Delete", _OTHER: "Other"}
_INFORMATIONAL, _LOW, _MEDIUM, _HIGH = 1, 2, 3, 4
_SEVERITIES: Final = {_INFORMATIONAL: "Informational", _LOW: "Low", _MEDIUM: "Medium", _HIGH: "High"}
_OF_ACCESS: Final = frozenset(
    {"PERMISSION_DENIED", "UNAUTHENTICATED", "LOGIN_FAILED", "ACCOUNT_LOCKED", "ACCOUNT_DISABLED", "CANNOT_SIGN"}
)
"""Outcomes of attempts to do something without permission."""
_USER_TYPES: Final = {"person": (1, "User"), "server": (3, "System"), "service": (99, "Service")}
_UNMAPPED: Final = ("levels", "before", "after", "detail", "nodes_count", "documents_count", "client_version", "proof")
_PEER: Final = re.compile(r"(?:ipv4:|ipv6:)?(?P<ip>\[[^\]]*\]|[^:\[\]]+|%5B.*?%5D):(?P<port>[0-9]+)", re.ASCII)


def event(found: FoundRecord, product_version: str) -> dict[str, Any]:
    """The event for a record."""
    body = orjson.loads(found.opened.body)
    action = Action(body["action"])
    said = _authentication(body, action) if action in {Action.LOGIN, Action.LOGOUT} else _api_activity(body, action)
    return said | _common(found, body, action, product_version)


def _authentication(body: Mapping[str, Any], action: Action) -> dict[str, Any]:
    activity, name = (_LOGON, "Logon") if action is Action.LOGIN else (_LOGOFF, "Logoff")
    return {
        **_classes(AUTHENTICATION, "Authentication", 3, "Identity & Access Management", activity, name),
        "user": _user(body),
        "service": {"name": "drillcore"},
        "is_remote": True,
    }


def _api_activity(body: Mapping[str, Any], action: Action) -> dict[str, Any]:
    activity = _ACTIVITIES.get(action, _OTHER)
    name = _ACTIVITY_NAMES[activity] if activity != _OTHER else action.value
    return {
        **_classes(API_ACTIVITY, "API Activity", 6, "Application Activity", activity, name),
        "actor": {"user": _user(body)},
        "api": {
            "operation": body["call"],
            "service": {"name": "drillcore"},
            "request": {"uid": body["request_id"]},
            "response": {"code": 0 if body["outcome"] == OK else 1, "message": body["outcome"]},
        },
        "resources": _resources(body),
    }


def _classes(
    class_uid: int, class_name: str, category_uid: int, category_name: str, activity: int, activity_name: str
) -> dict[str, Any]:
    return {
        "class_uid": class_uid,
        "class_name": class_name,
        "category_uid": category_uid,
        "category_name": category_name,
        "activity_id": activity,
        "activity_name": activity_name,
        "type_uid": class_uid * 100 + activity,
        "type_name": f"{class_name}: {activity_name}",
    }


def _common(found: FoundRecord, body: Mapping[str, Any], action: Action, product_version: str) -> dict[str, Any]:
    severity = _severity(action, body["outcome"])
    succeeded = body["outcome"] == OK
    return {
        "time": to_microseconds(datetime.fromisoformat(body["at"])) // 1_000,
        "severity_id": severity,
        "severity": _SEVERITIES[severity],
        "status_id": 1 if succeeded else 2,
        "status": "Success" if succeeded else "Failure",
        "status_code": body["outcome"],
        "src_endpoint": _endpoint(body.get("peer", "")),
        "metadata": {
            "version": SCHEMA_VERSION,
            "product": {"name": "Drillcore", "vendor_name": "Drillcore", "version": product_version},
            "uid": body["id"],
            "log_name": body["log"],
            "sequence": found.index,
            "correlation_uid": body["request_id"],
            **({"tenant_uid": body["tenant"]} if "tenant" in body else {}),
        },
        "unmapped": {name: body[name] for name in _UNMAPPED if name in body},
    }


def _severity(action: Action, outcome: str) -> int:
    if action is Action.ALERT:
        return _HIGH
    if outcome in _OF_ACCESS:
        return _MEDIUM
    return _INFORMATIONAL if outcome == OK else _LOW


def _user(body: Mapping[str, Any]) -> dict[str, Any]:
    """The caller, or "unknown" if the caller was not authenticated."""
    type_id, type_name = _USER_TYPES.get(body["operator_kind"], (0, "Unknown"))
    operator = body.get("operator", "unknown")
    return {"uid": operator, "name": body.get("operator_login", operator), "type_id": type_id, "type": type_name}


def _endpoint(peer: str) -> dict[str, Any]:
    """The caller's address. Calls of the server itself have none."""
    match = _PEER.fullmatch(peer)
    if match is None:
        return {"name": peer or "server"}
    ip = match["ip"].removeprefix("%5B").removesuffix("%5D").strip("[]")
    return {"ip": ip, "port": int(match["port"])}


def _resources(body: Mapping[str, Any]) -> list[dict[str, str]]:
    kinds = {"corpora": "corpus", "nodes": "node", "documents": "document"}
    return [{"uid": uid, "type": kind} for name, kind in kinds.items() for uid in body.get(name, ())]
