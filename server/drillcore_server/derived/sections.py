"""The outlines of a corpus's sections in memory."""

from __future__ import annotations

from collections.abc import Sequence

from drillcore_fdb.engine import Engine
from drillcore_server.derived.follower import Follower
from drillcore_server.domain.ids import NodeId
from drillcore_server.domain.outlines import Outline, Outlines
from drillcore_server.domain.revisions import RevisionRecord
from drillcore_server.store.hierarchy import CorpusView, node_id
from drillcore_server.store.snapshot import Snapshot


class SectionCache(Follower[Outlines]):
    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, _load, _follow)


def _load(snapshot: Snapshot) -> Outlines:
    """Section by section: a scan would read all that they have ever been."""
    ids = [node_id(entry.key[-16:]) for entry in snapshot.entries(snapshot.keys.listed_sections())]
    return Outlines.of(snapshot.each(ids, _outline))


def _follow(kept: Outlines, since: Sequence[RevisionRecord], snapshot: Snapshot) -> Outlines:
    changed = sorted({section for record in since for section in record.sections})
    return kept.changed(dict(zip(changed, snapshot.find(changed, _outline), strict=True)))


def _outline(view: CorpusView, section: NodeId) -> Outline | None:
    found = view.section(section)
    return None if found is None else Outline.of(found)
