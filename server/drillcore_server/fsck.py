"""Proves that a store agrees with itself: every node has what leads to it, and every index entry leads to a node.

Each corpus is read at its head, and at the oldest revision that is kept if some were trimmed: those between see what
one of the two sees, or what trimming does not touch. What is found is said in words; nothing is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeVar
from uuid import UUID

from drillcore.audit.failures import VerificationFailed
from drillcore.audit.keys import KeyChain, TrustedKeys, trust
from drillcore_fdb.engine import Engine
from drillcore_fdb.errors import EngineError
from drillcore_fdb.tuples import KeyRange
from drillcore_server.audit.checking import RECORDS_MAX, LogChecker
from drillcore_server.audit.indexes import Terms
from drillcore_server.audit.opening import RecordOpener
from drillcore_server.audit.search import LogSearch
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.embeddings import EmbeddingModel
from drillcore_server.domain.ids import NodeId, Revision
from drillcore_server.domain.nodes import Chunk, Document, Level, RawPage, Section, Statistics
from drillcore_server.fsck_audit import AuditCheck
from drillcore_server.fsck_communities import CommunityCheck
from drillcore_server.fsck_envelopes import EnvelopeCheck
from drillcore_server.fsck_erasures import ErasureCheck
from drillcore_server.fsck_facts import FactCheck
from drillcore_server.fsck_foreign import ForeignCheck
from drillcore_server.fsck_graphs import GraphCheck
from drillcore_server.fsck_quads import QuadCheck
from drillcore_server.fsck_retention import RetentionCheck
from drillcore_server.fsck_sharing import sharing_problems
from drillcore_server.fsck_vectors import SavedIndexes, fact_vector_problems
from drillcore_server.store import audit_keys, audit_log, revisions
from drillcore_server.store.corpora import CORPORA
from drillcore_server.store.corpus_keys import CorpusKeys
from drillcore_server.store.hierarchy import (
    DOCUMENT,
    CorpusView,
    HierarchyWrites,
    Located,
    locate,
    node_id,
)
from drillcore_server.store.keyring import Keyring
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.packed import SECTION, decode_chunk
from drillcore_server.store.sealed import SealedRecords
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.tenants import TENANTS
from drillcore_server.store.versioned import Entry

T = TypeVar("T")
_PAGE_S: Final = 2.0
"""For a page of an audit log: well within the five seconds of a transaction."""


@dataclass(frozen=True, slots=True)
class Report:
    corpora: int
    nodes: int
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What may be so, but is worth knowing."""


