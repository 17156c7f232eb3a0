"""Checks the sources, facts, communities, turns, foreign documents and signatures of a full core."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final
from uuid import UUID

from drillcore_formats.cores.format import WrongShape
from drillcore_server.communities.model import LABEL_FACTS, Community, community_id
from drillcore_server.communities.store import ID_BYTES, unpacked_members
from drillcore_server.cores.imports.full_hierarchy import HierarchyIntake
from drillcore_server.cores.imports.graph_records import VectorIntake
from drillcore_server.cores.imports.library_documents import LibraryIntake
from drillcore_server.cores.imports.record_decoder import check, decoded, fields, moment, text, uuid, whole
from drillcore_server.facts.model import TOKENS_MAX, TOKENS_MIN, Fact, FactStatus, check_duration, fact_hash
from drillcore_server.facts.store import FACT
from drillcore_server.graphs.turn_model import Edge, EdgeType, Turn, check_turns
from drillcore_server.graphs.turn_store import TURN
from drillcore_server.hierarchy.source_model import Source
from drillcore_server.hierarchy.store import SOURCE
from drillcore_server.kernel.errors import BadInput
from drillcore_server.signatures.model import Signature, Target, TargetKind
from drillcore_server.signatures.store import SIGNATURE
from drillcore_server.storage.ids import (
    SOURCE_CHARACTERS_MAX,
    CommunityId,
    CorpusId,
    DocumentId,
    FactId,
    NodeId,
    SourceId,
    TurnId,
)

TOKEN_CHARACTERS_MAX: Final = 256
"""No tokenizer has longer tokens. Within this limit, a token count is accepted as given, because tokenizers differ."""
_NO_ID = CommunityId(UUID(int=0))


def read_community(given: list[Any], corpus: CorpusId | None) -> tuple[Community, bytes]:
    """Returns a community with its packed members. Its id depends on the target corpus. Raises `WrongShape`."""
    label, keywords, size, drawn_from, made_at, members = fields("community", given, 6)
    check(isinstance(members, bytes) and len(members) % ID_BYTES == 0 and bool(members), "a community has no members")
    check(isinstance(keywords, list) and isinstance(drawn_from, list), "the keywords of a community are not a list")
    ids = unpacked_members(members)
    community = Community(
        _NO_ID if corpus is None else community_id(corpus, ids),
        text(label, "the label of a community"),
        tuple(text(keyword, "a word of a community") for keyword in keywords),
        whole(size, "the size of a community"),
        tuple(FactId(uuid(fact, "a fact")) for fact in drawn_from),
        moment(made_at, "when a community was made"),
    )
    check(community.size == len(ids), "a community counts its members wrongly")
    check(community.drawn_from == tuple(ids[:LABEL_FACTS]), "a community is not named by its first facts")
    return community, members


class FactIntake:
    """Checks sources, facts and communities."""

    def __init__(self, hierarchy: HierarchyIntake) -> None:
        self._hierarchy = hierarchy
        self._last: FactId | None = None
        self._last_source: SourceId | None = None
        self._in_communities: set[FactId] = set()
        self._counts: Counter[SourceId] = Counter()
        self._documents: dict[DocumentId, SourceId] = {}
        self.facts: dict[FactId, SourceId] = {}
        self.sources: dict[SourceId, int] = {}
        """Each source with the number of facts that its record states."""
        self.embedded = 0
        self.communities = 0

    def take_source(self, given: list[Any]) -> None:
        source = decoded(SOURCE, *fields("source", given, 1))
        check(0 < len(source.id) <= SOURCE_CHARACTERS_MAX, "a source has no id, or one that is too long")
        check(self._last_source is None or self._last_source < source.id, "sources are not sorted by id")
        check(source.version >= 0 and source.fact_count >= 0, "a source has an impossible number")
        self._last_source = source.id
        self.sources[source.id] = source.fact_count
        self._note_document(source)

    def take_fact(self, given: list[Any]) -> None:
        fact = decoded(FACT, *fields("fact", given, 1))
        check(self._last is None or self._last < fact.id, "facts are not sorted by id")
        self._last = fact.id
        _check_fact(fact)
        self._check_held(fact)
        self.facts[fact.id] = fact.source
        has_vector = fact.status is not FactStatus.DELETED
        self._counts[fact.source] += has_vector
        self.embedded += has_vector

    def take_community(self, given: list[Any]) -> None:
        _, members = read_community(given, None)
        for fact in unpacked_members(members):
            check(fact in self.facts, f"a community has the fact {fact}, which is missing")
            check(fact not in self._in_communities, f"the fact {fact} is in two communities")
            self._in_communities.add(fact)
        self.communities += 1

    def settle(self, vectors: Iterator[tuple[UUID, bytes]]) -> None:
        """Call it when all records were taken. `vectors` are those of facts, in order."""
        check(all(source in self.sources for source in self._counts), "facts refer to a source that is missing")
        stated = {source: count for source, count in self.sources.items() if count}
        check(
            stated == {source: count for source, count in self._counts.items() if count},
            "a source counts its facts wrongly",
        )
        self._check_documents()
        last: UUID | None = None
        count = 0
        for fact, _ in vectors:
            check(fact in self.facts and fact != last, f"{fact} has two vectors, or is not a fact")
            last, count = fact, count + 1
        check(count == self.embedded, "a fact that is not deleted has no vector")

    def _note_document(self, source: Source) -> None:
        hashed = None if source.document is None else self._hierarchy.hashes.get(source.document)
        check(source.content_hash == (hashed or ""), "a source has another content hash than its document")
        if source.document is not None:
            check(source.document not in self._documents, "two sources have the same document")
            self._documents[source.document] = source.id

    def _check_documents(self) -> None:
        known = self._hierarchy.documents
        check(all(document in known for document in self._documents), "a source refers to a document that is missing")
        for document, source in self._hierarchy.documents.items():
            check(self._documents.get(document) == source, f"the source of document {document} does not refer to it")

    def _check_held(self, fact: Fact) -> None:
        """Checks that an active fact lies inside its chunk, if the core has its document."""
        if fact.status is not FactStatus.ACTIVE or fact.document not in self._hierarchy.documents:
            return
        chunk = None if fact.chunk is None else self._hierarchy.chunks.get(fact.chunk)
        held = chunk is not None and chunk.document == fact.document
        if held and chunk is not None and fact.span is not None:
            held = chunk.span.start <= fact.span.start and fact.span.end <= chunk.span.end
        check(held, f"the chunk of fact {fact.id} is missing, or does not contain it")


def _check_fact(fact: Fact) -> None:
    what = f"fact {fact.id}"
    check(fact.content_hash == fact_hash(fact.content), f"{what} has the wrong content hash")
    check(TOKENS_MIN <= fact.tokens <= TOKENS_MAX, f"{what} has too few or too many tokens")
    check(len(fact.content) <= TOKEN_CHARACTERS_MAX * fact.tokens, f"{what} is too long for its tokens")
    check(0.0 <= fact.importance <= 1.0, f"the importance of {what} is not from 0 to 1")
    check(0 < len(fact.source) <= SOURCE_CHARACTERS_MAX, f"{what} has no source")
    check(fact.version > 0 and 0 <= fact.lead_characters <= len(fact.content), f"{what} has an impossible number")
    check(fact.passage is None or fact.passage >= 0, f"{what} is in no passage")
    if fact.ttl:
        try:
            check_duration(fact.ttl, "ttl")
        except BadInput:
            raise WrongShape(f"{what} has an invalid time to live") from None


def read_turn(given: list[Any]) -> Turn:
    source, stored = fields("turn", given, 2)
    turn = decoded(TURN, stored)
    check(turn.source == source, f"turn {turn.id} names the wrong source")
    try:
        check_turns([turn])
    except BadInput:
        raise WrongShape(f"turn {turn.id} has an invalid value") from None
    return turn


def read_edge(given: list[Any]) -> Edge:
    parent, child, kind = fields("edge", given, 3)
    try:
        edge = Edge(TurnId(uuid(parent, "a turn")), TurnId(uuid(child, "a turn")), EdgeType(kind))
    except ValueError:
        raise WrongShape("an edge has an unknown type") from None
    check(edge.parent != edge.child, "an edge leads from a turn to itself")
    return edge


def read_signature(given: list[Any]) -> Signature:
    signature = decoded(SIGNATURE, *fields("signature", given, 1))
    target = signature.target
    check(target.kind in {TargetKind.NODE, TargetKind.FACT}, "a signature is for something that no core contains")
    check(0 < target.version < 1 << 32, "a signature names no version")
    check(signature.sealed_by == (), "a signature names keys that only its own server knows")
    return signature


def _source(given: object) -> SourceId:
    found = text(given, "a source")
    check(len(found) <= SOURCE_CHARACTERS_MAX, "the id of a source is too long")
    return SourceId(found)


class RestIntake:
    """Checks turns, edges, library documents with their vectors, and signatures."""

    def __init__(self, hierarchy: HierarchyIntake, facts: FactIntake) -> None:
        self._hierarchy = hierarchy
        self._facts = facts
        self._last_turn: TurnId | None = None
        self._last_edge: Edge | None = None
        self._last_signature: tuple[int, UUID, int, UUID] | None = None
        self.turns: set[TurnId] = set()
        self.edges = 0
        self.signatures = 0
        self.library: dict[str, SourceId] = {}
        self.sources: set[SourceId] = set()
        """The sources of turns, library documents and their vectors."""

    def take_turn(self, given: list[Any]) -> None:
        turn = read_turn(given)
        check(self._last_turn is None or self._last_turn < turn.id, "turns are not sorted by id")
        self._last_turn = turn.id
        self.turns.add(turn.id)
        self.sources.add(turn.source)

    def take_edge(self, given: list[Any]) -> None:
        edge = read_edge(given)
        check(self._last_edge is None or self._last_edge < edge, "edges are not sorted")
        self._last_edge = edge
        check({edge.parent, edge.child} <= self.turns, "an edge refers to a turn that is missing")
        self.edges += 1

    def take_library(self, given: list[Any]) -> None:
        document, source = fields("library", given, 2)
        check(text(document, "a library document") not in self.library, "a library document has two sources")
        self.library[document] = _source(source)
        self.sources.add(self.library[document])

    def take_embedding(self, given: list[Any], vectors: VectorIntake) -> None:
        document, source, floats = fields("embedding", given, 3)
        known_source = _source(source)
        vectors.take_document(text(document, "a piece of a document"), known_source, floats)
        self.sources.add(known_source)

    def take_signature(self, given: list[Any]) -> None:
        signature = read_signature(given)
        target = signature.target
        place = (int(target.kind), target.id, target.version, signature.id)
        check(self._last_signature is None or self._last_signature < place, "signatures are not sorted")
        self._last_signature = place
        check(self._has(target), f"a signature is for {target.id}, which is missing")
        self.signatures += 1

    def sources_of(self, signature: Signature) -> tuple[SourceId, ...]:
        """Returns the sources of the signed node or fact. Empty if it is missing."""
        target = signature.target.id
        if signature.target.kind is TargetKind.FACT:
            source = self._facts.facts.get(FactId(target))
            return () if source is None else (source,)
        return self._hierarchy.source_of(NodeId(target)) or ()

    def _has(self, target: Target) -> bool:
        if target.kind is TargetKind.FACT:
            return FactId(target.id) in self._facts.facts
        return self._hierarchy.source_of(NodeId(target.id)) is not None

    def settle(self, library: LibraryIntake) -> None:
        """Call it when all records were taken."""
        check(
            all(document in library for document in self.library),
            "a source is given for a library document that is missing",
        )
        nodes = {*self._hierarchy.chunks, *self._hierarchy.own_raws, *self._hierarchy.sections}
        facts = self._facts.facts.keys()
        may_be_raw = self._hierarchy.may_be_raw
        check(not any(map(may_be_raw, chain(facts, self.turns))), "a fact or a turn has the id of a raw")
        check(facts.isdisjoint(nodes) and facts.isdisjoint(self.turns), "a fact has the id of something else")
        check(
            nodes.isdisjoint(self.turns) and self._hierarchy.master not in {*facts, *self.turns},
            "two records of different kinds have the same id",
        )
