"""Facts that are kept in a caller's session only (no-store), and are gone with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.facts import Fact
from drillcore_server.domain.ids import CorpusId, PrincipalId, TenantId

SESSION_CHARACTERS_MAX: Final = 128


@dataclass(frozen=True, slots=True)
class OwnSession:
    """A session by its id, which is its caller's own choice: nobody else has it."""

    tenant: TenantId
    principal: PrincipalId
    id: str


@dataclass(frozen=True, slots=True)
class FactSession:
    """What is known of a session that facts were put into."""

    own: OwnSession
    number: int
    """Of the key that its facts are sealed under, which is destroyed with it."""
    scope: bytes
    """What the keyring knows that key by."""
    facts: int
    ends_at: datetime
    """Unless it is used before."""

    def is_over(self, now: datetime) -> bool:
        return now >= self.ends_at


@dataclass(frozen=True, slots=True)
class SessionFact:
    corpus: CorpusId
    """The one that it was put beside: who may not read that, may not read this."""
    fact: Fact
    vector: bytes
    """As vectors are stored."""


def checked_session(session: str) -> str:
    if not 0 < len(session) <= SESSION_CHARACTERS_MAX or not session.isascii() or not session.isprintable():
        message = f"a session id is 1 to {SESSION_CHARACTERS_MAX} printable ASCII characters"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="session_id")
    return session
