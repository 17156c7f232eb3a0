"""Checks that concurrent transactions could have run one after another, in the order of their versions.

Each transaction records its reads with their answers. The checker runs the transactions again, in the order of their
versionstamps, against a plain dict; every answer must be the same. A transaction that only read stands at its read
version.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from operator import attrgetter

from tests.conformance.plain_store import Clear, ClearRange, Combine, PlainStore, Read, Result, Set, Write


@dataclass(frozen=True, slots=True)
class Answer:
    read: Read
    result: Result


@dataclass(frozen=True, slots=True)
class Record:
    """A committed transaction: its reads with their answers and its writes, in the order in which it made them.

    `acknowledged` is the highest version known to be committed before it began.
    """

    name: str
    read_version: int
    version: int
    versionstamp: bytes | None
    steps: tuple[Answer | Write, ...]
    acknowledged: int = 0


class NotSerializableError(AssertionError):
    """No serial order by version explains a transaction's answers."""


def check(records: list[Record]) -> PlainStore:
    """Returns the store after the whole history. Raises `NotSerializableError` for the first wrong answer."""
    writers = sorted((record for record in records if record.versionstamp), key=attrgetter("versionstamp"))
    check_order(records, writers)
    states = [(0, PlainStore())]
    for writer in writers:
        latest = states[-1][1].copy()
        replay(writer, latest, "at its commit")
        replay(writer, state_at(states, writer.read_version).copy(), "at its read version")
        states.append((writer.version, latest))
    for reader in records:
        if not reader.versionstamp:
            replay(reader, state_at(states, reader.read_version).copy(), "at its read version")
    return states[-1][1]


def check_order(records: list[Record], writers: list[Record]) -> None:
    for record in records:
        if record.read_version < record.acknowledged:
            raise NotSerializableError(f"{record.name} did not see version {record.acknowledged}, committed before it")
    for writer in writers:
        if writer.version <= writer.read_version:
            raise NotSerializableError(f"{writer.name} was committed at or before the version it read")
    for earlier, next_one in itertools.pairwise(writers):
        if earlier.versionstamp == next_one.versionstamp or earlier.version > next_one.version:
            raise NotSerializableError(f"{earlier.name} and {next_one.name} have versionstamps that give no order")


def state_at(states: list[tuple[int, PlainStore]], version: int) -> PlainStore:
    """The store after the last commit at or below a version."""
    return next(state for committed, state in reversed(states) if committed <= version)


def replay(record: Record, store: PlainStore, when: str) -> None:
    """Runs a transaction again on `store`, which it changes, and compares the answers."""
    for step in record.steps:
        match step:
            case Answer(read, result):
                expected = store.read(read)
                if expected != result:
                    raise NotSerializableError(f"{record.name} {when}: {read} gave {result!r}, not {expected!r}")
            case Set() | Clear() | ClearRange() | Combine():
                store.apply(step)
