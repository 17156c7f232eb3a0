"""The first operator's token: made on first start, when the settings name no caller."""

from __future__ import annotations

import secrets
from pathlib import Path

from drillcore_server.auth.principal import Principal
from drillcore_server.auth.tokens import Token, digest
from drillcore_server.domain.accounts import EVERYTHING
from drillcore_server.domain.ids import PrincipalId
from drillcore_server.secret_file import make_secret_file

FILE_NAME = "operator.token"
OPERATOR = Principal(PrincipalId("operator"), None, grants=EVERYTHING)


def read_or_make(directory: Path) -> tuple[Token, Path, bool]:
    """The token, its file, and whether it was made now. Only the owner may read the file."""
    path = directory / FILE_NAME
    made = not path.exists()
    if made:
        make_secret_file(path, secrets.token_urlsafe(32).encode() + b"\n")
    return Token(OPERATOR, digest(path.read_text(encoding="ascii").strip())), path, made
