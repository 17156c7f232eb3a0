"""The first operator's token: made on first start, when the settings name no caller and no account could operate."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from drillcore_server.auth.principal import Principal
from drillcore_server.auth.tokens import Token, digest
from drillcore_server.domain.accounts import EVERYTHING
from drillcore_server.domain.ids import PrincipalId
from drillcore_server.secret_file import make_secret_file

FILE_NAME: Final = "operator.token"
OPERATOR: Final = Principal(PrincipalId("operator"), None, grants=EVERYTHING)


def read(directory: Path) -> Token | None:
    """The token, if its file is there. Whoever removes the file takes the token back, at the next start."""
    path = directory / FILE_NAME
    return Token(OPERATOR, digest(path.read_text(encoding="ascii").strip())) if path.exists() else None


def make(directory: Path) -> Path:
    """Makes the file, which only its owner may read."""
    path = directory / FILE_NAME
    make_secret_file(path, secrets.token_urlsafe(32).encode() + b"\n")
    return path
