"""Terms and triples in core files, in both dialects.

    current       {"t":"i","i":iri} {"t":"b","d":label} {"t":"l","v":value[,"dt":..][,"ln":..]} {"t":"t","tr":triple}
    TrustGraph 1  {"v":value,"e":whether it is an IRI}

In memory, both become the same plain tuples.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from drillcore_formats.cores.format import QUOTED_DEPTH_MAX, InvalidTerm, WrongShape

PlainTerm = tuple[Any, ...]
"""("i", iri), ("b", label), ("l", value, datatype, language) or ("t", subject, predicate, object)."""

_TEXT_KEYS: Final = {"i": ("i",), "b": ("d",), "l": ("v", "dt", "ln")}


class Triple(NamedTuple):
    subject: PlainTerm
    predicate: PlainTerm
    object: PlainTerm
    graph: str
    """Empty for the default graph."""


def read_triple(item: object) -> Triple:
    """Raises `WrongShape` if the structure is wrong, `InvalidTerm` if a part is missing or of an unknown kind.

    Does not check whether IRIs, labels and languages are well-formed.
    """
    if not isinstance(item, dict):
        raise WrongShape("a triple is not a map")
    graph = item.get("g")
    if graph is not None and not isinstance(graph, str):
        raise WrongShape("the graph of a triple is not a text")
    return Triple(*_three(item, 0), graph or "")


def read_term(item: object, depth: int = 0) -> PlainTerm:
    """Raises the same errors as `read_triple`."""
    if not isinstance(item, dict):
        raise WrongShape("a term is not a map")
    kind = item.get("t")
    if kind is None and "v" in item:
        return _old_term(item)
    if isinstance(kind, str) and kind in _TEXT_KEYS:
        return (kind, *(_text(item.get(key, "")) for key in _TEXT_KEYS[kind]))
    if kind == "t":
        return _quoted(item.get("tr"), depth)
    raise InvalidTerm("a term is neither an IRI, a blank node, a literal nor a triple")


def write_term(term: PlainTerm) -> dict[str, Any]:
    """Writes the current dialect."""
    match term:
        case ("i", iri):
            return {"t": "i", "i": iri}
        case ("b", label):
            return {"t": "b", "d": label}
        case ("l", value, datatype, language):
            return _written_literal(value, datatype, language)
        case ("t", subject, predicate, object_):
            return {"t": "t", "tr": write_triple(Triple(subject, predicate, object_, ""))}
        case _:
            raise ValueError("this tuple is not a term")


def write_triple(triple: Triple) -> dict[str, Any]:
    """Writes the current dialect."""
    written: dict[str, Any] = {
        "s": write_term(triple.subject),
        "p": write_term(triple.predicate),
        "o": write_term(triple.object),
    }
    if triple.graph:
        written["g"] = triple.graph
    return written


def _three(item: dict[str, Any], depth: int) -> tuple[PlainTerm, PlainTerm, PlainTerm]:
    subject, predicate, object_ = item.get("s"), item.get("p"), item.get("o")
    if not subject or not predicate or not object_:
        raise InvalidTerm("a triple has no subject, predicate or object")
    return read_term(subject, depth), read_term(predicate, depth), read_term(object_, depth)


def _quoted(item: object, depth: int) -> PlainTerm:
    if depth >= QUOTED_DEPTH_MAX:
        raise WrongShape(f"quoted triples are nested more than {QUOTED_DEPTH_MAX} deep")
    if not item:
        raise InvalidTerm("a quoted triple is empty")
    if not isinstance(item, dict):
        raise WrongShape("a quoted triple is not a map")
    return ("t", *_three(item, depth + 1))


def _old_term(item: dict[str, Any]) -> PlainTerm:
    value, is_iri = _text(item["v"]), item.get("e", False)
    if not isinstance(is_iri, bool):
        raise WrongShape("a term does not say whether it is an IRI")
    return ("i", value) if is_iri else ("l", value, "", "")


def _text(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise WrongShape("a part of a term is not a text")
    return value


def _written_literal(value: str, datatype: str, language: str) -> dict[str, Any]:
    written = {"t": "l", "v": value}
    if datatype:
        written["dt"] = datatype
    if language:
        written["ln"] = language
    return written
