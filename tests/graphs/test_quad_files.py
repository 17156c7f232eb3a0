"""Files of quads through the real server: imported as one revision or not at all, and exported as recorded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from drillcore import Grant, Level, Role
from drillcore_formats.quads import Blank, Quoted
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import quads_pb2 as pb
from drillcore_server.graphs import change_quads as new_quads
from drillcore_server.graphs import export_quads
from drillcore_server.graphs.quad_model import GRAPH_SOURCE, QUOTED_DEPTH_MAX, Quad, QuadPattern, literal
from drillcore_server.graphs.rdf import write_quads
from drillcore_server.kernel import revise
from drillcore_server.storage.ids import SourceId
from tests.support.callers.erasures import MARKER, ErasingCaller, problems
from tests.support.callers.knowledge import at_revision, info_of, refused
from tests.support.callers.quads import EVERY, N_QUADS, TURTLE, QuadCaller, ex, import_parts, quad
from tests.support.servers.people import make_person
from tests.support.servers.running import ACME, OPERATOR, Running, create_tenants, running
from tests.support.servers.signatories import person
from tests.support.stores.trails import records

FILE = b"""# a comment
<http://example.org/s> <http://example.org/p> "plain" .
<http://example.org/s> <http://example.org/p> "tagged"@en-GB <http://example.org/g> .
<http://example.org/s> <http://example.org/p> "1"^^<http://www.w3.org/2001/XMLSchema#integer> _:g .
_:b1 <http://example.org/p> <<( <http://example.org/s> <http://example.org/p> _:b2 )>> .
"""
QUADS = [
    quad("s", "p", literal("plain")),
    quad("s", "p", literal("tagged", language="en-gb"), "http://example.org/g"),
    quad("s", "p", literal("1", "http://www.w3.org/2001/XMLSchema#integer"), "_:g"),
    Quad(Blank("b1"), ex("p"), Quoted(ex("s"), ex("p"), Blank("b2"))),
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "data") as found:
        create_tenants(found.client(OPERATOR))
        yield found


@pytest.fixture
def caller(server: Running) -> Iterator[QuadCaller]:
    with QuadCaller(server, ACME) as found:
        yield found


@pytest.fixture
def exporter(server: Running) -> Iterator[QuadCaller]:
    eve = person(server, "eve", Role.AUDITOR).log_in()
    with QuadCaller(server, str(eve._token)) as found:
        yield found


def test_a_file_is_imported_as_one_revision(caller: QuadCaller) -> None:
    corpus = caller.corpus()
    answers = caller.send_import(import_parts(corpus, FILE, part_bytes=7, source_id="manual"))
    assert (answers[-1].done.revision, answers[-1].done.added, answers[-1].done.known) == (1, 4, 0)
    assert answers[-2].progress == pb.ImportQuadsProgress(bytes_received=len(FILE), quads_read=4)
    assert caller.match(corpus) == dict.fromkeys(QUADS, ("manual",))
    again = caller.import_quads(corpus, FILE, source_id="manual")
    assert (again.revision, again.added, again.known) == (1, 0, 4)
    assert caller.import_quads(corpus, b"# nothing\n") == pb.PutQuadsResponse(revision=1)


def test_n_quads_are_exported_as_they_were_imported(caller: QuadCaller, exporter: QuadCaller) -> None:
    corpus, copy = caller.corpus(), caller.corpus("copy")
    caller.import_quads(corpus, FILE)
    first = exporter.export_quads(corpus)
    assert first.lines == sorted(FILE.decode().replace("en-GB", "en-gb").splitlines()[1:])
    assert caller.import_quads(copy, first.content).added == 4
    assert caller.match(copy).keys() == set(QUADS)
    assert exporter.export_quads(copy).lines == first.lines
    assert exporter.export_quads(corpus).content == first.content


def test_a_quad_of_two_sources_is_exported_once(caller: QuadCaller, exporter: QuadCaller) -> None:
    corpus = caller.corpus()
    for source in ("manual", "memo"):
        caller.put_quads(corpus, *QUADS, source=source)
    assert exporter.export_quads(corpus, QuadPattern(predicate=ex("p"))).done.quads == 4


def test_turtle_is_imported_into_a_single_graph_and_exported_from_one(caller: QuadCaller, exporter: QuadCaller) -> None:
    corpus, graph = caller.corpus(), "http://example.org/g"
    turtle = b'@prefix ex: <http://example.org/> . ex:s ex:p ex:o, "tagged"@en ; ex:q 1 . <rel> ex:p ex:o .'
    done = caller.import_quads(corpus, turtle, TURTLE, graph=graph, base_iri="http://example.org/base/")
    assert done.added == 4
    caller.put_quads(corpus, quad("elsewhere", "p", "o"))
    found = caller.match(corpus, QuadPattern(graph=graph))
    assert quad("base/rel", "p", "o", graph) in found
    exported = exporter.export_quads(corpus, QuadPattern(graph=graph), TURTLE)
    copy = caller.corpus("copy")
    caller.import_quads(copy, exported.content, TURTLE, graph=graph)
    assert caller.match(copy).keys() == found.keys()
    with refused(Reason.INVALID_ARGUMENT, field="pattern"):
        exporter.export_quads(corpus, EVERY, TURTLE)


def test_a_file_of_all_quads_leaves_out_derived_quads(caller: QuadCaller, exporter: QuadCaller) -> None:
    corpus, copy = caller.corpus(), caller.corpus("copy")
    caller.import_quads(corpus, FILE, source_id="manual")
    exported = exporter.export_quads(corpus)
    derived = sum(GRAPH_SOURCE in line for line in exported.lines)
    assert derived > 0
    done = caller.import_quads(copy, exported.content, request_id="copy")
    assert done == pb.PutQuadsResponse(revision=1, added=4, derived=derived)
    assert caller.import_quads(copy, exported.content, request_id="copy") == done
    assert caller.match(copy).keys() == set(QUADS)
    only = b"".join(line for line in exported.content.splitlines(keepends=True) if GRAPH_SOURCE.encode() in line)
    assert caller.import_quads(copy, only) == pb.PutQuadsResponse(revision=1, derived=derived)


def test_a_relative_iri_is_named_as_the_error(caller: QuadCaller) -> None:
    corpus, content = caller.corpus(), b"<http://example.org/s> <http://example.org/p> <o> ."
    with pytest.raises(grpc.RpcError, match="an IRI is relative; set base_iri"):
        caller.import_quads(corpus, content, TURTLE)
    assert caller.import_quads(corpus, content, TURTLE, base_iri="http://example.org/").added == 1


def test_a_quoted_triple_as_a_subject_becomes_a_reifying_blank_node(caller: QuadCaller, exporter: QuadCaller) -> None:
    corpus = caller.corpus()
    inner = Quoted(ex("s"), ex("p"), literal("o"))
    caller.put_quads(corpus, Quad(Quoted(inner, ex("p"), inner), ex("p"), ex("o"), "http://example.org/g"))
    exported = exporter.export_quads(corpus)
    assert exported.content.count(b"22-rdf-syntax-ns#reifies> <<( ") == 2
    copy = caller.corpus("copy")
    assert caller.import_quads(copy, exported.content).added == 3
    assert {matched.graph for matched in caller.match(copy)} == {"http://example.org/g"}


def test_blank_nodes_keep_their_labels_unless_they_are_renamed(caller: QuadCaller) -> None:
    corpus = caller.corpus()
    content = b"_:a <http://example.org/p> _:b _:a .\n"
    caller.import_quads(corpus, content)
    assert caller.import_quads(corpus, content).known == 1
    assert caller.import_quads(corpus, content, rename_blank_nodes=True).added == 1
    assert caller.import_quads(corpus, content, rename_blank_nodes=True).added == 1
    for matched in caller.match(corpus):
        assert isinstance(matched.subject, Blank)
        assert matched.graph == f"_:{matched.subject.label}", "the same label is the same node in one file"


def test_a_retried_import_gets_its_answer_and_a_different_file_is_refused(caller: QuadCaller) -> None:
    corpus = caller.corpus()
    first = caller.import_quads(corpus, FILE, request_id="import", rename_blank_nodes=True)
    assert caller.import_quads(corpus, FILE, request_id="import", rename_blank_nodes=True) == first
    assert len(caller.match(corpus)) == 4
    with refused(Reason.REQUEST_ID_REUSED):
        caller.import_quads(corpus, FILE + b"# more\n", request_id="import", rename_blank_nodes=True)


def test_a_large_file_with_every_quad_twice_is_one_revision(
    caller: QuadCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_quads, "REMEMBERED_MIN", 4_000)
    monkeypatch.setattr(revise, "SMALL_BYTES_MAX", 200_000)
    monkeypatch.setattr(revise, "BATCH_BYTES_MAX", 200_000)
    corpus = caller.corpus()
    lines = [
        f"<http://example.org/s{number}> <http://example.org/p> <http://example.org/o> .\n" for number in range(10_000)
    ]
    done = caller.import_quads(corpus, "".join(lines * 2).encode(), source_id="manual")
    assert (done.revision, done.added, done.known) == (1, 10_000, 10_000)
    assert (
        sum(len(page.quads) for page in caller.match_pages(corpus, QuadPattern(predicate=ex("p")), page_size=1_000))
        == 10_000
    )
    assert problems(caller.server) == ()


LINE = b'<http://example.org/s> <http://example.org/p> "o" .\n'


@pytest.mark.parametrize(
    ("content", "form", "line"),
    [
        (LINE + LINE[:-8], N_QUADS, 2),
        (LINE + b"<http://example.org/s> <http://example.org/p> .\n", N_QUADS, 2),
        (LINE + b'<relative> <http://example.org/p> "o" .\n', N_QUADS, 2),
        (LINE + b'<http://a b> <http://example.org/p> "o" .\n', N_QUADS, 2),
        (LINE * 3 + b'<http://example.org/s> <http://example.org/p> "\xff" .\n', N_QUADS, 4),
        (LINE.decode().encode("utf-16"), N_QUADS, 1),
        (LINE.decode().encode("utf-32"), TURTLE, 1),
        (LINE + b'<http://example.org/s> <http://example.org/p> "\\uD800" .\n', N_QUADS, 2),
        (b"%PDF-1.7 not a file of quads", N_QUADS, 1),
        (b"@prefix ex: <http://example.org/", TURTLE, 1),
        (b"ex:s ex:p ex:o .", TURTLE, 1),
        (LINE + b"<http://example.org/s> <http://example.org/p> [", TURTLE, 2),
    ],
    ids=lambda value: repr(value)[-40:],
)
def test_a_file_that_cannot_be_parsed_is_refused_with_the_line(
    caller: QuadCaller, content: bytes, form: int, line: int
) -> None:
    corpus = caller.corpus()
    with pytest.raises(grpc.RpcError) as caught:
        caller.import_quads(corpus, content, form)
    info = info_of(caught.value)
    assert (info.reason, info.metadata["line"]) == (Reason.UNPARSABLE.name, str(line))
    assert "example" not in (caught.value.details() or "")
    assert caller.head(corpus) == 0


def nested(depth: int) -> bytes:
    inner = b"<<( <http://example.org/s> <http://example.org/p> "
    return b"<http://example.org/s> <http://example.org/p> " + inner * depth + b'"o"' + b" )>>" * depth + b" .\n"


@pytest.mark.parametrize("form", [N_QUADS, TURTLE])
@pytest.mark.parametrize("depth", [QUOTED_DEPTH_MAX + 1, 60, 1_000, 200_000])
def test_triples_that_are_nested_too_deep_are_refused(caller: QuadCaller, form: int, depth: int) -> None:
    corpus = caller.corpus()
    with refused(Reason.INVALID_QUAD):
        caller.import_quads(corpus, nested(QUOTED_DEPTH_MAX) + nested(depth), form)
    hidden = nested(depth).replace(b"<<( ", b'<<( # )>> "\n')
    with refused(Reason.INVALID_QUAD, Reason.UNPARSABLE):
        caller.import_quads(corpus, hidden, form)
    assert caller.head(corpus) == 0
    assert caller.import_quads(corpus, nested(QUOTED_DEPTH_MAX) * 200, form).added == 1


def test_endless_terms_and_statements_are_refused(caller: QuadCaller) -> None:
    corpus = caller.corpus()
    with refused(Reason.INVALID_QUAD):
        caller.import_quads(corpus, LINE.replace(b'"o"', b'"' + b"o" * 1_000_001 + b'"'))
    with refused(Reason.UNPARSABLE):
        caller.import_quads(corpus, LINE[:-4] + b"o" * (17 << 20), TURTLE)
    with refused(Reason.INVALID_QUAD):
        caller.import_quads(corpus, LINE.replace(b'"o"', b'"o"@en--ltr'))
    assert caller.head(corpus) == 0


def test_a_byte_order_mark_is_skipped(caller: QuadCaller) -> None:
    assert caller.import_quads(caller.corpus(), b"\xef\xbb\xbf" + LINE).added == 1


def test_an_incomplete_a_wrongly_declared_and_a_too_large_file_are_refused(tmp_path: Path, caller: QuadCaller) -> None:
    corpus = caller.corpus()
    sent = list(import_parts(corpus, FILE, part_bytes=50))
    with refused(Reason.CANCELLED):
        caller.send_import(sent[:-1])
    with refused(Reason.INVALID_ARGUMENT, field="part"):
        caller.send_import([*sent[:-2], sent[-1]])
    with refused(Reason.INVALID_ARGUMENT, field="target"):
        caller.send_import(sent[1:])
    with refused(Reason.INVALID_ARGUMENT, field="format"):
        caller.import_quads(corpus, FILE, 0)
    with refused(Reason.INVALID_QUAD):
        caller.import_quads(corpus, FILE, graph="no iri")
    with refused(Reason.INVALID_ARGUMENT, field="base_iri"):
        caller.import_quads(corpus, FILE, TURTLE, base_iri="no iri")
    with running(tmp_path / "small", upload_bytes_max=1_000) as small:
        create_tenants(small.client(OPERATOR))
        with QuadCaller(small, ACME) as small_caller, refused(Reason.TOO_LARGE, field="data"):
            small_caller.import_quads(small_caller.corpus(), LINE * 30)


def test_an_export_is_recorded_with_its_hash_before_it_is_sent(caller: QuadCaller, exporter: QuadCaller) -> None:
    corpus = caller.corpus()
    caller.put_quads(corpus, *QUADS)
    exported = exporter.export_quads(corpus, request_id="export")
    assert exported.done.sha256 == hashlib.sha256(exported.content).digest()
    assert (exported.done.size_bytes, exported.done.revision) == (len(exported.content), 1)
    (record,) = records(caller.server, call="ExportQuads")
    assert (record["action"], record["id"]) == ("EXPORT", exported.done.record_id)
    assert record["detail"]["sha256"] == exported.done.sha256.hex()
    with refused(Reason.EXPORT_MADE):
        exporter.export_quads(corpus, request_id="export")
    with refused(Reason.PERMISSION_DENIED):
        caller.export_quads(corpus)


def test_an_export_has_the_quads_that_match_at_a_revision(
    caller: QuadCaller, exporter: QuadCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = caller.corpus()
    caller.put_quads(corpus, *QUADS)
    caller.remove_quads(corpus, QUADS[0])
    caller.put_quads(corpus, QUADS[1], source="manual")
    monkeypatch.setattr(export_quads, "_PAGE", export_quads.PageLimit(2, 1 << 20))
    assert exporter.export_quads(corpus, as_of=at_revision(2)).done.quads == 3
    assert exporter.export_quads(corpus, as_of=at_revision(1)).done.quads == 4
    assert exporter.export_quads(corpus, QuadPattern(source=SourceId("manual"))).done.quads == 1
    assert exporter.export_quads(corpus, QuadPattern(subject=Blank("b1"))).lines == [FILE.decode().splitlines()[-1]]
    assert exporter.export_quads(corpus, QuadPattern(subject=ex("nobody"))).content == b""


def test_an_export_of_a_derived_graph_has_its_quads(caller: QuadCaller, exporter: QuadCaller) -> None:
    corpus = caller.corpus()
    caller.add_texts(corpus, {"records.txt": "Records of every transaction are kept for seven years. " * 5})
    exported = exporter.export_quads(corpus, QuadPattern(graph=GRAPH_SOURCE))
    assert exported.done.quads == len(caller.derived(corpus, QuadPattern(graph=GRAPH_SOURCE))) > 5
    assert all(line.endswith(f"<{GRAPH_SOURCE}> .") for line in exported.lines)


def test_quads_erased_while_a_file_is_made_are_not_sent(
    caller: QuadCaller, exporter: QuadCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = caller.corpus()
    caller.put_quads(corpus, quad("s", "p", literal(MARKER)), source="marked")

    def erased_meanwhile(*args: Any) -> None:
        write_quads(*args)
        with ErasingCaller(caller.server, ACME) as eraser:
            eraser.erase(corpus, "marked")

    monkeypatch.setattr(export_quads, "write_quads", erased_meanwhile)
    with refused(Reason.CONFLICT):
        exporter.export_quads(corpus)
    assert not any("sha256" in record.get("detail", {}) for record in records(caller.server, call="ExportQuads"))
    monkeypatch.undo()
    assert exporter.export_quads(corpus).content == b""


def test_quads_erased_before_a_recorded_file_is_sent_are_not_sent(
    caller: QuadCaller, exporter: QuadCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = caller.corpus()
    caller.put_quads(corpus, quad("s", "p", literal(MARKER)), source="marked")
    recorded = export_quads._Exporting._recorded

    def erased_since(*args: Any) -> export_quads.ExportedQuads:
        done = recorded(*args)
        with ErasingCaller(caller.server, ACME) as eraser:
            eraser.erase(corpus, "marked")
        return done

    monkeypatch.setattr(export_quads._Exporting, "_recorded", erased_since)
    with refused(Reason.CONFLICT):
        exporter.export_quads(corpus)


def test_quads_need_a_grant_for_all_levels(server: Running, caller: QuadCaller) -> None:
    corpus = caller.corpus()
    caller.put_quads(corpus, *QUADS)
    some = make_person(server, *(Grant(role, levels=[Level.MASTER, Level.RAW]) for role in (Role.READER, Role.AUDITOR)))
    with QuadCaller(server, some.token) as reader:
        for ask in (reader.match, reader.export_quads):
            with refused(Reason.PERMISSION_DENIED):
                ask(corpus)
    writer = make_person(server, Grant(Role.WRITER, levels=[Level.CHUNK]))
    with QuadCaller(server, writer.token) as writing:
        for change in (writing.put_quads, writing.remove_quads):
            with refused(Reason.PERMISSION_DENIED):
                change(corpus, QUADS[0])
