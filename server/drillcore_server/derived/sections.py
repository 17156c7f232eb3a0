"""The sections of a corpus in memory."""

from __future__ import annotations

from collections.abc import Mapping

from drillcore_server.derived.follower import Follower
from drillcore_server.domain.ids import NodeId, Revision
from drillcore_server.domain.nodes import Section
from drillcore_server.store import revisions
from drillcore_server.store.hierarchy import CorpusView

Sections = Mapping[NodeId, Section]


class SectionCache(Follower[Sections]):
    def __init__(self) -> None:
        super().__init__(_load, _follow)


def _load(view: CorpusView) -> Sections:
    return {section.id: section for section in view.sections()}


def _follow(kept: Sections, revision: Revision, view: CorpusView) -> Sections:
    changed = {
        section
        for record in revisions.between(view.tr, view.keys, revision, view.revision)
        for section in record.sections
    }
    sections = {one: section for one, section in kept.items() if one not in changed}
    for one in changed:
        section = view.section(one)
        if section is not None:
            sections[one] = section
    return sections
