"""The proof that a record is in a log (c2sp.org/tlog-proof): one file that is verified with just a pinned key.

Its extra data is canonical JSON, compressed with zlib. It has the leaf and, unless it was left out, the content.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from drillcore_formats.audit.checkpoints import parse_size
from drillcore_formats.audit.encoding import canonical_json, from_base64, parse_object, to_base64
from drillcore_formats.audit.findings import Evidence, Findings, Malformed, Outcome, Report, VerificationFailed
from drillcore_formats.audit.keys import KeyChain, trust
from drillcore_formats.audit.leaves import Leaf
from drillcore_formats.audit.merkle import HASH_BYTES, check_inclusion, leaf_hash
from drillcore_formats.audit.pins import KnownLog, Pins, know_log, not_shown_to_continue
from drillcore_formats.audit.records import PrivatePart, check_content, check_leaf, has_content, parse_leaf

HEADER: Final = "c2sp.org/tlog-proof@v1"
PROOF_CHARACTERS_MAX: Final = 16 << 20
EXTRA_BYTES_MAX: Final = 16 << 20
HASHES_MAX: Final = 63
_NAMES: Final = frozenset({"leaf", "salt", "body", "private_salt", "private", "keys"})


@dataclass(frozen=True, slots=True)
class Proof:
    index: int
    hashes: tuple[bytes, ...]
    checkpoint: str
    """A signed note."""
    record: Mapping[str, Any]
    """The extra data: leaf, salt, body, private_salt, private, keys."""

    def encode(self) -> str:
        extra = to_base64(zlib.compress(canonical_json(self.record), zlib.Z_BEST_COMPRESSION))
        lines = [HEADER, f"extra {extra}", f"index {self.index}", *map(to_base64, self.hashes), ""]
        return "\n".join(lines) + "\n" + self.checkpoint

    @classmethod
    def parse(cls, text: str) -> Proof:
        """Reads the file. Verify it before you use its content."""
        if len(text) > PROOF_CHARACTERS_MAX:
            raise Malformed(f"the proof has more than {PROOF_CHARACTERS_MAX:,} characters")
        head, blank, checkpoint = text.partition("\n\n")
        header, *lines = head.split("\n")
        if header != HEADER or not blank:
            raise Malformed(f"it is not a proof: its first line is not {HEADER}, or it has no checkpoint")
        if len(lines) < 2 or not lines[0].startswith("extra ") or not lines[1].startswith("index "):
            raise Malformed("the proof lacks the record or its index")
        if len(lines) > 2 + HASHES_MAX:
            raise Malformed("the proof has too many hashes")
        hashes = tuple(from_base64(line, "a hash of the proof", HASH_BYTES) for line in lines[2:])
        record = _parse_extra(lines[0].removeprefix("extra "))
        return cls(parse_size(lines[1].removeprefix("index ")), hashes, checkpoint, record)


def _parse_extra(text: str) -> Mapping[str, Any]:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(from_base64(text, "the record of the proof"), EXTRA_BYTES_MAX)
    except zlib.error:
        raise Malformed("the record of the proof is not compressed with zlib") from None
    if not inflater.eof or inflater.unused_data:
        raise Malformed("the record of the proof is too large, cut short or followed by something else")
    record = parse_object(data, "the record of the proof")
    if canonical_json(record) != data:
        raise Malformed("the record of the proof is not in canonical JSON")
    if unknown := record.keys() - _NAMES:
        raise Malformed(f"the record of the proof has something that nothing vouches for: {min(unknown)}")
    return record


def make_proof(
    index: int, hashes: Sequence[bytes], checkpoint: str, record: Mapping[str, Any], keys: KeyChain | None = None
) -> str:
    """Makes the file. `record` has the leaf and, if the content is to be shown, salt, body, private_salt and private.

    `keys` are needed if the store has had more than one.
    """
    chain = {} if keys is None or len(keys.keys) == 1 else {"keys": keys.document()}
    return Proof(index, tuple(hashes), checkpoint, {**record, **chain}).encode()


def verify_proof(text: str, pins: Pins) -> Report:
    """Reports whether the record is in the log as it was signed, under a checkpoint that the server signed."""
    found = Findings(Evidence.PROOF)
    try:
        proof = Proof.parse(text)
        leaf, encoded = parse_leaf(proof.record)
    except VerificationFailed as failure:
        found.blame(str(failure))
        return found.report()
    try:
        known = _check_log(proof, leaf, pins)
        check_inclusion(leaf_hash(encoded), proof.index, known.checkpoint.size, proof.hashes, known.checkpoint.root)
        _check_record(proof.record, leaf, known, found)
    except VerificationFailed as failure:
        found.settle(proof.index, leaf.record, Outcome.TAMPERED, str(failure))
        return found.report()
    _settle(proof, leaf, known, pins, found)
    return found.report()


def _check_log(proof: Proof, leaf: Leaf, pins: Pins) -> KnownLog:
    chain = KeyChain.parse(proof.record["keys"]) if "keys" in proof.record else None
    return know_log(proof.checkpoint, leaf.store, leaf.log, trust(leaf.store, pins.keys, chain), pins)


def _check_record(record: Mapping[str, Any], leaf: Leaf, known: KnownLog, found: Findings) -> None:
    number = check_leaf(leaf, known.log, known.trusted)
    if number > known.key_number:
        raise VerificationFailed(f"it is signed by key {number}, its checkpoint by the older key {known.key_number}")
    if not has_content(record):
        found.remarks.append("the proof shows that the record is in the log, not what it says")
    elif check_content(record, leaf).private is PrivatePart.MISSING:
        found.remarks.append("the record's private part is not shown: it was left out, or erased")


def _settle(proof: Proof, leaf: Leaf, known: KnownLog, pins: Pins, found: Findings) -> None:
    found.details |= {
        "store": str(leaf.store),
        "log": str(leaf.log),
        "record": str(leaf.record),
        "index": proof.index,
        "tree size": known.checkpoint.size,
        "witnesses": known.witnesses,
    }
    found.settle(proof.index, leaf.record, Outcome.VERIFIED)
    for problem in not_shown_to_continue(known, pins.continuations):
        found.blame(problem)
