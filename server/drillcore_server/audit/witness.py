"""Witnesses (c2sp.org/tlog-witness): others, who sign that a checkpoint continues the last one they were shown.

A witness that has signed one history of a log does not sign another: whoever asks for its signature on a checkpoint
knows that the server shows everybody the same log. Their failures never stop the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import httpx

from drillcore.audit.base64_text import to_base64
from drillcore.audit.checkpoints import check_cosignatures, parse_size
from drillcore.audit.failures import Malformed, VerificationFailed
from drillcore.audit.notes import Note, NoteSignature, VerifierKey

ANSWER_BYTES_MAX: Final = 10_000
_SIZE_TYPE: Final = "text/x.tlog.size"

Consistency = Callable[[int], list[bytes]]
"""The proof that the checkpoint to be cosigned continues the tree of an earlier size."""


class WitnessFailed(Exception):  # noqa: N818 - named as what happened
    """A witness did not cosign. Says why."""


class WitnessAhead(WitnessFailed):
    """It has seen a larger log than there is: this store was rolled back, or is a copy."""


@dataclass(frozen=True, slots=True)
class _Conflict:
    size: int


class Witness:
    def __init__(self, url: str, key: str, client: httpx.Client) -> None:
        self.url = url.rstrip("/")
        self._key = VerifierKey.parse(key)
        self._client = client
        self._sizes: dict[UUID, int] = {}
        """What it has seen of each log, as far as we know; it corrects us."""

    def cosign(self, log: UUID, size: int, note: Note, consistency: Consistency) -> NoteSignature:
        """Its signature of a checkpoint. Raises `WitnessFailed`."""
        answer = self._ask(self._sizes.get(log, 0), size, note, consistency)
        if isinstance(answer, _Conflict):
            if answer.size > size:
                raise WitnessAhead(f"the witness {self.url} has seen {answer.size} records of this log, not {size}")
            answer = self._ask(answer.size, size, note, consistency)
        if isinstance(answer, _Conflict):
            raise WitnessFailed(f"the witness {self.url} has seen {answer.size} records, and others at once")
        self._sizes[log] = size
        return answer

    def _ask(self, old: int, size: int, note: Note, consistency: Consistency) -> NoteSignature | _Conflict:
        proof = consistency(min(old, size))
        body = "".join(f"{line}\n" for line in (f"old {min(old, size)}", *map(to_base64, proof), "")) + note.encode()
        try:
            answer = self._client.post(f"{self.url}/add-checkpoint", content=body.encode())
        except httpx.HTTPError as error:
            raise WitnessFailed(f"the witness {self.url} cannot be asked: {type(error).__name__}") from error
        if len(answer.content) > ANSWER_BYTES_MAX:
            raise WitnessFailed(f"the witness {self.url} answered too much")
        try:
            return self._read(answer, note)
        except (VerificationFailed, UnicodeDecodeError) as error:
            raise WitnessFailed(f"the witness {self.url} answered nonsense: {error}") from error

    def _read(self, answer: httpx.Response, note: Note) -> NoteSignature | _Conflict:
        if answer.status_code == httpx.codes.CONFLICT and answer.headers.get("content-type") == _SIZE_TYPE:
            return _Conflict(parse_size(answer.content.decode().strip()))
        if answer.status_code != httpx.codes.OK:
            raise WitnessFailed(f"the witness {self.url} refused, with status {answer.status_code}")
        signatures = [NoteSignature.parse(line) for line in answer.content.decode().splitlines()]
        for one in signatures:
            if (one.name, one.key_hash) == (self._key.name, self._key.key_hash):
                check_cosignatures(Note(note.text, (one,)), [self._key], required=1)
                return one
        raise Malformed("there is no signature by its key")
