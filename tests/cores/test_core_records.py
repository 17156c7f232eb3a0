"""Signatures and communities in full cores, and a stored core file that later versions must read the same way."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from drillcore import Role, SignatureTarget, SignatureTargetKind
from drillcore_formats.audit.notes import check_signature
from drillcore_formats.audit.signatures import signed_manifestation
from drillcore_proto.v1 import facts_pb2
from drillcore_server.signatures.store import SIGNATURE
from tests.support.callers.communities import CommunityCaller, topic_drafts
from tests.support.callers.core_exports import (
    QUADS,
    CoreCaller,
    Exported,
    auditor,
    foreign,
    part_records,
    plant,
    serving,
    turn,
    verifier,
)
from tests.support.callers.cores import CoreCaller as Importing
from tests.support.callers.knowledge import File, at_revision
from tests.support.paths import GOLDEN_FILES
from tests.support.servers.running import ACME, Running
from tests.support.servers.signatories import Person, person

GOLDEN = GOLDEN_FILES / "small.core"
OLDER = GOLDEN_FILES / "small_older.core"
"""The same core, written when stores had vectors of 16-bit floats."""


@pytest.fixture
def parties(tmp_path: Path) -> Iterator[tuple[Running, CoreCaller, CoreCaller]]:
    with serving(tmp_path) as (server, writer), auditor(server) as eve:
        yield server, writer, eve


def sign(signer: Person, kind: SignatureTargetKind, target: str) -> None:
    session = signer.log_in()
    prepared = session.prepare_signature(SignatureTarget(kind, UUID(target)), "reviewed")
    session.sign_record(prepared, signer.password, login=signer.account.login)


def signatures_in(core: bytes) -> list[tuple[str, int, bytes]]:
    found = [SIGNATURE.decode(record[1]) for record in part_records(core) if record[0] == "signature"]
    return [(str(signature.target.id), signature.target.version, signature.content_salt) for signature in found]


def test_a_core_has_the_signatures_of_its_records_with_their_salts(
    parties: tuple[Running, CoreCaller, CoreCaller],
) -> None:
    server, writer, eve = parties
    corpus, ann = writer.corpus(), person(server, "ann", Role.REVIEWER)
    writer.add(corpus, File("rule.txt", "Records of every batch shall be kept for five years by the quality unit."))
    master, fact = writer.master(corpus).id, writer.list(corpus)[0].fact_id
    sign(ann, SignatureTargetKind.FACT, fact)
    sign(ann, SignatureTargetKind.NODE, master)
    sign(ann, SignatureTargetKind.NODE, master)
    exported = eve.export(corpus)
    assert [signature[:2] for signature in signatures_in(exported.data)] == [(master, 1), (master, 1), (fact, 1)]
    assert all(len(salt) == 32 for _, _, salt in signatures_in(exported.data))
    for kind, *values in part_records(exported.data):
        if kind == "signature":
            signature = SIGNATURE.decode(values[0])
            message = signed_manifestation(signature.manifestation.encode())
            check_signature(verifier(server).public_key, signature.signature, message, "the manifestation")
            assert signature.sealed_by == ()
    assert [signature[0] for signature in signatures_in(eve.export(corpus, include_sources=False).data)] == [fact]
    writer.update(fact, importance_weight=0.25)
    assert [signature[0] for signature in signatures_in(eve.export(corpus).data)] == [master, master]
    assert eve.export(corpus, as_of=at_revision(exported.done.revision)).data == exported.data


def test_communities_are_in_a_core_by_their_first_member_and_without_erased_members(
    parties: tuple[Running, CoreCaller, CoreCaller],
) -> None:
    server, writer, eve = parties
    corpus = writer.corpus()
    with CommunityCaller(server, ACME) as keeper:
        keeper.plant(corpus, *topic_drafts(violin=4, salmon=5))
        extra = facts_pb2.FactDraft.FromString(topic_drafts(salmon=6)[5].SerializeToString())
        extra.source_id, extra.importance_weight = "another", 0.01
        keeper.plant(corpus, extra)
        keeper.recompute(corpus)
        members = keeper.members(corpus)
    found = [record[1:] for record in part_records(eve.export(corpus).data) if record[0] == "community"]
    assert [len(community[5]) // 16 for community in found] == [6, 4]
    told = [
        {str(UUID(bytes=community[5][at : at + 16])) for at in range(0, len(community[5]), 16)} for community in found
    ]
    assert sorted(map(sorted, told)) == sorted(map(sorted, members.values()))
    before = writer.head(corpus)
    writer.erase(corpus, "another")
    for revision in (before, writer.head(corpus)):
        core = eve.export(corpus, as_of=at_revision(revision)).data
        assert UUID(extra.fact_id).bytes not in b"".join(
            record[6] for record in part_records(core) if record[0] == "community"
        )


def small_core(server: Running, writer: CoreCaller, eve: CoreCaller) -> bytes:
    """Makes the stored file."""
    corpus = writer.corpus()
    text = "Records of every batch shall be kept for five years by the quality unit.\n\nGr\u00fc\u00dfe aus K\u00f6ln."
    writer.add(corpus, File("rule.txt", text), File("other.txt", "Audits are held every year by the quality unit."))
    gone = writer.list(corpus)[0].fact_id
    writer.set_status(gone, facts_pb2.FACT_STATUS_DELETED)
    writer.put_quads(corpus, *QUADS)
    writer.put_quads(corpus, *QUADS[2:], source="trustgraph")
    writer.put_turns(corpus, turn(0.5))
    plant(server, corpus, foreign(server, corpus))
    sign(person(server, "ann", Role.REVIEWER), SignatureTargetKind.NODE, writer.master(corpus).id)
    return eve.export(corpus).data


def test_the_stored_core_is_imported_and_exported_unchanged(
    parties: tuple[Running, CoreCaller, CoreCaller],
) -> None:
    server, writer, eve = parties
    kept = GOLDEN.read_bytes()
    again = imported_and_exported(server, writer, eve, kept)
    assert again.done.sha256 == hashlib.sha256(kept).digest()
    assert again.data == kept


def test_a_core_with_vectors_of_16_bits_becomes_the_same_core_with_shorter_ones(
    parties: tuple[Running, CoreCaller, CoreCaller],
) -> None:
    server, writer, eve = parties
    assert OLDER.read_bytes() != GOLDEN.read_bytes()
    assert imported_and_exported(server, writer, eve, OLDER.read_bytes()).data == GOLDEN.read_bytes()


def imported_and_exported(server: Running, writer: CoreCaller, eve: CoreCaller, core: bytes) -> Exported:
    corpus, importing = writer.corpus(), Importing(server.address, ACME)
    try:
        assert importing.send(corpus, core, strict=True).done.counts.documents == 2
    finally:
        importing.close()
    return eve.export(corpus)


def test_a_new_core_has_the_same_kinds_of_records_as_the_stored_one(
    parties: tuple[Running, CoreCaller, CoreCaller],
) -> None:
    made = small_core(*parties)
    assert [record[0] for record in part_records(made)] == [record[0] for record in part_records(GOLDEN.read_bytes())]
