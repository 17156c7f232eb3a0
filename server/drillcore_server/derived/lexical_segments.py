"""Facts and their words as arrays, never changed once they are made: a lexical index has one or several of these.

A fact has a label, its place in the order of ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drillcore_server.domain.ids import FactId
from drillcore_server.store.fact_words import HEAD, NO_NODE, NO_PASSAGE, PAIR, PARTS, WORD

Labels = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Terms = npt.NDArray[np.uint32]
Records = npt.NDArray[np.void]
"""With fields."""
Ids = npt.NDArray[np.bytes_]
"""16 bytes each."""
FACT: Final = np.dtype(
    [("id", "S16"), ("passage", "<i4"), ("chunk", "<i4"), ("document", "<i4"), *((part, "<u2") for part in PARTS)]
)
"""The numbers of its places, and how many words each part has."""
COUNTS: Final = np.dtype([("label", "<i4"), *((part, "u1") for part in PARTS)])
"""Of a word in a fact: how often each part has it."""
THERE: Final = np.dtype([("label", "<i4")])
"""Of a pair in a fact."""


class Places:
    """Numbers for passages, chunks or documents. Only added to, by one thread at a time: many may share it."""

    def __init__(self, names: Iterable[bytes] = ()) -> None:
        self._names = list(names)
        self._numbers = {one: number for number, one in enumerate(self._names)}

    def __len__(self) -> int:
        return len(self._names)

    def numbers(self, names: Iterable[bytes]) -> npt.NDArray[np.int32]:
        """New ones for those that have none."""
        return np.fromiter(map(self._number, names), np.int32)

    def _number(self, name: bytes) -> int:
        number = self._numbers.setdefault(name, len(self._names))
        if number == len(self._names):
            self._names.append(name)
        return number

    def known(self, names: Iterable[bytes]) -> Labels:
        """Of those that have one."""
        return np.array([self._numbers[one] for one in names if one in self._numbers], np.int64)

    def names(self, numbers: Labels) -> list[bytes]:
        return [self._names[number] for number in numbers.tolist()]

    def among(self, numbers: npt.NDArray[np.int32]) -> tuple[Places, npt.NDArray[np.int32]]:
        """Those that have one of the numbers, with new ones; and the new number of each."""
        used = np.zeros(len(self), np.bool_)
        used[numbers] = True
        left = (self._names[number] for number in np.flatnonzero(used).tolist())
        return Places(left), np.cumsum(used, dtype=np.int32) - 1


@dataclass(frozen=True, slots=True)
class Gazetteer:
    """The places that facts are in. One without a place has one of its own."""

    passage: Places
    chunk: Places
    document: Places

    @classmethod
    def empty(cls) -> Gazetteer:
        return cls(Places(), Places(), Places())

    def located(self, ids: Sequence[bytes], heads: Records) -> Records:
        """Facts, given by what their records begin with."""
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

    def among(self, facts: Records) -> tuple[Gazetteer, dict[str, npt.NDArray[np.int32]]]:
        """The places of some facts alone, and the new number of each."""
        passage, passages = self.passage.among(facts["passage"])
        chunk, chunks = self.chunk.among(facts["chunk"])
        document, documents = self.document.among(facts["document"])
        return Gazetteer(passage, chunk, document), {"passage": passages, "chunk": chunks, "document": documents}


def _nodes(nodes: Records) -> list[bytes]:
    joined = nodes.tobytes()
    return [joined[start : start + 16] for start in range(0, len(joined), 16)]


def _own(fact: bytes, node: bytes) -> bytes:
    return fact if node == NO_NODE else node


def _passage(fact: bytes, chunk: bytes, place: int) -> bytes:
    return fact if chunk == NO_NODE or place == NO_PASSAGE else chunk + place.to_bytes(2, "big")


@dataclass(frozen=True, slots=True)
class Postings:
    """Where terms are: in the order of terms, then of labels."""

    terms: Terms
    """Each once."""
    starts: Labels
    """Of the postings of each term, and where those of the last one end."""
    found: Records
    """Each with the label of a fact."""

    @classmethod
    def of(cls, terms: Terms, found: Records) -> Postings:
        keys = terms.astype(np.uint64) << np.uint64(32) | found["label"].astype(np.uint64)
        order = np.argsort(keys, kind="stable")
        ordered = terms[order]
        starts = run_starts(ordered)
        return cls(ordered[starts], np.append(starts, len(terms)), found[order])

    @classmethod
    def joined(cls, some: Sequence[Postings], labels: Sequence[npt.NDArray[np.int32]]) -> Postings:
        """Of several, each fact by its new label."""
        found = np.concatenate([one.found for one in some])
        sizes = np.cumsum([len(one.found) for one in some])[:-1]
        for one, fresh in zip(np.split(found, sizes), labels, strict=True):
            one["label"] = fresh[one["label"]]
        return cls.of(np.concatenate([one.every_term() for one in some]), found)

    def kept(self, mask: Mask, labels: npt.NDArray[np.int32]) -> Postings:
        """Those of the facts that are meant, each fact by its new label."""
        there = mask[self.found["label"]]
        found = self.found[there]
        found["label"] = labels[found["label"]]
        return Postings.of(self.every_term()[there], found)

    def every_term(self) -> Terms:
        return np.repeat(self.terms, np.diff(self.starts))

    def of_terms(self, terms: Terms) -> tuple[Labels, Records]:
        """The place of a term among those asked for, and where it is; in the order of places, then of labels."""
        slices = self._slices(terms)
        places = np.repeat(np.arange(len(slices)), [one.stop - one.start for one in slices])
        return places, np.concatenate([self.found[:0], *(self.found[one] for one in slices)])

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
    def of(cls, records: Mapping[FactId, bytes], places: Gazetteer) -> Segment:
        """Of facts with their words as they are stored."""
        ordered = sorted((fact.bytes, words) for fact, words in records.items())
        ids = [fact for fact, _ in ordered]
        heads = np.frombuffer(b"".join(words[: HEAD.itemsize] for _, words in ordered), HEAD)
        ends = (HEAD.itemsize + heads["words"].astype(np.int64) * WORD.itemsize).tolist()
        words = [one[HEAD.itemsize : end] for (_, one), end in zip(ordered, ends, strict=True)]
        pairs = [one[end:] for (_, one), end in zip(ordered, ends, strict=True)]
        return cls(places.located(ids, heads), _words(words), _pairs(pairs))

    @classmethod
    def joined(cls, parts: Sequence[tuple[Segment, Mask]]) -> Segment:
        """Those facts of several that are meant."""
        some = [one.kept(mask) for one, mask in parts]
        facts = np.concatenate([one.facts for one in some])
        order = np.argsort(facts["id"], kind="stable")
        ranks = np.empty(len(facts), np.int32)
        ranks[order] = np.arange(len(facts), dtype=np.int32)
        labels = np.split(ranks, np.cumsum([len(one) for one in some])[:-1])
        words = Postings.joined([one.words for one in some], labels)
        return cls(facts[order], words, Postings.joined([one.pairs for one in some], labels))

    def kept(self, mask: Mask) -> Segment:
        """Without the facts that are not meant: nothing of them is left."""
        if mask.all():
            return self
        labels = np.cumsum(mask, dtype=np.int32) - 1
        return Segment(self.facts[mask], self.words.kept(mask, labels), self.pairs.kept(mask, labels))

    def renumbered(self, numbers: Mapping[str, npt.NDArray[np.int32]]) -> Segment:
        """The same facts, their places by other numbers."""
        facts = self.facts.copy()
        for place, fresh in numbers.items():
            facts[place] = fresh[facts[place]]
        return Segment(facts, self.words, self.pairs)

    def labels_of(self, ids: Ids) -> Labels:
        """Of those that are here, in order."""
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
    return np.repeat(np.arange(len(stored), dtype=np.int32), [len(one) // size for one in stored])


def as_ids(facts: Iterable[FactId]) -> Ids:
    return np.array([one.bytes for one in facts], "S16")


def id_bytes(ids: Ids) -> list[bytes]:
    """All 16 of each: numpy leaves zeros at the end out."""
    joined = ids.tobytes()
    return [joined[start : start + 16] for start in range(0, len(joined), 16)]


def run_starts(ordered: npt.NDArray[Any]) -> Labels:
    """Where in an array each stretch of equal values begins."""
    is_first = np.ones(len(ordered), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return np.flatnonzero(is_first)
