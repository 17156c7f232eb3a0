"""The embedder for OpenAI-compatible servers, against a real server on this machine."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from drillcore_server.kernel.model_server import BACKOFF_MAX_S
from drillcore_server.vectors.embedding.embedders import ProviderFailed, TextRefused
from drillcore_server.vectors.embedding.openai_embedder import OpenAIEmbedder, OpenAISettings

Answer = tuple[int, dict[str, str], bytes | Iterator[bytes]]


def vector_of(text: str) -> list[float]:
    return [float(len(text)), float(ord(text[0])), 1.0]


def embeddings(request: dict[str, Any]) -> dict[str, Any]:
    """Answers in reverse order, which the protocol allows: `index` names the text."""
    entries = [{"index": index, "embedding": vector_of(text)} for index, text in enumerate(request["input"])]
    return {"object": "list", "data": entries[::-1], "model": request["model"]}


def ok(document: object) -> Answer:
    return 200, {}, json.dumps(document).encode()


@dataclass
class Provider:
    """A server whose next answers can be set. Otherwise it answers correctly."""

    base_url: str = ""
    answers: list[Answer | Callable[[dict[str, Any]], Answer]] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def answer(self, request: dict[str, Any]) -> Answer:
        self.requests.append(request)
        if not self.answers:
            return ok(embeddings(request))
        answer = self.answers.pop(0)
        return answer(request) if callable(answer) else answer


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            provider.paths.append(self.path)
            provider.headers.append(dict(self.headers))
            status, headers, content = provider.answer(body)
            self.send_response(status)
            pieces = [content] if isinstance(content, bytes) else content
            length = len(content) if isinstance(content, bytes) else 1_000
            for name, value in {"Content-Length": str(length), **headers}.items():
                self.send_header(name, value)
            with contextlib.suppress(OSError):  # the client gave up
                self.end_headers()
                for piece in pieces:
                    self.wfile.write(piece)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        provider.base_url = f"http://127.0.0.1:{server.server_port}/v1"
        yield provider
        server.shutdown()
        thread.join()


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def connect(provider: Provider, slept: list[float]) -> Iterator[Callable[..., OpenAIEmbedder]]:
    opened: list[OpenAIEmbedder] = []

    def connect(**changes: Any) -> OpenAIEmbedder:
        settings = {"base_url": provider.base_url, "model": "m", "dimensions": 3, "timeout_s": 20.0, **changes}
        opened.append(OpenAIEmbedder(OpenAISettings(**settings), sleep=slept.append))
        return opened[-1]

    yield connect
    for embedder in opened:
        embedder.close()


Connect = Callable[..., OpenAIEmbedder]


def test_vectors_are_matched_to_texts_by_index_and_have_length_one(connect: Connect) -> None:
    texts = ["a", "bbb", "cc"]
    rows = connect().embed(texts)
    expected = np.array([vector_of(text) for text in texts])
    np.testing.assert_allclose(rows, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-6)
    assert rows.dtype == np.float32


def test_the_request_follows_the_protocol(provider: Provider, connect: Connect) -> None:
    connect(api_key="sk-123").embed(["a"])
    assert provider.paths == ["/v1/embeddings"]
    assert provider.requests == [{"model": "m", "input": ["a"], "encoding_format": "float"}]
    assert provider.headers[0]["Authorization"] == "Bearer sk-123"


def test_dimensions_are_requested_only_if_set(provider: Provider, connect: Connect) -> None:
    connect(request_dimensions=True).embed(["a"])
    assert provider.requests[0]["dimensions"] == 3


def test_texts_go_in_batches_and_come_back_in_order(provider: Provider, connect: Connect) -> None:
    texts = [chr(ord("a") + number) * (number + 1) for number in range(5)]
    embedder = connect(batch_texts_max=2)
    rows = embedder.embed(texts)
    assert [request["input"] for request in provider.requests] == [texts[0:2], texts[2:4], texts[4:5]]
    assert rows.tobytes() == np.concatenate([embedder.embed([text]) for text in texts]).tobytes()


def test_no_texts_send_no_request(provider: Provider, connect: Connect) -> None:
    assert connect().embed([]).shape == (0, 3)
    assert provider.requests == []


def test_an_empty_text_is_refused_before_anything_is_sent(provider: Provider, connect: Connect) -> None:
    with pytest.raises(TextRefused):
        connect().embed(["a", ""])
    assert provider.requests == []


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_passing_failure_is_tried_again(
    provider: Provider, connect: Connect, slept: list[float], status: int
) -> None:
    provider.answers = [(status, {}, b"busy"), (status, {}, b"busy")]
    assert connect().embed(["a"]).shape == (1, 3)
    assert 0.25 <= slept[0] <= 0.5 <= slept[1] <= 1


@pytest.mark.parametrize(("told", "delay_s"), [("7", 7.0), ("0.5", 0.5), ("86400", BACKOFF_MAX_S)])
def test_the_servers_own_delay_is_kept_within_bounds(
    provider: Provider, connect: Connect, slept: list[float], told: str, delay_s: float
) -> None:
    provider.answers = [(429, {"Retry-After": told}, b"")]
    connect().embed(["a"])
    assert slept == [delay_s]


def test_a_delay_that_is_a_date_falls_back_to_the_default_delay(
    provider: Provider, connect: Connect, slept: list[float]
) -> None:
    provider.answers = [(503, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, b"")]
    connect().embed(["a"])
    assert 0.25 <= slept[0] <= 0.5


def test_attempts_are_limited(provider: Provider, connect: Connect, slept: list[float]) -> None:
    provider.answers = [(503, {}, b"")] * 9
    with pytest.raises(ProviderFailed, match="answered with status 503, in the last of 3 attempts") as failed:
        connect(attempts_max=3).embed(["a"])
    assert failed.value.retryable
    assert (len(provider.requests), len(slept)) == (3, 2)


def test_a_lasting_refusal_is_not_tried_again_and_quotes_no_text(provider: Provider, connect: Connect) -> None:
    body = {"error": {"message": "cannot embed: secret text", "code": "context_length_exceeded"}}
    provider.answers = [(400, {}, json.dumps(body).encode())]
    with pytest.raises(ProviderFailed) as failed:
        connect().embed(["secret text"])
    assert str(failed.value).endswith("answered with status 400 (context_length_exceeded)")
    assert not failed.value.retryable
    assert len(provider.requests) == 1


def test_an_unreachable_server_is_reported_after_all_attempts(connect: Connect, slept: list[float]) -> None:
    with pytest.raises(ProviderFailed, match="could not be reached") as failed:
        connect(base_url="http://127.0.0.1:1/v1", attempts_max=2).embed(["a"])
    assert failed.value.retryable
    assert len(slept) == 1


def test_a_connection_cut_in_the_middle_is_tried_again(provider: Provider, connect: Connect) -> None:
    provider.answers = [(200, {"Content-Length": "1000", "Connection": "close"}, b'{"data": [')]
    assert connect().embed(["a"]).shape == (1, 3)
    assert len(provider.requests) == 2


def test_a_silent_server_times_out(provider: Provider, connect: Connect) -> None:
    release = threading.Event()

    def silent(request: dict[str, Any]) -> Answer:
        release.wait(20)
        return 500, {}, b""

    provider.answers = [silent]
    embedder = connect(timeout_s=0.2, attempts_max=1)
    try:
        with pytest.raises(ProviderFailed, match="timed out"):
            embedder.embed(["a"])
    finally:
        release.set()


def test_an_answer_that_trickles_in_times_out_as_a_whole(provider: Provider, connect: Connect) -> None:
    """Each byte arrives well within the timeout."""
    done = threading.Event()

    def trickle() -> Iterator[bytes]:
        while not done.wait(0.02):
            yield b" "

    provider.answers = [(200, {}, trickle())]
    try:
        with pytest.raises(ProviderFailed, match="timed out"):
            connect(timeout_s=0.5, attempts_max=1).embed(["a"])
    finally:
        done.set()


def entry(index: int, embedding: object) -> dict[str, object]:
    return {"index": index, "embedding": embedding}


@pytest.mark.parametrize(
    "document",
    [
        {"data": [entry(0, [1, 2, 3])]},
        {"data": [entry(0, [1, 2, 3]), entry(1, [1, 2, 3]), entry(2, [1, 2, 3])]},
        {"data": [entry(0, [1, 2, 3]), entry(0, [1, 2, 3])]},
        {"data": [entry(0, [1, 2, 3]), entry(2, [1, 2, 3])]},
        {"data": [entry(0, [1, 2, 3]), entry(1, [1, 2])]},
        {"data": [entry(0, [1, 2, 3]), entry(1, [0, 0, 0])]},
        {"data": [entry(0, [1, 2, 3]), entry(1, [1, float("nan"), 3])]},
        {"data": [entry(0, [1, 2, 3]), entry(1, [1, None, 3])]},
        {"data": [entry(0, [1, 2, 3]), entry(1, "AACAPw==")]},
        {"data": [entry(0, [1, 2, 3]), {"embedding": [1, 2, 3]}]},
        {"data": {"0": [1, 2, 3], "1": [1, 2, 3]}},
        {"data": None},
        {"error": "no data"},
        ["data"],
        "data",
    ],
)
def test_an_answer_that_is_not_a_good_vector_for_each_text_is_refused(
    provider: Provider, connect: Connect, document: object
) -> None:
    provider.answers = [ok(document)]
    with pytest.raises(ProviderFailed) as failed:
        connect().embed(["a", "b"])
    assert not failed.value.retryable


def test_an_answer_that_is_no_json_is_refused(provider: Provider, connect: Connect) -> None:
    provider.answers = [(200, {}, b"<html>")]
    with pytest.raises(ProviderFailed, match="not in the form"):
        connect().embed(["a"])


def test_an_answer_far_too_long_is_not_read_to_the_end(provider: Provider, connect: Connect) -> None:
    provider.answers = [(200, {}, b" " * 200_000)]
    with pytest.raises(ProviderFailed, match="answer too long"):
        connect().embed(["a"])


def test_the_name_distinguishes_model_dimensions_and_server(connect: Connect) -> None:
    variants: tuple[dict[str, Any], ...]
    variants = ({}, {"model": "n"}, {"dimensions": 4}, {"base_url": "https://other/v1"}, {"revision": "2024-01"})
    assert len({connect(**changes).model for changes in variants}) == len(variants)


def test_a_named_revision_keeps_its_name_when_the_server_moves(connect: Connect) -> None:
    names = {connect(base_url=url, revision="r1").model for url in ("https://a/v1", "https://b/v1")}
    assert names == {"openai/m/3@r1"}


@pytest.mark.parametrize(
    "changes",
    [
        {"base_url": "ftp://host/v1"},
        {"base_url": "host/v1"},
        {"base_url": "https://"},
        {"base_url": "https://user:password@host/v1"},
        {"dimensions": 0},
        {"batch_texts_max": 0},
        {"timeout_s": 0},
        {"attempts_max": 0},
        {"api_key": "line\nbreak"},
    ],
)
def test_settings_that_cannot_work_are_refused_without_showing_secrets(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the messages differ
        OpenAISettings(**{"base_url": "https://host/v1", "model": "m", "dimensions": 3, **changes})
    assert "password" not in str(refused.value)
    assert "break" not in str(refused.value)


def test_the_key_is_never_printed(provider: Provider, connect: Connect) -> None:
    settings = OpenAISettings(base_url="https://host/v1", model="m", dimensions=3, api_key="sk-123")
    assert "sk-123" not in repr(settings)
    provider.answers = [(401, {}, b"")]
    with pytest.raises(ProviderFailed) as failed:
        connect(api_key="sk-123").embed(["a"])
    assert "sk-123" not in str(failed.value)


def test_closing_closes_the_connections(connect: Connect) -> None:
    with connect() as embedder:
        embedder.embed(["a"])
    with pytest.raises(RuntimeError):
        embedder.embed(["a"])
