"""The private signing keys, and RotateAuditKey.

They are in files (`KeyFiles`), or in a program that never reveals them (`SignerProgram`).

A signer program talks to an HSM, a KMS or an agent. The server starts it once and asks it line by line:

    {"public_key": true, "key": 1}     ->  {"public_key": "<base64>"}
    {"sign": "<base64>", "key": 1}     ->  {"signature": "<base64>"}
    anything it cannot do              ->  {"error": "why"}

`key` is the number of the key: first 1, then one more with each rotation. For the next number the program makes a key,
or answers with an error. Question and answer are one line of JSON each, in order. A program that ends, hangs or answers
something else is started again for the next question.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from drillcore_fdb.engine import Reader, Transaction
from drillcore_formats.audit.encoding import from_base64, to_base64
from drillcore_formats.audit.findings import VerificationFailed
from drillcore_formats.audit.keys import ChainedKey
from drillcore_formats.audit.notes import PUBLIC_KEY_BYTES, SIGNATURE_BYTES, check_signature
from drillcore_proto.reasons import Reason
from drillcore_server.kernel import access
from drillcore_server.kernel.access import Granted
from drillcore_server.kernel.errors import Unavailable
from drillcore_server.kernel.journal import PrivateHalf, SignerUnavailableError, SigningKeys, chain_text
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit, errors_as_refusals
from drillcore_server.storage import audit_keys, audit_records
from drillcore_server.storage.keyring import is_private, make_secret_file_once
from drillcore_server.storage.records import RecordKind

_SEED_BYTES: Final = 32


class KeyFiles:
    """Keys in files named `<number>.key`: 32 bytes, or PKCS8 as PEM, that only the server may read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def place(self) -> str:
        return str(self._directory)

    def find(self, number: int) -> PrivateHalf | None:
        path = self.path(number)
        if not path.exists():
            return None
        key = read_key(path)
        return PrivateHalf(key.public_key().public_bytes_raw(), key.sign)

    def find_or_make(self, number: int) -> PrivateHalf:
        """The key, durable on return. Takes a key that an unfinished attempt has left."""
        found = self.find(number)
        if found is None:
            try:
                self._make(number)
            except OSError as error:
                why = error.strerror or error
                raise SignerUnavailableError(
                    f"the audit key {self.path(number)} cannot be made: {why}. If keys are kept elsewhere and mounted "
                    "here, put this one there: 32 random bytes"
                ) from error
            found = self.find(number)
            assert found is not None
        return found

    def discard(self, number: int) -> None:
        """Removes a key that never signed anything."""
        self.path(number).unlink(missing_ok=True)

    def _make(self, number: int) -> None:
        """Makes a key file. If another server that shares the directory was first, its file stays."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        make_secret_file_once(self.path(number), pem)

    def path(self, number: int) -> Path:
        return self._directory / f"{number}.key"


def read_key(path: Path) -> Ed25519PrivateKey:
    """Raises `SignerUnavailableError` if others may read the file, or it is not a key."""
    try:
        if not is_private(path):
            raise SignerUnavailableError(f"others may read the audit key {path}: run chmod 600 on it")
        content = path.read_bytes()
    except OSError as error:
        raise SignerUnavailableError(f"the audit key {path} cannot be read: {error.strerror or error}") from error
    if len(content) == _SEED_BYTES:
        return Ed25519PrivateKey.from_private_bytes(content)
    try:
        key = load_pem_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise SignerUnavailableError(
            f"{path} is not an audit key: it must have {_SEED_BYTES} bytes, or Ed25519 as PKCS8 PEM without a password"
        )
    return key


ANSWER_BYTES_MAX: Final = 65_536
_SHUTDOWN_S: Final = 2.0


class SignerProgram:
    def __init__(self, command: Sequence[str], timeout_s: float) -> None:
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def place(self) -> str:
        return f"the program {self._command[0]}"

    def find(self, number: int) -> PrivateHalf | None:
        answer = self._ask({"public_key": True, "key": number})
        try:
            public_key = from_base64(answer.get("public_key"), "its public key", PUBLIC_KEY_BYTES)
        except VerificationFailed as error:
            raise self._failed(str(error)) from error
        return PrivateHalf(public_key, partial(self._sign, number, public_key))

    def find_or_make(self, number: int) -> PrivateHalf:
        """The key. The program makes the next one, or answers why it cannot."""
        found = self.find(number)
        assert found is not None
        return found

    def discard(self, number: int) -> None:
        """Does nothing: the program decides what happens to a key that was not used."""

    def close(self) -> None:
        with self._lock:
            self._end()

    def _sign(self, number: int, public_key: bytes, message: bytes) -> bytes:
        answer = self._ask({"sign": to_base64(message), "key": number})
        try:
            signature = from_base64(answer.get("signature"), "its signature", SIGNATURE_BYTES)
            check_signature(public_key, signature, message, "the program")
        except VerificationFailed as error:
            raise self._failed(str(error)) from error
        return signature

    def _ask(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        line = json.dumps(question).encode() + b"\n"
        with self._lock:
            try:
                answer = json.loads(self._exchange(line))
            except (OSError, ValueError) as error:
                self._end()
                raise self._failed(str(error)) from error
        if not isinstance(answer, dict) or "error" in answer:
            raise self._failed(
                str(answer.get("error") if isinstance(answer, dict) else "its answer is not a JSON object")
            )
        return answer

    def _exchange(self, line: bytes) -> bytes:
        """Asks the program, a second time if it has ended since the last question."""
        was_running = self._process is not None
        try:
            return self._write_and_read(line)
        except EOFError:
            self._end()
            if not was_running:
                raise OSError("it ended without an answer") from None
        try:
            return self._write_and_read(line)
        except EOFError:
            raise OSError("it ended without an answer") from None

    def _write_and_read(self, line: bytes) -> bytes:
        process = self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(line)
            process.stdin.flush()
        except BrokenPipeError:
            raise EOFError from None
        return self._read_line(process)

    def _read_line(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        deadline_s, answer = time.monotonic() + self._timeout_s, b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not answer.endswith(b"\n"):
                if not selector.select(max(deadline_s - time.monotonic(), 0.0)):
                    raise OSError(f"it did not answer within {self._timeout_s:g} s")
                piece = os.read(process.stdout.fileno(), ANSWER_BYTES_MAX)
                if not piece:
                    raise EOFError
                answer += piece
                if len(answer) > ANSWER_BYTES_MAX:
                    raise OSError("its answer is too long")
        return answer

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - the operator's own command
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        return self._process

    def _end(self) -> None:
        """Closes the program's input, which asks it to end, and kills it if it does not."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_SHUTDOWN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _failed(self, why: str) -> SignerUnavailableError:
        return SignerUnavailableError(f"{self.place} (audit.signer_command) does not sign: {why}")


