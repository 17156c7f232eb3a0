"""Full cores of revisions with erased content can be imported or are refused with a reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import cores_pb2
from drillcore_server.cores.imports.check_core import CheckedCore, check_core
from drillcore_server.storage.sealed_file import SealedFile
from tests.support.callers.communities import CommunityCaller, topic_drafts
from tests.support.callers.core_exports import CoreCaller, auditor, serving
from tests.support.callers.knowledge import File, at_revision, refused
from tests.support.data.texts import REGULATIONS
from tests.support.servers.running import ACME, Running


@pytest.fixture
def parties(tmp_path: Path) -> Iterator[tuple[Running, CoreCaller, CoreCaller]]:
    with serving(tmp_path) as (server, writer), auditor(server) as eve:
        yield server, writer, eve


def check(data: bytes) -> CheckedCore:
    """Reads a core; raises `InvalidCore` if no server would accept it."""
    with SealedFile() as file:
        file.write(data)
        with check_core(file, strict=True, progress=lambda *_: None) as core:
            return core


def test_a_hierarchy_that_is_no_longer_whole_is_not_exported(parties: tuple[Running, CoreCaller, CoreCaller]) -> None:
    _, writer, eve = parties
    corpus = writer.corpus()
    for name, text in list(REGULATIONS.items())[:3]:
        writer.add(corpus, File(name, text, name))
    writer.erase(corpus, list(REGULATIONS)[1])
    for revision in (2, 3):
        with refused(Reason.ERASED):
            eve.export(corpus, as_of=at_revision(revision))
        eve.export(corpus, as_of=at_revision(revision), kind=cores_pb2.CORE_KIND_PLAIN)
        check(eve.export(corpus, as_of=at_revision(revision), include_sources=False).data)
    for revision in (0, 1, 4):
        check(eve.export(corpus, as_of=at_revision(revision)).data)


def test_a_community_counts_its_remaining_members(parties: tuple[Running, CoreCaller, CoreCaller]) -> None:
    server, writer, eve = parties
    corpus = writer.corpus()
    *drafts, extra = topic_drafts(salmon=6)
    extra.source_id, extra.importance_weight = "another", 0.01
    with CommunityCaller(server, ACME) as keeper:
        keeper.plant(corpus, *drafts, extra)
        keeper.recompute(corpus)
    before = writer.head(corpus)
    writer.erase(corpus, "another")
    core = check(eve.export(corpus, as_of=at_revision(before)).data)
    assert core.full is not None
    assert (len(core.full.facts.facts), core.full.facts.communities) == (5, 1)
