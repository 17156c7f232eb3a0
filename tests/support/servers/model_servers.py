"""A real HTTP server that speaks the OpenAI protocol and embeds texts by their hashes, until told to fail."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class ModelServer:
    def __init__(self) -> None:
        self._texts_max: int | None = None
        self._texts = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def fail_after(self, texts: int | None) -> None:
        """Embeds this many more texts and then fails; None: embeds all again."""
        with self._lock:
            self._texts_max, self._texts = texts, 0

    def _may_embed(self, texts: int) -> bool:
        with self._lock:
            self._texts += texts
            return self._texts_max is None or self._texts <= self._texts_max

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
                if not model._may_embed(len(texts)):
                    self.send_error(503)
                    return
                vectors = [[byte / 255 for byte in hashlib.sha256(text.encode()).digest()] for text in texts]
                body = json.dumps({"data": [{"index": n, "embedding": v} for n, v in enumerate(vectors)]}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
