"""`drillcore serve`, which also prints a line before it stages each batch.

    python tests/support/processes/telling_server.py SMALL_BYTES_MAX BATCH_BYTES_MAX LEASE_S serve ...

The numbers replace those of `kernel/revise.py`; 0 leaves a number unchanged.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from drillcore.cli import main
from drillcore_server.kernel import revise
from drillcore_server.kernel.revisions import Claim
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.corpus_keys import CorpusKeys


def tell_stages() -> None:
    inner = revise.Reviser._stage

    def stage(self: revise.Reviser, keys: CorpusKeys, claim: Claim, number: int, batch: Sequence[Write]) -> bytes:
        os.write(1, b"stage %d\n" % number)
        return inner(self, keys, claim, number, batch)

    revise.Reviser._stage = stage  # type: ignore[method-assign]


def lower_limits(small_bytes_max: str, batch_bytes_max: str, lease_s: str) -> None:
    limits = {
        "SMALL_BYTES_MAX": int(small_bytes_max),
        "BATCH_BYTES_MAX": int(batch_bytes_max),
        "LEASE_S": float(lease_s),
    }
    vars(revise).update({name: limit for name, limit in limits.items() if limit})


if __name__ == "__main__":
    lower_limits(*sys.argv[1:4])
    tell_stages()
    main(sys.argv[4:])
