"""Kill -9 in the middle of a large revision: readers find the previous revision whole, and the next writer can write.

DRILLCORE_SOAK=1 kills 60 times instead of a few.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from drillcore_fdb.embedded import verify
from drillcore_server.kernel import revise, revisions
from drillcore_server.storage.ids import Revision
from tests.support.processes.killed import process
from tests.support.processes.stager import BATCH_BYTES_MAX, LEASE_S, edition
from tests.support.stores.archive import opened_archive
from tests.support.stores.consistent import check

SOAK = os.environ.get("DRILLCORE_SOAK") == "1"
ROUNDS = 60 if SOAK else 4
STAGES_MAX = 90
"""More batches than a revision has, so that some processes are killed in their second revision."""


def write_and_be_killed(store: Path, acknowledged: int, kill_after: int) -> int:
    """Kills a writer at its `kill_after`-th batch. Returns the last revision acknowledged by it or before it."""
    stages = 0
    with process("-m", "tests.support.processes.stager", str(store)) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if line.startswith(b"published "):
                acknowledged = int(line.split()[1])
            elif line == b"stage\n":
                stages += 1
            if stages == kill_after:
                writer.kill()
    assert stages >= kill_after
    return acknowledged


@dataclass(frozen=True)
class Left:
    head: Revision
    """The head after the next writer has written."""
    claimed: bool
    """Whether the killed writer had claimed a revision."""


def reopen_and_write(store: Path, acknowledged: int) -> Left:
    """Checks that a killed writer left the store whole. Then another writer adds an edition by the same path."""
    assert verify(store) == []
    with opened_archive(store) as archive:
        before = check(archive, idle=False)
        assert before.revision in {acknowledged, acknowledged + 1}
        assert before.texts == edition(before.revision)
        claimed = archive.engine.run(lambda tr: revisions.get_claim(tr, archive.keys)) is not None
        added = archive.add(edition(before.revision + 1))
        assert added.revision == before.revision + 1
        assert check(archive).texts == edition(added.revision)
        assert check(archive, before.revision).records == before.records
        return Left(added.revision, claimed)


@pytest.mark.timeout(1800 if SOAK else 120)
def test_a_writer_killed_while_staging_leaves_the_old_revision_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revise, "SMALL_BYTES_MAX", 0)
    monkeypatch.setattr(revise, "BATCH_BYTES_MAX", BATCH_BYTES_MAX)
    monkeypatch.setattr(revise, "LEASE_S", LEASE_S)
    dice = random.Random(33)
    left = [Left(Revision(0), claimed=False)]
    for _ in range(ROUNDS):
        acknowledged = write_and_be_killed(tmp_path, left[-1].head, dice.randint(1, STAGES_MAX))
        left.append(reopen_and_write(tmp_path, acknowledged))
    assert any(remains.claimed for remains in left), "no writer was killed in the middle of a revision"
