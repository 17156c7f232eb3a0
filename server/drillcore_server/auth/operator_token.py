"""The first operator's token: made on first start, when the settings name no caller."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from drillcore_server.auth.principal import Principal
from drillcore_server.auth.tokens import Token, digest
from drillcore_server.domain.ids import PrincipalId

FILE_NAME = "operator.token"
OPERATOR = Principal(PrincipalId("operator"), None)


def read_or_make(directory: Path) -> tuple[Token, Path, bool]:
    """The token, its file, and whether it was made now. Only the owner may read the file."""
    path = directory / FILE_NAME
    directory.mkdir(parents=True, exist_ok=True)
    made = not path.exists()
    if made:
        draft = path.with_suffix(".tmp")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
            file.flush()
            os.fsync(descriptor)
        draft.rename(path)
    return Token(OPERATOR, digest(path.read_text(encoding="ascii").strip())), path, made
