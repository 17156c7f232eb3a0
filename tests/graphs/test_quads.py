"""Quads through the real server: put, removed, retried, recorded, separate by tenant, and erased with their source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from drillcore import Client, Role
from drillcore_formats.quads import Blank, Iri, Literal, Quoted, Term
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import quads_pb2 as pb
from drillcore_server.graphs import change_quads as new_quads
from drillcore_server.graphs.quad_model import (
    DC,
    GRAPH_RETRIEVAL,
    GRAPH_SOURCE,
    IRI_CHARACTERS_MAX,
    LABEL_CHARACTERS_MAX,
    QUOTED_DEPTH_MAX,
    RDFS_LABEL,
    TERM_CHARACTERS_MAX,
    Quad,
    QuadPattern,
    literal,
    pattern_text,
)
from drillcore_server.graphs.quad_service import quad_message
from drillcore_server.kernel import revise
from drillcore_server.storage.ids import SourceId
from tests.support.callers.erasures import MARKED, MARKER, ErasingCaller, opened, problems, sealed_under
from tests.support.callers.knowledge import at_revision, refused
from tests.support.callers.quads import EVERY, QuadCaller, ex, pattern_message, quad
from tests.support.servers.running import ACME, ACME_ID, GLOBEX, GLOBEX_ID, OPERATOR, Running, create_tenants, running
from tests.support.servers.signatories import person
from tests.support.stores.aged import age
from tests.support.stores.trails import records

SOME = [quad("a", "p", "b"), quad("a", "p", literal("b", language="en")), quad("b", "p", "c", "http://example.org/g")]


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
def eraser(server: Running) -> Iterator[ErasingCaller]:
    with ErasingCaller(server, ACME) as found:
        yield found


def test_a_call_makes_one_revision_and_keeps_known_quads(caller: QuadCaller) -> None:
    corpus = caller.corpus()
    first = caller.put_quads(corpus, *SOME[:2], source="manual")
    assert (first.revision, first.added, first.known) == (1, 2, 0)
    second = caller.put_quads(corpus, *SOME, SOME[2], source="manual")
    assert (second.revision, second.added, second.known) == (2, 1, 3)
    third = caller.put_quads(corpus, *SOME, source="manual")
    assert (third.revision, third.added, third.known) == (2, 0, 3), "a call without changes makes no revision"
    assert caller.match(corpus) == dict.fromkeys(SOME, ("manual",))
    assert caller.match(corpus, as_of=at_revision(1)) == dict.fromkeys(SOME[:2], ("manual",))
    assert problems(caller.server) == ()


def test_every_kind_of_term_comes_back_unchanged(caller: QuadCaller) -> None:
    corpus = caller.corpus()
    quoted = Quoted(Quoted(ex("a"), ex("p"), literal('x\0\n"é\U0001f600')), ex("p"), Blank("b.1-x"))
    terms: list[Term] = [
        Iri("urn:x-y:é#1"),
        Blank("_a"),
        literal(""),
        literal("1", "http://www.w3.org/2001/XMLSchema#integer"),
        literal("Rindfleisch", language="de-DE"),
        literal("long" * 60_000),
        quoted,
    ]
    put = [Quad(ex("s"), ex("p"), term, graph) for term in terms for graph in ("", "_:g", "urn:g")]
    put += [Quad(quoted, ex("p"), quoted)]
    caller.put_quads(corpus, *put)
    assert caller.match(corpus, page_size=3) == dict.fromkeys(put, ())


def test_terms_that_are_equal_in_rdf_give_one_quad(caller: QuadCaller) -> None:
    corpus = caller.corpus()
    strings = [Literal("a"), Literal("a", "http://www.w3.org/2001/XMLSchema#string")]
    tagged = [
        Literal("a", language="en-GB"),
        Literal("a", "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString", "EN-gb"),
    ]
    done = caller.put_quads(corpus, *(quad("s", "p", term) for term in [*strings, *tagged]))
    assert (done.added, done.known) == (2, 2)
    assert caller.match(corpus, QuadPattern(object=tagged[1])) == {quad("s", "p", literal("a", language="en-gb")): ()}


def test_quads_are_removed_from_one_source_or_from_all(caller: QuadCaller) -> None:
    corpus = caller.corpus()
    for source in ("", "manual", "memo"):
        caller.put_quads(corpus, *SOME, source=source)
    done = caller.remove_quads(corpus, SOME[0], SOME[0], source="memo")
    assert (done.revision, done.removed) == (4, 1)
    assert caller.match(corpus)[SOME[0]] == ("manual",)
    gone = caller.remove_quads(corpus, SOME[0], quad("not", "there", "either"))
    assert (gone.revision, gone.removed) == (5, 1)
    assert SOME[0] not in caller.match(corpus)
    nothing = caller.remove_quads(corpus, SOME[0])
    assert (nothing.revision, nothing.removed) == (5, 0)
    rest = caller.remove_quads(corpus, pattern=pb.QuadPattern(source_id="memo"))
    assert (rest.revision, rest.removed) == (6, 2)
    assert caller.match(corpus) == dict.fromkeys(SOME[1:], ("manual",))
    every = caller.remove_quads(corpus, pattern=pb.QuadPattern())
    assert (every.revision, every.removed) == (7, 2)
    assert caller.match(corpus) == {}
    assert caller.match(corpus, as_of=at_revision(3)) == dict.fromkeys(SOME, ("manual", "memo"))
    assert caller.put_quads(corpus, *SOME).added == 3, "removed quads can be put again"
    assert problems(caller.server) == ()


def test_a_retried_call_gets_its_answer_and_is_not_done_again(caller: QuadCaller) -> None:
    corpus = caller.corpus()
    first = caller.put_quads(corpus, *SOME, request_id="put")
    caller.remove_quads(corpus, SOME[0], request_id="remove")
    assert caller.put_quads(corpus, *SOME, request_id="put") == first
    assert caller.remove_quads(corpus, SOME[0], request_id="remove").removed == 1
    assert caller.match(corpus).keys() == set(SOME[1:])
    assert caller.put_quads(corpus, SOME[1], request_id="known") == caller.put_quads(
        corpus, SOME[1], request_id="known"
    )
    for reused in ("put", "remove"):
        with refused(Reason.REQUEST_ID_REUSED):
            caller.put_quads(corpus, SOME[2], request_id=reused)
    assert [record["outcome"] for record in records(caller.server, call="PutQuads")].count("OK") == 2


def test_changes_are_recorded_without_their_content(caller: QuadCaller) -> None:
    corpus = caller.corpus()
    caller.put_quads(corpus, *SOME, source="manual", request_id="put")
    caller.remove_quads(corpus, SOME[0], request_id="remove")
    (put,), (removed,) = (records(caller.server, call=name) for name in ("PutQuads", "RemoveQuads"))
    assert (put["action"], removed["action"]) == ("UPDATE", "DELETE")
    assert put["detail"]["quads_added"] == 3
    assert removed["detail"]["quads_removed"] == 1
    assert put["corpora"] == {corpus: 1}
    assert "example.org" not in str([put, removed])


def test_a_source_of_quads_is_registered(caller: QuadCaller) -> None:
    corpus = caller.corpus()
    caller.put_quads(corpus, *SOME, source="manual")
    client = caller.server.client(ACME)
    assert [source.id for source in client.list_sources(UUID(corpus)).items] == ["manual"]


def test_another_tenant_has_no_access_unless_the_corpus_is_shared_and_then_only_to_read(
    server: Running, caller: QuadCaller
) -> None:
    corpus = caller.corpus()
    caller.put_quads(corpus, *SOME)
    with QuadCaller(server, GLOBEX) as foreign_caller:
        for call in (foreign_caller.match, foreign_caller.export_quads):
            with refused(Reason.CORPUS_NOT_FOUND, Reason.PERMISSION_DENIED):
                call(corpus)
        server.client(OPERATOR).update_corpus(UUID(corpus), tenant_id=ACME_ID, share_with=[GLOBEX_ID])
        assert foreign_caller.match(corpus).keys() == set(SOME)
        with refused(Reason.PERMISSION_DENIED):
            foreign_caller.put_quads(corpus, quad("x", "p", "o"))
        with refused(Reason.PERMISSION_DENIED):
            foreign_caller.remove_quads(corpus, pattern=pb.QuadPattern())
    assert caller.match(corpus).keys() == set(SOME)


def test_a_pattern_to_remove_must_be_one_that_quads_can_match_and_name_its_source_itself(caller: QuadCaller) -> None:
    corpus = caller.corpus()
    caller.put_quads(corpus, *SOME, source="manual")
    caller.put_quads(corpus, *SOME, source="memo")
    asked = pattern_message(QuadPattern(predicate=ex("p")))
    with refused(Reason.INVALID_ARGUMENT, field="source_id"):
        caller.remove_quads(corpus, pattern=asked, source="memo")
    with refused(Reason.INVALID_QUAD):
        caller.remove_quads(corpus, pattern=pattern_message(QuadPattern(predicate=literal("p"))))
    assert caller.match(corpus) == dict.fromkeys(SOME, ("manual", "memo"))
    asked.source_id = "memo"
    assert caller.remove_quads(corpus, pattern=asked).removed == len(SOME)
    assert caller.match(corpus) == dict.fromkeys(SOME, ("manual",))


@pytest.mark.parametrize("kind", ["stored", "fact", "document"])
def test_recorded_patterns_are_erased_with_the_source_that_they_quote(
    eraser: ErasingCaller, caller: QuadCaller, kind: str
) -> None:
    """A pattern may repeat a source's words, in the records of reads and of exports."""
    corpus, server = caller.corpus(), caller.server
    caller.add_texts(corpus, {"marked": MARKED})
    caller.put_quads(corpus, quad("a", "p", literal(MARKER)), source="marked")
    fact = next(listed.content for listed in caller.list(corpus) if MARKER in listed.content)
    title = next(derived.object for derived in caller.derived(corpus) if derived.predicate == Iri(f"{DC}title"))
    asked = {
        "stored": QuadPattern(object=literal(MARKER)),
        "fact": QuadPattern(object=literal(fact)),
        "document": QuadPattern(object=title, predicate=Iri(RDFS_LABEL)),
    }[kind]
    assert caller.match(corpus, asked) or caller.derived(corpus, asked)
    with QuadCaller(server, str(person(server, "eve", Role.AUDITOR).log_in()._token)) as exporter:
        assert exporter.export_quads(corpus, asked).lines
    (of_match, *_), (of_export,) = (
        [record for record in records(server, call=name) if pattern_text(asked)[:1_000] == record["opened"]["query"]]
        for name in ("MatchQuads", "ExportQuads")
    )
    key, _ = eraser.erase(corpus, "marked").erasure.erased_keys
    assert (of_match["private"]["key"], of_export["private"]["key"]) == (key, key)


