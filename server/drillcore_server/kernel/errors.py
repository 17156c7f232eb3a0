"""Why a call is refused. Each refusal carries a reason from the table that server and client share.

Refused
├── BadInput       the request can never be accepted as it is
├── Denied         the caller may not do this
├── Missing        what the request names is not there
├── Exists         what the request would make is there already
├── Stale          the record is not what the caller thinks it is
├── NotReady       something else must happen first
└── Unavailable    not now; the message says whether anything was written
"""

from __future__ import annotations

from collections.abc import Mapping

from drillcore_proto.reasons import Reason


class Refused(Exception):  # noqa: N818 - named as what it says, a refusal, not an error of ours
    """`message` and `details` go to the caller: never put another tenant's data or any content in them."""

    def __init__(self, reason: Reason, message: str, **details: str) -> None:
        super().__init__(f"{reason.name}: {message}")
        self.reason = reason
        self.message = message
        self.details: Mapping[str, str] = details


class BadInput(Refused):
    pass


class Denied(Refused):
    pass


class Missing(Refused):
    pass


class Exists(Refused):
    pass


class Stale(Refused):
    pass


class NotReady(Refused):
    pass


class Unavailable(Refused):
    pass
