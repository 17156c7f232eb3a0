"""After an erasure, not even the server's own keys open anything of the source, wherever the server stored it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import orjson
import pytest

from drillcore_fdb import codec
from drillcore_fdb.engine import Engine
from drillcore_fdb.errors import StoreCorruptError
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import facts_pb2
from drillcore_server.kernel.unit import OUTCOME
from drillcore_server.storage.ids import Revision
from drillcore_server.storage.keyring import KeyErased
from drillcore_server.storage.sealed import SealedRecords
from drillcore_server.storage.spaces import Space
from drillcore_server.storage.versioned import Entry
from tests.support.callers.erasures import MARKED, MARKER, OTHER, ErasingCaller, opened
from tests.support.callers.knowledge import File, refused
from tests.support.servers.running import ACME, Running, create_tenants, running
from tests.support.servers.watcher import all_events
from tests.support.stores.aged import keyspace
from tests.support.stores.trails import all_records

SOURCE = f"registers/{MARKER}.md"
SAID = f"The {MARKER} is a tropical American weevil that eats the leaves of palm trees by night."
QUARANTINED = facts_pb2.FACT_STATUS_QUARANTINED


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "data") as found:
        create_tenants(found.client())
        yield found


@pytest.fixture
def caller(server: Running) -> Iterator[ErasingCaller]:
    with ErasingCaller(server, ACME) as found:
        yield found


@pytest.fixture
def corpus(caller: ErasingCaller) -> str:
    """A corpus with the marker in names, texts, metadata, reasons, queries and a session, all of a single source."""
    made = caller.corpus()
    caller.add(made, File("other.md", OTHER, "other"))
    for text in (MARKED, MARKED + f"\nA second {MARKER} edition adds that keepers must pay.\n"):
        caller.add(made, File(f"{MARKER}.md", text, SOURCE))
    caller.add(made, File(f"{MARKER} again.md", text, SOURCE))
    caller.add(made, File(f"{MARKER}.md", text, SOURCE), File("more.md", OTHER + "\nMore is said here.\n", "more"))
    draft = facts_pb2.FactDraft(content=SAID, source_id=SOURCE, metadata={MARKER: MARKER})
    (fact,) = caller.put(made, draft).fact_ids
    caller.put(made, draft, cache_control="no-store", session_id="s-1")
    caller.search(SAID, made, limit=1)
    caller.update(fact, content=SAID + f" So the {MARKER} does.", source_location=f"{MARKER}, page 3")
    caller.set_status(fact, QUARANTINED, reason=f"the {MARKER} is a beetle")
    with refused(Reason.FACT_NOT_FOUND):
        caller.get(str(uuid4()))
    return made


def marked(text: bytes) -> bool:
    return MARKER.encode() in text.lower()


def everything(engine: Engine) -> list[tuple[bytes, bytes]]:
    return engine.run(lambda tr: list(tr.range(b"", b"\xff")))


def remembered(server: Running) -> list[bytes]:
    """The outcomes of requests. Sealed outcomes are opened if the keyring can open them."""
    keys = keyspace(server)._spaces[Space.REQUESTS]
    found = server.engine.run(lambda tr: list(codec.scan(tr, *keys.range())))
    return [open_if_can(server, keys.unpack(key)[-1].encode(), OUTCOME.decode(stored).result) for key, stored in found]


def in_sessions(server: Running) -> list[bytes]:
    keys = keyspace(server)._spaces[Space.SESSION_FACTS]
    return [
        open_if_can(server, key, stored)
        for key, stored in server.engine.run(lambda tr: list(codec.scan(tr, *keys.range())))
    ]


def open_if_can(server: Running, bound_to: bytes, stored: bytes) -> bytes:
    try:
        return SealedRecords(server.server.keyring).opened(Entry(bound_to, Revision(0), stored)).value
    except (KeyErased, StoreCorruptError):
        return stored


def in_the_clear(server: Running, corpus: str) -> dict[str, int]:
    """For each kind of storage, how many values contain the marker when opened with all existing keys."""
    of_keyring = server.server.keyring._engine
    values = {
        "keys and values": [key + value for key, value in everything(server.engine)],
        "keyring": [key + value for key, value in everything(of_keyring)],
        "records": list(opened(server, corpus)),
        "audit": [orjson.dumps(record, default=str) for record in all_records(server)],
        "outcomes": remembered(server),
        "sessions": in_sessions(server),
        "events": [event.SerializeToString() for event in all_events(server.address, ACME, from_beginning=True)],
        "log": [server.log.getvalue().encode()],
    }
    return {name: found for name, texts in values.items() if (found := sum(map(marked, texts)))}


def test_no_key_of_the_server_opens_anything_of_an_erased_source(
    server: Running, caller: ErasingCaller, corpus: str
) -> None:
    assert in_the_clear(server, corpus).keys() == {"records", "audit", "outcomes", "sessions"}
    caller.erase(corpus, SOURCE)
    assert in_the_clear(server, corpus) == {}


def test_a_repeated_request_is_not_answered_with_erased_content(caller: ErasingCaller) -> None:
    """The sender knows the name of the source, but the server keeps nothing to answer with."""
    corpus, sent, request = caller.corpus(), File(f"{MARKER}.md", MARKED, SOURCE), str(uuid4())
    caller.add(corpus, sent, request_id=request)
    assert caller.add(corpus, sent, request_id=request).ids.keys() == {f"{MARKER}.md"}
    caller.erase(corpus, SOURCE)
    with refused(Reason.ERASED):
        caller.add(corpus, sent, request_id=request)
    assert caller.list_documents(corpus) == []
