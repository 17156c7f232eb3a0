"""The simplest possible store: a dict, sorted when asked. Tests compare the engines with it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from drillcore_fdb.engine import KEYS_END, VALUE_BYTES_MAX, Atomic, KeySelector, KeyValue, Reader, Transaction


@dataclass(frozen=True, slots=True)
class Set:
    key: bytes
    value: bytes

    def perform(self, tr: Transaction) -> None:
        tr.set(self.key, self.value)


@dataclass(frozen=True, slots=True)
class Clear:
    key: bytes

    def perform(self, tr: Transaction) -> None:
        tr.clear(self.key)


@dataclass(frozen=True, slots=True)
class ClearRange:
    begin: bytes
    end: bytes

    def perform(self, tr: Transaction) -> None:
        tr.clear_range(self.begin, self.end)


@dataclass(frozen=True, slots=True)
class Combine:
    operation: Atomic
    key: bytes
    operand: bytes

    def perform(self, tr: Transaction) -> None:
        tr.atomic(self.operation, self.key, self.operand)


@dataclass(frozen=True, slots=True)
class Get:
    key: bytes

    def perform(self, reader: Reader) -> bytes | None:
        return reader.get(self.key)


@dataclass(frozen=True, slots=True)
class Scan:
    begin: bytes
    end: bytes
    limit: int = 0
    reverse: bool = False

    def perform(self, reader: Reader) -> list[KeyValue]:
        return list(reader.range(self.begin, self.end, limit=self.limit, reverse=self.reverse))


@dataclass(frozen=True, slots=True)
class Select:
    selector: KeySelector

    def perform(self, reader: Reader) -> bytes:
        return reader.get_key(self.selector)


Write = Set | Clear | ClearRange | Combine
Read = Get | Scan | Select
Result = bytes | list[KeyValue] | None


class PlainStore:
    """A version of a whole store."""

    def __init__(self, pairs: dict[bytes, bytes] | None = None) -> None:
        self.pairs = dict(pairs or {})

    def copy(self) -> PlainStore:
        return PlainStore(self.pairs)

    def apply(self, write: Write) -> None:
        match write:
            case Set(key, value):
                self.pairs[key] = value
            case Clear(key):
                self.pairs.pop(key, None)
            case ClearRange(begin, end):
                self.pairs = {key: value for key, value in self.pairs.items() if not begin <= key < end}
            case Combine(operation, key, operand):
                combined = combine(operation, self.pairs.pop(key, None), operand)
                if combined is not None:
                    self.pairs[key] = combined

    def read(self, read: Read) -> Result:
        match read:
            case Get(key):
                return self.pairs.get(key)
            case Scan(begin, end, limit, reverse):
                found = sorted((item for item in self.pairs.items() if begin <= item[0] < end), reverse=reverse)
                return found[:limit] if limit else found
            case Select(selector):
                return self.select(selector)

    def select(self, selector: KeySelector) -> bytes:
        keys = sorted(self.pairs)
        bisect = bisect_right if selector.or_equal else bisect_left
        index = bisect(keys, selector.key) - 1 + selector.offset
        if index < 0:
            return b""
        return keys[index] if index < len(keys) else KEYS_END


def combine(operation: Atomic, stored: bytes | None, operand: bytes) -> bytes | None:
    """The value that an atomic operation leaves; None is a missing key."""
    match operation:
        case Atomic.COMPARE_AND_CLEAR:
            return None if stored == operand else stored
        case Atomic.APPEND_IF_FITS:
            joined = (stored or b"") + operand
            return joined if len(joined) <= VALUE_BYTES_MAX else stored
    if stored is None:
        return operand
    match operation:
        case Atomic.BYTE_MAX:
            return max(stored, operand)
        case Atomic.BYTE_MIN:
            return min(stored, operand)
    return combine_numbers(operation, stored, operand)


def combine_numbers(operation: Atomic, stored: bytes, operand: bytes) -> bytes:
    """Little-endian arithmetic on as many bytes as the operand has."""
    length = len(operand)
    left, right = int.from_bytes(stored[:length], "little"), int.from_bytes(operand, "little")
    number = {
        Atomic.ADD: left + right,
        Atomic.BIT_AND: left & right,
        Atomic.BIT_OR: left | right,
        Atomic.BIT_XOR: left ^ right,
        Atomic.MAX: max(left, right),
        Atomic.MIN: min(left, right),
    }[operation]
    return (number % (1 << 8 * length)).to_bytes(length, "little")
