"""Quads against a plain model: at every revision, every pattern finds exactly the quads that were there.

This test uses the store alone, with pages of a few keys. `tests/graphs/test_match_quads.py` uses the server.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from itertools import groupby, product
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from drillcore_fdb.tuples import Subspace
from drillcore_formats.quads import Blank, Iri, Quoted, Term
from drillcore_server.graphs.quad_model import Quad, QuadPattern, SourcedQuad, literal
from drillcore_server.graphs.quad_store import QuadReader, QuadWrites, without_source
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.holdings import Holdings
from drillcore_server.kernel.writes import Write, apply_all
from drillcore_server.storage.ids import CorpusNumber, Revision, SourceId
from drillcore_server.storage.keyring import Keyring
from drillcore_server.storage.sealed import SealedRecords
from tests.support.stores.keyspaces import keyspace_below
from tests.support.stores.quads import stored_quads
from tests.support.stores.stores import opened
from tests.tenancy.test_retention_policies import PLAIN

KEYSPACE = keyspace_below(b"q")
NUMBER = CorpusNumber(7)
NAMES = [Iri("urn:a"), Iri("urn:b")]
SUBJECTS: list[Term] = [*NAMES, Blank("a"), Quoted(NAMES[0], NAMES[1], literal("urn:a"))]
OBJECTS: list[Term] = [*SUBJECTS, literal("urn:a"), literal("urn:a", language="en"), literal("urn:a", "urn:b")]
GRAPHS = ["", "urn:a", "_:a"]
SOURCES = [SourceId(""), SourceId("a"), SourceId("b")]

quads = st.builds(
    Quad, st.sampled_from(SUBJECTS), st.sampled_from(NAMES), st.sampled_from(OBJECTS), st.sampled_from(GRAPHS)
)
sourced = st.builds(SourcedQuad, quads, st.sampled_from(SOURCES))


def patterns(like: Quad) -> list[QuadPattern]:
    """All sixteen patterns that match a quad, each for every source and for a single source."""
    terms = product(*((None, term) for term in like))
    return [QuadPattern(*bound, source) for bound in terms for source in (None, SourceId("a"))]


class Quads(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._closing = ExitStack()
        folder = Path(self._closing.enter_context(tempfile.TemporaryDirectory()))
        keys = self._closing.enter_context(opened(folder / "keys"))
        self._engine = self._closing.enter_context(opened(folder / "store"))
        self._keyring = Keyring(keys, Subspace(b"keyring"), bytes(32))
        self._sealed = SealedRecords(self._keyring)
        self._make = QuadWrites(KEYSPACE, NUMBER, self._keyring)
        self._states: list[set[SourcedQuad]] = [set()]

    def teardown(self) -> None:
        self._closing.close()

    def _snapshot(self, revision: int) -> BatchedReads:
        return BatchedReads(self._engine, PLAIN, KEYSPACE.of_corpus(NUMBER), self._sealed, Revision(revision))

    def _revise(self, writes: list[Write], state: set[SourcedQuad]) -> None:
        revision = Revision(len(self._states))
        keys = KEYSPACE.of_corpus(NUMBER)
        self._engine.run(lambda tr: apply_all(tr, keys, writes, revision, 0, self._sealed))
        self._states.append(state)

    @rule(given=st.lists(sourced, max_size=8))
    def put(self, given: list[SourcedQuad]) -> None:
        new = set(given) - self._states[-1]
        self._revise([write for quad in new for write in self._make.add(*quad)], self._states[-1] | new)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        gone = {quad for quad in sorted(self._states[-1], key=repr) if data.draw(st.booleans())}
        self._revise([write for quad in gone for write in self._make.remove(*quad)], self._states[-1] - gone)

    @rule(source=st.sampled_from(SOURCES))
    def erase(self, source: SourceId) -> None:
        snapshot = self._snapshot(len(self._states) - 1)
        left = {quad for quad in self._states[-1] if quad.source != source}
        (number,) = self._keyring.numbers(NUMBER, [source])
        held = snapshot.read(lambda view: Holdings.of(snapshot, view, number))
        self._revise(list(without_source(held)), left)

    @rule(like=quads, keys_max=st.integers(2, 9), data=st.data())
    def match(self, like: Quad, keys_max: int, data: st.DataObject) -> None:
        revision = data.draw(st.integers(0, len(self._states) - 1))
        state = self._states[revision]
        for pattern in patterns(like):
            found = self._found(pattern, revision, keys_max)
            wanted = {
                sourced_quad
                for sourced_quad in state
                if pattern.matches(sourced_quad.quad) and pattern.source in {None, sourced_quad.source}
            }
            assert len(found) == len(set(found)), "each quad is found once"
            assert set(found) == wanted

    def _found(self, pattern: QuadPattern, revision: int, keys_max: int) -> list[SourcedQuad]:
        found: list[SourcedQuad] = []
        begin: bytes | None = b""

        def page(view: CorpusAtRevision, begin: bytes) -> tuple[list[SourcedQuad], bytes | None]:
            return QuadReader(view, self._make.hashes).match(pattern, begin, keys_max)

        while begin is not None:
            some, begin = self._snapshot(revision).read(lambda view, b=begin: page(view, b))  # type: ignore[misc]
            found += some
        return found

    @rule()
    def walk(self) -> None:
        walked = list(stored_quads(self._snapshot(len(self._states) - 1)))
        assert set(walked) == self._states[-1]
        together = [quad for quad, _ in groupby(found.quad for found in walked)]
        assert len(together) == len(set(together)), "the sources of a quad follow each other"


TestQuads = Quads.TestCase
TestQuads.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)
