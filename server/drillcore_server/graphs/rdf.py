"""The formats of files of quads.

Files of quads, written.

RDF 1.2 has triple terms only as objects. A quoted triple that is a subject is written as a blank node, with a quad
that says what it stands for: `_:label rdf:reifies <<( subject predicate object )>>`. The label is made of the triple.

How deep triple terms are in each other in a file of quads, found without parsing it.

The parser follows them by recursion in native code, without a limit: a file that nests some ten thousand ends the
process. So files are looked through before it gets them. This reads just enough of N-Quads and Turtle to tell what is
text, an IRI or a comment; where it takes something for another thing than the parser does, that is no RDF.

Files of quads, read.
"""

from __future__ import annotations

import enum
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, Any, Final, cast

import pyoxigraph as ox
from pyoxigraph import RdfFormat

from drillcore_formats.quads import Blank, Iri, Literal, Quoted, Term
from drillcore_proto.reasons import Reason
from drillcore_server.graphs.quad_model import (
    BLANK_PREFIX,
    QUOTED_DEPTH_MAX,
    Quad,
    check_quad,
    check_term,
    encoded_term,
    literal,
)
from drillcore_server.kernel.errors import BadInput


class QuadFormat(enum.Enum):
    N_QUADS = "N-Quads"
    TURTLE = "Turtle"
    """Has no graphs."""


RDF_FORMATS: Final[Mapping[QuadFormat, RdfFormat]] = {
    QuadFormat.N_QUADS: RdfFormat.N_QUADS,
    QuadFormat.TURTLE: RdfFormat.TURTLE,
}


RDF_REIFIES: Final = ox.NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#reifies")
_KNOWN_MAX: Final = 10_000

Subject = ox.NamedNode | ox.BlankNode
Object = ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple


def write_quads(quads: Iterable[Quad], output: object, form: QuadFormat) -> None:
    """`output` has `write` and `flush`. With Turtle the quads' graphs are left out."""
    written = _Writing().quads(quads)
    stream = cast("IO[bytes]", output)
    if form is QuadFormat.TURTLE:
        ox.serialize((one.triple for one in written), stream, RDF_FORMATS[form])
    else:
        ox.serialize(written, stream, RDF_FORMATS[form])


class _Writing:
    """Our terms as the library's."""

    def __init__(self) -> None:
        self._iri: Callable[[str], ox.NamedNode] = lru_cache(_KNOWN_MAX)(_named)
        self._reified: list[tuple[ox.BlankNode, ox.Triple]] = []
        """Subjects of the quad at hand that have yet to be said."""

    def quads(self, quads: Iterable[Quad]) -> Iterator[ox.Quad]:
        for quad in quads:
            graph = self._graph(quad.graph)
            predicate = self._predicate(quad.predicate)
            made = ox.Quad(self._subject(quad.subject), predicate, self._object(quad.object), graph)
            yield from (ox.Quad(label, RDF_REIFIES, triple, graph) for label, triple in self._reified)
            self._reified.clear()
            yield made

    def _graph(self, graph: str) -> ox.NamedNode | ox.BlankNode | ox.DefaultGraph:
        if graph.startswith(BLANK_PREFIX):
            return ox.BlankNode(graph.removeprefix(BLANK_PREFIX))
        return self._iri(graph) if graph else ox.DefaultGraph()

    def _predicate(self, term: Term) -> ox.NamedNode:
        assert isinstance(term, Iri), "a predicate is an IRI"
        return self._iri(term.value)

    def _subject(self, term: Term) -> Subject:
        made = self._object(term)
        if isinstance(made, ox.Triple):
            label = ox.BlankNode("q" + hashlib.sha256(encoded_term(term)).hexdigest()[:32])
            self._reified.append((label, made))
            return label
        assert not isinstance(made, ox.Literal), "a literal is no subject"
        return made

    def _object(self, term: Term) -> Object:
        match term:
            case Iri(value):
                return self._iri(value)
            case Blank(label):
                return ox.BlankNode(label)
            case Literal(value, _, language) if language:
                return _tagged(value, language)
            case Literal(value, datatype, _):
                return ox.Literal(value, datatype=self._iri(datatype)) if datatype else ox.Literal(value)
            case Quoted(subject, predicate, object_):
                return ox.Triple(self._subject(subject), self._predicate(predicate), self._object(object_))


