"""A witness (c2sp.org/tlog-witness) that keeps its promise: it cosigns only what continues the last it has signed."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from drillcore_formats.audit.checkpoints import Checkpoint, cosign
from drillcore_formats.audit.findings import VerificationFailed
from drillcore_formats.audit.merkle import EMPTY_ROOT, check_consistency
from drillcore_formats.audit.notes import COSIGNATURE_V1, Note, VerifierKey


class WitnessServer:
    def __init__(self, trusted: VerifierKey) -> None:
        self._private = Ed25519PrivateKey.generate()
        self._trusted = trusted
        self.key = VerifierKey("witness.example", self._private.public_key().public_bytes_raw(), COSIGNATURE_V1)
        self.seen: dict[str, tuple[int, bytes]] = {}
        self.status = 200
        """The status of every answer, if it is not 200."""
        self.now = 1_800_000_000
        self.url = ""

    def sign_other(self) -> str:
        """The witness's signature of a checkpoint that nobody sent to it."""
        note = Note(Checkpoint("other.example", 1, EMPTY_ROOT).text, ())
        return cosign(note, self.key, self.now, self._private.sign).signatures[-1].encode()

    def add_checkpoint(self, body: str) -> tuple[int, str, str]:
        """The status, type and text of the answer."""
        if self.status != 200:
            return self.status, "text/plain", "out of order"
        head, _, encoded = body.partition("\n\n")
        old_line, *lines = head.split("\n")
        note = Note.parse(encoded)
        note.check([self._trusted])
        checkpoint, old = Checkpoint.parse(note.text), int(old_line.removeprefix("old "))
        size, root = self.seen.get(checkpoint.origin, (0, EMPTY_ROOT))
        if old != size:
            return 409, "text/x.tlog.size", f"{size}\n"
        try:
            proof = [base64.b64decode(line) for line in lines]
            check_consistency(old, checkpoint.size, proof, root, checkpoint.root)
        except VerificationFailed:
            return 422, "text/plain", "not consistent"
        self.seen[checkpoint.origin] = checkpoint.size, checkpoint.root
        return 200, "text/plain", cosign(note, self.key, self.now, self._private.sign).signatures[-1].encode()


@contextmanager
def witness_server(trusted: VerifierKey) -> Iterator[WitnessServer]:
    witness = WitnessServer(trusted)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            status, kind, text = witness.add_checkpoint(body) if self.path == "/add-checkpoint" else (404, "", "")
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Tests are quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        witness.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield witness
        server.shutdown()
        thread.join()
