"""Inspects and verifies knowledge cores without a server."""

from drillcore_formats.cores import (
    CoreModel,
    CoreRoot,
    CoreStatement,
    CoreSummary,
    InvalidCore,
    VerifiedCore,
    inspect,
    verify,
)

__all__ = [
    "CoreModel",
    "CoreRoot",
    "CoreStatement",
    "CoreSummary",
    "InvalidCore",
    "VerifiedCore",
    "inspect",
    "verify",
]
