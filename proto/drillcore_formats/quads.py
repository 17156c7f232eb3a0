"""Quads: subject, predicate, object and named graph of RDF 1.2, and how N-Quads writes them.

    Term ─┬─ Iri       <http://example.org/a>
          ├─ Blank     _:b
          ├─ Literal   "text"   "text"@en   "1"^^<http://…#integer>
          └─ Quoted    <<( _:s <urn:p> "o" )>>      a triple that is mentioned, not stated

Text is read strictly: whatever is not exactly N-Quads is refused, with its position. Quoted triples may also be
subjects. N-Quads has no form for that, so they are written the same way as objects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NoReturn

__all__ = [
    "Blank",
    "Iri",
    "Literal",
    "Quad",
    "QuadPattern",
    "Quoted",
    "Term",
    "parse_graph",
    "parse_quad",
    "parse_term",
    "quad_text",
    "term_text",
]

QUOTED_DEPTH_MAX: Final = 8
"""How deep quoted triples may be nested. The server has the same limit."""
XSD_STRING: Final = "http://www.w3.org/2001/XMLSchema#string"

_SPACE: Final = re.compile(r"[ \t]*")
_IRI: Final = re.compile(r'<((?:[^\x00-\x20<>"{}|^`\\]|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8})*)>')
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_BLANK: Final = re.compile(r"_:(\w[\w.\-]*(?<!\.))")
_STRING: Final = re.compile(r'"((?:[^"\\\n\r]|\\[tbnrf"\'\\]|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8})*)"')
_LANGUAGE: Final = re.compile(r"@([A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*)")
_OPEN, _CLOSE, _TYPED, _END = "<<(", ")>>", "^^", "."
_ESCAPED: Final = re.compile(r"\\(?:([tbnrf\"'\\])|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8}))")
_BY_LETTER: Final = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f"}
_TO_ESCAPE: Final = re.compile(r'[\x00-\x1f"\\\x7f]')
_BY_CHARACTER: Final = {
    **{character: f"\\{letter}" for letter, character in _BY_LETTER.items()},
    '"': '\\"',
    "\\": "\\\\",
}


@dataclass(frozen=True, slots=True)
class Iri:
    value: str
    """An absolute IRI."""


@dataclass(frozen=True, slots=True)
class Blank:
    """A blank node. Within a corpus, equal labels are the same node."""

    label: str


@dataclass(frozen=True, slots=True)
class Literal:
    value: str
    datatype: str = ""
    """An IRI. Empty for xsd:string and for literals with a language."""
    language: str = ""
    """A language tag of BCP 47."""


@dataclass(frozen=True, slots=True)
class Quoted:
    """A triple that is mentioned, not stated."""

    subject: Term
    predicate: Term
    object: Term


Term = Iri | Blank | Literal | Quoted


@dataclass(frozen=True, slots=True)
class Quad:
    subject: Term
    predicate: Term
    object: Term
    graph: str = ""
    """An IRI, or `_:` and a blank node's label; empty for the default graph."""


@dataclass(frozen=True, slots=True)
class QuadPattern:
    """Matches quads. A field that is None matches everything."""

    subject: Term | None = None
    predicate: Term | None = None
    object: Term | None = None
    graph: str | None = None
    """Empty: only the default graph."""
    source_id: str = ""
    """Only quads that were put with this source. Empty: quads with any source or none."""


def parse_term(text: str) -> Term:
    """Raises ValueError with the position where the text stops being a term."""
    reader = _Reader(text)
    term = reader.term()
    reader.end()
    return term


def parse_graph(text: str) -> str:
    """The name of a graph, from a term. Raises ValueError unless it is an IRI or a blank node."""
    return _graph(parse_term(text))


def parse_quad(text: str) -> Quad:
    """Reads one line. The full stop at its end is optional. Raises ValueError with the position and the reason."""
    reader = _Reader(text)
    subject, predicate, object_ = reader.triple()
    graph = "" if reader.at(_END) or reader.is_at_end() else _graph(reader.term())
    reader.skip(_END)
    reader.end()
    return Quad(subject, predicate, object_, graph)


def term_text(term: Term) -> str:
    match term:
        case Iri(value):
            return f"<{value}>"
        case Blank(label):
            return f"_:{label}"
        case Quoted(subject, predicate, object_):
            return f"{_OPEN} {term_text(subject)} {term_text(predicate)} {term_text(object_)} {_CLOSE}"
        case Literal(value, datatype, language):
            suffix = f"@{language}" if language else f"{_TYPED}<{datatype}>" if datatype else ""
            return f'"{_TO_ESCAPE.sub(_escaped, value)}"{suffix}'


