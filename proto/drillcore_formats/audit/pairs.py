"""Two checkpoints of a log, and the proof that the later one continues the earlier one, as a JSON file.

{"first": note, "second": note, "proof": [base64 ...], "keys": chain of keys, if there is more than one}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from drillcore_formats.audit.checkpoints import Checkpoint
from drillcore_formats.audit.encoding import canonical_json, from_base64, parse_id, parse_object, to_base64
from drillcore_formats.audit.findings import Evidence, Findings, Malformed, ProofFailed, Report, VerificationFailed
from drillcore_formats.audit.keys import KeyChain, trust
from drillcore_formats.audit.merkle import HASH_BYTES, check_consistency
from drillcore_formats.audit.notes import Note
from drillcore_formats.audit.pins import (
    Continuation,
    KnownLog,
    Pins,
    check_not_rolled_back,
    know_log,
    not_shown_to_continue,
)

HASHES_MAX: Final = 2 * 63
PAIR_BYTES_MAX: Final = 4 << 20
_NAMES: Final = frozenset({"first", "second", "proof", "keys"})


def make_pair(first: str, second: str, proof: Sequence[bytes], keys: KeyChain | None = None) -> bytes:
    """Makes the file."""
    chain = {} if keys is None or len(keys.keys) == 1 else {"keys": keys.document()}
    return canonical_json({"first": first, "second": second, "proof": list(map(to_base64, proof)), **chain})


def verify_checkpoints(data: bytes, pins: Pins) -> Report:
    """Reports whether the second checkpoint continues the first: nothing was removed, changed or inserted."""
    found = Findings(Evidence.CHECKPOINTS)
    try:
        pair, second = check_pair(data, pins)
        known = {*pins.continuations, pair}
        for problem in not_shown_to_continue(second, tuple(known)):
            found.blame(problem)
        found.details |= {
            "store": str(second.store),
            "log": str(second.log),
            "first size": pair.first.size,
            "second size": pair.second.size,
            "witnesses": second.witnesses,
        }
    except VerificationFailed as failure:
        found.blame(str(failure))
    return found.report()


def check_pair(data: bytes, pins: Pins) -> tuple[Continuation, KnownLog]:
    """The continuation that the file proves, and the log at its second checkpoint. Raises `VerificationFailed`."""
    document = _parse_pair(data)
    first_note = Note.parse(document["first"])
    first = Checkpoint.parse(first_note.text)
    store, log = _parse_origin(first.origin)
    chain = KeyChain.parse(document["keys"]) if "keys" in document else None
    trusted = trust(store, pins.keys, chain)
    trusted.check_note(first_note, "the first checkpoint")
    check_not_rolled_back(first, Checkpoint.parse(Note.parse(document["second"]).text))
    known = know_log(document["second"], store, log, trusted, pins)
    second = known.checkpoint
    proof = [from_base64(hashed, "a hash of the proof", HASH_BYTES) for hashed in document["proof"]]
    try:
        check_consistency(first.size, second.size, proof, first.root, second.root)
    except ProofFailed as failure:
        raise ProofFailed(
            f"it is not shown that the log of {second.size} records continues the one of {first.size}: {failure}"
        ) from None
    return Continuation(first, second), known


def _parse_pair(data: bytes) -> Mapping[str, Any]:
    if len(data) > PAIR_BYTES_MAX:
        raise Malformed(f"the pair of checkpoints has more than {PAIR_BYTES_MAX:,} bytes")
    document = parse_object(data, "the pair of checkpoints")
    notes = document.get("first"), document.get("second")
    proof = document.get("proof")
    if not all(isinstance(note, str) for note in notes) or not isinstance(proof, list) or document.keys() - _NAMES:
        raise Malformed("it is not a pair of checkpoints: it needs exactly first, second and proof, and may have keys")
    if len(proof) > HASHES_MAX:
        raise Malformed("the consistency proof has too many hashes")
    return document


def _parse_origin(origin: str) -> tuple[UUID, UUID]:
    name, slash, log = origin.partition("/")
    if not name.startswith("drillcore-") or not slash:
        raise Malformed("the checkpoint is not of a log of Drillcore")
    return parse_id(name.removeprefix("drillcore-"), "the store"), parse_id(log, "the log")
