"""Reads and writes files of quads with pyoxigraph.

Writing: RDF 1.2 allows triple terms only as objects. A quoted triple that is a subject is written as a blank node, with
a quad that states the triple: `_:label rdf:reifies <<( subject predicate object )>>`. The label is a hash of the
triple.

Reading: the parser follows nested triple terms by recursion in native code, without a limit. A file that nests some ten
thousand of them would end the process. So the depth of a file is found before it is parsed, by a scan that reads just
enough of N-Quads and Turtle to recognise texts, IRIs and comments. Where the scan and the parser disagree, the file is
not RDF.
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
    """Turtle has no named graphs."""


RDF_FORMATS: Final[Mapping[QuadFormat, RdfFormat]] = {
    QuadFormat.N_QUADS: RdfFormat.N_QUADS,
    QuadFormat.TURTLE: RdfFormat.TURTLE,
}


RDF_REIFIES: Final = ox.NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#reifies")
_KNOWN_MAX: Final = 10_000
"""IRIs that are cached."""

Subject = ox.NamedNode | ox.BlankNode
Object = ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple


def write_quads(quads: Iterable[Quad], output: object, form: QuadFormat) -> None:
    """Writes the quads to `output`, which needs `write` and `flush`. Turtle leaves out the graphs of quads."""
    written = _ParserTerms().quads(quads)
    stream = cast("IO[bytes]", output)
    if form is QuadFormat.TURTLE:
        ox.serialize((quad.triple for quad in written), stream, RDF_FORMATS[form])
    else:
        ox.serialize(written, stream, RDF_FORMATS[form])


class _ParserTerms:
    """Converts our quads to those of pyoxigraph."""

    def __init__(self) -> None:
        self._iri: Callable[[str], ox.NamedNode] = lru_cache(_KNOWN_MAX)(_named)
        self._reified: list[tuple[ox.BlankNode, ox.Triple]] = []
        """Quoted subjects of the current quad whose `rdf:reifies` quads are still to be written."""

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
    """Makes the node of an IRI. The constructor refuses some IRIs that we accept; the lenient parser does not."""
    try:
        return ox.NamedNode(iri)
    except ValueError:
        made = _parsed(f"<{iri}>")
        assert isinstance(made, ox.NamedNode)
        return made


def _tagged(value: str, language: str) -> ox.Literal:
    """Makes a literal with a language. The constructor refuses some languages that the lenient parser accepts."""
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
"""Triple terms in a whole file up to which its depth is not checked. Most files have none."""
_OPENING, _CLOSING = b"<<(", b")>>"
_LONGEST: Final = 3
"""Bytes of the longest token that the scan recognises."""

_PLAIN: Final = re.compile(rb"\\.|<<\(|\)>>|<<|<|\"\"\"|'''|\"|'|#", re.DOTALL)
_ENDS: Final[Mapping[bytes, re.Pattern[bytes]]] = {
    b"<": re.compile(rb">"),
    b"#": re.compile(rb"[\r\n]"),
    b'"': re.compile(rb'\\.|"', re.DOTALL),
    b"'": re.compile(rb"\\.|'", re.DOTALL),
    b'"""': re.compile(rb'\\.|"""', re.DOTALL),
    b"'''": re.compile(rb"\\.|'''", re.DOTALL),
}
"""How IRIs, comments and texts end. Their content may look like a triple term."""


def is_too_deep(pieces: Iterable[bytes], depth_max: int) -> bool:
    """Whether triple terms of a file, which is given in pieces, are nested deeper than `depth_max`."""
    scan = _Scan()
    return any(scan.take(piece) > depth_max for piece in pieces) or scan.finish() > depth_max


def count_openings(pieces: Iterable[bytes]) -> int:
    """The most triple terms that a file can have. Counts every opening token, also in texts and comments."""
    count, tail = 0, b""
    for piece in pieces:
        joined = tail + piece
        count += joined.count(_OPENING)
        tail = joined[-(len(_OPENING) - 1) :]
    return count


class _Scan:
    """Finds the greatest depth of triple terms in a file that arrives in pieces."""

    def __init__(self) -> None:
        self._within: bytes | None = None
        """The token that opened the text, IRI or comment at the current position; None outside."""
        self._depth = 0
        self._deepest = 0
        self._rest = b""

    def take(self, piece: bytes) -> int:
        """The greatest depth so far."""
        return self._scan(self._rest + piece, keep=_LONGEST - 1)

    def finish(self) -> int:
        return self._scan(self._rest, keep=0)

    def _scan(self, data: bytes, keep: int) -> int:
        """Scans all but the last `keep` bytes, which may be the beginning of a token."""
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
"""IRIs up to this length are cached once they are checked."""
_RELATIVE: Final = "No scheme found"
"""Part of the parser's message about a relative IRI."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class QuadFile:
    """A file of quads, with the options for reading it."""

    pieces: Callable[[], Iterable[bytes]]
    """Returns the content from the beginning. May be called several times."""
    format: QuadFormat
    graph: str = ""
    """Graph of the quads that have none in the file."""
    base_iri: str = ""
    blank_salt: bytes = b""
    """If given, blank nodes get new labels: hashes of the salt and the old label. Empty: they keep their labels."""

    def quads(self) -> Iterator[Quad]:
        """All quads of the file. Raises `BadInput`: UNPARSABLE with the line, or INVALID_QUAD."""
        self._check_depth()
        terms = _OwnTerms(self)
        for number, parsed in enumerate(self._parsed(), 1):
            yield terms.quad(parsed, number)

    def _check_depth(self) -> None:
        if count_openings(self.pieces()) > HARMLESS_MAX and is_too_deep(self.pieces(), QUOTED_DEPTH_MAX):
            raise _too_deep("the file")

    def _parsed(self) -> Iterator[ox.Quad]:
        content = io.BufferedReader(_PieceReader(self.pieces()))
        try:
            yield from ox.parse(content, RDF_FORMATS[self.format], base_iri=self.base_iri or None)
        except SyntaxError as error:
            raise self._unparsable(error) from error
        except MemoryError as error:  # the parser raises this if a statement does not fit into its buffer
            raise BadInput(Reason.UNPARSABLE, "a statement has over 16 MiB", cause="too long") from error
        except ValueError as error:
            raise BadInput(Reason.INVALID_ARGUMENT, "base_iri must be an absolute IRI", field="base_iri") from error

    def _unparsable(self, error: SyntaxError) -> BadInput:
        """Names the place but never the content, which may be confidential."""
        line, column = error.lineno, error.offset
        message = f"the file is not valid {self.format.value} at line {line}, column {column}"
        if _RELATIVE in error.msg:
            message += ": an IRI is relative" + ("; set base_iri" if self.format is QuadFormat.TURTLE else "")
        return BadInput(Reason.UNPARSABLE, message, cause="syntax", line=str(line), column=str(column))


class _OwnTerms:
    """Converts quads of pyoxigraph to ours, and checks them."""

    def __init__(self, file: QuadFile) -> None:
        self._graph = file.graph
        self._salt = file.blank_salt
        self._known: Callable[[str], Iri] = lru_cache(_KNOWN_MAX)(_checked)

    def quad(self, parsed: ox.Quad, number: int) -> Quad:
        quad = Quad(
            self._term(parsed.subject), self._term(parsed.predicate), self._term(parsed.object), self._graph_of(parsed)
        )
        if not (isinstance(quad.subject, Iri) and isinstance(quad.object, Iri)):  # IRIs were checked one by one
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


class _PieceReader(io.RawIOBase):
    """Pieces as a file, without the byte order mark that some editors put before UTF-8."""

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
    return BadInput(Reason.INVALID_QUAD, f"{what} nests quoted triples more than {QUOTED_DEPTH_MAX} levels deep")
