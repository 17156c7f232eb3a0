"""The sources, facts and communities of a full core."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from drillcore.cores.failures import WrongShape
from drillcore_server.domain.communities import LABEL_FACTS, Community, community_id
from drillcore_server.domain.durations import check_duration
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.facts import TOKENS_MAX, TOKENS_MIN, Fact, FactStatus, fact_hash
from drillcore_server.domain.ids import CommunityId, CorpusId, DocumentId, FactId, SourceId
from drillcore_server.domain.sources import SOURCE_CHARACTERS_MAX, Source
from drillcore_server.importing.decoding import check, decoded, fields, moment, text, uuid, whole
from drillcore_server.importing.full_hierarchy import HierarchyIntake
from drillcore_server.store.communities import ID_BYTES, unpacked_members
from drillcore_server.store.facts import FACT
from drillcore_server.store.hierarchy import SOURCE

TOKEN_CHARACTERS_MAX: Final = 256
"""No tokenizer has longer ones. How many there are is otherwise believed: each counts in its own way."""
_NO_ID = CommunityId(UUID(int=0))


def read_community(given: list[Any], corpus: CorpusId | None) -> tuple[Community, bytes]:
    """With its members, packed. Its id follows from the corpus it is to be in. Raises `WrongShape`."""
    label, keywords, size, drawn_from, made_at, members = fields("community", given, 6)
    check(isinstance(members, bytes) and len(members) % ID_BYTES == 0 and bool(members), "a community has no members")
    check(isinstance(keywords, list) and isinstance(drawn_from, list), "the words of a community are not a list")
    ids = unpacked_members(members)
    community = Community(
        _NO_ID if corpus is None else community_id(corpus, ids),
        text(label, "the label of a community"),
        tuple(text(one, "a word of a community") for one in keywords),
        whole(size, "the size of a community"),
        tuple(FactId(uuid(one, "a fact")) for one in drawn_from),
        moment(made_at, "when a community was made"),
    )
    check(community.size == len(ids), "a community has other members than it counts")
    check(community.drawn_from == tuple(ids[:LABEL_FACTS]), "a community is not named by its first facts")
    return community, members


class FactIntake:
    def __init__(self, hierarchy: HierarchyIntake) -> None:
        self._hierarchy = hierarchy
        self._last: FactId | None = None
        self._last_source: SourceId | None = None
        self._in_communities: set[FactId] = set()
        self._counts: Counter[SourceId] = Counter()
        self._documents: dict[DocumentId, SourceId] = {}
        self.facts: dict[FactId, SourceId] = {}
        self.sources: dict[SourceId, int] = {}
        """With how many facts they say they have."""
        self.embedded = 0
        self.communities = 0

    def take_source(self, given: list[Any]) -> None:
        source = decoded(SOURCE, *fields("source", given, 1))
        check(0 < len(source.id) <= SOURCE_CHARACTERS_MAX, "a source has no id, or a too long one")
        check(self._last_source is None or self._last_source < source.id, "sources do not come by their ids")
        check(source.version >= 0 and source.fact_count >= 0, "a source has a number that cannot be")
        self._last_source = source.id
        self.sources[source.id] = source.fact_count
        self._note_document(source)

    def take_fact(self, given: list[Any]) -> None:
        fact = decoded(FACT, *fields("fact", given, 1))
        check(self._last is None or self._last < fact.id, "facts do not come by their ids")
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
            check(fact in self.facts, f"a community has the fact {fact}, which is not there")
            check(fact not in self._in_communities, f"the fact {fact} is in two communities")
            self._in_communities.add(fact)
        self.communities += 1

    def settle(self, vectors: Iterator[tuple[UUID, bytes]]) -> None:
        """When all was taken. `vectors` are those of facts, in order."""
        check(all(one in self.sources for one in self._counts), "facts are of a source that is not there")
        said = {source: count for source, count in self.sources.items() if count}
        check(
            said == {source: count for source, count in self._counts.items() if count},
            "a source counts its facts wrongly",
        )
        self._check_documents()
        last: UUID | None = None
        count = 0
        for fact, _ in vectors:
            check(fact in self.facts and fact != last, f"there are vectors of {fact}, which is no fact, or two")
            last, count = fact, count + 1
        check(count == self.embedded, "there is not a vector for each fact that is not deleted")

    def _note_document(self, source: Source) -> None:
        hashed = None if source.document is None else self._hierarchy.hashes.get(source.document)
        check(source.content_hash == (hashed or ""), "a source had other content than its document has")
        if source.document is not None:
            check(source.document not in self._documents, "two sources have the same document")
            self._documents[source.document] = source.id

    def _check_documents(self) -> None:
        known = self._hierarchy.documents
        check(all(one in known for one in self._documents), "a source leads to a document that is not there")
        for document, source in self._hierarchy.documents.items():
            check(self._documents.get(document) == source, f"the source of document {document} does not lead to it")

    def _check_held(self, fact: Fact) -> None:
        """A fact that stands must be in the chunk that it is drawn from, as long as its document is there."""
        if fact.status is not FactStatus.ACTIVE or fact.document not in self._hierarchy.documents:
            return
        chunk = None if fact.chunk is None else self._hierarchy.chunks.get(fact.chunk)
        held = chunk is not None and chunk.document == fact.document
        if held and chunk is not None and fact.span is not None:
            held = chunk.span.start <= fact.span.start and fact.span.end <= chunk.span.end
        check(held, f"the chunk of fact {fact.id} is not there, or does not hold it")


def _check_fact(fact: Fact) -> None:
    what = f"fact {fact.id}"
    check(fact.content_hash == fact_hash(fact.content), f"{what} has another content than its hash says")
    check(TOKENS_MIN <= fact.tokens <= TOKENS_MAX, f"{what} has too few or too many tokens")
    check(len(fact.content) <= TOKEN_CHARACTERS_MAX * fact.tokens, f"{what} is too long for its tokens")
    check(0.0 <= fact.importance <= 1.0, f"the importance of {what} is not from 0 to 1")
    check(0 < len(fact.source) <= SOURCE_CHARACTERS_MAX, f"{what} has no source")
    check(fact.version > 0 and 0 <= fact.lead_characters <= len(fact.content), f"{what} has a number that cannot be")
    check(fact.passage is None or fact.passage >= 0, f"{what} stands in no passage")
    if fact.ttl:
        try:
            check_duration(fact.ttl, "ttl")
        except BadInput:
            raise WrongShape(f"{what} has a time to live that is none") from None