def test_auditors_see_a_pattern_in_the_notation_of_n_quads() -> None:
    asked = QuadPattern(predicate=Iri("https://example.com/p"), object=literal("a"), graph="")
    assert pattern_text(asked) == 'predicate <https://example.com/p>, object "a", graph default'
    assert pattern_text(QuadPattern()) == "any quad"


def test_quads_are_erased_with_their_source_at_every_revision(eraser: ErasingCaller, caller: QuadCaller) -> None:
    corpus, server = caller.corpus(), caller.server
    marked = [quad("a", "p", literal(f"{MARKER} {number}")) for number in range(20)]
    caller.put_quads(corpus, *marked, *SOME, source="marked")
    caller.put_quads(corpus, *SOME, source="other")
    caller.put_quads(corpus, SOME[0])
    caller.remove_quads(corpus, marked[0])
    assert any(MARKER.encode() in value for value in opened(server, corpus))
    key, _ = eraser.erase(corpus, "marked").erasure.erased_keys
    assert not any(MARKER.encode() in value for value in opened(server, corpus))
    for revision in range(1, 6):
        found = caller.match(corpus, as_of=at_revision(revision))
        assert MARKER not in str(found)
        assert found == ({} if revision == 1 else dict.fromkeys(SOME, ("other",)))
    assert problems(server) == ()
    before = sealed_under(server, corpus, key)
    assert before >= 20
    eraser.purge(corpus)
    assert sealed_under(server, corpus, key) == 0
    assert caller.match(corpus) == dict.fromkeys(SOME, ("other",))
    assert caller.match(corpus, QuadPattern(predicate=ex("p"), graph="")) == dict.fromkeys(SOME[:2], ("other",))
    assert caller.match(corpus, as_of=at_revision(2)) == dict.fromkeys(SOME, ("other",))
    assert problems(server) == ()
    assert caller.put_quads(corpus, marked[1], source="marked").added == 1, "the quad is stored again under a new key"
    assert caller.match(corpus, QuadPattern(source=SourceId("marked"))) == {marked[1]: ("marked",)}