def _named(iri: str) -> ox.NamedNode:
    """Of an IRI that we take: the library takes fewer, but for its parser, where that is told not to look."""
    try:
        return ox.NamedNode(iri)
    except ValueError:
        made = _parsed(f"<{iri}>")
        assert isinstance(made, ox.NamedNode)
        return made


def _tagged(value: str, language: str) -> ox.Literal:
    """Likewise."""
    try:
        return ox.Literal(value, language=language)
    except ValueError:
        made = _parsed(f"{ox.Literal(value)}@{language}")
        assert isinstance(made, ox.Literal)
        return made


def _parsed(term: str) -> object:
    (quad,) = ox.parse(f"<a:s> <a:p> {term} .", ox.RdfFormat.N_QUADS, lenient=True)
    return quad.object


HARMLESS_MAX: Final = 100
"""Triple terms in a whole file, whatever their depth: most files have none, and need no closer look."""
_OPENING, _CLOSING = b"<<(", b")>>"
_LONGEST: Final = 3
"""Bytes of the longest token that counts."""

_PLAIN: Final = re.compile(rb"\\.|<<\(|\)>>|<<|<|\"\"\"|'''|\"|'|#", re.DOTALL)
_ENDS: Final[Mapping[bytes, re.Pattern[bytes]]] = {
    b"<": re.compile(rb">"),
    b"#": re.compile(rb"[\r\n]"),
    b'"': re.compile(rb'\\.|"', re.DOTALL),
    b"'": re.compile(rb"\\.|'", re.DOTALL),
    b'"""': re.compile(rb'\\.|"""', re.DOTALL),
    b"'''": re.compile(rb"\\.|'''", re.DOTALL),
}
"""What ends each thing that triple terms are not looked for in."""


def is_too_deep(pieces: Iterable[bytes], depth_max: int) -> bool:
    """Whether triple terms are nested deeper than this, in a file that is given in pieces."""
    scan = _Scan()
    return any(scan.take(piece) > depth_max for piece in pieces) or scan.finish() > depth_max


def count_openings(pieces: Iterable[bytes]) -> int:
    """How many triple terms a file may have: what looks like the beginning of one, wherever it stands."""
    count, tail = 0, b""
    for piece in pieces:
        joined = tail + piece
        count += joined.count(_OPENING)
        tail = joined[-(len(_OPENING) - 1) :]
    return count


class _Scan:
    def __init__(self) -> None:
        self._within: bytes | None = None
        """What began and has not ended: a text, an IRI or a comment."""
        self._depth = 0
        self._deepest = 0
        self._rest = b""

    def take(self, piece: bytes) -> int:
        """The greatest depth so far."""
        return self._scan(self._rest + piece, keep=_LONGEST - 1)

    def finish(self) -> int:
        return self._scan(self._rest, keep=0)

    def _scan(self, data: bytes, keep: int) -> int:
        """All but the last bytes, which may be the beginning of a token."""
        at, end = 0, len(data) - keep
        while at < end and (found := self._pattern.search(data, at)) is not None and found.start() < end:
            at = found.end()
            self._see(found.group())
        self._rest = data[max(at, end) :] if end > 0 else data
        return self._deepest

    @property
    def _pattern(self) -> re.Pattern[bytes]:
        return _PLAIN if self._within is None else _ENDS[self._within]

    def _see(self, token: bytes) -> None:
        if token.startswith(b"\\"):
            return
        if self._within is not None:
            self._within = None
        elif token in _ENDS:
            self._within = token
        elif token == _OPENING:
            self._depth += 1
            self._deepest = max(self._deepest, self._depth)
        elif token == _CLOSING:
            self._depth = max(self._depth - 1, 0)


