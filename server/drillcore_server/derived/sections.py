"""The sections of corpora in memory, each corpus at the revision last asked for, kept up to date by what changed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from drillcore_server.domain.ids import CorpusNumber, NodeId, Revision
from drillcore_server.domain.nodes import Section
from drillcore_server.store import revisions
from drillcore_server.store.hierarchy import CorpusView

_CORPORA_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class _Kept:
    revision: Revision
    sections: Mapping[NodeId, Section]


class SectionCache:
    """Safe to use from many threads: what is kept is never changed, only replaced."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[CorpusNumber, _Kept] = OrderedDict()

    def sections(self, number: CorpusNumber, view: CorpusView) -> Mapping[NodeId, Section]:
        """The sections as the view's revision has them."""
        with self._lock:
            kept = self._kept.get(number)
        if kept is not None and kept.revision == view.revision:
            return kept.sections
        if kept is None or kept.revision > view.revision:
            fresh = {section.id: section for section in view.sections()}
        else:
            fresh = _brought_up_to_date(kept, view)
        if kept is None or kept.revision < view.revision:
            self._keep(number, _Kept(view.revision, fresh))
        return fresh

    def _keep(self, number: CorpusNumber, kept: _Kept) -> None:
        with self._lock:
            self._kept[number] = kept
            self._kept.move_to_end(number)
            while len(self._kept) > _CORPORA_MAX:
                self._kept.popitem(last=False)


def _brought_up_to_date(kept: _Kept, view: CorpusView) -> dict[NodeId, Section]:
    changed = {
        section
        for record in revisions.between(view.tr, view.keys, kept.revision, view.revision)
        for section in record.sections
    }
    sections = {one: section for one, section in kept.sections.items() if one not in changed}
    for one in changed:
        section = view.section(one)
        if section is not None:
            sections[one] = section
    return sections
