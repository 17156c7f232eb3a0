"""Erasures of an archive's sources, in processes that tests kill.

Run it as `python -m tests.support.stores.archive_erasures STORE ...`:

    destroy SOURCE    prints "now" when the keys are to be destroyed, and waits
    purge             prints "page" before each page that is removed, then "done"
"""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from drillcore_fdb.embedded import Durability
from drillcore_server.erasure import purge_store as purging
from drillcore_server.erasure.destroy_keys import Eraser
from drillcore_server.erasure.erase import erase_source
from drillcore_server.erasure.purge import Purged, Purger
from drillcore_server.kernel.erasures import Erasure
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import SourceId
from drillcore_server.storage.keyring import Keyring
from tests.support.stores.archive import Archive, opened_archive

PAGE_KEYS = 5


def eraser(archive: Archive) -> Eraser:
    return Eraser(archive.planner.reviser, archive.planner, Purger(archive.engine, archive.planner.reviser.unit), 30)


def erase(archive: Archive, source: str, call: Call | None = None) -> Erasure:
    return erase_source(eraser(archive), call or archive.call("EraseSource"), archive.target, SourceId(source))


def purge(archive: Archive) -> Purged:
    corpus = archive.corpus
    return eraser(archive).purger.purge_by_itself(corpus.tenant_id, corpus.id, datetime.now(UTC), lambda: False)


def _wait_instead(*_: Any) -> None:
    os.write(1, b"now\n")
    time.sleep(600)


def _tell_pages() -> None:
    inner = purging.remove_page

    def remove_page(*arguments: Any) -> Any:
        os.write(1, b"page\n")
        return inner(*arguments)

    vars(purging).update(remove_page=remove_page, _PAGE_KEYS=PAGE_KEYS)


def main(path: str, command: str, source: str = "") -> None:
    with opened_archive(Path(path), Durability.FULL) as archive:
        if command == "destroy":
            Keyring.destroy = _wait_instead  # type: ignore[method-assign]
            erase(archive, source)
        else:
            _tell_pages()
            purge(archive)
            os.write(1, b"done\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