def test_a_purge_leaves_every_index_of_other_sources(eraser: ErasingCaller, caller: QuadCaller) -> None:
    corpus = caller.corpus()
    caller.put_quads(corpus, quad("z", "z", "z"), source="marked")
    caller.put_quads(corpus, *SOME, source="other")
    eraser.erase(corpus, "marked", purge_now=True)
    for stored in SOME:
        for pattern in (
            QuadPattern(stored.subject),
            QuadPattern(predicate=stored.predicate),
            QuadPattern(object=stored.object),
            QuadPattern(graph=stored.graph),
            QuadPattern(subject=stored.subject, object=stored.object),
            QuadPattern(predicate=stored.predicate, graph=stored.graph),
            QuadPattern(source=SourceId("other")),
        ):
            assert stored in caller.match(corpus, pattern), pattern
    assert problems(caller.server) == ()


def test_trimming_keeps_the_quads_of_the_head(caller: QuadCaller) -> None:
    corpus, client = caller.corpus(), Client(caller.server.address, token=ACME)
    caller.put_quads(corpus, *SOME)
    caller.remove_quads(corpus, SOME[0])
    caller.put_quads(corpus, quad("x", "p", "o"))
    age(caller.server, corpus, 30.0)
    client.update_corpus(UUID(corpus), retention_days=7)
    client.trim_corpus(UUID(corpus))
    assert caller.match(corpus).keys() == {*SOME[1:], quad("x", "p", "o")}
    with refused(Reason.REVISION_TRIMMED):
        caller.match(corpus, as_of=at_revision(1))
    assert problems(caller.server) == ()
    client.close()


