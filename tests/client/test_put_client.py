"""Hierarchies through the clients and from the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from click.testing import CliRunner, Result
from google.protobuf import json_format

import drillcore
from drillcore import AsyncClient, Client, Level
from drillcore.cli import main
from tests.support.callers.hierarchies import Made, requests, two_sections, whole_text, with_vectors
from tests.support.callers.knowledge import Caller
from tests.support.servers.running import ACME, Running

TEXT = "The operator shall record every deviation within 24 hours. Records are kept for five years."
Do = Callable[..., Any]


class Small:
    """A small hierarchy in the client's own types."""

    def __init__(self) -> None:
        self.document, self.master, self.section, self.chunk = (uuid4() for _ in range(4))

    def parts(self, embedding: tuple[float, ...] = ()) -> Iterator[Any]:
        quote = drillcore.Citation(self.document, self.chunk, drillcore.Span(4, 12), "operator", 0.5)
        processing = drillcore.Processing("theirs", "2")
        yield drillcore.HierarchyDocument(self.document, "sop-7", "SOP 7", metadata={"site": "12"})
        yield drillcore.NewRaw(self.chunk, self.document, drillcore.Span(0, len(TEXT)), TEXT)
        yield drillcore.NewChunk(
            self.chunk,
            self.section,
            self.document,
            headings=["Records"],
            page=3,
            summary="On deviations.",
            quotes=[quote],
            entities=[drillcore.Entity("role", "operator")],
            keywords=["deviation"],
            embedding=embedding,
            processing=processing,
        )
        yield drillcore.NewSection(
            self.section, self.master, "Records", "records", "On records.", [quote], keywords=["record"]
        )
        finding = drillcore.Finding("obligation", "Record deviations.", quote)
        yield drillcore.NewMaster(self.master, "Everything.", findings=[finding], processing=processing)


def sync(address: str, method: str, *args: Any, **options: Any) -> Any:
    with Client(address, token=ACME, attempts=1) as client:
        return getattr(client, method)(*args, **options)


def asynchronous(address: str, method: str, *args: Any, **options: Any) -> Any:
    async def run() -> Any:
        async with AsyncClient(address, token=ACME, attempts=1) as client:
            return await getattr(client, method)(*args, **options)

    return asyncio.run(run())


@pytest.fixture(params=[sync, asynchronous], ids=["Client", "AsyncClient"])
def do(request: pytest.FixtureRequest, shared: Running) -> Do:
    return lambda method, *args, **options: request.param(shared.address, method, *args, **options)


def test_a_hierarchy_comes_back_as_it_was_put(do: Do, corpus: str) -> None:
    small, events = Small(), []
    result = do("put_hierarchy", corpus, small.parts(), on_event=events.append)
    assert result == drillcore.PutResult(revision=1, documents=1, sections=1, chunks=1, raws=1)
    assert events[0] == drillcore.PutProgress(1, 4, 0)
    assert events[-1] == drillcore.PutProgress(1, 4, 1)
    master = do("get_node", small.master).content
    assert (master.summary, master.processing.version) == ("Everything.", "2")
    assert [(finding.kind, finding.text) for finding in master.findings] == [("obligation", "Record deviations.")]
    section = do("get_node", small.section)
    assert (section.parent_id, section.content.category) == (small.master, "records")
    chunk = do("get_node", small.chunk).content
    assert [quote.text for quote in chunk.quotes] == ["operator"]
    assert (chunk.page, chunk.headings, chunk.entities) == (3, ("Records",), (drillcore.Entity("role", "operator"),))
    assert do("get_document", corpus, small.document, with_text=True).text == TEXT


def test_a_corpus_is_searched_by_the_callers_own_vectors(do: Do, corpus: str) -> None:
    small = Small()
    do("put_hierarchy", corpus, small.parts((3.0, 4.0)), embedding_model="mine-2")
    for level, node in ((Level.CHUNK, small.chunk), (Level.SECTION, small.section)):
        page = do("query", vector=[3, 4], embedding_model="mine-2", level=level, corpus_ids=[corpus])
        assert [hit.node.id for hit in page.items] == [node]
        assert page.items[0].score == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(drillcore.InvalidArgument) as caught:
        do("query", vector=[1, 2, 3], embedding_model="mine-2", corpus_ids=[corpus])
    assert caught.value.reason is drillcore.Reason.INVALID_VECTOR


def test_every_page_of_a_search_by_vector_is_iterated(shared: Running, corpus: str, library: Caller) -> None:
    made = with_vectors(two_sections())
    with Client(shared.address, token=ACME) as client:
        client.put_hierarchy(corpus, list(requests(corpus, made))[1:-1], embedding_model="theirs")
        hits = client.iter_query(vector=[1.0] * 4, embedding_model="theirs", corpus_ids=[corpus], page_size=1)
        assert {str(hit.node.id) for hit in hits} == {node.id for node in made.nodes_of("chunk")}


