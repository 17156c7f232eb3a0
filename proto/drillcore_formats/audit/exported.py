"""An audit export: JSON lines, verified as they are read.

    {"drillcore_audit": 1, "store", "log", "first", "size", "complete", "checkpoint": note, "keys": chain, "filter"}
    {"index", "leaf", "salt", "body", "private_salt"?, "private"?, "erased"?: true, "proof"?: [base64 ...]}
    {... "proof", "of": "erasure"}   an ERASE record that is not part of the export, but explains one of its records
    {"end": number of records, without those that only explain}

A complete export from the first record on is verified by the root that its records lead to. In any other export, each
record has its own proof. Memory holds 16 bytes for each record, to find duplicates, and the edge of the tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Final
from uuid import UUID

from drillcore_formats.audit.encoding import from_base64, parse_count, parse_id, parse_object
from drillcore_formats.audit.findings import (
    Evidence,
    Findings,
    Malformed,
    Mismatch,
    OnRecord,
    Outcome,
    Report,
    VerificationFailed,
)
from drillcore_formats.audit.keys import KeyChain, trust
from drillcore_formats.audit.leaves import Leaf
from drillcore_formats.audit.merkle import HASH_BYTES, Frontier, check_inclusion, leaf_hash
from drillcore_formats.audit.pins import KnownLog, Pins, know_log, not_shown_to_continue
from drillcore_formats.audit.proofs import HASHES_MAX
from drillcore_formats.audit.records import (
    NOT_ERASED,
    CheckedContent,
    Erasures,
    PrivatePart,
    Sequence,
    check_content,
    check_leaf,
    parse_leaf,
)

LINE_BYTES_MAX: Final = 8 << 20
FORMAT: Final = 1
_NAMES: Final = frozenset({"index", "leaf", "salt", "body", "private_salt", "private", "erased", "proof", "of"})
_EXPLAINING: Final = "erasure"


@dataclass(frozen=True, slots=True)
class ExportHeader:
    store: UUID
    log: UUID
    first: int
    size: int
    complete: bool
    checkpoint: str
    keys: KeyChain

    @classmethod
    def parse(cls, line: bytes) -> ExportHeader:
        document = parse_object(line, "the first line of the export")
        if document.get("drillcore_audit") != FORMAT:
            raise Malformed(f"it is not an audit export of format {FORMAT}")
        complete, checkpoint = document.get("complete"), document.get("checkpoint")
        if not isinstance(complete, bool) or not isinstance(checkpoint, str):
            raise Malformed("the first line of the export lacks its checkpoint, or whether it is complete")
        return cls(
            parse_id(document.get("store"), "the store of the export"),
            parse_id(document.get("log"), "the log of the export"),
            parse_count(document.get("first"), "the first index of the export"),
            parse_count(document.get("size"), "the size of the export's tree"),
            complete,
            checkpoint,
            KeyChain.parse(document.get("keys")),
        )


def verify_export(lines: BinaryIO, pins: Pins, *, on_record: OnRecord | None = None) -> Report:
    """Reports whether the records are those of the log, each as it was signed.

    `on_record` is called with the outcome of each record; for a record whose private part is missing, when the erasure
    is found. Problems are in the report. Only errors of reading the file are raised.
    """
    found = Findings(Evidence.EXPORT, on_record)
    examine_export(lines, pins, found)
    return found.report()


def examine_export(lines: BinaryIO, pins: Pins, found: Findings) -> ExportHeader | None:
    """Adds findings to `found`. Returns the header, or None if no trusted key signed the export."""
    try:
        header = ExportHeader.parse(_next_line(lines))
        known = _check_header(header, pins)
    except VerificationFailed as failure:
        found.blame(str(failure))
        return None
    _Examination(header, known, pins, found).run(lines)
    return header


def _check_header(header: ExportHeader, pins: Pins) -> KnownLog:
    trusted = trust(header.store, pins.keys, header.keys)
    known = know_log(header.checkpoint, header.store, header.log, trusted, pins)
    if known.checkpoint.size != header.size:
        raise Mismatch(f"the export is said to be of {header.size} records, its checkpoint of {known.checkpoint.size}")
    if header.first > header.size:
        raise Mismatch(f"the export begins at {header.first}, the log ends at {header.size}")
    return known


def _next_line(lines: BinaryIO) -> bytes:
    """The next line; empty at the end of the file."""
    line = lines.readline(LINE_BYTES_MAX + 1)
    if len(line) > LINE_BYTES_MAX:
        raise Malformed(f"a line has more than {LINE_BYTES_MAX:,} bytes")
    return line


class _Examination:
    """Verifies the records of one export, one after the other."""

    def __init__(self, header: ExportHeader, known: KnownLog, pins: Pins, found: Findings) -> None:
        self._header = header
        self._known = known
        self._pins = pins
        self._found = found
        self._sequence = Sequence(header.first, header.size, gaps=not header.complete)
        self._erasures = Erasures(found)
        self._tree = _Tree(known) if header.complete and header.first == 0 else None
        """Only for an export that has all records. In any other, each record has its own proof."""
        self._count = 0

    def run(self, lines: BinaryIO) -> None:
        ended = False
        try:
            while line := _next_line(lines):
                if ended:
                    raise Malformed("there is something after the last line of the export")
                ended = self._take(line)
            if not ended:
                raise Malformed(f"the export is cut short: it has {self._count} records and no last line")
        except VerificationFailed as failure:
            self._found.blame(str(failure))
        self._finish()

    def _take(self, line: bytes) -> bool:
        """Verifies a line. True if it was the last."""
        try:
            document = parse_object(line, "its line")
        except VerificationFailed as failure:
            self._unreadable(failure)
            return False
        if "end" in document:
            self._check_end(document)
        elif "of" in document:
            self._explain(document)
        else:
            self._record(document)
        return "end" in document

    def _unreadable(self, failure: VerificationFailed) -> None:
        self._count += 1
        self._found.settle(self._sequence.next, None, Outcome.TAMPERED, str(failure))
        self._sequence.next += 1
        if self._tree:
            self._tree.broken = True

    def _record(self, document: Mapping[str, Any]) -> None:
        self._count += 1
        index, record = self._sequence.next, None
        try:
            index = parse_count(document.get("index"), "its index")
            self._blame_missing(index)
            leaf, encoded = self._leaf(document)
            record = leaf.record
            self._sequence.check(index, leaf)
            if self._tree is None or "proof" in document:
                self._check_proof(document, index, encoded)
            self._settle(document, index, leaf, self._content(document, leaf))
        except VerificationFailed as failure:
            self._sequence.next = max(self._sequence.next, index + 1)
            self._found.settle(index, record, Outcome.TAMPERED, str(failure))

    def _blame_missing(self, index: int) -> None:
        if missing := self._sequence.missing_before(index):
            self._found.blame(_are_missing(missing), missing[0])
            if self._tree:
                self._tree.broken = True

    def _leaf(self, document: Mapping[str, Any]) -> tuple[Leaf, bytes]:
        """Adds the leaf to the tree first, so that a problem of this record does not look like one of the others."""
        try:
            leaf, encoded = parse_leaf(document)
        except VerificationFailed:
            if self._tree:
                self._tree.broken = True
            raise
        if self._tree:
            self._tree.append(encoded)
        return leaf, encoded

    def _check_proof(self, document: Mapping[str, Any], index: int, encoded: bytes) -> None:
        proof = document.get("proof")
        if not isinstance(proof, list) or len(proof) > HASHES_MAX:
            raise Malformed("it is shown without a proof that it is in the log")
        hashes = [from_base64(hashed, "a hash of its proof", HASH_BYTES) for hashed in proof]
        check_inclusion(leaf_hash(encoded), index, self._known.checkpoint.size, hashes, self._known.checkpoint.root)

    def _content(self, document: Mapping[str, Any], leaf: Leaf) -> CheckedContent:
        """The content of the record. Raises `VerificationFailed` unless a key that was in use signed it."""
        if unknown := document.keys() - _NAMES:
            raise Malformed(f"it is shown with something that nothing vouches for: {min(unknown)}")
        number = check_leaf(leaf, self._known.log, self._known.trusted)
        if number > self._known.key_number:
            raise Mismatch(f"it is signed by key {number}, the checkpoint by the older key {self._known.key_number}")
        if "of" not in document:
            self._sequence.check_key(number)
        return check_content(document, leaf)

    def _settle(self, document: Mapping[str, Any], index: int, leaf: Leaf, content: CheckedContent) -> None:
        erased = document.get("erased", False)
        if content.private is PrivatePart.MISSING and erased is True:
            self._erasures.add(index, leaf.record, content.private_key or 0)
        elif content.private is PrivatePart.MISSING:
            raise Mismatch(NOT_ERASED)
        elif erased is not False:
            raise Mismatch("it is said to be erased, but nothing of it is")
        else:
            self._found.settle(index, leaf.record, Outcome.VERIFIED)
        self._erasures.destroyed(content.erased_keys)
        if content.rotated_to is not None:
            self._sequence.rotated_to(content.rotated_to)

    def _explain(self, document: Mapping[str, Any]) -> None:
        """Verifies a record that is only there to explain an erasure."""
        index, record = None, None
        try:
            index = parse_count(document.get("index"), "its index")
            leaf, encoded = parse_leaf(document)
            record = leaf.record
            self._check_proof(document, index, encoded)
            erased_keys = self._content(document, leaf).erased_keys
            if document["of"] != _EXPLAINING or not erased_keys:
                raise Mismatch("it is said to be about an erasure, but is not")
            self._erasures.destroyed(erased_keys)
        except VerificationFailed as failure:
            self._found.blame(str(failure), index, record)

    def _check_end(self, document: Mapping[str, Any]) -> None:
        if document != {"end": self._count}:
            self._found.blame(f"the last line says {document['end']} records, there are {self._count}")

    def _finish(self) -> None:
        self._erasures.end()
        if self._sequence.missing_before(self._header.size):
            self._blame_missing(self._header.size)
        if self._tree:
            for problem in self._tree.problems():
                self._found.blame(problem)
        else:
            for problem in not_shown_to_continue(self._known, self._pins.continuations):
                self._found.blame(problem)
        if not self._header.complete:
            self._found.remarks.append(_SELECTED)
        self._found.details |= {
            "store": str(self._header.store),
            "log": str(self._header.log),
            "records": self._count,
            "first index": self._header.first,
            "tree size": self._header.size,
            "witnesses": self._known.witnesses,
        }


class _Tree:
    """The tree of an export's records, from the first on."""

    def __init__(self, known: KnownLog) -> None:
        self._now = known.checkpoint
        self._earlier = {checkpoint.size: checkpoint.root for checkpoint in known.earlier}
        self._frontier = Frontier()
        self._forked: list[str] = []
        self.broken = False
        """Whether a leaf is missing or unreadable, so that the root cannot be worked out."""

    def append(self, leaf: bytes) -> None:
        self._frontier.append(leaf_hash(leaf))
        size = self._frontier.size
        if size in self._earlier and self._frontier.root() != self._earlier[size] and not self.broken:
            self._forked.append(f"the log was forked: its first {size} records are not those of the pinned checkpoint")

    def problems(self) -> list[str]:
        if self.broken:
            return []
        if (self._frontier.size, self._frontier.root()) == (self._now.size, self._now.root):
            return self._forked
        return [*self._forked, _OTHER_TREE]


_SELECTED: Final = "a selection: it shows that these records are in the log, not that no others are"
_OTHER_TREE: Final = (
    "the records are not those that the checkpoint was signed for: at least one was changed, added, removed or moved"
)


def _are_missing(indexes: range) -> str:
    if len(indexes) == 1:
        return f"record {indexes[0]} is missing"
    return f"records {indexes[0]} to {indexes[-1]} are missing"
