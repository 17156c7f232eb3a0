"""Records that came with cores are erased where they must be, and fsck finds what does not agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from drillcore import Role, SignatureTarget, SignatureTargetKind
from drillcore_fdb.engine import Transaction
from drillcore_fdb.tuples import KeyRange
from drillcore_proto.v1 import signatures_pb2, signatures_pb2_grpc
from drillcore_server.fsck.check_store import Fsck
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.store import open_store
from tests.support.callers.core_exports import CoreCaller as Writer
from tests.support.callers.core_exports import serving
from tests.support.callers.cores import CoreCaller, check_store, foreign_records, handbook, library_document
from tests.support.callers.knowledge import File
from tests.support.fixtures import new_corpus
from tests.support.servers.running import ACME, ACME_ID, GLOBEX, GLOBEX_ID, OPERATOR, Running
from tests.support.servers.signatories import person
from tests.support.stores.aged import age, keys_of, keyspace

TEXT = "Records of every batch shall be kept for five years by the quality unit."


@pytest.fixture
def parties(tmp_path: Path) -> Iterator[tuple[Running, Writer]]:
    with serving(tmp_path) as found:
        yield found


def problems(server: Running) -> list[str]:
    report = Fsck(server.engine, keyspace(server), server.server.keyring, open_store(server.engine)[1].store_id).run()
    return list(report.problems)


def signed_core(server: Running, writer: Writer) -> tuple[bytes, str]:
    """A core with a signed fact, and the fact's id."""
    corpus = writer.corpus()
    writer.add(corpus, File("rule.txt", TEXT))
    fact = writer.list(corpus)[0].fact_id
    ann = person(server, "ann", Role.REVIEWER)
    session = ann.log_in()
    prepared = session.prepare_signature(SignatureTarget(SignatureTargetKind.FACT, UUID(fact)), "reviewed")
    session.sign_record(prepared, ann.password, login=ann.account.login)
    cores = CoreCaller(server.address, OPERATOR, ACME_ID)
    core = cores.export(corpus).data
    cores.close()
    return core, fact


def listed(caller: Writer, fact: str) -> list[signatures_pb2.Signature]:
    stub = signatures_pb2_grpc.SignatureServiceStub(caller._channel)
    target = signatures_pb2.SignatureTarget(kind=signatures_pb2.SIGNATURE_TARGET_KIND_FACT, id=fact)
    return list(stub.ListSignatures(signatures_pb2.ListSignaturesRequest(target=target), **caller.options()).signatures)


def test_a_foreign_signature_is_erased_with_the_source_of_the_signed_record(parties: tuple[Running, Writer]) -> None:
    server, writer = parties
    core, fact = signed_core(server, writer)
    corpus, cores = new_corpus(server, GLOBEX), CoreCaller(server.address, OPERATOR, GLOBEX_ID)
    cores.send(corpus, core, strict=True)
    with Writer(server, GLOBEX) as theirs:
        (found,) = listed(theirs, fact)
        assert found.foreign
        assert found.content_salt
        assert [signature.foreign for signature in listed(writer, fact)] == [False], (
            "the first tenant has its own signature and no foreign copy"
        )
        theirs.erase(corpus, "rule.txt")
        assert listed(theirs, fact) == []
        theirs.purge(corpus)
    check_store(server)
    cores.close()


def _clear_first(server: Running, found: KeyRange) -> None:
    def work(tr: Transaction) -> None:
        key, _ = next(iter(tr.range(*found, limit=1)))
        tr.clear(key)

    server.engine.run(work)


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (CorpusKeys.all_library_blobs, "the content of a library document does not match"),
        (CorpusKeys.library_documents, "a piece belongs to no library document"),
        (CorpusKeys.all_entity_vectors, "is gone"),
    ],
    ids=["content", "description", "vector"],
)
def test_fsck_finds_lost_records(parties: tuple[Running, Writer], lost: object, said: str) -> None:
    server, _ = parties
    corpus, cores = new_corpus(server, ACME), CoreCaller(server.address, OPERATOR, ACME_ID)
    cores.send(corpus, handbook())
    assert problems(server) == []
    _clear_first(server, lost(keys_of(server, corpus)))  # type: ignore[operator]
    found = problems(server)
    assert found
    assert said == "is gone" or any(said in problem for problem in found)
    cores.close()


def test_a_trim_keeps_the_heads_records_of_other_systems(parties: tuple[Running, Writer]) -> None:
    server, _ = parties
    client, cores = server.client(), CoreCaller(server.address, OPERATOR, ACME_ID)
    corpus = new_corpus(server, ACME)
    cores.send(corpus, library_document("urn:d", b"long " * 50_000), source_id="s")
    cores.send(corpus, library_document("urn:d", b"short") + handbook(), source_id="s")
    before = foreign_records(server, corpus)
    age(server, corpus, days=10)
    client.update_corpus(UUID(corpus), retention_days=1, tenant_id=ACME_ID)
    assert client.trim_corpus(UUID(corpus), tenant_id=ACME_ID).oldest_revision == 2
    assert foreign_records(server, corpus) == before
    check_store(server)
    cores.close()