def test_a_refusal_names_the_node_and_has_its_kind_of_error(do: Do, corpus: str) -> None:
    small = Small()
    with pytest.raises(drillcore.InvalidArgument, match=str(small.chunk)) as caught:
        do("put_hierarchy", corpus, [part for part in small.parts() if not isinstance(part, drillcore.NewSection)])
    assert caught.value.reason is drillcore.Reason.INVALID_HIERARCHY
    with pytest.raises(drillcore.Conflict):
        do("put_hierarchy", corpus, small.parts(), expected_revision=7)


def test_if_the_parts_fail_nothing_is_stored(do: Do, corpus: str, library: Caller) -> None:
    def broken() -> Iterator[Any]:
        yield from list(Small().parts())[:-1]
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        do("put_hierarchy", corpus, broken())
    with pytest.raises(TypeError, match="not of int"):
        do("put_hierarchy", corpus, [7])
    assert library.head(corpus) == 0


def test_a_put_repeated_under_its_request_id_is_done_once(do: Do, corpus: str, library: Caller) -> None:
    parts = list(Small().parts())
    first = do("put_hierarchy", corpus, parts, request_id=f"mine {corpus}")
    assert do("put_hierarchy", corpus, parts, request_id=f"mine {corpus}") == first
    assert library.head(corpus) == 1


def test_async_parts_need_an_async_client(shared: Running, corpus: str) -> None:
    small = Small()

    async def parts() -> AsyncIterator[Any]:
        for part in small.parts():
            yield part

    assert asynchronous(shared.address, "put_hierarchy", corpus, parts()).revision == 1
    with pytest.raises(TypeError):
        sync(shared.address, "put_hierarchy", corpus, parts())


@pytest.fixture
def run(shared: Running, corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    environment = {
        "DRILLCORE_CLIENT_ADDRESS": shared.address,
        "DRILLCORE_CLIENT_TOKEN": ACME,
        "HOME": str(tmp_path),
        "NO_COLOR": "1",
    }

    def run(*arguments: str, stdin: bytes | None = None) -> Result:
        return CliRunner(env=environment).invoke(main, ["put", *arguments, "--corpus", corpus], input=stdin)

    return run


def lines(made: Made) -> list[str]:
    documents = [{"document": json_format.MessageToDict(document)} for document in made.documents]
    nodes = [{"node": json_format.MessageToDict(node)} for node in made.nodes]
    return [json.dumps(line) for line in (*documents, *nodes)]


def test_a_file_of_json_lines_is_put(run: Callable[..., Result], library: Caller, corpus: str) -> None:
    made = two_sections()
    Path("made.jsonl").write_text("\n\n".join(lines(made)))
    result = run("made.jsonl")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "stored 2 documents, 2 sections, 4 chunks, 8 raws: revision 1\n"
    assert library.text(corpus, made.documents[0].id) == whole_text()
    assert library.node(made.nodes_of("chunk")[0].id).chunk.summary == "In short: Records."


def test_standard_input_is_put_with_vectors_and_answered_in_json(run: Callable[..., Result], library: Caller) -> None:
    made = with_vectors(two_sections())
    sent = "\n".join(lines(made)).encode()
    result = run("-", "--embedding-model", "theirs", "--expected-revision", "0", "--json", stdin=sent)
    assert json.loads(result.stdout) == {"revision": 1, "documents": 2, "sections": 2, "chunks": 4, "raws": 8}
    assert library.node(made.nodes_of("chunk")[0].id).chunk.embedding_model == "theirs"


WRONG = {
    "no JSON": "{",
    "no object": "[1]",
    "neither": '{"chunk": {}}',
    "both": '{"document": {}, "node": {}}',
    "a field nobody knows": '{"node": {"id": "x", "colour": "red"}}',
    "a number for a text": '{"document": {"id": 7}}',
    "not UTF-8": "\udcff",
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_line_is_named_and_nothing_is_stored(
    run: Callable[..., Result], library: Caller, corpus: str, wrong: str
) -> None:
    sent = lines(two_sections())
    sent.insert(3, WRONG[wrong])
    result = run("-", stdin="\n".join(sent).encode("utf-8", "surrogateescape"))
    assert result.exit_code == 1
    assert result.stderr.startswith("INVALID_LINE: line 4: ")
    assert "Traceback" not in result.output
    assert library.head(corpus) == 0


def test_a_refusal_of_the_server_names_the_node(run: Callable[..., Result], library: Caller, corpus: str) -> None:
    made = two_sections()
    made.nodes_of("section")[0].parent_id = str(UUID(int=5))
    result = run("-", stdin="\n".join(lines(made)).encode())
    assert result.exit_code == 1
    assert result.stderr.startswith(f"INVALID_HIERARCHY: section {made.nodes_of('section')[0].id} has the parent")
    assert library.head(corpus) == 0
