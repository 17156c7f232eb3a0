"""The processor that asks a model, against a real HTTP server that gives good and bad answers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from drillcore_server.documents.processors import ChunkInput, ExtractiveProcessor, Member, SectionMember, TokenRange
from drillcore_server.documents.processors.chat import ANSWER_BYTES_MAX, ChatSettings
from drillcore_server.documents.processors.openai_processor import OpenAIProcessor
from drillcore_server.hierarchy.digests import Entity, MadeBy, Passage
from drillcore_server.storage.ids import Span

TEXT = (
    "The operator shall report every serious incident within 72 hours. The report is sent to the Data Protection Board."
    " It names the persons affected and the measures taken. Records of incidents must be kept until 12 March 2031."
)
QUOTE = "Records of incidents must be kept until 12 March 2031."
ANSWER = {
    "summary": "Serious incidents are reported within 72 hours and recorded until 2031.",
    "citations": ["The operator shall report every serious incident within 72 hours.", QUOTE],
    "quotes": [QUOTE],
    "entities": [{"type": "date", "text": "12 March 2031"}, {"type": "place", "text": "Board"}],
}
SECRET = "sk-not-to-be-seen"


class Words:
    def count(self, text: str) -> int:
        return len(text.split())

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return [self.count(text) for text in texts]


@dataclass
class Reply:
    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    wait_for: threading.Event | None = None
    """The server sends nothing until this event is set."""
    trickle_s: float = 0.0
    """The pause between two bytes."""


def completion(answer: object) -> Reply:
    content = answer if isinstance(answer, str) else json.dumps(answer)
    return Reply(json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]}).encode())


@dataclass
class Model:
    """A model server. `reply` gets the body of each request and returns the answer."""

    reply: Callable[[dict[str, Any]], Reply]
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    url: str = ""
    at_once: int = 0
    at_once_max: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def in_turn(*replies: Reply) -> Callable[[dict[str, Any]], Reply]:
    left = iter(replies)
    return lambda _: next(left)


@contextmanager
def serving(reply: Callable[[dict[str, Any]], Reply]) -> Iterator[Model]:
    model = Model(reply)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            # The client may give up waiting: some tests are about that.
            with suppress(BrokenPipeError, ConnectionResetError):
                self.answer()

        def answer(self) -> None:
            assert self.path == "/v1/chat/completions"
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with model.lock:
                model.at_once += 1
                model.at_once_max = max(model.at_once_max, model.at_once)
                model.requests.append(request)
                model.keys.append(self.headers["Authorization"])
                reply = model.reply(request)
            if reply.wait_for is not None:
                reply.wait_for.wait(30)
            with model.lock:
                model.at_once -= 1  # before the client can know that it may ask again
            self.send_response(reply.status)
            for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            pieces = [reply.body] if not reply.trickle_s else [bytes([byte]) for byte in reply.body]
            for piece in pieces:
                self.wfile.write(piece)
                self.wfile.flush()
                time.sleep(reply.trickle_s)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    model.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield model
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def processor(url: str, **settings: Any) -> Iterator[OpenAIProcessor]:
    chosen: dict[str, Any] = {"timeout_s": 5.0, "backoff_s": 0.001, "api_key": SECRET, **settings}
    with OpenAIProcessor(ChatSettings(base_url=url, model="tiny", **chosen), Words()) as made:
        yield made


BUILT_IN = ExtractiveProcessor(Words())


def test_a_good_answer_becomes_the_digest() -> None:
    with serving(lambda _: completion(ANSWER)) as model, processor(model.url) as asked:
        made = asked.process_chunks([ChunkInput(TEXT, 1000, "d", ("Incidents",))])[0]
    assert made.summary.text == ANSWER["summary"]
    assert made.summary.tokens == Words().count(made.summary.text)
    assert [passage.text for passage in made.summary.passages] == ANSWER["citations"]
    assert made.quotes[0].span == Span(1000 + TEXT.index(QUOTE), 1000 + TEXT.index(QUOTE) + len(QUOTE))
    assert made.entities == (Entity("date", "2031-03-12"), Entity("place", "Board"))
    assert made.made_by == MadeBy("openai:tiny", asked.version)


def test_the_request_asks_for_json_and_carries_the_key() -> None:
    with serving(lambda _: completion(ANSWER)) as model, processor(model.url) as asked:
        asked.process_chunks([ChunkInput(TEXT, 0, "d", ("Incidents",))])[0]
    (request,) = model.requests
    assert request["model"] == "tiny"
    assert request["temperature"] == 0
    assert request["response_format"] == {"type": "json_object"}
    assert json.loads(request["messages"][1]["content"]) == {"headings": ["Incidents"], "passage": TEXT}
    assert model.keys == [f"Bearer {SECRET}"]


def test_the_key_is_never_printed() -> None:
    settings = ChatSettings(base_url="http://127.0.0.1:1/v1", model="tiny", api_key=SECRET)
    assert SECRET not in repr(settings)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(status: int) -> None:
    replies = in_turn(Reply(status=status, headers={"Retry-After": "0"}), completion(ANSWER))
    with serving(replies) as model, processor(model.url) as asked:
        made = asked.process_chunks([ChunkInput(TEXT, 0, "d", ())])[0]
    assert made.made_by.processor == "openai:tiny"
    assert len(model.requests) == 2


def assert_fell_back(made_by: MadeBy, why: str) -> None:
    assert (made_by.processor, made_by.version) == ("extractive", BUILT_IN.version)
    assert made_by.fallback_reason == f"openai:tiny: {why}"


def test_a_server_that_stays_busy_is_given_up_and_the_built_in_processor_stands_in() -> None:
    with serving(lambda _: Reply(status=429)) as model, processor(model.url, attempts=3) as asked:
        made = asked.process_chunks([ChunkInput(TEXT, 0, "d", ())])[0]
    assert len(model.requests) == 3
    assert_fell_back(made.made_by, "answered with status 429")
    assert made.summary == BUILT_IN.process_chunks([ChunkInput(TEXT, 0, "d", ())])[0].summary


def test_a_refused_key_is_not_tried_again() -> None:
    with serving(lambda _: Reply(status=401)) as model, processor(model.url) as asked:
        made = asked.process_chunks([ChunkInput(TEXT, 0, "d", ())])[0]
    assert len(model.requests) == 1
    assert_fell_back(made.made_by, "answered with status 401")


def test_a_server_that_does_not_answer_times_out() -> None:
    never = threading.Event()
    with serving(lambda _: Reply(wait_for=never)) as model:
        with processor(model.url, timeout_s=0.1, attempts=2) as asked:
            made = asked.process_chunks([ChunkInput(TEXT, 0, "d", ())])[0]
        never.set()
    assert len(model.requests) == 2
    assert_fell_back(made.made_by, "timed out")


def test_a_server_that_trickles_times_out_as_a_whole() -> None:
    slow = completion(ANSWER)
    slow.trickle_s = 0.02
    with serving(lambda _: slow) as model, processor(model.url, timeout_s=0.2, attempts=1) as asked:
        begun = time.monotonic()
        made = asked.process_chunks([ChunkInput(TEXT, 0, "d", ())])[0]
        took_s = time.monotonic() - begun
    assert_fell_back(made.made_by, "timed out")
    assert took_s < len(slow.body) * slow.trickle_s / 2


def test_a_server_that_is_down_delays_only_the_first_questions() -> None:
    with serving(lambda _: Reply()) as model:
        gone = model.url
    chunks = [ChunkInput(TEXT, 0, "d")] * 8
    with processor(gone, attempts=2, failures_in_a_row_max=2, concurrency=1) as asked:
        made = asked.process_chunks(chunks)
    reasons = [digest.made_by.fallback_reason for digest in made]
    assert reasons[:2] == ["openai:tiny: could not be reached: ConnectError"] * 2
    assert reasons[2:] == ["openai:tiny: not asked: too many failures in a row"] * 6
    assert [digest.summary for digest in made] == [digest.summary for digest in BUILT_IN.process_chunks(chunks)]


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Reply(b"not json"), "answer is not what the protocol says"),
        (Reply(b'{"choices": []}'), "answer is not what the protocol says"),
        (completion("{broken"), "answer is not what the protocol says"),
        (completion("[" * 100_000), "answer is not what the protocol says"),
        (completion([1, 2]), "answer is not a JSON object"),
        (completion({**ANSWER, "summary": 7}), "answer has no summary"),
        (completion({**ANSWER, "summary": " "}), "answer has no summary"),
        (completion({**ANSWER, "citations": "all"}), "answer has no list of citations"),
        (completion({**ANSWER, "entities": None}), "answer has no list of entities"),
        (completion({**ANSWER, "summary": "word " * 500}), "summary too long"),
        (Reply(b" " * (ANSWER_BYTES_MAX + 1)), "answer too long"),
    ],
)
def test_a_malformed_answer_is_not_used(reply: Reply, why: str) -> None:
    with serving(lambda _: reply) as model, processor(model.url) as asked:
        made = asked.process_chunks([ChunkInput(TEXT, 0, "d", ())])[0]
    assert_fell_back(made.made_by, why)
    assert len(model.requests) == 1


def test_quotes_that_are_not_in_the_text_are_dropped() -> None:
    invented = "The operator shall report every serious incident within 24 hours."
    answer = {
        **ANSWER,
        "citations": [invented, QUOTE, 5, ""],
        "quotes": [invented, QUOTE.upper(), QUOTE],
        "entities": [
            {"type": "person", "text": "Jane Doe"},
            {"type": "planet", "text": "Board"},
            "x",
            {"type": "date"},
        ],
    }
    with serving(lambda _: completion(answer)) as model, processor(model.url) as asked:
        made = asked.process_chunks([ChunkInput(TEXT, 0, "d", ())])[0]
    assert [passage.text for passage in made.summary.passages] == [QUOTE]
    assert [passage.text for passage in made.quotes] == [QUOTE]
    assert made.entities == ()
    assert made.made_by.processor == "openai:tiny"


def test_a_summary_without_any_true_citation_is_not_used() -> None:
    answer = {**ANSWER, "citations": ["It is all fine."]}
    with serving(lambda _: completion(answer)) as model, processor(model.url) as asked:
        made = asked.process_chunks([ChunkInput(TEXT, 0, "d", ())])[0]
    assert_fell_back(made.made_by, "no citation is in the text")


def test_chunks_are_sent_to_the_model_concurrently_within_the_limit() -> None:
    both = threading.Barrier(2, timeout=10)

    def reply(request: dict[str, Any]) -> Reply:
        passage = json.loads(request["messages"][1]["content"])["passage"]
        return completion({**ANSWER, "summary": passage[:9], "citations": [passage]})

    def reply_when_two_are_here(request: dict[str, Any]) -> Reply:
        made = reply(request)
        made.wait_for = _Met(both)
        return made

    chunks = [ChunkInput(f"Firm f{n} must file return {n}.", 0, "d") for n in range(6)]
    with serving(reply_when_two_are_here) as model, processor(model.url, concurrency=2) as asked:
        made = asked.process_chunks(chunks)
    assert [digest.summary.text for digest in made] == [f"Firm f{n} m" for n in range(6)]
    assert model.at_once_max == 2


class _Met(threading.Event):
    """An event that is set once two requests wait for it, which proves that both are under way at the same time."""

    def __init__(self, barrier: threading.Barrier) -> None:
        super().__init__()
        self._barrier = barrier

    def wait(self, timeout: float | None = None) -> bool:
        self._barrier.wait(timeout)
        return True


def test_one_failed_chunk_does_not_affect_the_others() -> None:
    def reply(request: dict[str, Any]) -> Reply:
        return Reply(status=400) if "Second" in request["messages"][1]["content"] else completion(ANSWER)

    chunks = [ChunkInput(TEXT, 0, "d"), ChunkInput("Second chunk must be kept.", 0, "d"), ChunkInput(TEXT, 0, "d")]
    with serving(reply) as model, processor(model.url) as asked:
        made = asked.process_chunks(chunks)
    assert [digest.made_by.processor for digest in made] == ["openai:tiny", "extractive", "openai:tiny"]


def test_an_empty_chunk_is_not_sent_to_the_model() -> None:
    with serving(lambda _: completion(ANSWER)) as model, processor(model.url) as asked:
        made = asked.process_chunks([ChunkInput(" \n", 0, "d", ())])[0]
    assert model.requests == []
    assert made.made_by == MadeBy("extractive", BUILT_IN.version)


PASSAGES = tuple(
    Passage(text, "d", Span(100 * n, 100 * n + len(text)), 0.5)
    for n, text in enumerate(("Operators shall report incidents.", "Brokers may not accept deposits."))
)
MEMBERS = [Member((passage,), ("incident",), ()) for passage in PASSAGES]
RANGE = TokenRange(20, 30)


def test_a_group_is_summarised_from_numbered_passages() -> None:
    answer = {"summary": "Incidents are reported.", "citations": [1, 1, 9, "2", True], "findings": [2]}
    with serving(lambda _: completion(answer)) as model, processor(model.url) as asked:
        made = asked.summarise_section("Duties", MEMBERS, RANGE)
    assert made.summary.text == "Incidents are reported."
    assert made.summary.passages == PASSAGES[:1]
    assert [finding.passage for finding in made.findings] == [PASSAGES[1]]
    assert made.keywords == ("incident",)
    assert made.made_by.processor == "openai:tiny"
    question = json.loads(model.requests[0]["messages"][1]["content"])
    assert question == {"title": "Duties", "passages": {"1": PASSAGES[0].text, "2": PASSAGES[1].text}}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"summary": "All is well.", "citations": [7], "findings": []}, "no citation is one of the passages"),
        ({"summary": "long " * 31, "citations": [1], "findings": []}, "summary too long"),
    ],
)
def test_a_group_falls_back_as_a_chunk_does(answer: dict[str, Any], why: str) -> None:
    sections = [SectionMember("Duties", member.candidates, member.keywords, member.entities) for member in MEMBERS]
    with serving(lambda _: completion(answer)) as model, processor(model.url) as asked:
        made = asked.summarise_corpus(sections, RANGE)
    assert_fell_back(made.made_by, why)
    assert made.summary == BUILT_IN.summarise_corpus(sections, RANGE).summary


@pytest.mark.parametrize("wrong", [{"timeout_s": 0}, {"attempts": 0}, {"concurrency": 0}, {"base_url": "ftp://x"}])
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ChatSettings(**{"base_url": "http://127.0.0.1/v1", "model": "tiny", **wrong})
