"""The versions of this client and of its protocol."""

from __future__ import annotations

import importlib.metadata

from drillcore_proto.reasons import API_VERSION


def client_version() -> str:
    """The version of the installed distribution."""
    return importlib.metadata.version("drillcore")


def api_version() -> str:
    """The version of the protocol, "major.minor"."""
    return ".".join(map(str, API_VERSION))
