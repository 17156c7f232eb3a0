"""xxHash64 in plain Python. Only fingerprints of slices need it, which is not worth a dependency."""

from __future__ import annotations

import struct
from typing import Final

_MASK: Final = (1 << 64) - 1
_PRIMES: Final = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _round(state: int, lane: int) -> int:
    return _rotated((state + lane * _PRIMES[1]) & _MASK, 31) * _PRIMES[0] & _MASK


def xxh64(data: bytes) -> int:
    """The hash of the data, with seed 0."""
    first, second, _, fourth, fifth = _PRIMES
    whole = len(data) // 32 * 32
    result = fifth
    if whole:
        states = [(first + second) & _MASK, second, 0, -first & _MASK]
        for stripe in struct.iter_unpack("<4Q", data[:whole]):
            states = [_round(state, lane) for state, lane in zip(states, stripe, strict=True)]
        result = sum(_rotated(state, bits) for state, bits in zip(states, (1, 7, 12, 18), strict=True)) & _MASK
        for state in states:
            result = ((result ^ _round(0, state)) * first + fourth) & _MASK
    return _finished((result + len(data)) & _MASK, data[whole:])


def _finished(result: int, tail: bytes) -> int:
    first, second, third, fourth, fifth = _PRIMES
    lanes = len(tail) // 8 * 8
    for (lane,) in struct.iter_unpack("<Q", tail[:lanes]):
        result = (_rotated(result ^ _round(0, lane), 27) * first + fourth) & _MASK
    rest = tail[lanes:]
    if len(rest) >= 4:
        result = (_rotated(result ^ int.from_bytes(rest[:4], "little") * first & _MASK, 23) * second + third) & _MASK
        rest = rest[4:]
    for byte in rest:
        result = _rotated(result ^ byte * fifth & _MASK, 11) * first & _MASK
    result = (result ^ result >> 33) * second & _MASK
    result = (result ^ result >> 29) * third & _MASK
    return result ^ result >> 32