def quad_text(quad: Quad) -> str:
    """One line, without the line end."""
    graph = f" {quad.graph if quad.graph.startswith('_:') else f'<{quad.graph}>'}" if quad.graph else ""
    return f"{term_text(quad.subject)} {term_text(quad.predicate)} {term_text(quad.object)}{graph} {_END}"


class _Reader:
    """Reads terms from a text, one after the other."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0
        self._skip_space()

    def triple(self, depth: int = 0) -> tuple[Term, Term, Term]:
        subject = self.term(depth)
        if isinstance(subject, Literal):
            self._refuse("a subject must not be a literal")
        predicate = self.term(depth)
        if not isinstance(predicate, Iri):
            self._refuse("a predicate must be an IRI")
        return subject, predicate, self.term(depth)

    def term(self, depth: int = 0) -> Term:
        if self.at(_OPEN):
            return self._quoted(depth + 1)
        if self.at("<"):
            return Iri(self._iri())
        if self.at("_"):
            return Blank(self._taken(_BLANK, "a blank node is written as _:label"))
        if self.at('"'):
            return self._literal()
        return self._refuse('a term is written as <iri>, _:label, "text" or <<( s p o )>>')

    def at(self, sign: str) -> bool:
        return self._text.startswith(sign, self._place)

    def skip(self, sign: str) -> bool:
        """Moves behind the sign if it comes next. Returns whether it did."""
        found = self.at(sign)
        if found:
            self._place += len(sign)
            self._skip_space()
        return found

    def is_at_end(self) -> bool:
        return self._place == len(self._text)

    def end(self) -> None:
        if not self.is_at_end():
            self._refuse("nothing may follow here")

    def _quoted(self, depth: int) -> Quoted:
        if depth > QUOTED_DEPTH_MAX:
            self._refuse(f"quoted triples are nested more than {QUOTED_DEPTH_MAX} deep")
        self.skip(_OPEN)
        quoted = Quoted(*self.triple(depth))
        if not self.skip(_CLOSE):
            self._refuse("a quoted triple ends with )>>")
        return quoted

    def _iri(self) -> str:
        begin = self._place
        value = self._unescaped(self._taken(_IRI, 'an IRI must not contain spaces or any of <>"{}|^`\\'))
        if not _SCHEME.match(value):
            self._place = begin
            self._refuse("an IRI must be absolute, like <http://example.org/a> or <urn:a>")
        return value

    def _literal(self) -> Literal:
        value = self._unescaped(
            self._taken(_STRING, 'a text must end with ", and write line ends as \\n', spaced=False)
        )
        datatype = language = ""
        if self.at("@"):
            language = self._taken(_LANGUAGE, "a language is written as @en or @en-GB", spaced=False)
        elif self.at(_TYPED):
            self._place += len(_TYPED)
            datatype = self._iri()
        self._skip_space()
        return Literal(value, "" if datatype == XSD_STRING else datatype, language)

    def _taken(self, kind: re.Pattern[str], otherwise: str, *, spaced: bool = True) -> str:
        found = kind.match(self._text, self._place)
        if found is None:
            self._refuse(otherwise)
        self._place = found.end()
        if spaced:
            self._skip_space()
        return found[1]

    def _unescaped(self, text: str) -> str:
        try:
            return _ESCAPED.sub(_character, text)
        except ValueError as error:
            self._refuse(str(error))

    def _skip_space(self) -> None:
        found = _SPACE.match(self._text, self._place)
        self._place = found.end() if found else self._place

    def _refuse(self, why: str) -> NoReturn:
        raise ValueError(f"at character {self._place + 1}: {why}")


def _graph(term: Term) -> str:
    match term:
        case Iri(value):
            return value
        case Blank(label):
            return f"_:{label}"
        case _:
            raise ValueError("a graph must be named by an IRI or a blank node")


def _character(escaped: re.Match[str]) -> str:
    letter, short, long = escaped.groups()
    if letter:
        return _BY_LETTER.get(letter, letter)
    number = int(short or long, 16)
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        raise ValueError(f"{escaped[0]} is not a character")
    return chr(number)


def _escaped(character: re.Match[str]) -> str:
    return _BY_CHARACTER.get(character[0]) or f"\\u{ord(character[0]):04X}"
