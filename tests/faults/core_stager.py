"""Imports a core in many small batches, in a process that is to be killed: `python -m tests.faults.core_stager STORE`.

To stdout go the corpus ("corpus ID"), a line before each batch is staged ("stage"), and when the core was acknowledged,
and only then, "published".
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from drillcore_server.commands import revise
from tests.faults.stager import BATCH_BYTES_MAX, LEASE_S, tell_stages
from tests.rpc.conftest import new_corpus
from tests.rpc.cores import CoreCaller
from tests.rpc.running import ACME_ID, OPERATOR, create_tenants, running

CORE = Path(__file__).parent.parent / "golden" / "small.core"


def main(path: str) -> None:
    vars(revise).update(SMALL_BYTES_MAX=0, BATCH_BYTES_MAX=BATCH_BYTES_MAX, LEASE_S=LEASE_S)
    tell_stages()
    with running(Path(path)) as server:
        create_tenants(server.client())
        corpus = new_corpus(server)
        os.write(1, f"corpus {corpus}\n".encode())
        CoreCaller(server.address, OPERATOR, ACME_ID).send(corpus, CORE.read_bytes())
        os.write(1, b"published\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