@dataclass(frozen=True, slots=True)
class Rotated:
    key: str
    """The new public key as a verifier key, for pinning."""
    keys: str
    """The chain of keys, as JSON."""


ROTATED: Final = RecordKind(Rotated)


def rotate_audit_key(unit: Unit, signing: SigningKeys, call: Call) -> Rotated:
    """Signs with a new key from the next record on. The record of the rotation itself is the last of the old key.

    The new key is durable before the store names it. If the rotation fails, the next one uses the same key.
    """

    def prepare(tr: Reader, _granted: Granted) -> tuple[Rotated | None, int, list[ChainedKey]]:
        state = audit_records.state(tr, unit.keys)
        return unit.known(tr, call, ROTATED), state.key_number, audit_keys.chain(tr, unit.keys)

    known, old, chain = unit.look(call, access.operator, prepare)
    if known is not None:
        return known
    number = old + 1
    with errors_as_refusals():
        half = signing.prepare_next(number, chain)

    def work(tr: Transaction, _granted: Granted, trail: Trail) -> Rotated:
        if audit_records.state(tr, unit.keys).key_number != old:
            raise Unavailable(
                Reason.CONFLICT, "another rotation was made at the same time; look at the keys before you rotate again"
            )
        introduced = signing.introduce(tr, number, half.public_key, call.at)
        trail.detail |= {"key_number": number, "public_key": to_base64(introduced.public_key)}
        trail.next_key = number
        made = signing.chain(tr)
        return Rotated(made.verifier(introduced).encode(), chain_text(made))

    return unit.write(call, access.operator, ROTATED, work)