def deep(depth: int) -> Term:
    return ex("a") if depth == 0 else Quoted(ex("s"), ex("p"), deep(depth - 1))


@pytest.mark.parametrize(
    "wrong",
    [
        Quad(literal("a"), ex("p"), ex("o")),
        Quad(ex("s"), Blank("p"), ex("o")),
        Quad(ex("s"), ex("p"), ex("o"), "no iri"),
        Quad(ex("s"), ex("p"), ex("o"), "_:"),
        Quad(Iri("relative"), ex("p"), ex("o")),
        Quad(Iri("http://a b"), ex("p"), ex("o")),
        Quad(Iri("http://a>b"), ex("p"), ex("o")),
        Quad(Iri("a:" + "x" * IRI_CHARACTERS_MAX), ex("p"), ex("o")),
        Quad(Blank(""), ex("p"), ex("o")),
        Quad(Blank("a b"), ex("p"), ex("o")),
        Quad(Blank("b" * (LABEL_CHARACTERS_MAX + 1)), ex("p"), ex("o")),
        quad("s", "p", literal("l" * (TERM_CHARACTERS_MAX + 1))),
        quad("s", "p", Literal("a", "http://example.org/type", "en")),
        quad("s", "p", literal("a", language="not a language")),
        quad("s", "p", literal("a", "no iri")),
        quad("s", "p", deep(QUOTED_DEPTH_MAX + 1)),
        quad("s", "p", deep(45)),
        quad("s", "p", Quoted(literal("a"), ex("p"), ex("o"))),
        quad("s", "p", Quoted(ex("a"), Blank("p"), ex("o"))),
        quad("s", "p", Quoted(Quoted(ex("a"), ex("p"), literal("l" * 600_000)), ex("p"), literal("l" * 600_000))),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_quads_that_are_invalid_in_rdf_are_refused(caller: QuadCaller, wrong: Quad) -> None:
    corpus = caller.corpus()
    with refused(Reason.INVALID_QUAD):
        caller.put_quads(corpus, quad("fine", "p", "o"), wrong)
    assert caller.match(corpus) == {}
    with refused(Reason.INVALID_QUAD):
        caller.remove_quads(corpus, wrong)


def test_terms_at_their_limits_are_accepted(caller: QuadCaller) -> None:
    corpus = caller.corpus()
    put = [
        quad("s", "p", deep(QUOTED_DEPTH_MAX)),
        quad("s", "p", literal("é" * TERM_CHARACTERS_MAX)),
        quad("s", "p", Iri("a:" + "x" * (IRI_CHARACTERS_MAX - 2))),
        quad("s", "p", Blank("b" * LABEL_CHARACTERS_MAX)),
    ]
    assert caller.put_quads(corpus, *put).added == 4
    assert caller.match(corpus).keys() == set(put)


def test_derived_quads_cannot_be_put(caller: QuadCaller) -> None:
    corpus = caller.corpus()
    own = Iri("urn:drillcore:document:1")
    for graph in (GRAPH_SOURCE, GRAPH_RETRIEVAL):
        with refused(Reason.RESERVED_QUAD):
            caller.put_quads(corpus, Quad(own, ex("p"), ex("o"), graph))
    assert caller.put_quads(corpus, Quad(own, ex("p"), ex("o")), Quad(ex("s"), ex("p"), own, GRAPH_SOURCE)).added == 2


def test_calls_without_quads_or_with_too_many_are_refused(caller: QuadCaller) -> None:
    corpus = caller.corpus()
    with refused(Reason.INVALID_ARGUMENT, field="quads"):
        caller.put_quads(corpus)
    with refused(Reason.INVALID_ARGUMENT, field="quads"):
        caller.put_quads(corpus, *[SOME[0]] * 10_001)
    with refused(Reason.INVALID_ARGUMENT, field="quads"):
        caller.remove_quads(corpus)
    with refused(Reason.INVALID_ARGUMENT, field="quads"):
        caller.remove_quads(corpus, SOME[0], pattern=pb.QuadPattern())
    with refused(Reason.INVALID_ARGUMENT, field="source_id"):
        caller.put_quads(corpus, SOME[0], source="s" * 1_001)
    with refused(Reason.INVALID_QUAD):
        request = pb.PutQuadsRequest(corpus_id=corpus, quads=[pb.Quad(subject=quad_message(SOME[0]).subject)])
        caller.quads.PutQuads(request, **caller.options())


def test_ten_thousand_quads_can_be_put_in_one_call(caller: QuadCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are staged in batches, since their writes are too many for one transaction. The last quads come twice."""
    corpus = caller.corpus()
    monkeypatch.setattr(revise, "SMALL_BYTES_MAX", 100_000)
    monkeypatch.setattr(revise, "BATCH_BYTES_MAX", 100_000)
    monkeypatch.setattr(new_quads, "REMEMBERED_MIN", 1_000)
    put = [quad(f"s{number}", "p", "o") for number in range(5_000)]
    done = caller.put_quads(corpus, *put, *put)
    assert (done.revision, done.added, done.known) == (1, 5_000, 5_000)
    assert caller.match(corpus, page_size=1_000).keys() == set(put)
    assert caller.match(corpus, EVERY, as_of=at_revision(0)) == {}
    assert problems(caller.server) == ()
