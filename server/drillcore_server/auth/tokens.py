"""Static tokens from the configuration: each is one principal's."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field

from drillcore_proto.reasons import Reason
from drillcore_server.auth.principal import Principal
from drillcore_server.domain.errors import Denied

TOKEN_CHARACTERS_MIN = 16


@dataclass(frozen=True, slots=True)
class Token:
    principal: Principal
    digest: bytes = field(repr=False)
    """SHA-256 of the token. A token is random and long, so a fast hash is enough; passwords would need a slow one."""


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class Tokens:
    def __init__(self, tokens: Iterable[Token]) -> None:
        self._tokens = tuple(tokens)

    def authenticate(self, authorization: str | None) -> Principal:
        """The principal of an `authorization` header. Compares with every token, so timing tells nothing."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Denied(Reason.UNAUTHENTICATED, "send the token as 'authorization: Bearer TOKEN'")
        offered = digest(token)
        found = [known.principal for known in self._tokens if hmac.compare_digest(known.digest, offered)]
        if not found:
            raise Denied(Reason.UNAUTHENTICATED, "the token is not known to this server")
        return found[0]
