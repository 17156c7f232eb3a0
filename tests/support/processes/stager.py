"""A process that writes large revisions until it is killed: `python -m tests.support.processes.stager STORE`.

Revision N replaces every document by its edition N. The process prints "stage" before it stages each batch, and
"published N" only once a revision was acknowledged.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from drillcore_fdb.embedded import Durability
from drillcore_server.kernel import revise
from drillcore_server.kernel.revisions import Claim
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.corpus_keys import CorpusKeys
from tests.support.stores.archive import SENTENCES, Archive, opened_archive, text_of

BATCH_BYTES_MAX = 4_000
LEASE_S = 0.5
"""How long after the process's last batch its staged records may be swept."""
PARAGRAPHS = 6


def edition(number: int) -> dict[str, str]:
    return {topic: text_of(topic, number, PARAGRAPHS) for topic in SENTENCES} if number else {}


def tell_stages() -> None:
    inner = revise.Reviser._stage

    def stage(self: revise.Reviser, keys: CorpusKeys, claim: Claim, number: int, batch: Sequence[Write]) -> bytes:
        os.write(1, b"stage\n")
        return inner(self, keys, claim, number, batch)

    revise.Reviser._stage = stage  # type: ignore[method-assign]


def write_for_ever(archive: Archive) -> None:
    while True:
        revision = archive.add(edition(archive.head() + 1)).revision
        os.write(1, b"published %d\n" % revision)


def main(path: str) -> None:
    vars(revise).update(SMALL_BYTES_MAX=0, BATCH_BYTES_MAX=BATCH_BYTES_MAX, LEASE_S=LEASE_S)
    tell_stages()
    with opened_archive(Path(path), Durability.FULL) as archive:
        write_for_ever(archive)


if __name__ == "__main__":
    main(*sys.argv[1:])
