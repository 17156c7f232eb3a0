"""Bearer tokens: those that the settings name, each one principal's, and those that the server makes."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from drillcore_server.auth.principal import Principal

TOKEN_CHARACTERS_MIN = 16
PREFIX: Final = "dc_"
"""So that a token in the wrong place is seen to be one."""


@dataclass(frozen=True, slots=True)
class Token:
    principal: Principal
    digest: bytes = field(repr=False)
    """SHA-256 of the token. A token is random and long, so a fast hash is enough; passwords would need a slow one."""


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class Tokens:
    """Static tokens from the settings."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        self._tokens = tuple(tokens)

    def find(self, token_hash: bytes) -> Principal | None:
        """Whose token this is the hash of. Compares with every one, so timing tells nothing."""
        found = [known.principal for known in self._tokens if hmac.compare_digest(known.digest, token_hash)]
        return found[0] if found else None


class Mint:
    """Makes tokens for sessions and service accounts: 32 bytes that nobody without its secret can tell from chance.

    The same request makes the same token. So a retry gets the one its first run made, and no token is stored, neither
    in the clear nor sealed: only its hash is.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def token(self, *request: str | bytes) -> str:
        """The token for all that makes up a request: who, under which id, with which content and secret."""
        parts = [part.encode() if isinstance(part, str) else part for part in request]
        content = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return PREFIX + base64.urlsafe_b64encode(hmac.digest(self._secret, content, "sha256")).decode().rstrip("=")
