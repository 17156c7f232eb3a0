"""Which client this is."""

from __future__ import annotations

import importlib.metadata

from drillcore_proto.reasons import API_VERSION


def client_version() -> str:
    """The version of the installed distribution."""
    return importlib.metadata.version("drillcore")


def api_version() -> str:
    """The version of the protocol this client speaks, "major.minor"."""
    return ".".join(map(str, API_VERSION))
