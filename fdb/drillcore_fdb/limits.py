"""FoundationDB's rules for keys and values, applied by both engines when a call is made.

FoundationDB itself checks them later: a write that breaks one fails the next read or the commit. Checked here, the
error comes from the line that caused it. They also keep out the special keys from `\\xff\\xff` on, which the binding
would let through and the contract does not know.
"""

from __future__ import annotations

from drillcore_fdb.engine import KEY_BYTES_MAX, KEYS_END, VALUE_BYTES_MAX, VERSIONSTAMP_BYTES
from drillcore_fdb.errors import InvalidUseError, LimitError

_POSITION_BYTES = 4


def check_key(key: bytes) -> None:
    """Checks a key that is read or cleared. It may be longer than any stored key; then nothing is stored there."""
    if key >= KEYS_END:
        raise InvalidUseError(2004, "Key outside legal range")


def check_bound(key: bytes) -> None:
    """Checks the end of a range, or the key of a selector."""
    if key > KEYS_END:
        raise InvalidUseError(2004, "Key outside legal range")


def check_range(begin: bytes, end: bytes) -> None:
    if begin > end:
        raise InvalidUseError(2005, "Range begin key larger than end key")
    check_bound(end)


def check_write(key: bytes, value: bytes) -> None:
    check_key(key)
    if len(key) > KEY_BYTES_MAX:
        raise LimitError(2102, f"Key length {len(key)} exceeds limit {KEY_BYTES_MAX}")
    if len(value) > VALUE_BYTES_MAX:
        raise LimitError(2103, f"Value length {len(value)} exceeds limit {VALUE_BYTES_MAX}")


def check_watch(key: bytes) -> None:
    check_write(key, b"")


def check_template(template: bytes) -> int:
    """The position at which a template has room for a versionstamp. The template's last four bytes name it."""
    position = int.from_bytes(template[-_POSITION_BYTES:], "little", signed=True)
    room = len(template) - _POSITION_BYTES - VERSIONSTAMP_BYTES
    if room < 0 or not 0 <= position <= room:
        raise InvalidUseError(2000, "Invalid API call: no room for a versionstamp at the position the template names")
    return position


def check_limit(limit: int) -> None:
    if limit < 0:
        raise InvalidUseError(2012, "Range limits not valid")
