"""Tenants and corpora: what they are, how long a corpus keeps its revisions, and with whom it is shared.

A retention policy keeps revisions for a number of days; a legal hold overrides it. Tenants that a corpus is shared with
may read it, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.kernel.errors import BadInput, NotReady
from drillcore_server.storage.ids import CorpusId, CorpusNumber, PrincipalId, Revision, TenantId


@dataclass(frozen=True, slots=True)
class Tenant:
    id: TenantId
    name: str
    metadata: Mapping[str, str]
    created_at: datetime
    created_by: PrincipalId
    updated_at: datetime
    version: int
    deleted_at: datetime | None = None
    allowed_regions: tuple[str, ...] = ()
    """The regions of the corpora that it may have or read. Empty: any region."""


RETENTION_DAYS_MAX: Final = 36_500
REASON_CHARACTERS_MAX: Final = 1_000
_NONE: Final = Revision(0)


@dataclass(frozen=True, slots=True)
class LegalHold:
    """The last change of a corpus's legal hold. While it is on, nothing is trimmed and the corpus cannot be deleted."""

    on: bool
    reason: str
    by: PrincipalId
    at: datetime


@dataclass(frozen=True, slots=True)
class TrimState:
    """How far a corpus is trimmed. These revisions never go down, so nothing that was given up is promised again."""

    floor: Revision = _NONE
    """The oldest revision that can be read. Earlier ones cannot, even if they are not removed yet."""
    trimmed: Revision = _NONE
    """Everything that no reader from this revision on can see has been removed."""
    walking: Revision = _NONE
    """What `trimmed` will be after the walk that is under way; 0 if there is none."""
    cursor: bytes = b""
    """Where that walk continues."""

    @property
    def finished(self) -> bool:
        return self.trimmed == self.floor


@dataclass(frozen=True, slots=True)
class RetentionChange:
    """A new policy. Without days, every revision is kept from now on."""

    days: int | None

    def __post_init__(self) -> None:
        if self.days is not None and not 1 <= self.days <= RETENTION_DAYS_MAX:
            message = f"retention_days must be 1 to {RETENTION_DAYS_MAX}; keep_everything ends the policy"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="retention_days")


@dataclass(frozen=True, slots=True)
class HoldChange:
    """A legal hold to put on or release, and the reason."""

    on: bool
    reason: str

    def __post_init__(self) -> None:
        field = "hold_reason" if self.on else "release_reason"
        if not self.reason.strip():
            raise BadInput(Reason.INVALID_ARGUMENT, f"{field} is empty: say why", field=field)
        if len(self.reason) > REASON_CHARACTERS_MAX:
            raise BadInput(Reason.TOO_LARGE, f"{field} has over {REASON_CHARACTERS_MAX} characters", field=field)

    def applied(self, old: LegalHold | None, by: PrincipalId, at: datetime) -> LegalHold:
        """Raises `NotReady` if the hold is on already: who put it on and why must not be overwritten."""
        if self.on:
            check_not_on_hold(old)
        elif old is None or not old.on:
            raise NotReady(Reason.CORPUS_NOT_ON_HOLD, "the corpus is not on legal hold")
        return LegalHold(self.on, self.reason, by, at)


def kept_since(days: int, now: datetime) -> datetime:
    """The revision that was the head at this moment is kept, and every later one."""
    return now - timedelta(days=days)


def check_not_on_hold(hold: LegalHold | None) -> None:
    if hold is not None and hold.on:
        since = f"the corpus is on legal hold since {hold.at:%Y-%m-%d}, put on by {hold.by}"
        message = f"{since}; release it first (drillcore corpus release)"
        raise NotReady(Reason.CORPUS_ON_HOLD, message)


READERS_MAX: Final = 500
"""The most tenants that a corpus can be shared with by name. For more, share it with everyone."""


@dataclass(frozen=True, slots=True)
class Sharing:
    everyone: bool
    """Shared with every tenant, also future ones. Then no tenant is named."""
    tenants: tuple[TenantId, ...]
    by: PrincipalId
    at: datetime


@dataclass(frozen=True, slots=True)
class SharingChange:
    """With whom to share from now on.

    Replaces the previous sharing; with neither field, the corpus is shared with nobody.
    """

    everyone: bool = False
    tenants: Sequence[TenantId] = ()

    def applied(self, owner: TenantId, by: PrincipalId, at: datetime) -> Sharing | None:
        tenants = tuple(sorted(set(self.tenants)))
        if owner in tenants:
            message = "a corpus is not shared with the tenant it belongs to"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="share_with_tenants")
        if len(tenants) > READERS_MAX:
            message = f"name at most {READERS_MAX} tenants, or share with everyone"
            raise BadInput(Reason.TOO_LARGE, message, field="share_with_tenants")
        return Sharing(self.everyone, tenants, by, at) if self.everyone or tenants else None


@dataclass(frozen=True, slots=True)
class Corpus:
    id: CorpusId
    tenant_id: TenantId
    name: str
    description: str
    metadata: Mapping[str, str]
    created_at: datetime
    created_by: PrincipalId
    updated_at: datetime
    version: int
    number: CorpusNumber
    """The corpus's short name in keys."""
    deleted_at: datetime | None = None
    retention_days: int | None = None
    """Keeps every revision that was the head within this many days. None: keeps all revisions for ever."""
    legal_hold: LegalHold | None = None
    """The last change of its legal hold."""
    region: str = ""
    """The region of its data. It never changes once it is set."""
    sharing: Sharing | None = None
    """None: no other tenant can read it."""


@dataclass(frozen=True, slots=True)
class SeenCorpus:
    """A corpus as a caller sees it."""

    corpus: Corpus
    shared: bool = False
    """It belongs to another tenant and can only be read. The caller does not learn whose it is."""

    @property
    def id(self) -> CorpusId:
        return self.corpus.id
