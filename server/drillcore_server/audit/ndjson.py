"""An audit log, or some of its records, as lines of JSON that can be verified without the server.

    {"drillcore_audit": 1, "store", "log", "first", "size", "complete", "checkpoint", "keys", "filter"}
    {"index", "leaf", "salt", "body", "private_salt"?, "private"?, "erased"?: true, "proof"?}     for each record
    {... "of": "erasure"}                         a record that explains why the private part of another is missing
    {"end": number of records}

A complete export is verified by the root that its records lead to; in a selection, each record has its own proof.
`drillcore_formats.audit.exported` verifies them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

import orjson

from drillcore_fdb.engine import Reader
from drillcore_formats.audit.encoding import to_base64
from drillcore_formats.audit.keys import KeyChain
from drillcore_server.audit.log_store import LogCheckpoint, newest_checkpoint, tree_of
from drillcore_server.audit.search import EVERYTHING, AuditFilter, FoundRecord, LogSearch, until_enough
from drillcore_server.audit.tiles import Tree
from drillcore_server.kernel.journal import SigningKeys
from drillcore_server.kernel.trail import Action, time_text
from drillcore_server.storage.keyspace import Keyspace

FORMAT: Final = 1
_PAGE_RECORDS: Final = 200
_PAGE_BYTES: Final = 1 << 20
"""Bytes read in one transaction and held in memory at a time."""
T = TypeVar("T")


class Run(Protocol):
    """Runs a read in a transaction of its own."""

    def __call__(self, work: Callable[[Reader], T]) -> T: ...


@dataclass(frozen=True, slots=True)
class LogAt:
    """A log at one of its checkpoints. An export shows this state, although the log keeps growing."""

    log: UUID
    checkpoint: LogCheckpoint
    chain: KeyChain

    @property
    def size(self) -> int:
        return self.checkpoint.size


def log_now(tr: Reader, keys: Keyspace, signing: SigningKeys, log: UUID) -> LogAt:
    """The log at its newest checkpoint. Raises `Missing` if it has no record yet."""
    return LogAt(log, newest_checkpoint(tr, keys, log), signing.chain(tr))


def filter_document(wanted: AuditFilter) -> dict[str, str]:
    """A filter as JSON."""
    said = {
        "corpus_id": wanted.corpus,
        "node_id": wanted.node,
        "operator": wanted.operator,
        "action": wanted.action,
        "from": wanted.since,
        "until": wanted.until,
        "request_id": wanted.request_id,
        "record_id": wanted.record,
    }
    return {name: _text(value) for name, value in said.items() if value}


def _text(value: UUID | str | datetime) -> str:
    return time_text(value) if isinstance(value, datetime) else str(value)


class LogPages:
    """Reads the records of a log up to a size, oldest first, in as many transactions as needed."""

    def __init__(self, keys: Keyspace, search: LogSearch, at: LogAt, wanted: AuditFilter) -> None:
        self.keys = keys
        self.search = search
        self.at = at
        self.wanted = wanted

    def each(self, run: Run, show: Callable[[Reader, list[FoundRecord]], list[T]]) -> Iterator[T]:
        """The result of `show` for each record. It gets a page of records in the transaction that reads them."""
        cursor: bytes | None = None
        while True:
            page, cursor = run(lambda tr, after=cursor: self._page(tr, after, show))  # type: ignore[misc]  # bound now
            yield from page
            if cursor is None:
                return

    def _page(
        self, tr: Reader, after: bytes | None, show: Callable[[Reader, list[FoundRecord]], list[T]]
    ) -> tuple[list[T], bytes | None]:
        """Some records, and the cursor to continue from; None at the end."""
        page: list[FoundRecord] = []
        size_bytes = 0
        stopped_at: list[bytes] = []
        for found in until_enough(self.search.in_log(tr, self.at.log, self.wanted, after=after), stopped_at):
            assert found.index is not None
            if found.index >= self.at.size:
                break
            page.append(found)
            size_bytes += found.opened.size_bytes
            if len(page) == _PAGE_RECORDS or size_bytes >= _PAGE_BYTES:
                return show(tr, page), found.cursor
        return show(tr, page), stopped_at[0] if stopped_at else None


@dataclass(slots=True)
class NdjsonExport:
    """One export under way. `lines` may be called once."""

    keys: Keyspace
    search: LogSearch
    at: LogAt
    wanted: AuditFilter = EVERYTHING
    count: int = 0
    """Number of records so far."""
    _unexplained: set[int] = field(default_factory=set)
    """Keys of missing private parts, without an erasure that explains them so far."""
    _explained: set[int] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        return self.wanted == EVERYTHING

    def lines(self, run: Run) -> Iterator[bytes]:
        yield _line(self._header())
        pages = LogPages(self.keys, self.search, self.at, self.wanted)
        for shown in pages.each(run, self._shown):
            self.count += 1
            self._note_erasure(shown)
            yield _line(shown)
        if self._unexplained:
            yield from map(_line, self._explanations(run))
        yield _line({"end": self.count})

    def _header(self) -> dict[str, Any]:
        return {
            "drillcore_audit": FORMAT,
            "store": str(self.at.chain.store),
            "log": str(self.at.log),
            "first": 0,
            "size": self.at.size,
            "complete": self.complete,
            "checkpoint": self.at.checkpoint.note,
            "keys": self.at.chain.document(),
            "filter": filter_document(self.wanted),
        }

    def _shown(self, tr: Reader, page: list[FoundRecord]) -> list[dict[str, Any]]:
        return list(map(record_document, page)) if self.complete else self._with_proofs(tr, page)

    def _with_proofs(self, tr: Reader, page: list[FoundRecord]) -> list[dict[str, Any]]:
        tree, size = tree_of(tr, self.keys, self.at.log, self.at.size), self.at.size
        tree.expect_inclusions([found.index for found in page if found.index is not None], size)
        return [record_document(found) | {"proof": _proof(tree, found, size)} for found in page]

    def _note_erasure(self, shown: dict[str, Any]) -> None:
        body = shown["body"]
        erased = _erased_keys(body)
        self._explained |= erased
        self._unexplained -= erased
        if "erased" in shown and body["private"]["key"] not in self._explained:
            self._unexplained.add(body["private"]["key"])

    def _explanations(self, run: Run) -> Iterator[dict[str, Any]]:
        """Erasures that are not part of the export, but explain why private parts are missing."""
        pages = LogPages(self.keys, self.search, self.at, AuditFilter(action=Action.ERASE.value))
        for shown in pages.each(run, self._with_proofs):
            erased = _erased_keys(shown["body"])
            if erased & self._unexplained:
                self._unexplained -= erased
                yield shown | {"of": "erasure"}


def record_document(found: FoundRecord) -> dict[str, Any]:
    """The line of a record that is in the log."""
    erased = {"erased": True} if found.opened.erased else {}
    return {"index": found.index, **found.opened.document(), **erased}


def _proof(tree: Tree, found: FoundRecord, size: int) -> list[str]:
    assert found.index is not None
    return list(map(to_base64, tree.inclusion(found.index, size)))


def _erased_keys(body: dict[str, Any]) -> set[int]:
    is_erasure = body["action"] == Action.ERASE.value and body["outcome"] == "OK"
    return set(body.get("detail", {}).get("erased_keys", ())) if is_erasure else set()


def _line(document: dict[str, Any]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
