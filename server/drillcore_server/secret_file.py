"""Files with secrets: only their owner may read them, and they are on disk whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def make_secret_file(path: Path, content: bytes) -> None:
    """Writes a new file of mode 600, making its directory if need be. Durable when it returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
