"""Bearer tokens: those of the settings, those that the server makes for sessions, and the first operator's.

The first operator's token is made on the first start, if the settings name no caller and no account can operate the
server.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from drillcore_server.kernel.access import Principal
from drillcore_server.kernel.account_model import EVERYTHING
from drillcore_server.storage.ids import PrincipalId
from drillcore_server.storage.keyring import make_secret_file

TOKEN_CHARACTERS_MIN = 16
PREFIX: Final = "dc_"
"""Makes a token recognisable if it turns up in the wrong place."""


@dataclass(frozen=True, slots=True)
class Token:
    principal: Principal
    digest: bytes = field(repr=False)
    """The SHA-256 of the token. A token is long and random, so a fast hash is enough, unlike for passwords."""


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class Tokens:
    """The tokens of the settings."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        self._tokens = tuple(tokens)

    def find(self, token_hash: bytes) -> Principal | None:
        """The caller whose token has this hash. Compares with every token, so that timing reveals nothing."""
        found = [known.principal for known in self._tokens if hmac.compare_digest(known.digest, token_hash)]
        return found[0] if found else None

    def add(self, token: Token) -> None:
        self._tokens = (*self._tokens, token)


class Mint:
    """Makes tokens for sessions and service accounts: 32 bytes that look random to anybody without its secret.

    The same request makes the same token, so a retry gets the token of its first run, and only its hash is stored.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def token(self, *request: str | bytes) -> str:
        """The token for a request: its caller, id and content."""
        parts = [part.encode() if isinstance(part, str) else part for part in request]
        content = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return PREFIX + base64.urlsafe_b64encode(hmac.digest(self._secret, content, "sha256")).decode().rstrip("=")


FILE_NAME: Final = "operator.token"
OPERATOR: Final = Principal(PrincipalId("operator"), None, grants=EVERYTHING)


def read(directory: Path) -> Token | None:
    """The token, if its file exists. Removing the file revokes the token at the next start."""
    path = directory / FILE_NAME
    return Token(OPERATOR, digest(path.read_text(encoding="ascii").strip())) if path.exists() else None


def make(directory: Path) -> Token:
    """Makes the file, which only its owner may read, and returns its token."""
    token = secrets.token_urlsafe(32)
    make_secret_file(directory / FILE_NAME, token.encode() + b"\n")
    return Token(OPERATOR, digest(token))
