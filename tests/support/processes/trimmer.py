"""A process that trims a corpus until it is killed: `python -m tests.support.processes.trimmer STORE REVISION`.

It prints "page" before each transaction that removes something, and "done" when the trim is finished.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from drillcore_fdb.embedded import Durability
from drillcore_fdb.engine import Transaction
from drillcore_server.kernel import retention
from drillcore_server.kernel.corpus_model import Corpus, TrimState
from drillcore_server.storage.ids import Revision
from drillcore_server.storage.keyspace import Keyspace
from tests.support.stores.archive import opened_archive
from tests.support.stores.archive_retention import trim

PAGE_ENTRIES = 30


def tell_pages() -> None:
    inner = retention.trim_page

    def trim_page(tr: Transaction, keyspace: Keyspace, corpus: Corpus) -> tuple[int, TrimState]:
        os.write(1, b"page\n")
        return inner(tr, keyspace, corpus)

    vars(retention).update(trim_page=trim_page, PAGE_ENTRIES=PAGE_ENTRIES)


def main(path: str, revision: str) -> None:
    tell_pages()
    with opened_archive(Path(path), Durability.FULL) as archive:
        trim(archive, Revision(int(revision)))
        os.write(1, b"done\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
