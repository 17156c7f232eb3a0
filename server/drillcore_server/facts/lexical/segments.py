"""Facts and their words as arrays that never change. A lexical index has one or more of these segments.

The label of a fact is its place in the order of ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drillcore_server.facts.words import HEAD, NO_NODE, NO_PASSAGE, PAIR, PARTS, WORD
from drillcore_server.storage.ids import FactId

Labels = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Terms = npt.NDArray[np.uint32]
Records = npt.NDArray[np.void]
"""Arrays with fields."""
Ids = npt.NDArray[np.bytes_]
"""16 bytes each."""
FACT: Final = np.dtype(
    [("id", "S16"), ("passage", "<i4"), ("chunk", "<i4"), ("document", "<i4"), *((part, "<u2") for part in PARTS)]
)
"""The numbers of a fact's places, and how many words each part has."""
COUNTS: Final = np.dtype([("label", "<i4"), *((part, "u1") for part in PARTS)])
"""How often each part of a fact has a word."""
THERE: Final = np.dtype([("label", "<i4")])
"""A pair in a fact."""


class Places:
    """Numbers passages, chunks or documents. It only grows, by one thread at a time, so many states may share it."""

    def __init__(self, names: Iterable[bytes] = ()) -> None:
        self._names = list(names)
        self._numbers = {name: number for number, name in enumerate(self._names)}

    def __len__(self) -> int:
        return len(self._names)

    def numbers(self, names: Iterable[bytes]) -> npt.NDArray[np.int32]:
        """Gives new numbers to those that have none."""
        return np.fromiter(map(self._number, names), np.int32)

    def _number(self, name: bytes) -> int:
        number = self._numbers.setdefault(name, len(self._names))
        if number == len(self._names):
            self._names.append(name)
        return number

    def known(self, names: Iterable[bytes]) -> Labels:
        """Returns the numbers of those that have one."""
        return np.array([self._numbers[name] for name in names if name in self._numbers], np.int64)

    def names(self, numbers: Labels) -> list[bytes]:
        return [self._names[number] for number in numbers.tolist()]

    def among(self, numbers: npt.NDArray[np.int32]) -> tuple[Places, npt.NDArray[np.int32]]:
        """Keeps only these numbers and renumbers them. Returns the new number of each."""
        used = np.zeros(len(self), np.bool_)
        used[numbers] = True
        left = (self._names[number] for number in np.flatnonzero(used).tolist())
        return Places(left), np.cumsum(used, dtype=np.int32) - 1


@dataclass(frozen=True, slots=True)
class PlaceNumbers:
    """The numbers of the places that contain facts. A fact without a place is a place of its own."""

    passage: Places
    chunk: Places
    document: Places

    @classmethod
    def empty(cls) -> PlaceNumbers:
        return cls(Places(), Places(), Places())

    def located(self, ids: Sequence[bytes], heads: Records) -> Records:
        """Makes facts from the beginnings of their records."""
        facts = np.zeros(len(ids), FACT)
        facts["id"] = ids
        for part in PARTS:
            facts[part] = heads[part]
        chunks, documents = _nodes(heads["chunk"]), _nodes(heads["document"])
        passages = heads["passage"].tolist()
        facts["passage"] = self.passage.numbers(map(_passage, ids, chunks, passages))
        facts["chunk"] = self.chunk.numbers(map(_own, ids, chunks))
        facts["document"] = self.document.numbers(map(_own, ids, documents))
        return facts

    def among(self, facts: Records) -> tuple[PlaceNumbers, dict[str, npt.NDArray[np.int32]]]:
        """Keeps only the places of these facts. Returns the new number of each."""
        passage, passages = self.passage.among(facts["passage"])
        chunk, chunks = self.chunk.among(facts["chunk"])
        document, documents = self.document.among(facts["document"])
        return PlaceNumbers(passage, chunk, document), {"passage": passages, "chunk": chunks, "document": documents}


def _nodes(nodes: Records) -> list[bytes]:
    joined = nodes.tobytes()
    return [joined[start : start + 16] for start in range(0, len(joined), 16)]


def _own(fact: bytes, node: bytes) -> bytes:
    return fact if node == NO_NODE else node


def _passage(fact: bytes, chunk: bytes, place: int) -> bytes:
    return fact if chunk == NO_NODE or place == NO_PASSAGE else chunk + place.to_bytes(2, "big")


