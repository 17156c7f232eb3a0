"""The settings choose processors and embedders. A real HTTP server answers them in the OpenAI protocol."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import drillcore
from drillcore_server.app.config import EmbedderKind, IngestSettings, ProcessorKind, load_settings
from drillcore_server.documents.processors.chat import ChatSettings
from drillcore_server.vectors.embedding.openai_embedder import OpenAISettings
from tests.support.servers.running import ACME, OPERATOR, create_tenants, running

RULE = (
    b"The operator shall record every deviation within 24 hours. Records are kept for five years by the quality unit."
)


class _Model(BaseHTTPRequestHandler):
    """Embeds a text by its hash. It has no chat model, so chats fail."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/embeddings"):
            self.send_error(404)
            return
        texts = request["input"] if isinstance(request["input"], list) else [request["input"]]
        vectors = [[byte / 255 for byte in hashlib.sha256(text.encode()).digest()] for text in texts]
        body = json.dumps({"data": [{"index": n, "embedding": v} for n, v in enumerate(vectors)]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def model_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def remote(url: str) -> IngestSettings:
    return IngestSettings(
        processor=ProcessorKind.OPENAI,
        embedder=EmbedderKind.OPENAI,
        chat=ChatSettings(base_url=url, model="chat", attempts=1),
        embeddings=OpenAISettings(base_url=url, model="embed", dimensions=32, attempts_max=1, revision="one"),
    )


def test_the_models_that_the_settings_name_are_used_and_a_fallback_is_on_record(tmp_path: Path, model_url: str) -> None:
    with running(tmp_path, remote(model_url)) as server:
        create_tenants(server.client(OPERATOR))
        client = server.client(ACME)
        corpus = client.create_corpus("rules").id
        client.add_documents(corpus, [drillcore.NewDocument("rule.txt", RULE)])
        chunk = client.query("deviation", corpus_ids=[corpus]).items[0].node
        content = client.get_node(chunk.id, with_embedding=True).content
        assert isinstance(content, drillcore.ChunkContent)
        assert content.embedding_model.startswith("openai/embed")
        assert len(content.embedding) == 32
        assert content.processing.processor == "extractive"
        assert content.processing.fallback_reason


def test_a_model_whose_server_fails_is_a_refusal_that_says_so_and_changes_nothing(
    tmp_path: Path, model_url: str
) -> None:
    with running(tmp_path, remote(model_url)) as server:
        create_tenants(server.client(OPERATOR))
        client = server.client(ACME)
        corpus = client.create_corpus("rules").id
        added = client.add_documents(corpus, [drillcore.NewDocument("rule.txt", RULE)])
    with running(tmp_path, remote("http://127.0.0.1:9/v1")) as server:
        client = server.client(ACME)
        attempts = (
            lambda: client.add_documents(corpus, [drillcore.NewDocument("other.txt", RULE + b" Always.")]),
            lambda: client.query("deviation", corpus_ids=[corpus]),
        )
        for attempt in attempts:
            with pytest.raises(drillcore.Unavailable) as caught:
                attempt()
            assert caught.value.reason is drillcore.Reason.MODEL_UNAVAILABLE
        assert [document.id for document in client.iter_documents(corpus)] == [added.outcomes[0].document_id]
        empty = client.create_corpus("nothing").id
        assert client.query("deviation", corpus_ids=[empty]).items == (), "no model is asked for an empty corpus"
        assert {line["event"] for line in server.log_lines()} >= {"model"}
        assert "deviation" not in server.log.getvalue()


def test_vectors_of_different_models_are_never_mixed(tmp_path: Path, model_url: str) -> None:
    with running(tmp_path) as server:
        create_tenants(server.client(OPERATOR))
        client = server.client(ACME)
        corpus = client.create_corpus("rules").id
        added = client.add_documents(corpus, [drillcore.NewDocument("rule.txt", RULE)])
    with running(tmp_path, remote(model_url)) as server:
        client = server.client(ACME)
        with pytest.raises(drillcore.FailedPrecondition) as caught:
            client.add_documents(corpus, [drillcore.NewDocument("other.txt", RULE + b" Always.")])
        assert caught.value.reason is drillcore.Reason.MODEL_MISMATCH
        with pytest.raises(drillcore.FailedPrecondition) as caught:
            client.query("deviation", corpus_ids=[corpus])
        assert caught.value.reason is drillcore.Reason.MODEL_MISMATCH
        assert [document.id for document in client.iter_documents(corpus)] == [added.outcomes[0].document_id]


def test_a_former_model_without_its_settings_is_refused_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "drillcore.toml"
    file.write_text('[[ingest.former]]\nembedder = "openai"\n')
    with pytest.raises(drillcore.SettingsError, match=r"ingest\.former\.embeddings"):
        load_settings(file, {})


def test_a_model_without_its_settings_is_refused_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "drillcore.toml"
    file.write_text('[ingest]\nprocessor = "openai"\n')
    with pytest.raises(drillcore.SettingsError, match=r"\[ingest.chat\]"):
        load_settings(file, {})
