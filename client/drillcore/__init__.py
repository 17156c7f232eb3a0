"""Drillcore, the client: `Client` and `AsyncClient`, what they return and what they raise.

It needs no part of the server. Names that are not listed here, but for `drillcore.settings` and `drillcore.doctor`,
are private.
"""

from drillcore._client import AsyncClient, Client
from drillcore._client_settings import TLS, ClientSettings
from drillcore._results import Corpus, Page, ServerInfo, Tenant
from drillcore.errors import (
    AlreadyExists,
    Cancelled,
    Conflict,
    DeadlineExceeded,
    DrillcoreError,
    FailedPrecondition,
    Incompatible,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from drillcore.settings import SettingsError
from drillcore_proto.reasons import Reason

__all__ = [
    "TLS",
    "AlreadyExists",
    "AsyncClient",
    "Cancelled",
    "Client",
    "ClientSettings",
    "Conflict",
    "Corpus",
    "DeadlineExceeded",
    "DrillcoreError",
    "FailedPrecondition",
    "Incompatible",
    "Internal",
    "InvalidArgument",
    "NotFound",
    "Page",
    "PermissionDenied",
    "Reason",
    "ResourceExhausted",
    "ServerInfo",
    "SettingsError",
    "Tenant",
    "Unauthenticated",
    "Unavailable",
]
