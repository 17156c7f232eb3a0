"""Sectioning: which section a chunk belongs to, and which sections a plan leaves unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drillcore_server.documents.ingestion import revision_plan as planning
from drillcore_server.documents.ingestion import section_choice as sectioning
from drillcore_server.documents.ingestion.prepared_documents import (
    Origin,
    PreparedDocument,
    builtin_counter,
    builtin_preparer,
    builtin_processor,
)
from drillcore_server.documents.ingestion.revision_plan import HierarchyChange, Planner, SettledSections
from drillcore_server.documents.ingestion.section_choice import Topics, cosine_to_join, groups_of, partitions
from drillcore_server.documents.parsers import parse
from drillcore_server.documents.processors.extractive import ExtractiveProcessor
from drillcore_server.documents.processors.processor import Member, TokenRange
from drillcore_server.hierarchy.digests import GroupDigest
from drillcore_server.hierarchy.sections import Outline, Outlines
from drillcore_server.storage.ids import NodeId, PrincipalId, SourceId
from drillcore_server.vectors.embedding.embedders import Vector, Vectors
from tests.support.stores.archive import SENTENCES, Archive, opened_archive, text_of
from tests.support.stores.consistent import Hierarchy, check

AT, BY = datetime(2026, 1, 1, tzinfo=UTC), PrincipalId("me")


def prepared(text: str) -> PreparedDocument:
    (parsed,) = parse(text.encode(), name="a.md", media_type=None)
    assert not isinstance(parsed, Exception)
    return builtin_preparer().prepare(parsed, Origin(SourceId("s"), 1, AT, BY))  # type: ignore[arg-type]


def vector(*values: float) -> Vector:
    return np.array(values, dtype=np.float32)


def outline(section: NodeId, *vector_sum: float) -> Outline:
    return Outline(section, "", (), (), (), vector(*vector_sum).tobytes())


def rows(seed: int, count: int, kinds: int) -> Vectors:
    """Vectors around a few directions."""
    dice = np.random.default_rng(seed)
    directions = dice.normal(size=(kinds, 8))
    return np.asarray(directions[dice.integers(0, kinds, count)] + dice.normal(size=(count, 8)) / 10, dtype=np.float32)


@given(seed=st.integers(0, 99), count=st.integers(1, 60), kinds=st.integers(1, 5), largest=st.integers(1, 20))
@settings(deadline=None)
def test_parts_have_every_vector_once_and_no_part_is_too_large(seed: int, count: int, kinds: int, largest: int) -> None:
    vectors = rows(seed, count, kinds)
    parts = partitions(vectors, largest)
    assert sorted(int(place) for part in parts for place in part) == list(range(count))
    assert all(1 <= len(part) <= largest for part in parts)
    assert [part.tolist() for part in partitions(vectors, largest)] == [part.tolist() for part in parts]


@pytest.mark.parametrize("vectors", [np.ones((9, 4), np.float32), np.zeros((9, 4), np.float32)], ids=["equal", "zero"])
def test_indistinguishable_vectors_are_split_too(vectors: Vectors) -> None:
    parts = partitions(vectors, 2)
    assert sorted(int(place) for part in parts for place in part) == list(range(9))
    assert all(1 <= len(part) <= 2 for part in parts)


def test_a_part_is_of_one_topic_where_topics_are_apart() -> None:
    vectors = np.repeat(np.eye(2, 8, dtype=np.float32), 5, axis=0)
    assert sorted(sorted(part.tolist()) for part in partitions(vectors, 5)) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_the_nearest_topic_is_found_by_direction_and_moves_as_vectors_join() -> None:
    first, second = NodeId(UUID(int=1)), NodeId(UUID(int=2))
    topics = Topics(Outlines.of([outline(first, 5, 0), outline(second, 0, 1)]))
    assert topics.nearest(vector(2, 1)) == (first, pytest.approx(2 / 5**0.5, abs=1e-5))
    assert topics.nearest(vector(1, 9)) == (second, pytest.approx(9 / 82**0.5, abs=1e-5))
    topics.add(second, vector(9, 0))
    nearest = topics.nearest(vector(9, 1))
    assert nearest is not None
    assert nearest[0] == second
    three = NodeId(UUID(int=3))
    topics.add(three, vector(-1, 0))
    assert topics.nearest(vector(-2, 0)) == (three, pytest.approx(1))


def test_without_sections_there_is_no_nearest_topic() -> None:
    assert Topics(Outlines.of([])).nearest(vector(1, 0)) is None


def test_a_document_is_grouped_by_its_top_headings_and_no_group_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sectioning, "SECTION_CHUNKS_MAX", 6)
    document = prepared(text_of("fishing", 1, 7) + "\n" + text_of("banking", 1, 2))
    groups = groups_of(document)
    assert [chunk for group in groups for chunk in group.chunks] == list(document.chunks)
    assert all(1 <= len(group.chunks) <= 3 for group in groups)
    for group in groups:
        assert len({chunk.chunk.headings[:1] for chunk in group.chunks}) == 1
        assert np.allclose(group.vector_sum, sum(chunk.vector for chunk in group.chunks), atol=1e-5)


def headed(*headings: tuple[str, ...]) -> PreparedDocument:
    """A document with a chunk below each of these headings."""
    template = prepared(text_of("fishing", 1, 1))
    chunks = [
        replace(template.chunks[0], chunk=replace(template.chunks[0].chunk, headings=above)) for above in headings
    ]
    return replace(template, document=replace(template.document, title="Document"), chunks=tuple(chunks))


@pytest.mark.parametrize(
    ("headings", "titles"),
    [
        ([("T", "A"), ("T", "A"), ("T", "B")], ["A", "B"]),
        ([("T", "A", "a"), ("T", "A", "b"), ("T", "A", "b")], ["a", "b"]),
        ([("T",), ("T", "A"), ("T", "B")], ["T", "A", "B"]),
        ([(), ("T",), ("T", "A"), ("T", "B", "b")], ["T", "A", "B"]),
        ([("A", "x"), ("B", "x")], ["A", "B"]),
        ([("A", "x"), ("A", "y"), ("B",)], ["A", "B"]),
        ([("T", "A"), ("T", "A")], ["A"]),
        ([(), ()], ["Document"]),
        ([(), ("A",), ("B",)], ["Document", "A", "B"]),
        ([("T", "A"), ("T", "B"), ("T", "A")], ["A", "B", "A"]),
    ],
)
def test_a_document_is_grouped_by_the_first_headings_that_differ(
    headings: list[tuple[str, ...]], titles: list[str]
) -> None:
    document = headed(*headings)
    groups = groups_of(document)
    assert [group.title for group in groups] == titles
    assert [chunk for group in groups for chunk in group.chunks] == list(document.chunks)


def test_a_title_above_everything_does_not_keep_different_subjects_in_one_section(archive: Archive) -> None:
    parts = [text_of(topic, 1, 4).replace("# ", "## ") for topic in ("fishing", "banking", "school")]
    archive.add({"all": "# Handbook\n\n" + "\n".join(parts)})
    assert len(check(archive).sections) == 3


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with opened_archive(tmp_path) as archive:
        yield archive


def sections_by_topic(hierarchy: Hierarchy, archive: Archive) -> dict[str, set[NodeId]]:
    found: dict[str, set[NodeId]] = {}
    reader = archive.reader(hierarchy.revision)
    for section, members in hierarchy.sections.items():
        for chunk in reader.chunks(members):
            found.setdefault(chunk.source.partition("-")[0], set()).add(section)
    return found


def test_documents_of_one_topic_share_a_section_and_others_have_their_own(archive: Archive) -> None:
    for number in range(3):
        archive.add({f"{topic}-{number}": text_of(topic, number) for topic in SENTENCES})
    found = sections_by_topic(check(archive), archive)
    assert all(len(sections) == 1 for sections in found.values())
    assert len({next(iter(sections)) for sections in found.values()}) == len(SENTENCES)


def test_an_added_document_leaves_every_other_chunk_where_it_was(archive: Archive) -> None:
    archive.add({topic: text_of(topic, 1) for topic in SENTENCES})
    before = check(archive)
    added = archive.add({"fishing-2": text_of("fishing", 2)})
    after = check(archive)
    assert added.sections_changed == 1
    for section, chunks in before.sections.items():
        assert set(chunks) <= set(after.sections[section])
    unchanged = [section for section in before.sections if before.sections[section] == after.sections[section]]
    assert len(unchanged) == len(before.sections) - 1


def test_a_section_that_has_grown_too_large_is_split_and_its_largest_part_keeps_its_id(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (planning, sectioning):
        monkeypatch.setattr(module, "SECTION_CHUNKS_MAX", 5)
    archive.add({"one": text_of("banking", 1, 4), "other": text_of("school", 1, 2)})
    before = check(archive)
    archive.add({"two": text_of("banking", 2, 3)})
    after = check(archive)
    assert len(after.sections) == len(before.sections) + 1
    assert set(before.sections) < set(after.sections)
    (new,) = set(after.sections) - set(before.sections)
    split = next(section for section in before.sections if before.sections[section] != after.sections[section])
    assert len(after.sections[split]) >= len(after.sections[new]) >= 1
    assert check(archive, before.revision).records == before.records


def test_one_document_may_fill_several_sections(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (planning, sectioning):
        monkeypatch.setattr(module, "SECTION_CHUNKS_MAX", 4)
    archive.add({"one": text_of("banking", 1, 14)})
    sections = check(archive).sections
    assert len(sections) >= 4
    assert max(map(len, sections.values())) <= 4


def test_a_section_without_chunks_is_gone_and_one_that_loses_some_stays(archive: Archive) -> None:
    archive.add({"one": text_of("banking", 1), "two": text_of("banking", 2), "other": text_of("school", 1)})
    before, documents = check(archive), archive.documents()
    archive.remove([documents["other"], documents["one"]])
    after = check(archive)
    assert len(after.sections) == 1
    assert set(after.sections) < set(before.sections)
    archive.remove([documents["two"]])
    empty = check(archive)
    assert empty.sections == {}
    assert empty.master is not None
    assert (empty.master.summary, empty.master.citations, empty.master.findings) == ("", (), ())
    archive.add({"one": text_of("banking", 1)})
    assert check(archive).master.id == empty.master.id  # type: ignore[union-attr]


def test_an_update_that_changes_the_topic_moves_the_document(archive: Archive) -> None:
    archive.add({"a": text_of("banking", 1), "banking": text_of("banking", 2), "school": text_of("school", 1)})
    archive.add({"a": text_of("school", 2)})
    found = sections_by_topic(check(archive), archive)
    assert found["a"] == found["school"] != found["banking"]


def shape(change: HierarchyChange) -> list[tuple[object, ...]]:
    """The changes that a plan makes, without the ids that it generates."""
    sections = [
        (
            None if section.before is None else section.before.id,
            [chunk.id for chunk in section.joined],
            [chunk.id for chunk in section.left],
            None if section.after is None else replace(section.after, id=NodeId(UUID(int=0))),
        )
        for section in change.sections
    ]
    return [*sections, (change.master.summary, change.master.findings, change.master.statistics)]


def test_planning_twice_gives_the_same_plan(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (planning, sectioning):
        monkeypatch.setattr(module, "SECTION_CHUNKS_MAX", 5)
    archive.add({topic: text_of(topic, 1, 3) for topic in SENTENCES})
    reader = archive.reader(archive.head())
    added = [prepared(text_of(topic, 2, 4)) for topic in ("banking", "school")]
    removed = [document for document in reader.documents([archive.documents()["school"]]) if document is not None]
    first, second = (Planner(reader, builtin_processor(), AT, BY).plan(added, removed) for _ in range(2))
    assert shape(first) == shape(second)
    assert first.master_before == second.master_before


class CountingProcessor(ExtractiveProcessor):
    """The built-in processor, which counts the sections that it summarises."""

    sections = 0

    def summarise_section(self, title: str, members: Sequence[Member], tokens: TokenRange) -> GroupDigest:
        self.sections += 1
        return super().summarise_section(title, members, tokens)


def test_an_overtaken_plan_makes_only_the_changed_sections_again(archive: Archive) -> None:
    archive.add({topic: text_of(topic, 1) for topic in SENTENCES})
    added = [prepared(text_of(topic, 2)) for topic in ("banking", "school", "fishing")]
    processor, settled = CountingProcessor(builtin_counter()), SettledSections()

    def plan() -> HierarchyChange:
        reader = archive.reader(archive.head())
        return Planner(reader, processor, AT, BY, settled).plan(added, [])

    first = plan()
    assert processor.sections == len(first.sections) == 3
    archive.add({"banking-3": text_of("banking", 3)})
    second = plan()
    assert processor.sections == 3 + 1
    changed = [section.after for section in second.sections if section not in first.sections]
    assert [section.title for section in changed if section] == ["Rules on banking, edition 1"]
    assert second.master.statistics.documents == first.master.statistics.documents + 1


def test_the_larger_a_group_the_nearer_it_must_be_to_join_a_section() -> None:
    assert [cosine_to_join(chunks) for chunks in (1, 2, 4)] == [0.5, 0.6, 0.7]
    assert cosine_to_join(8) == cosine_to_join(64) == 0.8


def test_chapters_of_a_document_stay_apart_except_small_ones(archive: Archive) -> None:
    chapters = [f"## Chapter {number}\n\n{text_of('banking', number, 4).partition('#')[2]}" for number in (1, 2)]
    archive.add({"act": "# The act\n\n## Preface\n\nThe bank holds capital.\n\n" + "\n\n".join(chapters)})
    hierarchy = check(archive)
    reader = archive.reader(hierarchy.revision)
    titles = [section.title for section in reader.sections(list(hierarchy.sections))]
    assert sorted(titles) == ["Chapter 1", "Chapter 2"]


def test_another_document_joins_the_sections_of_the_first_chapter_by_chapter(archive: Archive) -> None:
    text = "\n\n".join(f"# On {topic}\n\n{text_of(topic, 1, 4).partition('#')[2]}" for topic in ("banking", "school"))
    archive.add({"first": text})
    before = check(archive)
    archive.add({"second": text.replace("edition 1", "edition 2")})
    after = check(archive)
    assert before.sections.keys() == after.sections.keys()
    assert [len(after.sections[section]) for section in before.sections] == [
        2 * len(own) for own in before.sections.values()
    ]
