"""How long a corpus keeps its revisions: a policy in days, and a legal hold that is above it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import BadInput, NotReady
from drillcore_server.domain.ids import PrincipalId, Revision

RETENTION_DAYS_MAX: Final = 36_500
REASON_CHARACTERS_MAX: Final = 1_000
_NONE: Final = Revision(0)


@dataclass(frozen=True, slots=True)
class LegalHold:
    """The last change of a corpus's hold. While it is on, nothing is trimmed and the corpus cannot be deleted."""

    on: bool
    reason: str
    by: PrincipalId
    at: datetime


@dataclass(frozen=True, slots=True)
class TrimState:
    """How far a corpus is trimmed. Revisions only go up, so nothing that was given up is promised again."""

    floor: Revision = _NONE
    """The oldest revision that can be read; those before it cannot, whether or not they are removed yet."""
    trimmed: Revision = _NONE
    """What no reader from this revision on sees is removed."""
    walking: Revision = _NONE
    """What `trimmed` will be when the walk under way is through; 0 if there is none."""
    cursor: bytes = b""
    """Where that walk goes on."""

    @property
    def finished(self) -> bool:
        return self.trimmed == self.floor


@dataclass(frozen=True, slots=True)
class RetentionChange:
    """A new policy; without days every revision is kept from now on."""

    days: int | None

    def __post_init__(self) -> None:
        if self.days is not None and not 1 <= self.days <= RETENTION_DAYS_MAX:
            message = f"retention_days must be 1 to {RETENTION_DAYS_MAX}; keep_everything ends the policy"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="retention_days")


@dataclass(frozen=True, slots=True)
class HoldChange:
    """A hold to put on or to release, and why."""

    on: bool
    reason: str

    def __post_init__(self) -> None:
        field = "hold_reason" if self.on else "release_reason"
        if not self.reason.strip():
            raise BadInput(Reason.INVALID_ARGUMENT, f"{field} is empty: say why", field=field)
        if len(self.reason) > REASON_CHARACTERS_MAX:
            raise BadInput(Reason.TOO_LARGE, f"{field} has over {REASON_CHARACTERS_MAX} characters", field=field)

    def applied(self, old: LegalHold | None, by: PrincipalId, at: datetime) -> LegalHold:
        """Refused if the hold is on already: who put it on, and why, is not to be overwritten."""
        if self.on:
            check_not_on_hold(old)
        elif old is None or not old.on:
            raise NotReady(Reason.CORPUS_NOT_ON_HOLD, "the corpus is not on legal hold")
        return LegalHold(self.on, self.reason, by, at)


def kept_since(days: int, now: datetime) -> datetime:
    """The head of this moment, and every one since, is kept."""
    return now - timedelta(days=days)


def check_not_on_hold(hold: LegalHold | None) -> None:
    if hold is not None and hold.on:
        message = f"the corpus is on legal hold since {hold.at:%Y-%m-%d}, put on by {hold.by}; release it first"
        raise NotReady(Reason.CORPUS_ON_HOLD, message)
