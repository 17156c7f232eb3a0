"""Reviews: an auditor has looked at a range of an audit log, and says what there was to find."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from drillcore_proto.reasons import Reason
from drillcore_server.domain.audit import time_text
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.ids import PrincipalId

FINDINGS_CHARACTERS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Review:
    """Never changed. It counts once it is signed."""

    id: UUID
    log: UUID
    first: int
    """Index of the first record."""
    last: int
    """And of the last, included."""
    root: bytes
    """Of the tree that ends with the last record: the review is of just these records and no others."""
    findings: str
    created_by: PrincipalId
    created_at: datetime


def checked_findings(findings: str) -> str:
    if len(findings) > FINDINGS_CHARACTERS_MAX or "\0" in findings:
        message = f"findings have over {FINDINGS_CHARACTERS_MAX} characters, or a zero character"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="findings")
    return findings


def review_content(review: Review) -> dict[str, Any]:
    """What a signature of the review covers."""
    return {
        "id": str(review.id),
        "log": str(review.log),
        "first": review.first,
        "last": review.last,
        "root": review.root.hex(),
        "findings": review.findings,
        "created_by": review.created_by,
        "created_at": time_text(review.created_at),
    }
