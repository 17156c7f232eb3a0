"""A corpus against a plain model: documents added, updated and removed in any order, by either path of writing.

After each step every level and index agree, the documents are those of the model, chunks have moved only if they had
to, and every earlier revision reads as it did when it was the head.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from drillcore_server.documents.add import OutcomeKind
from drillcore_server.documents.ingestion import revision_plan as planning
from drillcore_server.documents.ingestion import section_choice as sectioning
from drillcore_server.kernel import revise, revisions
from drillcore_server.storage.ids import NodeId, Revision
from tests.support.stores.archive import SENTENCES, opened_archive, text_of
from tests.support.stores.consistent import Hierarchy, check

SECTION_CHUNKS_MAX = 7
SOURCES = [f"source-{number}" for number in range(7)]

texts = st.builds(text_of, st.sampled_from(sorted(SENTENCES)), st.integers(1, 3), st.integers(1, 5))
batches = st.dictionaries(st.sampled_from(SOURCES), texts, min_size=1, max_size=4)


def sections_of(hierarchy: Hierarchy) -> dict[NodeId, NodeId]:
    return {chunk: section for section, chunks in hierarchy.sections.items() for chunk in chunks}


class Corpus(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.open_now = contextlib.ExitStack()
        patch = self.open_now.enter_context(pytest.MonkeyPatch.context())
        for module in (planning, sectioning):
            patch.setattr(module, "SECTION_CHUNKS_MAX", SECTION_CHUNKS_MAX)
        patch.setattr(revise, "BATCH_BYTES_MAX", 10_000)
        self.patch = patch
        path = Path(self.open_now.enter_context(tempfile.TemporaryDirectory()))
        self.archive = self.open_now.enter_context(opened_archive(path))
        self.texts: dict[str, str] = {}
        self.known = [check(self.archive)]
        """Each revision as it was when it was the head."""

    def teardown(self) -> None:
        self.open_now.close()

    @rule(batch=batches, large=st.booleans())
    def add(self, batch: dict[str, str], large: bool) -> None:
        self.patch.setattr(revise, "SMALL_BYTES_MAX", 0 if large else 3_000_000)
        added = self.archive.add(batch)
        kinds = {outcome.name.removesuffix(".md"): outcome.kind for outcome in added.outcomes}
        assert kinds == {source: self._kind(source, text) for source, text in batch.items()}
        changed = set(kinds.values()) != {OutcomeKind.UNCHANGED}
        self.texts |= batch
        self._check(added.revision, changed=changed)

    def _kind(self, source: str, text: str) -> OutcomeKind:
        if source not in self.texts:
            return OutcomeKind.ADDED
        return OutcomeKind.UNCHANGED if self.texts[source] == text else OutcomeKind.UPDATED

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), large=st.booleans())
    def remove(self, data: st.DataObject, large: bool) -> None:
        self.patch.setattr(revise, "SMALL_BYTES_MAX", 0 if large else 3_000_000)
        gone = data.draw(st.sets(st.sampled_from(sorted(self.texts)), min_size=1))
        documents = self.archive.documents()
        removed = self.archive.remove([documents[source] for source in gone])
        assert removed.documents == len(gone)
        for source in gone:
            del self.texts[source]
        self._check(removed.revision, changed=True)

    def _check(self, revision: Revision, *, changed: bool) -> None:
        before, now = self.known[-1], check(self.archive)
        assert now.texts == self.texts
        assert now.revision == revision == before.revision + changed
        if changed:
            self.known.append(now)
        self._check_sections(before, now)
        self._check_history()

    def _check_sections(self, before: Hierarchy, now: Hierarchy) -> None:
        """No section is too large. A chunk that stays is where it was, or in a section that was split off."""
        assert max(map(len, now.sections.values()), default=0) <= SECTION_CHUNKS_MAX
        was, is_in = sections_of(before), sections_of(now)
        for chunk in was.keys() & is_in.keys():
            assert is_in[chunk] == was[chunk] or is_in[chunk] not in before.sections

    def _check_history(self) -> None:
        for known in self.known:
            again = check(self.archive, known.revision)
            assert again.records == known.records
        archive = self.archive
        records = archive.engine.run(
            lambda tr: list(revisions.between(tr, archive.keys, Revision(0), self.known[-1].revision))
        )
        for record in records:
            last = max(earlier.revision for earlier in records if earlier.at <= record.at)
            assert archive.engine.run(lambda tr, at=record.at: revisions.at_time(tr, archive.keys, at)) == last  # type: ignore[misc]


Corpus.TestCase.settings = settings(max_examples=15, stateful_step_count=7, deadline=None)
TestCorpus = Corpus.TestCase