_KNOWN_CHARACTERS_MAX: Final = 500
"""IRIs that are at hand, checked."""
_RELATIVE: Final = "No scheme found"
"""What the parser says of a relative IRI."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class QuadFile:
    """A file as it was sent, with what says how to read it."""

    pieces: Callable[[], Iterable[bytes]]
    """Its content, as often as it is asked for."""
    format: QuadFormat
    graph: str = ""
    """Of what has none."""
    base_iri: str = ""
    blank_salt: bytes = b""
    """Blank nodes get new labels, made of it and their own; none: they keep theirs."""

    def quads(self) -> Iterator[Quad]:
        """Raises `BadInput`: UNPARSABLE with the line, or INVALID_QUAD."""
        self._check_depth()
        terms = _Terms(self)
        for number, one in enumerate(self._parsed(), 1):
            yield terms.quad(one, number)

    def _check_depth(self) -> None:
        if count_openings(self.pieces()) > HARMLESS_MAX and is_too_deep(self.pieces(), QUOTED_DEPTH_MAX):
            raise _too_deep("the file")

    def _parsed(self) -> Iterator[ox.Quad]:
        content = io.BufferedReader(_Reading(self.pieces()))
        try:
            yield from ox.parse(content, RDF_FORMATS[self.format], base_iri=self.base_iri or None)
        except SyntaxError as error:
            raise self._unparsable(error) from error
        except MemoryError as error:  # how the parser says that it met no end within its buffer
            raise BadInput(Reason.UNPARSABLE, "a statement has over 16 MiB", cause="too long") from error
        except ValueError as error:
            raise BadInput(Reason.INVALID_ARGUMENT, "base_iri is not an absolute IRI", field="base_iri") from error

    def _unparsable(self, error: SyntaxError) -> BadInput:
        """Says the place, not what stands there."""
        line, column = error.lineno, error.offset
        message = f"this is no {self.format.value} from line {line}, column {column} on"
        if _RELATIVE in error.msg:
            message += ": an IRI is relative" + ("; give a base_iri" if self.format is QuadFormat.TURTLE else "")
        return BadInput(Reason.UNPARSABLE, message, cause="syntax", line=str(line), column=str(column))


class _Terms:
    """The parser's terms as ours."""

    def __init__(self, file: QuadFile) -> None:
        self._graph = file.graph
        self._salt = file.blank_salt
        self._known: Callable[[str], Iri] = lru_cache(_KNOWN_MAX)(_checked)

    def quad(self, parsed: ox.Quad, number: int) -> Quad:
        quad = Quad(
            self._term(parsed.subject), self._term(parsed.predicate), self._term(parsed.object), self._graph_of(parsed)
        )
        if not (isinstance(quad.subject, Iri) and isinstance(quad.object, Iri)):  # those were checked as they came
            check_quad(quad, f"quad {number}")
        return quad

    def _term(self, term: ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple, depth: int = 0) -> Term:
        if isinstance(term, ox.NamedNode):
            return self._iri(term.value)
        if isinstance(term, ox.Literal):
            return _literal(term)
        if isinstance(term, ox.BlankNode):
            return Blank(self._label(term.value))
        if depth >= QUOTED_DEPTH_MAX:
            raise _too_deep("a quad")
        return Quoted(
            self._term(term.subject, depth + 1),
            self._term(term.predicate, depth + 1),
            self._term(term.object, depth + 1),
        )

    def _iri(self, value: str) -> Iri:
        return self._known(value) if len(value) <= _KNOWN_CHARACTERS_MAX else _checked(value)

    def _label(self, label: str) -> str:
        if not self._salt:
            return label
        return "b" + hashlib.blake2b(label.encode(), key=self._salt, digest_size=16).hexdigest()

    def _graph_of(self, parsed: ox.Quad) -> str:
        named = parsed.graph_name
        if isinstance(named, ox.DefaultGraph):
            return self._graph
        return self._iri(named.value).value if isinstance(named, ox.NamedNode) else self._blank_graph(named)

    def _blank_graph(self, named: ox.BlankNode) -> str:
        blank = Blank(self._label(named.value))
        check_term(blank, "graph")
        return BLANK_PREFIX + blank.label


class _Reading(io.RawIOBase):
    """Pieces as a file, without the mark that some editors put before UTF-8."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._held = next(self._pieces, b"").removeprefix(_BYTE_ORDER_MARK)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._held:
            self._held = next(self._pieces, b"")
        view = memoryview(buffer).cast("B")
        size = min(len(view), len(self._held))
        view[:size] = self._held[:size]
        self._held = self._held[size:]
        return size


def _checked(value: str) -> Iri:
    iri = Iri(value)
    check_term(iri, "an IRI")
    return iri


def _literal(term: ox.Literal) -> Literal:
    if term.direction is not None:
        raise BadInput(Reason.INVALID_QUAD, "literals with a base direction cannot be stored")
    return literal(term.value, term.datatype.value, term.language or "")


def _too_deep(what: str) -> BadInput:
    return BadInput(Reason.INVALID_QUAD, f"{what} has more than {QUOTED_DEPTH_MAX} quoted triples in each other")