class Fsck:
    def __init__(
        self, engine: Engine, keys: Keyspace, keyring: Keyring, store: UUID, saved: SavedIndexes | None = None
    ) -> None:
        """`saved` says where indexes are saved, if those are to be checked too."""
        self._engine = engine
        self._saved = saved
        self._keys = keys
        self._keyring = keyring
        self._sealed = SealedRecords(keyring)
        self._opener = RecordOpener(store, self._sealed)
        self._store = store

    def run(self) -> Report:
        problems: list[str] = []
        notes: list[str] = []
        corpora, nodes = 0, 0
        shared: list[Corpus] = []
        envelopes = EnvelopeCheck(self._engine, self._keys, self._sealed)
        try:
            trusted = self._trusted()
        except VerificationFailed as error:
            return Report(0, 0, (f"the chain of audit keys: {error}",))
        for tenant, _ in self._engine.run(lambda tr: list(TENANTS.scan(tr, self._keys.tenants()))):
            if self._engine.run(lambda tr: tr.get(self._keys.tenant_name(tenant.name))) != tenant.id.bytes:  # noqa: B023
                problems.append(f"tenant {tenant.id}: its name does not lead to it")
            found = self._engine.run(lambda tr: list(CORPORA.scan(tr, self._keys.corpora(tenant.id))))  # noqa: B023
            problems += envelopes.of_tenant(tenant.id)
            shared += [corpus for corpus, _ in found if corpus.sharing is not None]
            for corpus, _ in found:
                checked = _CorpusCheck(self._engine, self._keys, self._keyring, self._sealed, corpus)
                problems += checked.run()
                problems += envelopes.of_corpus(corpus)
                audited = AuditCheck(self._engine, self._keys, self._opener, trusted, corpus)
                problems += audited.problems()
                erased = ErasureCheck(self._engine, self._keys, self._keyring, corpus)
                problems += erased.problems(audited.sealed_under)
                corpora, nodes = corpora + 1, nodes + checked.nodes
                retention = RetentionCheck(self._engine, self._keys, corpus)
                problems += retention.problems()
                if not erased.is_erased_since(retention.state.floor):
                    problems += self._at_floor(corpus, retention)
                notes += [*retention.notes(), *erased.notes(retention.state.floor)]
                if self._saved is not None:
                    saved = self._saved.check(checked.snapshot, corpus.number, self._keyring)
                    problems += [f"corpus {corpus.id}: {problem}" for problem in saved.problems()]
                    notes += [f"corpus {corpus.id}: {note}" for note in saved.notes]
        problems += sharing_problems(self._engine, self._keys, shared)
        problems += self._logs(trusted)
        return Report(corpora, nodes, tuple(problems), tuple(notes))

    def _logs(self, trusted: TrustedKeys) -> Iterator[str]:
        """What is wrong with the audit logs: every record as it is stored, and the trees made of them."""
        search = LogSearch(self._keys, self._opener, Terms(self._keyring))
        checker = LogChecker(self._keys, self._opener, search, lambda _tr: trusted)
        for log, _ in self._engine.run(lambda tr: list(audit_log.heads(tr.snapshot, self._keys))):
            start = 0
            while True:
                done = self._engine.run(
                    lambda tr, log=log, start=start: checker.check(tr.snapshot, log, start, RECORDS_MAX, _PAGE_S)  # type: ignore[misc]
                )
                yield from (f"audit log {log}, record {one.index}: {one.problem}" for one in done.problems)
                if done.next_start >= done.size:
                    break
                start = done.next_start

    def _trusted(self) -> TrustedKeys:
        """The keys that sign the store's audit records. Raises `VerificationFailed` if one is not vouched for."""
        chain = KeyChain(self._store, tuple(self._engine.run(lambda tr: audit_keys.chain(tr, self._keys))))
        return trust(self._store, [chain.verifier(key) for key in chain.keys[:1]], chain)

    def _at_floor(self, corpus: Corpus, retention: RetentionCheck) -> list[str]:
        """What is wrong with the oldest revision that is kept. Of one that is trimmed meanwhile nothing is known."""
        floor = retention.state.floor
        if floor in {0, retention.head}:
            return []
        found = _CorpusCheck(self._engine, self._keys, self._keyring, self._sealed, corpus, floor).run()
        return [] if retention.has_moved() else found