@dataclass(frozen=True, slots=True)
class Postings:
    """Where terms are, sorted by term and then by label."""

    terms: Terms
    """Each once."""
    starts: Labels
    """Where the postings of each term begin, and where those of the last one end."""
    found: Records
    """Each has the label of a fact."""

    @classmethod
    def of(cls, terms: Terms, found: Records) -> Postings:
        keys = terms.astype(np.uint64) << np.uint64(32) | found["label"].astype(np.uint64)
        order = np.argsort(keys, kind="stable")
        ordered = terms[order]
        starts = run_starts(ordered)
        return cls(ordered[starts], np.append(starts, len(terms)), found[order])

    @classmethod
    def joined(cls, some: Sequence[Postings], labels: Sequence[npt.NDArray[np.int32]]) -> Postings:
        """Merges several, giving each fact its new label."""
        found = np.concatenate([postings.found for postings in some])
        sizes = np.cumsum([len(postings.found) for postings in some])[:-1]
        for records, fresh in zip(np.split(found, sizes), labels, strict=True):
            records["label"] = fresh[records["label"]]
        return cls.of(np.concatenate([postings.every_term() for postings in some]), found)

    def kept(self, mask: Mask, labels: npt.NDArray[np.int32]) -> Postings:
        """Keeps the postings of the selected facts, giving each fact its new label."""
        there = mask[self.found["label"]]
        found = self.found[there]
        found["label"] = labels[found["label"]]
        return Postings.of(self.every_term()[there], found)

    def every_term(self) -> Terms:
        return np.repeat(self.terms, np.diff(self.starts))

    def of_terms(self, terms: Terms) -> tuple[Labels, Records]:
        """Returns the place of each term among those asked for, and where it is, sorted by place and then by label."""
        slices = self._slices(terms)
        places = np.repeat(np.arange(len(slices)), [run.stop - run.start for run in slices])
        return places, np.concatenate([self.found[:0], *(self.found[run] for run in slices)])

    def _slices(self, terms: Terms) -> list[slice]:
        if not len(self.terms):
            return [slice(0, 0)] * len(terms)
        places = np.minimum(np.searchsorted(self.terms, terms), len(self.terms) - 1)
        begins = self.starts[places]
        ends = np.where(self.terms[places] == terms, self.starts[places + 1], begins)
        return list(map(slice, begins.tolist(), ends.tolist()))


@dataclass(frozen=True, slots=True)
class Segment:
    facts: Records
    words: Postings
    pairs: Postings

    def __len__(self) -> int:
        return len(self.facts)

    @classmethod
    def of(cls, records: Mapping[FactId, bytes], places: PlaceNumbers) -> Segment:
        """Makes a segment of facts with their words as they are stored."""
        ordered = sorted((fact.bytes, words) for fact, words in records.items())
        ids = [fact for fact, _ in ordered]
        heads = np.frombuffer(b"".join(words[: HEAD.itemsize] for _, words in ordered), HEAD)
        ends = (HEAD.itemsize + heads["words"].astype(np.int64) * WORD.itemsize).tolist()
        words = [record[HEAD.itemsize : end] for (_, record), end in zip(ordered, ends, strict=True)]
        pairs = [record[end:] for (_, record), end in zip(ordered, ends, strict=True)]
        return cls(places.located(ids, heads), _words(words), _pairs(pairs))

    @classmethod
    def joined(cls, parts: Sequence[tuple[Segment, Mask]]) -> Segment:
        """Merges the selected facts of several segments."""
        some = [segment.kept(mask) for segment, mask in parts]
        facts = np.concatenate([segment.facts for segment in some])
        order = np.argsort(facts["id"], kind="stable")
        ranks = np.empty(len(facts), np.int32)
        ranks[order] = np.arange(len(facts), dtype=np.int32)
        labels = np.split(ranks, np.cumsum([len(segment) for segment in some])[:-1])
        words = Postings.joined([segment.words for segment in some], labels)
        return cls(facts[order], words, Postings.joined([segment.pairs for segment in some], labels))

    def kept(self, mask: Mask) -> Segment:
        """Keeps only the selected facts; nothing of the others is left."""
        if mask.all():
            return self
        labels = np.cumsum(mask, dtype=np.int32) - 1
        return Segment(self.facts[mask], self.words.kept(mask, labels), self.pairs.kept(mask, labels))

    def renumbered(self, numbers: Mapping[str, npt.NDArray[np.int32]]) -> Segment:
        """Returns the same facts with other numbers for their places."""
        facts = self.facts.copy()
        for place, fresh in numbers.items():
            facts[place] = fresh[facts[place]]
        return Segment(facts, self.words, self.pairs)

    def labels_of(self, ids: Ids) -> Labels:
        """Returns the sorted labels of those that are here."""
        known = self.facts["id"]
        places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
        return np.unique(places[known[places] == ids])


def _words(stored: Sequence[bytes]) -> Postings:
    words = np.frombuffer(b"".join(stored), WORD)
    found = np.empty(len(words), COUNTS)
    found["label"] = _labels(stored, WORD.itemsize)
    for part in PARTS:
        found[part] = words[part]
    return Postings.of(words["term"], found)


def _pairs(stored: Sequence[bytes]) -> Postings:
    terms = np.frombuffer(b"".join(stored), PAIR)
    found = np.empty(len(terms), THERE)
    found["label"] = _labels(stored, PAIR.itemsize)
    return Postings.of(terms, found)


def _labels(stored: Sequence[bytes], size: int) -> npt.NDArray[np.int32]:
    return np.repeat(np.arange(len(stored), dtype=np.int32), [len(entries) // size for entries in stored])


def as_ids(facts: Iterable[FactId]) -> Ids:
    return np.array([fact.bytes for fact in facts], "S16")


def id_bytes(ids: Ids) -> list[bytes]:
    """Returns all 16 bytes of each: numpy drops zeros at the end."""
    joined = ids.tobytes()
    return [joined[start : start + 16] for start in range(0, len(joined), 16)]


def run_starts(ordered: npt.NDArray[Any]) -> Labels:
    """Returns where each stretch of equal values begins."""
    is_first = np.ones(len(ordered), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return np.flatnonzero(is_first)
