"""Communities: facts of a corpus that belong together, and the runs that find them."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID, uuid5

from drillcore_server.storage.ids import CommunityId, CorpusId, FactId, Revision

LABEL_FACTS: Final = 5
"""The most important facts of a community, which its label is made of."""


@dataclass(frozen=True, slots=True)
class Community:
    """What is said of a community; its members are kept beside it."""

    id: CommunityId
    label: str
    keywords: tuple[str, ...]
    size: int
    """Facts in it when it was found. Those that were taken out of the search index since are still counted."""
    drawn_from: tuple[FactId, ...]
    """The facts whose words the label and the keywords are."""
    made_at: datetime


class Trigger(enum.Enum):
    """Why communities are found anew."""

    REQUEST = "request"
    FACTS = "facts"
    SCHEDULE = "schedule"


@dataclass(frozen=True, slots=True)
class CommunityRun:
    at: datetime
    of_revision: Revision
    """Whose facts they are of."""
    revision: Revision
    """That has them: made by the run, unless nothing had changed."""
    facts: int
    """That were looked at."""
    communities: int
    trigger: Trigger
    took_s: float


@dataclass(frozen=True, slots=True)
class RunLease:
    """Held by the server that is finding the communities of a corpus, so that no other does the same work."""

    id: UUID
    until: datetime


def community_id(corpus: CorpusId, members: Iterable[FactId]) -> CommunityId:
    """The same for communities with the same first fact, in every run."""
    return CommunityId(uuid5(corpus, str(min(members))))
