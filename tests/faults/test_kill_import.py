"""Kill -9 in the middle of an import leaves nothing of the core, and the core can be imported again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from drillcore_fdb.embedded import verify
from drillcore_server.kernel import revise
from tests.support.callers.cores import CoreCaller, check_store, foreign_records
from tests.support.callers.knowledge import LEVELS, Caller
from tests.support.processes.core_stager import CORE
from tests.support.processes.killed import process
from tests.support.processes.stager import BATCH_BYTES_MAX, LEASE_S
from tests.support.servers.running import ACME, ACME_ID, OPERATOR, running


def import_and_be_killed(store: Path, kill_after: int) -> str:
    """Imports a core until the process is killed. Returns the corpus."""
    with process("-m", "tests.support.processes.core_stager", str(store), str(kill_after)) as writer:
        assert writer.stdout is not None
        (line,) = writer.stdout
        assert writer.wait() == -signal.SIGKILL
    return line.removeprefix(b"corpus ").decode().strip()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kill_after", [1, 4, 7])
def test_a_killed_import_leaves_nothing_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_after: int
) -> None:
    monkeypatch.setattr(revise, "SMALL_BYTES_MAX", 0)
    monkeypatch.setattr(revise, "BATCH_BYTES_MAX", BATCH_BYTES_MAX)
    monkeypatch.setattr(revise, "LEASE_S", LEASE_S)
    corpus = import_and_be_killed(tmp_path, kill_after)
    assert verify(tmp_path) == []
    with running(tmp_path) as server:
        reader, cores = Caller(server.address, ACME), CoreCaller(server.address, OPERATOR, ACME_ID)
        assert reader.head(corpus) == 0
        assert all(not reader.query(corpus, level=level) for level in LEVELS)
        assert (reader.list_documents(corpus), cores.quads_of(corpus)) == ([], {})
        assert foreign_records(server, corpus).documents == {}
        assert cores.send(corpus, CORE.read_bytes(), strict=True).done.revision == 1
        assert cores.export(corpus).data == CORE.read_bytes()
        check_store(server)
        reader.close()
        cores.close()
