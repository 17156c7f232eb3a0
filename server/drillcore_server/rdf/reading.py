"""Files of quads, read."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyoxigraph as ox

from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.quads import (
    BLANK_PREFIX,
    QUOTED_DEPTH_MAX,
    Blank,
    Iri,
    Literal,
    Quad,
    Quoted,
    Term,
    check_quad,
    check_term,
    literal,
)
from drillcore_server.rdf.depth import HARMLESS_MAX, count_openings, is_too_deep
from drillcore_server.rdf.formats import RDF_FORMATS, QuadFormat

_KNOWN_MAX: Final = 10_000
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
