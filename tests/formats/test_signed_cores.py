"""Verification of a core file succeeds if the file was signed, and otherwise says why it failed."""

from __future__ import annotations

import hashlib
import io
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from drillcore_formats.audit.findings import Malformed, Mismatch, Untrusted, WrongSignature
from drillcore_formats.audit.notes import make_note
from drillcore_formats.cores import CoreStatement, verify
from tests.support.data.audit_logs import store_key

FILE = b"the bytes of a core" * 50_000
STATEMENT = CoreStatement(
    sha256=hashlib.sha256(FILE).hexdigest(),
    size_bytes=len(FILE),
    corpus=UUID(int=1),
    revision=7,
    made_at="2026-03-04T05:06:07.000000Z",
    record=UUID(int=2),
)
KEY, OTHER = store_key(), store_key(seed="other")


def note(text: str = STATEMENT.encode()) -> str:
    return make_note(text, (KEY.verifier, KEY.sign)).encode()


def test_a_signed_file_verifies(tmp_path: Path) -> None:
    path = tmp_path / "a.core"
    path.write_bytes(FILE)
    verified = verify(path, note(), [OTHER.verifier, KEY.verifier])
    assert verified.statement == STATEMENT
    assert verified.signed_by == (KEY.verifier.name,)


@pytest.mark.parametrize("file", [FILE[:-1], FILE + b"x", b"X" + FILE[1:], b""])
def test_a_changed_file_does_not_verify(file: bytes) -> None:
    with pytest.raises(Mismatch):
        verify(io.BytesIO(file), note(), [KEY.verifier])


def test_a_note_of_another_key_does_not_verify() -> None:
    with pytest.raises(Untrusted):
        verify(io.BytesIO(FILE), note(), [OTHER.verifier])


@pytest.mark.parametrize(("before", "after"), [("\n7\n", "\n8\n"), (STATEMENT.sha256, "0" * 64)])
def test_a_changed_note_does_not_verify(before: str, after: str) -> None:
    with pytest.raises(WrongSignature):
        verify(io.BytesIO(FILE), note().replace(before, after), [KEY.verifier])


@pytest.mark.parametrize(
    "text",
    [
        "drillcore core 2\n" + STATEMENT.encode().partition("\n")[2],
        STATEMENT.encode() + "more\n",
        STATEMENT.encode().replace("\n7\n", "\n07\n"),
        STATEMENT.encode().replace("\n7\n", "\n-7\n"),
        replace(STATEMENT, sha256="short").encode(),
        "another note\n",
    ],
)
def test_a_note_about_something_else_does_not_verify(text: str) -> None:
    with pytest.raises(Malformed):
        verify(io.BytesIO(FILE), note(text), [KEY.verifier])
