"""What a verifier trusts independently of any server: pinned keys, checkpoints seen before, witnesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from drillcore_formats.audit.checkpoints import Checkpoint, check_cosignatures, log_origin
from drillcore_formats.audit.findings import Mismatch
from drillcore_formats.audit.keys import TrustedKeys
from drillcore_formats.audit.notes import Note, VerifierKey


@dataclass(frozen=True, slots=True)
class Continuation:
    """Proof that a log at one checkpoint continues the log at an earlier one. Only `pairs.check_pair` makes these."""

    first: Checkpoint
    second: Checkpoint


@dataclass(frozen=True, slots=True)
class Pins:
    keys: tuple[VerifierKey, ...]
    """Keys of the stores to trust. The name of a key names its store."""
    checkpoints: tuple[Note, ...] = ()
    """Checkpoints seen earlier, such as those in the server's sink. If given, one must be of the verified log."""
    witnesses: tuple[VerifierKey, ...] = ()
    witnesses_required: int = 0
    """How many of the witnesses must have cosigned."""
    continuations: tuple[Continuation, ...] = ()
    """Proofs that later checkpoints continue earlier ones."""


@dataclass(frozen=True, slots=True)
class KnownLog:
    """A log at a checkpoint that its store signed, with the checkpoints seen before."""

    store: UUID
    log: UUID
    trusted: TrustedKeys
    checkpoint: Checkpoint
    key_number: int
    """The number of the key that signed the checkpoint."""
    witnesses: int
    """How many of the pinned witnesses cosigned."""
    earlier: tuple[Checkpoint, ...]


def know_log(note: str, store: UUID, log: UUID, trusted: TrustedKeys, pins: Pins) -> KnownLog:
    """The log at this checkpoint.

    Raises `VerificationFailed` unless the note is a checkpoint of this log, is signed and cosigned as required, and is
    at least as large as the checkpoints seen before.
    """
    parsed = Note.parse(note)
    number = trusted.check_note(parsed, "the checkpoint")
    checkpoint = Checkpoint.parse(parsed.text)
    if checkpoint.origin != log_origin(store, log):
        raise Mismatch(f"the checkpoint is of {checkpoint.origin}, not of {log_origin(store, log)}")
    cosignatures = check_cosignatures(parsed, pins.witnesses, pins.witnesses_required)
    earlier = _seen_before(checkpoint, trusted, pins)
    return KnownLog(store, log, trusted, checkpoint, number, len(cosignatures), earlier)


def _seen_before(now: Checkpoint, trusted: TrustedKeys, pins: Pins) -> tuple[Checkpoint, ...]:
    """The pinned checkpoints of the same log."""
    notes = [note for note in pins.checkpoints if note.text.startswith(now.origin + "\n")]
    if pins.checkpoints and not notes:
        raise Mismatch(f"no pinned checkpoint is of {now.origin}")
    for note in notes:
        trusted.check_note(note, "the pinned checkpoint")
    found = tuple(Checkpoint.parse(note.text) for note in notes)
    for earlier in found:
        check_not_rolled_back(earlier, now)
    return found


def check_not_rolled_back(earlier: Checkpoint, now: Checkpoint) -> None:
    """Raises `Mismatch` if sizes and roots alone show that the log was rolled back or forked."""
    if earlier.origin != now.origin:
        raise Mismatch(f"the checkpoints are of two logs: {earlier.origin} and {now.origin}")
    if now.size < earlier.size:
        raise Mismatch(f"the log was rolled back: it had {earlier.size} records, and is shown with {now.size}")
    if now.size == earlier.size and now.root != earlier.root:
        raise Mismatch(f"the log was forked: there are two different logs of {now.size} records")


def not_shown_to_continue(known: KnownLog, continuations: Sequence[Continuation]) -> list[str]:
    """A problem for each earlier checkpoint that no proof connects with the log's checkpoint."""
    now = (known.checkpoint.size, known.checkpoint.root)
    shown = {
        (pair.first.size, pair.first.root)
        for pair in continuations
        if pair.second.origin == known.checkpoint.origin and (pair.second.size, pair.second.root) == now
    }
    return [
        f"it is not shown that the log of {now[0]} records continues the pinned checkpoint of {earlier.size}: "
        "give their consistency proof too"
        for earlier in known.earlier
        if (earlier.size, earlier.root) not in {*shown, now} and earlier.size
    ]
