"""Files of models: found in installed packages without running them, read once, checked against pinned hashes."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import Final

from drillcore_server.ingest.embedding.errors import ModelUnusable

FINGERPRINT_CHARACTERS: Final = 16


def package_folder(package: str, remedy: str) -> Path:
    """Where a top-level package is installed. Its code is not run. Raises ModelUnusable with the remedy."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModelUnusable(f"the package {package} is not installed: {remedy}")
    return Path(spec.origin).parent


def read_file(path: Path, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelUnusable(f"cannot read {path} ({error.strerror}): {remedy}") from error


def read_pinned(path: Path, sha256: str, remedy: str) -> bytes:
    """The bytes that were checked are the bytes returned, so nothing can be swapped in between."""
    content = read_file(path, remedy)
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise ModelUnusable(f"{path} is not the pinned file: its SHA-256 is {found}, not {sha256}: {remedy}")
    return content


def fingerprint(*parts: bytes) -> str:
    """Short name of everything that decides a model's vectors: weights, tokenizer, and how they are used."""
    digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts))
    return digest.hexdigest()[:FINGERPRINT_CHARACTERS]
