"""Canonical JSON (RFC 8785), written by a faster library where that is safe, and fingerprints made from it."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import orjson
import rfc8785

from drillcore_server.kernel.trail import plain

_PLAIN_MIN, _PLAIN_MAX = 1e-3, 1e15
"""Between these, both libraries write the same shortest digits, without an exponent."""


def canonical(value: Any) -> bytes:
    """The value as canonical JSON.

    Raises `rfc8785.CanonicalizationError` for values without a canonical form, such as integers from 2^53 on.
    """
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS) if _is_plain(value) else rfc8785.dumps(value)


def canonical_record(value: dict[str, Any] | list[Any]) -> bytes:
    """Same result as `canonical`, faster, for values with ASCII keys, without floats, and with integers below 2^53.

    Audit records and fingerprints have only such values. Does not check them.
    """
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _is_plain(value: Any) -> bool:
    """Whether orjson, which is many times as fast, writes the value as RFC 8785 requires.

    orjson sorts keys by UTF-8 instead of UTF-16, and writes 1.0 where RFC 8785 requires 1.
    """
    if isinstance(value, str | bool) or value is None:
        return True
    if isinstance(value, int):
        return abs(value) < 1 << 53
    if isinstance(value, float):
        return _PLAIN_MIN <= abs(value) < _PLAIN_MAX and not value.is_integer()
    if isinstance(value, dict):
        return all(key.isascii() for key in value) and all(map(_is_plain, value.values()))
    return isinstance(value, list) and all(map(_is_plain, value))


VERSION: Final = 1
"""The version of the encoding. Fingerprints of two versions are never equal."""


def fingerprint(kind: str, *values: object) -> bytes:
    """The SHA-256 of the values in canonical JSON. It is the same in every process and every release.

    Equal values of different kinds have different fingerprints.
    """
    return hashlib.sha256(canonical_record([VERSION, kind, plain(values)])).digest()
