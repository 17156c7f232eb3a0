"""What calls about communities return."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from drillcore._fact_results import Fact
from drillcore._results import Page


@dataclass(frozen=True, slots=True)
class Community:
    """Facts of a corpus that belong together."""

    id: UUID
    corpus_id: UUID
    label: str
    keywords: tuple[str, ...]
    size: int
    """Facts in it."""
    made_at: datetime


@dataclass(frozen=True, slots=True)
class CommunityRun:
    """One time that the communities of a corpus were computed."""

    at: datetime
    of_revision: int
    """The facts were those of this revision."""
    revision: int
    """That it made; the same if nothing had changed."""
    facts: int
    communities: int
    trigger: str
    """request, facts or schedule."""
    took_s: float


@dataclass(frozen=True, slots=True)
class CommunityPage(Page[Community]):
    """Some of the communities of a corpus, the largest first."""

    revision: int
    """Of the corpus, that was read."""
    last_run: CommunityRun | None
    """None: they were never computed."""


@dataclass(frozen=True, slots=True)
class CommunityFacts(Page[Fact]):
    """A community with some of its facts, the most important first."""

    community: Community
    revision: int


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What computing communities anew did."""

    run: CommunityRun | None
    """While it goes on the one before, if there was one."""
    changed: bool
    """Whether it made a revision."""
    running: bool = False
    """Whether it goes on, since the call's time was over first; `list_communities` tells when it is done."""