class _CorpusCheck:
    """One corpus at a revision, else its head. Records that cannot be read are problems; the rest is still checked."""

    def __init__(
        self,
        engine: Engine,
        keys: Keyspace,
        keyring: Keyring,
        sealed: SealedRecords,
        corpus: Corpus,
        revision: Revision | None = None,
    ) -> None:
        self._engine = engine
        self._keyspace = keys
        self._keyring = keyring
        self._keys: CorpusKeys = keys.of_corpus(corpus.number)
        self._sealed = sealed
        self._corpus = corpus
        self._hashes = HierarchyWrites(keys, corpus.tenant_id, corpus.number, keyring)
        self._revision = revision or engine.run(lambda tr: revisions.head(tr, self._keys))
        self.snapshot = self._snapshot = Snapshot(engine, self._keys, sealed, self._revision)
        self.nodes = 0

    def run(self) -> list[str]:
        return [f"corpus {self._corpus.id}, revision {self._revision}: {problem}" for problem in self._all()]

    def _all(self) -> Iterator[str]:
        try:
            yield from self._problems()
        except EngineError as error:  # of what everything else hangs on
            yield error.message

    def _problems(self) -> Iterator[str]:
        name = self._engine.run(
            lambda tr: tr.get(self._keyspace.corpus_name(self._corpus.tenant_id, self._corpus.name))
        )
        if name != self._corpus.id.bytes:
            yield "its name does not lead to it"
        if self._revision == 0:
            return
        sections: dict[NodeId, Section] = {}
        documents: dict[UUID, Document] = {}
        chunks: dict[NodeId, Chunk] = {}
        yield from self._read(self._keys.sections(), SECTION.decode, lambda one: sections.__setitem__(one.id, one))
        yield from self._read(self._keys.documents(), DOCUMENT.decode, lambda one: documents.__setitem__(one.id, one))
        yield from self._chunks(chunks)
        self.nodes += 1 + len(sections) + len(chunks)
        yield from self._memberships(sections, chunks)
        yield from self._documents(documents, chunks)
        yield from self._vectors(chunks)
        yield from self._index("entity", self._keys.all_entities(), self._expected_entities(chunks))
        yield from self._index("embedding", self._keys.all_embedded(), self._expected_embedded(chunks))
        yield from self._index("category", self._keys.all_categories(), self._expected_categories(sections))
        yield from self._index("section", self._keys.listed_sections(), set(map(self._keys.listed_section, sections)))
        yield from self._locators(sections, chunks)
        yield from self._master(sections, documents, chunks)
        yield from FactCheck(self._snapshot, self._keyspace, self._keyring, self._corpus).problems(documents, chunks)
        yield from fact_vector_problems(self._snapshot)
        yield from CommunityCheck(self._snapshot, self._corpus.id).problems()
        yield from ForeignCheck(self._snapshot, self._keyring, self._corpus).problems()
        yield from GraphCheck(self._snapshot, self._keyspace, self._keyring, self._corpus).problems()
        yield from QuadCheck(self._snapshot, self._keyring, self._corpus).problems()

    def _chunks(self, chunks: dict[NodeId, Chunk]) -> Iterator[str]:
        """Every chunk has its raws, which hold what it quotes. Their text is not kept: it may be too much."""
        for entry in self._sealed_entries(self._keys.chunks()):
            if isinstance(entry, str):
                yield entry
                continue
            found = decode_chunk(node_id(entry.key[-16:]), entry.value)
            chunks[found.chunk.id] = found.chunk
            self.nodes += len(found.page.raws)
            if not _covers(found.page, found.chunk):
                yield f"the raws of chunk {found.chunk.id} do not make up its text"

    def _memberships(self, sections: dict[NodeId, Section], chunks: dict[NodeId, Chunk]) -> Iterator[str]:
        """Members and parents say the same, and cover every chunk once."""
        members: dict[NodeId, NodeId] = {}
        counts: Counter[NodeId] = Counter()
        documents: dict[NodeId, set[UUID]] = {}
        for entry in self._snapshot.entries(self._keys.all_members()):
            section, chunk = self._keys.parse_membership(entry.key)
            if chunk in members:
                yield f"chunk {chunk} is in two sections"
            if section not in sections:
                yield f"a section {section} that is not there has the member {chunk}"
            if chunk not in chunks:
                yield f"section {section} has a member {chunk} that is not there"
                continue
            members[chunk] = section
            counts[section] += 1
            documents.setdefault(section, set()).add(chunks[chunk].document)
        parents = {
            node_id(entry.key[-16:]): node_id(entry.value) for entry in self._snapshot.entries(self._keys.parents())
        }
        members |= {raw: chunk.id for chunk in chunks.values() for raw in chunk.raw_ids}
        yield from (f"chunk {one} is in no section" for one in chunks.keys() - members.keys())
        yield from (f"the parent of {one} is not the node it is in" for one, _ in parents.items() ^ members.items())
        for record in sections.values():
            if (record.chunks, record.documents) != (counts[record.id], len(documents.get(record.id, ()))):
                yield f"section {record.id} counts its chunks or documents wrongly"
            yield from (
                f"section {record.id} cites {one.chunk}, which is not there"
                for one in record.citations
                if one.chunk not in chunks
            )

    def _documents(self, documents: dict[UUID, Document], chunks: dict[NodeId, Chunk]) -> Iterator[str]:
        """Documents name exactly the chunks that name them, and their sources name them."""
        named = [chunk for document in documents.values() for chunk in document.chunks]
        yield from (f"a document names the chunk {one}, which is not there" for one in set(named) - chunks.keys())
        yield from (f"chunk {one} belongs to no document" for one in chunks.keys() - set(named))
        known = self._snapshot.find(list(documents.values()), lambda view, one: view.source(one.source))
        for document, source in zip(documents.values(), known, strict=True):
            if source is None or source.document != document.id:
                yield f"the source of document {document.id} does not lead to it"

    def _vectors(self, chunks: dict[NodeId, Chunk]) -> Iterator[str]:
        """Every chunk has its vector, and all of one model are of one length."""
        models = self._snapshot.read(lambda view: view.embeddings())
        for place, model in enumerate(models.models if models else ()):
            yield from self._vectors_of(model, chunks, is_current=place == 0)
        known = tuple(self._keys.vectors(number).begin for number in (models.numbers if models else ()))
        strays = (one.key for one in self._snapshot.entries(self._keys.all_vectors()))
        yield from (f"the vector {one.hex()} is of no model" for one in strays if not one.startswith(known))
        if models is None and chunks:
            yield "there is no record of the model that made its vectors"

    def _vectors_of(self, model: EmbeddingModel, chunks: dict[NodeId, Chunk], *, is_current: bool) -> Iterator[str]:
        """One that is not searched by may lack some, while a migration is under way."""
        sizes: dict[NodeId, int] = {}
        for entry in self._sealed_entries(self._keys.vectors(model.number)):
            if isinstance(entry, str):
                yield entry
            else:
                sizes[node_id(entry.key[-16:])] = len(entry.value)
        lacking = chunks.keys() - sizes.keys() if is_current else set()
        yield from (f"chunk {one} has no vector" for one in lacking)
        yield from (f"a vector of {one} has no chunk" for one in sizes.keys() - chunks.keys())
        wrong = (one for one, size in sizes.items() if size != 2 * model.dimensions)
        yield from (f"the vector of chunk {one} has another length" for one in wrong)

    def _index(self, name: str, keys: KeyRange, expected: set[bytes]) -> Iterator[str]:
        there = {entry.key for entry in self._snapshot.entries(keys)}
        yield from (f"the {name} index lacks {key.hex()}" for key in expected - there)
        yield from (f"the {name} index has {key.hex()}, which leads nowhere" for key in there - expected)

    def _expected_entities(self, chunks: dict[NodeId, Chunk]) -> set[bytes]:
        return {key for chunk in chunks.values() for key in self._hashes.entity_keys(chunk)}

    def _expected_embedded(self, chunks: dict[NodeId, Chunk]) -> set[bytes]:
        return {key for chunk in chunks.values() for key in self._hashes.embedded_keys(chunk)}

    def _expected_categories(self, sections: dict[NodeId, Section]) -> set[bytes]:
        return {self._keys.category(self._hashes.hashed(one.category), one.id) for one in sections.values()}

    def _locators(self, sections: dict[NodeId, Section], chunks: dict[NodeId, Chunk]) -> Iterator[str]:
        expected = dict.fromkeys(sections, Level.SECTION) | dict.fromkeys(chunks, Level.CHUNK)
        expected |= {raw: Level.RAW for chunk in chunks.values() for raw in chunk.raw_ids}
        for (node, level), found in zip(
            expected.items(), self._snapshot.find(list(expected), self._located), strict=True
        ):
            if found != Located(self._corpus.number, level):
                yield f"the locator of {node} does not lead to it"

    def _located(self, view: CorpusView, node: NodeId) -> Located | None:
        return locate(view.tr, self._keyspace, self._corpus.tenant_id, node)

    def _master(
        self, sections: dict[NodeId, Section], documents: dict[UUID, Document], chunks: dict[NodeId, Chunk]
    ) -> Iterator[str]:
        master = self._snapshot.read(lambda view: view.master())
        if master is None:
            if sections or documents or chunks:  # a corpus may have nothing but facts
                yield "there is no master"
            return
        if self._snapshot.read(lambda view: self._located(view, master.id)) != Located(
            self._corpus.number, Level.MASTER
        ):
            yield "the locator of the master does not lead to it"
        cited = [*master.citations, *(finding.citation for finding in master.findings)]
        yield from (f"the master cites {one.chunk}, which is not there" for one in cited if one.chunk not in chunks)
        counted = Statistics(
            documents=len(documents),
            sections=len(sections),
            chunks=sum(len(one.chunks) for one in documents.values()),
            raws=sum(one.raws for one in documents.values()),
            characters=sum(one.characters for one in documents.values()),
            tokens=sum(one.tokens for one in documents.values()),
        )
        if master.statistics != counted:
            yield f"the master says {master.statistics}, there are {counted}"

    def _sealed_entries(self, keys: KeyRange) -> Iterator[Entry | str]:
        """What the revision has of a range, opened; a record that cannot be opened is said in words."""
        for entry in self._snapshot.entries(keys):
            try:
                yield self._sealed.opened(entry)
            except EngineError as error:
                yield error.message

    def _read(self, keys: KeyRange, decode: Callable[[bytes], T], keep: Callable[[T], None]) -> Iterator[str]:
        for entry in self._sealed_entries(keys):
            if isinstance(entry, str):
                yield entry
            else:
                keep(decode(entry.value))


def _covers(page: RawPage, chunk: Chunk) -> bool:
    """Whether raws are in order and hold all of the chunk: without gaps, unless a client made it."""
    if not page.raws or page.span != chunk.span or len(chunk.raw_ids) not in {0, len(page.raws)}:
        return False
    ordered = all(one.span.end <= following.span.start for one, following in pairwise(page.raws))
    seamless = bool(chunk.raw_ids) or len(page.runs()) == 1
    held = all(page.holds(one.span) for one in (*chunk.summary, *chunk.quotes, *chunk.candidates))
    return ordered and seamless and held and all(len(raw.content) == len(raw.span) for raw in page.raws)
