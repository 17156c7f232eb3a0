"""Imports a core in many small batches, and kills itself in between.

Run it as `python -m tests.support.processes.core_stager STORE STAGES`.

It prints the corpus ("corpus ID"), and "published" only once the core was acknowledged.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from drillcore_server.kernel import revise
from drillcore_server.kernel.revisions import Claim
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.corpus_keys import CorpusKeys
from tests.support.callers.cores import CoreCaller
from tests.support.fixtures import new_corpus
from tests.support.paths import GOLDEN_FILES
from tests.support.processes.stager import BATCH_BYTES_MAX, LEASE_S
from tests.support.servers.running import ACME_ID, OPERATOR, create_tenants, running

CORE = GOLDEN_FILES / "small.core"


def die_after(stages: int) -> None:
    """Kills the process when this many batches are staged, as if somebody had pulled the plug."""
    inner = revise.Reviser._stage

    def stage(self: revise.Reviser, keys: CorpusKeys, claim: Claim, number: int, batch: Sequence[Write]) -> bytes:
        if number == stages:
            os.kill(os.getpid(), signal.SIGKILL)
        return inner(self, keys, claim, number, batch)

    revise.Reviser._stage = stage  # type: ignore[method-assign]


def main(path: str, stages: str) -> None:
    vars(revise).update(SMALL_BYTES_MAX=0, BATCH_BYTES_MAX=BATCH_BYTES_MAX, LEASE_S=LEASE_S)
    die_after(int(stages))
    with running(Path(path)) as server:
        create_tenants(server.client())
        corpus = new_corpus(server)
        os.write(1, f"corpus {corpus}\n".encode())
        CoreCaller(server.address, OPERATOR, ACME_ID).send(corpus, CORE.read_bytes())
        os.write(1, b"published\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
