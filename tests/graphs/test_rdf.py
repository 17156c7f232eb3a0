"""Files of quads: written quads are read again, and the nesting depth of triples is found without parsing."""

from __future__ import annotations

import io
import random

import pyoxigraph as ox
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drillcore_formats.quads import Blank, Iri, Literal, Quoted
from drillcore_server.graphs.quad_model import QUOTED_DEPTH_MAX, Quad, check_quad, literal
from drillcore_server.graphs.rdf import QuadFile, QuadFormat, count_openings, is_too_deep, write_quads
from drillcore_server.kernel.errors import BadInput

characters = st.characters(exclude_categories=["Cs"])
iris = st.from_regex(r"\Aurn:[a-zA-Z0-9é/?:@-]{0,9}(#[a-z]*)?\Z").map(Iri)
blanks = st.from_regex(r"\A[a-zA-Z_0-9]([a-z0-9._-]{0,6}[a-z0-9])?\Z").map(Blank)
literals = st.builds(literal, st.text(characters)) | st.builds(
    literal, st.text(characters), iris.map(lambda i: i.value)
)
tagged = st.builds(literal, st.text(characters), st.just(""), st.sampled_from(["en", "de-at", "zh-hant-tw"]))
subjects = iris | blanks
objects = st.recursive(
    subjects | literals | tagged, lambda inner: st.builds(Quoted, subjects, iris, inner), max_leaves=4
)
graphs = st.just("") | iris.map(lambda iri: iri.value) | blanks.map(lambda blank: f"_:{blank.label}")
quads = st.builds(Quad, subjects, iris, objects, graphs)

PIECES = [b'"""', b'"', b"'", b"'''", b"\\", b"#", b"\r", b"\n", b" ", b")>>", b"<<(", b"<<( <a:s> <a:p> ", b"<a:o>"]
PIECES += [b'"""x"""', b'"x"', b"'y'", b"1", b".", b"@en", b"^^<a:t>", b"_:b", b'#c"\n', b"#'\r", b'"#"', b"<a:#x>"]
PIECES += [b"p:a\\#b", b"p:a", b'""""', b'"\\""', b"[]", b"<<", b">>", b"{|", b"|}", b"~", "é".encode()]


def read(content: bytes, form: QuadFormat, size: int = 7, **how: str) -> list[Quad]:
    pieces = [content[start : start + size] for start in range(0, len(content), size)]
    return list(QuadFile(lambda: pieces, form, **how).quads())  # type: ignore[arg-type]


def written(quads: list[Quad], form: QuadFormat) -> bytes:
    output = io.BytesIO()
    write_quads(quads, output, form)
    return output.getvalue()


@given(st.lists(quads, max_size=5))
@settings(deadline=None)
def test_quads_written_as_n_quads_are_read_again(quads: list[Quad]) -> None:
    for quad in quads:
        check_quad(quad, "")
    assert read(written(quads, QuadFormat.N_QUADS), QuadFormat.N_QUADS) == quads


@given(st.lists(quads, max_size=5), graphs)
@settings(deadline=None)
def test_quads_written_as_turtle_are_read_again(quads: list[Quad], graph: str) -> None:
    of_graph = [quad._replace(graph=graph) for quad in quads]
    assert set(read(written(of_graph, QuadFormat.TURTLE), QuadFormat.TURTLE, graph=graph)) == set(of_graph)


def test_a_quoted_subject_is_a_blank_node_with_a_label_of_its_own() -> None:
    inner = Quoted(Iri("urn:s"), Iri("urn:p"), Literal("o"))
    quads = [Quad(inner, Iri("urn:p"), inner), Quad(inner, Iri("urn:q"), Literal("o"))]
    reified, first, again, second = read(written(quads, QuadFormat.N_QUADS), QuadFormat.N_QUADS)
    assert reified == again
    assert (reified.predicate, reified.object) == (
        Iri(ox.NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#reifies").value),
        inner,
    )
    assert first == Quad(reified.subject, Iri("urn:p"), inner)
    assert second.subject == reified.subject


@pytest.mark.parametrize(
    "term",
    [Iri("urn:%"), Iri("http://[::1"), Iri("urn:a#b#c"), literal('"\\\n', language="abcd-e"), literal("x", "urn:%zz")],
    ids=repr,
)
def test_every_stored_term_can_be_written(term: Iri | Literal) -> None:
    """That includes terms that the library would not make: they may come with another system's core."""
    stored = Quad(Iri("urn:%"), Iri("urn:%"), term, "urn:%")
    check_quad(stored, "")
    content = written([stored], QuadFormat.N_QUADS)
    (parsed,) = ox.parse(content, ox.RdfFormat.N_QUADS, lenient=True)
    assert parsed.object.value == term.value


@given(st.text(st.characters(), min_size=1, max_size=3))
@settings(deadline=None)
def test_labels_of_blank_nodes_are_those_of_files(label: str) -> None:
    try:
        check_quad(Quad(Blank(label), Iri("urn:p"), Blank("b")), "")
    except BadInput:
        if ":" not in label:  # the library accepts it, but Turtle does not
            with pytest.raises(ValueError):  # noqa: PT011 - UnicodeEncodeError is a ValueError too
                ox.BlankNode(label)
    else:
        assert ox.BlankNode(label).value == label


def depth(term: object) -> int:
    return 1 + max(depth(term.subject), depth(term.object)) if isinstance(term, ox.Triple) else 0


@pytest.mark.parametrize("seed", range(4))
def test_no_file_that_parses_is_deeper_than_the_depth_found(seed: int) -> None:
    """Texts, comments, escapes and borders between pieces may hide the marks that open or close a triple."""
    dice = random.Random(seed)
    parsed = 0
    for _ in range(3_000):
        content = drawn(dice)
        try:
            deepest = max(depth(parsed.object) for parsed in ox.parse(content, ox.RdfFormat.TURTLE))
        except SyntaxError:
            continue
        parsed += 1
        pieces = [content[start : start + 5] for start in range(0, len(content), 5)]
        assert is_too_deep(pieces, deepest - 1), content
        assert deepest <= count_openings(pieces)
    assert parsed > 300


def drawn(dice: random.Random) -> bytes:
    opened = dice.randint(1, 3)
    content = b"@prefix p: <a:> . <a:x> <a:p> "
    for _ in range(opened):
        content += b"<<(" + dice.choice([b" ", b"\n", b'#"\n', b"#'\r\n", b'#\r"\n']) + b"<a:s> <a:p> "
        if dice.random() < 0.4:
            content += value(dice) + b" )>> , <<( <a:s> <a:p> "
    return content + value(dice) + b" )>>" * opened + b" ."


def value(dice: random.Random) -> bytes:
    return b"<a:o>" if dice.random() < 0.5 else b"".join(dice.choice(PIECES) for _ in range(dice.randint(1, 4)))


def test_triples_side_by_side_are_not_deep() -> None:
    beside = b'<a:s> <a:p> <<( <a:s> <a:p> "<<( <<( <<(" )>> .\n' * 1_000
    assert count_openings([beside]) == 4_000
    assert not is_too_deep([beside], 1)
    assert len(read(beside, QuadFormat.N_QUADS, 4_096)) == 1_000
    assert is_too_deep([b"<a:s> <a:p> " + b"<<( <a:s> <a:p> " * (QUOTED_DEPTH_MAX + 1)], QUOTED_DEPTH_MAX)
