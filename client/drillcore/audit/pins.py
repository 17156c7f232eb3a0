"""What whoever verifies goes by, and no server has a say in: pinned keys, checkpoints seen before, witnesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from drillcore.audit.checkpoints import Checkpoint, check_cosignatures, log_origin
from drillcore.audit.failures import Mismatch
from drillcore.audit.keys import TrustedKeys
from drillcore.audit.notes import Note, VerifierKey


@dataclass(frozen=True, slots=True)
class Continuation:
    """That a log at one checkpoint continues itself at another; only `pairs.check_pair` makes these."""

    first: Checkpoint
    second: Checkpoint


@dataclass(frozen=True, slots=True)
class Pins:
    keys: tuple[VerifierKey, ...]
    """Of the stores to believe; the name of each says of which."""
    checkpoints: tuple[Note, ...] = ()
    """Seen earlier, such as those that the server wrote outside of its store. If there are any, one must be of the log
    that is verified."""
    witnesses: tuple[VerifierKey, ...] = ()
    witnesses_required: int = 0
    """How many of them must have cosigned."""
    continuations: tuple[Continuation, ...] = ()
    """What is known of how later checkpoints continue the earlier ones."""


@dataclass(frozen=True, slots=True)
class KnownLog:
    """A log at a checkpoint that its store signed, and what was seen of it before."""

    store: UUID
    log: UUID
    trusted: TrustedKeys
    checkpoint: Checkpoint
    key_number: int
    """Of the key that signed the checkpoint."""
    witnesses: int
    """How many cosigned, of those that count."""
    earlier: tuple[Checkpoint, ...]


def know_log(note: str, store: UUID, log: UUID, trusted: TrustedKeys, pins: Pins) -> KnownLog:
    """Raises `VerificationFailed` unless the note is a checkpoint of this log, signed and cosigned as it should be, and
    at least as large as those that were seen before.
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
    """The pinned checkpoints of the log that `now` is of."""
    notes = [note for note in pins.checkpoints if note.text.startswith(now.origin + "\n")]
    if pins.checkpoints and not notes:
        raise Mismatch(f"no pinned checkpoint is of {now.origin}")
    for note in notes:
        trusted.check_note(note, "the pinned checkpoint")
    found = tuple(Checkpoint.parse(note.text) for note in notes)
    for one in found:
        check_not_rolled_back(one, now)
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
    """For each earlier checkpoint that nothing at hand connects with the one of the log: that it is so."""
    now = (known.checkpoint.size, known.checkpoint.root)
    shown = {
        (one.first.size, one.first.root)
        for one in continuations
        if one.second.origin == known.checkpoint.origin and (one.second.size, one.second.root) == now
    }
    return [
        f"it is not shown that the log of {now[0]} records continues the pinned checkpoint of {one.size}: "
        "give their consistency proof too"
        for one in known.earlier
        if (one.size, one.root) not in {*shown, now} and one.size
    ]
