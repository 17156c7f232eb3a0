"""A program that keeps the signing keys to itself (an HSM, a KMS, an agent): started once, asked line by line.

    {"public_key": true, "key": 1}     ->  {"public_key": "<base64>"}
    {"sign": "<base64>", "key": 1}     ->  {"signature": "<base64>"}
    anything it cannot do              ->  {"error": "why"}

`key` is the number of the key: 1 at first, one more with each rotation. For the next number the program makes a key, or
says that it has none yet. One line of JSON each way, in order. A program that ends, hangs or talks nonsense is started
anew for the next question.
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
from functools import partial
from typing import Any, Final

from drillcore.audit.base64_text import from_base64, to_base64
from drillcore.audit.failures import VerificationFailed
from drillcore.audit.notes import PUBLIC_KEY_BYTES, SIGNATURE_BYTES, check_signature
from drillcore_server.audit.signers import PrivateHalf, SignerUnavailableError

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
        """The program has the next key, or makes it, or says why not."""
        found = self.find(number)
        assert found is not None
        return found

    def discard(self, number: int) -> None:
        """What the program does with a key that was not taken is its own affair."""

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
            raise self._failed(str(answer.get("error") if isinstance(answer, dict) else "its answer is no JSON object"))
        return answer

    def _exchange(self, line: bytes) -> bytes:
        """Asks, once more if the program has ended since it was last asked."""
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
        """An end of its input asks it to go; one that does not is killed."""
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
