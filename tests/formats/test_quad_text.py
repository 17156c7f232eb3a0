"""Terms and quads in the syntax of N-Quads, and which texts are refused."""

from __future__ import annotations

import pyoxigraph
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_formats.quads import (
    Blank,
    Iri,
    Literal,
    Quad,
    Quoted,
    Term,
    parse_graph,
    parse_quad,
    parse_term,
    quad_text,
    term_text,
)

INTEGER = "http://www.w3.org/2001/XMLSchema#integer"
STRING = "http://www.w3.org/2001/XMLSchema#string"


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("<http://example.org/a>", Iri("http://example.org/a")),
        ("<urn:a\\u00E9>", Iri("urn:aé")),
        ("_:b.1-x", Blank("b.1-x")),
        ('"text"', Literal("text")),
        ('""', Literal("")),
        ('"a\\t\\"b\\"\\\\\\n\\U0001F600"', Literal('a\t"b"\\\n😀')),
        ('"text"@en-GB', Literal("text", language="en-GB")),
        (f'"1"^^<{INTEGER}>', Literal("1", INTEGER)),
        (f'"1"^^<{STRING}>', Literal("1")),
        ('<<( _:s <urn:p> "o"@de )>>', Quoted(Blank("s"), Iri("urn:p"), Literal("o", language="de"))),
        (
            "<<(<urn:s><urn:p><<(<urn:a><urn:b><urn:c>)>>)>>",
            Quoted(Iri("urn:s"), Iri("urn:p"), Quoted(Iri("urn:a"), Iri("urn:b"), Iri("urn:c"))),
        ),
        ("  <urn:a>\t", Iri("urn:a")),
    ],
)
def test_terms_are_read(text: str, term: Term) -> None:
    assert parse_term(text) == term


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", 1),
        ("urn:a", 1),
        ("<no-scheme>", 1),
        ("<urn:a b>", 1),
        ("<urn:a", 1),
        ("<urn:a> x", 9),
        ("_:", 1),
        ("_:a.", 4),
        ("_:-a", 1),
        ('"open', 1),
        ('"a\nb"', 1),
        ('"\\x"', 1),
        ('"\\uD800"', 9),
        ('"\\U00110000"', 13),
        ('"a"@', 4),
        ('"a"@toolonglanguage', 13),
        ('"a"^^urn:b', 6),
        ('"a"@en^^<urn:b>', 7),
        ("<<( <urn:s> <urn:p> )>>", 21),
        ("<<( <urn:s> _:p <urn:o> )>>", 17),
        ('<<( "s" <urn:p> <urn:o> )>>', 9),
        ("<<( <urn:s> <urn:p> <urn:o> >>", 29),
        ("<< <urn:s> <urn:p> <urn:o> >>", 1),
        ("<<( <urn:s> <urn:p> " * 9 + "<urn:o> " + ")>> " * 9, 161),
    ],
)
def test_a_text_that_is_no_term_is_refused_with_the_place(text: str, place: int) -> None:
    with pytest.raises(ValueError, match=f"^at character {place}: "):
        parse_term(text)


def test_a_quad_may_leave_out_graph_and_full_stop() -> None:
    triple = Quad(Iri("urn:s"), Iri("urn:p"), Literal("o"))
    assert parse_quad('<urn:s> <urn:p> "o"') == parse_quad('<urn:s> <urn:p> "o" .') == triple
    assert parse_quad('<urn:s> <urn:p> "o" <urn:g> .') == Quad(*_parts(triple), "urn:g")
    assert parse_quad('<urn:s> <urn:p> "o" _:g.') == Quad(*_parts(triple), "_:g")
    assert parse_quad("<<( <urn:s> <urn:p> _:o )>> <urn:p> _:x .").subject == Quoted(
        Iri("urn:s"), Iri("urn:p"), Blank("o")
    )


def _parts(quad: Quad) -> tuple[Term, Term, Term]:
    return quad.subject, quad.predicate, quad.object


@pytest.mark.parametrize(
    "text",
    [
        "<urn:s> <urn:p> .",
        '"s" <urn:p> "o" .',
        '<urn:s> _:p "o" .',
        '<urn:s> <urn:p> "o" "g" .',
        "<urn:s> <urn:p> _:o . x",
    ],
)
def test_a_text_that_is_no_quad_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^at character|^a graph"):
        parse_quad(text)


def test_a_graph_is_an_iri_or_a_blank_node() -> None:
    assert (parse_graph("<urn:g>"), parse_graph("_:g")) == ("urn:g", "_:g")
    with pytest.raises(ValueError, match="a graph must be named by"):
        parse_graph('"g"')


names = st.from_regex(r"[a-zA-Z0-9]{1,8}", fullmatch=True)
iris = names.map(lambda name: Iri(f"urn:{name}"))
blanks = names.map(Blank)
literals = st.one_of(
    st.text().map(Literal),
    st.builds(lambda value: Literal(value, language="en"), st.text()),
    st.builds(lambda value, kind: Literal(value, kind.value), st.text(), iris),
)
subjects = iris | blanks
objects = st.recursive(subjects | literals, lambda inner: st.builds(Quoted, subjects, iris, inner), max_leaves=4)
quads = st.builds(
    Quad, subjects, iris, objects, st.just("") | iris.map(lambda iri: iri.value) | names.map("_:{}".format)
)


@given(quads)
def test_a_written_quad_is_read_back_here_and_by_a_library(quad: Quad) -> None:
    line = quad_text(quad)
    assert parse_quad(line) == quad
    (read,) = pyoxigraph.parse(line.encode(), pyoxigraph.RdfFormat.N_QUADS)
    assert parse_quad(str(read)) == quad


@given(objects)
def test_a_term_is_read_back_from_its_text(term: Term) -> None:
    assert parse_term(term_text(term)) == term
