"""Communities: groups of similar facts of a corpus, and the runs that find them."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID, uuid5

from drillcore_server.storage.ids import CommunityId, CorpusId, FactId, Revision

LABEL_FACTS: Final = 5
"""How many facts of a community its label is made from: the most important ones."""


@dataclass(frozen=True, slots=True)
class Community:
    """A community. Its members are stored beside it."""

    id: CommunityId
    label: str
    keywords: tuple[str, ...]
    size: int
    """How many facts it had when it was found, also those that have left the search index since."""
    drawn_from: tuple[FactId, ...]
    """The facts that the label and the keywords are made from."""
    made_at: datetime


class Trigger(enum.Enum):
    """Why a run finds communities again."""

    REQUEST = "request"
    FACTS = "facts"
    SCHEDULE = "schedule"


@dataclass(frozen=True, slots=True)
class CommunityRun:
    """One run that found communities."""

    at: datetime
    of_revision: Revision
    """The revision whose facts it looked at."""
    revision: Revision
    """The revision that has its communities. The run made it, unless nothing had changed."""
    facts: int
    """How many facts it looked at."""
    communities: int
    trigger: Trigger
    took_s: float


@dataclass(frozen=True, slots=True)
class RunLease:
    """The right of one server to find the communities of a corpus, so that no other server does the same work."""

    id: UUID
    until: datetime


def community_id(corpus: CorpusId, members: Iterable[FactId]) -> CommunityId:
    """The id of a community: made from the corpus and its smallest fact id, so it is the same in every run."""
    return CommunityId(uuid5(corpus, str(min(members))))
