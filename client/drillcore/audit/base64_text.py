"""Base64 as the files of an audit trail hold it: one text for the same bytes, so that no change of it goes unseen."""

from __future__ import annotations

import binascii

from drillcore.audit.failures import Malformed


def to_base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def from_base64(text: object, what: str, size_bytes: int | None = None) -> bytes:
    """The bytes. `what` they are is named in the refusal; `size_bytes`, if given, is how many there must be."""
    if not isinstance(text, str):
        raise Malformed(f"{what} is not there as base64")
    try:
        data = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except ValueError:
        raise Malformed(f"{what} is not base64") from None
    # The last character may hold bits that mean nothing; they are zero in the one right text.
    if to_base64(data) != text:
        raise Malformed(f"{what} is not in the one right form of base64")
    if size_bytes is not None and len(data) != size_bytes:
        raise Malformed(f"{what} has {len(data)} bytes instead of {size_bytes}")
    return data
