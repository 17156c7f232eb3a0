"""Finds records of a log by what they say: indexes that the sequencer writes with each entry.

    kind       value                                   leads to
    corpus     the corpus's id                         every record that touched it
    node       a node's or document's id               likewise
    operator   keyed hash of who called (16 bytes)     every call of theirs
    action     keyed hash of the action                every record of that kind
    request    keyed hash of the request's id          its record, and those of its refusals
    hour       hours since 1970 (8 bytes)              the first and last index of records of that hour

Hashes are keyed with a secret that is made from the log's own key, so the keys of the store tell nobody who did what.
A call may take hours until its record is committed, so times do not grow with the index: the hours bound where to look.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from drillcore_fdb.engine import Reader, Transaction
from drillcore_server.audit.journal import log_key
from drillcore_server.domain.times import to_microseconds
from drillcore_server.store.keyring import Keyring
from drillcore_server.store.keyspace import Keyspace

HASH_BYTES: Final = 16
_HOUR_US: Final = 3_600_000_000
_PURPOSE: Final = b"audit indexes"


class Kind(enum.IntEnum):
    """Numbers are part of the format."""

    CORPUS = 1
    NODE = 2
    OPERATOR = 3
    ACTION = 4
    REQUEST = 5
    HOUR = 6


Term = tuple[Kind, bytes]
"""What a record is found by."""


class Terms:
    """What records are found by, in one store."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring
        self._secrets: dict[UUID, bytes] = {}

    def of_body(self, log: UUID, body: Mapping[str, Any]) -> list[Term]:
        ids = [(Kind.CORPUS, body.get("corpora", ())), (Kind.NODE, body.get("nodes", ()))]
        ids.append((Kind.NODE, body.get("documents", ())))
        found = dict.fromkeys((kind, bytes.fromhex(one.replace("-", ""))) for kind, ones in ids for one in ones)
        texts = [(Kind.OPERATOR, "operator"), (Kind.ACTION, "action"), (Kind.REQUEST, "request_id")]
        for kind, name in texts:
            if name in body:
                found[self.of_text(log, kind, body[name])] = None
        return list(found)

    def of_text(self, log: UUID, kind: Kind, text: str) -> Term:
        secret = self._secrets.get(log)
        if secret is None:
            secret = self._secrets[log] = self._keyring.derived(log_key(self._keyring, log), _PURPOSE)
        return kind, hashlib.blake2b(text.encode(), key=secret, digest_size=HASH_BYTES).digest()


def at_of(body: Mapping[str, Any]) -> int:
    """When the call was made, in microseconds."""
    return to_microseconds(datetime.fromisoformat(body["at"]))


@dataclass(slots=True)
class Hours:
    """The first and last index of the records of each hour, for some records of one log."""

    spans: dict[int, tuple[int, int]] = field(default_factory=dict)

    def note(self, at: int, index: int) -> None:
        first, last = self.spans.get(at // _HOUR_US, (index, index))
        self.spans[at // _HOUR_US] = min(first, index), max(last, index)

    def write(self, tr: Transaction, keys: Keyspace, log: UUID) -> None:
        """Widens what is stored by these."""
        places = {_hour_key(keys, log, hour): span for hour, span in self.spans.items()}
        stored = tr.get_many(list(places))
        for (key, (first, last)), old in zip(places.items(), stored, strict=True):
            before = (first, last) if old is None else _span(old)
            tr.set(key, min(first, before[0]).to_bytes(8, "big") + max(last, before[1]).to_bytes(8, "big"))


def put(tr: Transaction, keys: Keyspace, log: UUID, index: int, terms: Iterable[Term]) -> None:
    for key in keys.audit_index_of(log, terms, index):
        tr.set(key, b"")


def indexed(tr: Reader, keys: Keyspace, log: UUID, term: Term, begin: int, end: int, *, reverse: bool) -> Iterator[int]:
    """The indexes, from one up to another, of the records that a term leads to."""
    kind, value = term
    span = keys.audit_index(log, kind, value, begin), keys.audit_index(log, kind, value, end)
    for key, _ in tr.range(*span, reverse=reverse):
        yield int.from_bytes(key[-8:], "big")


def have(tr: Reader, keys: Keyspace, log: UUID, terms: Iterable[Term], indexes: list[int]) -> list[int]:
    """Those of some indexes whose records all of the terms lead to."""
    for kind, value in terms:
        there = tr.get_many([keys.audit_index(log, kind, value, index) for index in indexes])
        indexes = [index for index, found in zip(indexes, there, strict=True) if found is not None]
    return indexes


def bounds(tr: Reader, keys: Keyspace, log: UUID, since: datetime | None, until: datetime | None) -> tuple[int, int]:
    """Where in the log records of a time can be: from the first index up to, not including, the second."""
    whole = keys.audit_indexed(log, Kind.HOUR, b"")
    begin = whole.begin if since is None else _hour_key(keys, log, to_microseconds(since) // _HOUR_US)
    end = whole.end if until is None else _hour_key(keys, log, (to_microseconds(until) - 1) // _HOUR_US) + b"\0"
    spans = [_span(value) for _, value in tr.range(begin, end)] if begin < end else []
    return min((first for first, _ in spans), default=0), max((last + 1 for _, last in spans), default=0)


def _hour_key(keys: Keyspace, log: UUID, hour: int) -> bytes:
    return keys.audit_indexed(log, Kind.HOUR, max(hour, 0).to_bytes(8, "big")).begin


def _span(stored: bytes) -> tuple[int, int]:
    return int.from_bytes(stored[:8], "big"), int.from_bytes(stored[8:], "big")
