"""The results of atomic operations on the stored value and the operand, byte for byte the same as FoundationDB's."""

from __future__ import annotations

import operator
from collections.abc import Callable

from drillcore_fdb.engine import VALUE_BYTES_MAX, Atomic


def apply(operation: Atomic, stored: bytes | None, operand: bytes) -> bytes | None:
    """The new value; None removes the key."""
    if operation is Atomic.COMPARE_AND_CLEAR:
        return None if stored is None or stored == operand else stored
    if stored is None:
        return operand
    return _COMBINE[operation](stored, operand)


def _on_integers(combine: Callable[[int, int], int]) -> Callable[[bytes, bytes], bytes]:
    """`combine` on little-endian integers of the operand's length, the stored one cut or padded to it."""

    def combined(stored: bytes, operand: bytes) -> bytes:
        length = len(operand)
        number = combine(int.from_bytes(stored[:length], "little"), int.from_bytes(operand, "little"))
        return (number & ((1 << 8 * length) - 1)).to_bytes(length, "little")

    return combined


def _append_if_fits(stored: bytes, operand: bytes) -> bytes:
    return stored + operand if len(stored) + len(operand) <= VALUE_BYTES_MAX else stored


_COMBINE: dict[Atomic, Callable[[bytes, bytes], bytes]] = {
    Atomic.ADD: _on_integers(operator.add),
    Atomic.BIT_AND: _on_integers(operator.and_),
    Atomic.BIT_OR: _on_integers(operator.or_),
    Atomic.BIT_XOR: _on_integers(operator.xor),
    Atomic.MAX: _on_integers(max),
    Atomic.MIN: _on_integers(min),
    Atomic.BYTE_MAX: max,
    Atomic.BYTE_MIN: min,
    Atomic.APPEND_IF_FITS: _append_if_fits,
}
