"""Erasing a source: once the call returns, no caller gets anything of it, and a proof of the erasure exists."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from unittest import mock
from uuid import UUID, uuid4

import pytest

import drillcore
from drillcore import Client, ExportFormat, Role, SignatureTarget, SignatureTargetKind
from drillcore_fdb.engine import Engine
from drillcore_formats.audit.bundle import verify_bundle
from drillcore_formats.audit.exported import verify_export
from drillcore_formats.audit.pins import Pins
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import facts_pb2, nodes_pb2
from drillcore_proto.v1 import sources_pb2 as pb
from drillcore_server.storage import sealed_file
from drillcore_server.storage.ids import SourceId
from drillcore_server.storage.sealed_file import SealedFile
from tests.support.callers.erasures import MARKED, MARKER, OTHER, ErasingCaller, auditor, bundle, members, problems
from tests.support.callers.knowledge import CHUNK, MASTER, RAW, SECTION, File, at_revision, parts, refused
from tests.support.servers.running import ACME, Running, create_tenants, running
from tests.support.servers.signatories import QUICK, person
from tests.support.stores.aged import corpus_in, keys_of
from tests.support.stores.hooked_engine import HookedEngine
from tests.support.stores.trails import records


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "data", auth=QUICK) as found:
        create_tenants(found.client())
        yield found


@pytest.fixture
def caller(server: Running) -> Iterator[ErasingCaller]:
    with ErasingCaller(server, ACME) as found:
        yield found


@pytest.fixture
def corpus(caller: ErasingCaller) -> str:
    """Three revisions. The marked source has facts and an earlier version; a section and the master cite it."""
    made = caller.corpus()
    caller.add(made, File("marked.md", MARKED, "marked"), File("other.md", OTHER, "other"))
    caller.add(made, File("marked.md", MARKED + f"\nA second {MARKER} edition adds that keepers must pay.\n", "marked"))
    draft = facts_pb2.FactDraft(
        content=f"The {MARKER} is a tropical American weevil that eats the leaves of palm trees by night.",
        source_id="marked",
    )
    caller.put(made, draft)
    return made


def marked(answers: Iterable[bytes]) -> int:
    """How many answers contain the marker, in any case."""
    return sum(MARKER.encode() in answer.lower() for answer in answers)


def test_nothing_of_an_erased_source_is_shown_at_any_revision(caller: ErasingCaller, corpus: str) -> None:
    ids = caller.ids(corpus)
    assert MARKER in caller.master(corpus).master.summary.lower()
    assert marked(caller.all_answers(corpus, ids)) > 20
    erased = caller.erase(corpus, "marked", reason="the subject asked for it")
    assert marked(caller.all_answers(corpus, ids)) == 0
    assert erased.revision == caller.head(corpus)
    assert "kestrel" in caller.master(corpus).master.summary


def test_the_corpus_is_as_if_the_erased_source_had_never_existed(caller: ErasingCaller, corpus: str) -> None:
    assert len(caller.query(corpus, level=SECTION)) == 1, "both sources are in the same section"
    caller.erase(corpus, "marked")
    alone = caller.corpus("alone")
    caller.add(alone, File("other.md", OTHER, "other"))
    for level in (MASTER, SECTION):
        (left,), (made,) = caller.query(corpus, level=level), caller.query(alone, level=level)
        assert _told(left) == _told(made)


def _told(node: nodes_pb2.Node) -> tuple[object, ...]:
    content = node.section if node.HasField("section") else node.master
    extra = (node.section.title, node.section.category) if node.HasField("section") else ()
    return content.summary, list(content.keywords), *extra


def test_reading_an_erased_node_by_its_id_is_refused_with_the_reason(caller: ErasingCaller, corpus: str) -> None:
    head = caller.head(corpus)
    (document,) = [document.id for document in caller.list_documents(corpus) if document.source_id == "marked"]
    chunk = next(node.id for node in caller.query(corpus, level=CHUNK) if node.chunk.source_id == "marked")
    fact = next(fact.fact_id for fact in caller.list(corpus) if fact.source_id == "marked")
    section = next(node.id for node in caller.query(corpus, level=SECTION) if MARKER in node.section.summary.lower())
    raw = caller.below(chunk, RAW)[0].id
    caller.erase(corpus, "marked")
    for as_of in (None, at_revision(head)):
        for node_id in (chunk, raw):
            with refused(Reason.ERASED):
                caller.node(node_id, as_of=as_of)
        with refused(Reason.ERASED):
            caller.document(corpus, document, as_of)
        with refused(Reason.ERASED):
            caller.get(fact, as_of=as_of)
        with refused(Reason.ERASED):
            caller.sources.GetSource(
                pb.GetSourceRequest(corpus_id=corpus, source_id="marked", as_of=as_of), **caller.options()
            )
    with refused(Reason.ERASED):
        caller.node(section, as_of=at_revision(head))


def test_an_erasure_is_announced_without_the_erased_content(caller: ErasingCaller, corpus: str) -> None:
    documents = len(caller.list_documents(corpus))
    facts = [fact for fact in caller.list(corpus) if fact.source_id == "marked"]
    erased = caller.erase(corpus, "marked", reason="asked").erasure
    assert caller.erasures(corpus) == [erased]
    assert (erased.documents, erased.chunks, erased.facts) == (1, 1, len(facts))
    assert erased.facts >= 1 <= erased.sections_regenerated
    assert len(erased.erased_keys) == 2
    assert erased.erased_by == "ann@acme"
    assert not erased.HasField("purged_at")
    assert erased.purge_due.ToDatetime() - erased.erased_at.ToDatetime() == timedelta(days=30)
    assert len(caller.list_documents(corpus)) == documents - 1
    assert MARKER not in str(erased).lower()
    assert "marked" not in str(erased)


@pytest.mark.parametrize("kind", list(ExportFormat))
def test_exports_of_any_revision_leave_out_the_erased_source_and_say_so(
    server: Running, caller: ErasingCaller, corpus: str, kind: ExportFormat
) -> None:
    eve, head = auditor(server), caller.head(corpus)
    assert marked(members(bundle(eve, corpus, kind, head)).values()) > 0
    erased = caller.erase(corpus, "marked").erasure
    for revision in range(1, head + 2):
        made = bundle(eve, corpus, kind, revision)
        assert verify_bundle(io.BytesIO(made), _pins(server)).ok
        assert marked(members(made).values()) == 0
        told = next(text for name, text in members(made).items() if name.startswith("content"))
        assert erased.id.encode() in told.replace(b"\r\n", b"")


def test_the_audit_trail_verifies_and_proves_the_erasure(server: Running, caller: ErasingCaller) -> None:
    corpus = caller.corpus()
    options = caller.options()
    options["metadata"].append(("drillcore-reason-bin", f"the {MARKER} file came in".encode()))
    list(caller.documents.AddDocuments(parts(corpus, [File("marked.md", MARKED, "marked")]), **options))
    eve = auditor(server)
    assert MARKER in _audit(eve)
    caller.erase(corpus, "marked", reason="the subject asked for it")
    exported = _audit(eve)
    assert MARKER not in exported
    assert "the subject asked for it" in exported
    report = verify_export(io.BytesIO(exported.encode()), _pins(server))
    assert report.ok, report.problems
    assert report.erased == 1
    done = eve.verify_audit()
    assert (list(done.problems), done.erased) == ([], 1)
    assert problems(server) == ()


def _pins(server: Running) -> Pins:
    return Pins((server.server.logs.signing.signer(1).verifier,))


def _audit(client: Client) -> str:
    file = io.BytesIO()
    client.export_audit(file)
    return file.getvalue().decode()


def test_an_unknown_source_and_an_erased_source_are_refused_with_their_reasons(
    server: Running, caller: ErasingCaller, corpus: str
) -> None:
    head = caller.head(corpus)
    with refused(Reason.SOURCE_NOT_FOUND):
        caller.erase(corpus, "nobody")
    keyring, number = server.server.keyring, corpus_in(server.engine, corpus).number
    assert keyring.find(number, SourceId("nobody")) is None, "no key was made for it"
    assert keyring.find(number, SourceId("marked")) is not None
    with refused(Reason.INVALID_ARGUMENT, field="source_id"):
        caller.erase(corpus, "")
    with refused(Reason.INVALID_ARGUMENT, field="source_id"):
        caller.erase(corpus, "s" * 1_001)
    with refused(Reason.TOO_LARGE, field="reason"):
        caller.erase(corpus, "marked", reason="r" * 1_001)
    assert caller.head(corpus) == head
    caller.erase(corpus, "marked")
    with refused(Reason.SOURCE_ERASED):
        caller.erase(corpus, "marked")
    assert caller.head(corpus) == head + 1


def test_a_repeated_request_is_the_same_erasure(caller: ErasingCaller, corpus: str) -> None:
    first = caller.erase(corpus, "marked", request_id="erase-1")
    assert caller.erase(corpus, "marked", request_id="erase-1") == first
    assert caller.erasures(corpus) == [first.erasure]


def test_legal_hold_refuses_erasure_and_purge(server: Running, caller: ErasingCaller, corpus: str) -> None:
    acme, head = server.client(ACME), caller.head(corpus)
    acme.update_corpus(UUID(corpus), hold_reason="Case 2026-17")
    with refused(Reason.CORPUS_ON_HOLD):
        caller.erase(corpus, "marked")
    assert caller.head(corpus) == head
    assert MARKER in caller.master(corpus).master.summary.lower()
    acme.update_corpus(UUID(corpus), release_reason="settled")
    caller.erase(corpus, "marked")
    acme.update_corpus(UUID(corpus), hold_reason="Case 2026-18")
    with refused(Reason.CORPUS_ON_HOLD):
        caller.purge(corpus)
    assert not caller.erasures(corpus)[0].HasField("purged_at")


@contextmanager
def hooked(path: Path) -> Iterator[tuple[HookedEngine, Running, ErasingCaller]]:
    """A server on an engine that lets a test act before the next commit of a call."""
    engines: list[HookedEngine] = []

    def wrap(engine: Engine) -> HookedEngine:
        engines.append(HookedEngine(engine))
        return engines[0]

    with running(path, auth=QUICK, wrap=wrap) as server, ErasingCaller(server, ACME) as caller:
        create_tenants(server.client())
        yield engines[0], server, caller


def test_a_copy_is_not_sent_if_part_of_it_is_erased_before_it_is_recorded(tmp_path: Path) -> None:
    with hooked(tmp_path / "data") as (engine, server, caller):
        corpus, client = caller.corpus(), auditor(server)
        caller.add(corpus, File("marked.md", MARKED, "marked"))
        engine.hook = lambda: caller.erase(corpus, "marked")
        with pytest.raises(drillcore.DrillcoreError) as told:
            bundle(client, corpus, ExportFormat.JSON, 1)
        assert told.value.reason is Reason.CONFLICT
        assert [record["outcome"] for record in records(server, call="ExportCorpus")] == ["CONFLICT"]
        assert marked(members(bundle(client, corpus, ExportFormat.JSON, 1)).values()) == 0


def test_a_copy_is_not_sent_to_its_end_if_part_of_it_is_erased_meanwhile(
    server: Running, caller: ErasingCaller, corpus: str
) -> None:
    pieces, sent = SealedFile.pieces, 0

    def erasing(file: SealedFile) -> Iterator[bytes]:
        nonlocal sent
        for number, piece in enumerate(pieces(file)):
            is_bundle = piece.startswith(b"PK") or sent > 0
            yield piece
            sent += is_bundle
            if is_bundle and number == 0:
                caller.erase(corpus, "marked")

    with (
        mock.patch.object(sealed_file, "PIECE_BYTES", 1024),
        mock.patch.object(SealedFile, "pieces", erasing),
        pytest.raises(drillcore.DrillcoreError) as told,
    ):
        bundle(auditor(server), corpus, ExportFormat.JSON, 1)
    assert told.value.reason is Reason.CONFLICT
    assert sent == 1


def test_a_hold_that_is_put_on_while_a_source_is_erased_wins(tmp_path: Path) -> None:
    with hooked(tmp_path / "data") as (engine, server, caller):
        corpus, client = caller.corpus(), server.client(ACME)
        caller.add(corpus, File("marked.md", MARKED, "marked"))
        engine.hook = lambda: client.update_corpus(UUID(corpus), hold_reason="Case 2026-17")
        with refused(Reason.CORPUS_ON_HOLD):
            caller.erase(corpus, "marked")
        assert caller.erasures(corpus) == []
        assert MARKER in caller.master(corpus).master.summary.lower()


def test_access_counts_of_erased_facts_are_forgotten(server: Running, caller: ErasingCaller, corpus: str) -> None:
    keys = keys_of(server, corpus)
    (other_fact,) = [fact.fact_id for fact in caller.list(corpus) if fact.source_id == "other"][:1]
    for fact in (
        other_fact,
        *(marked_fact.fact_id for marked_fact in caller.list(corpus) if marked_fact.source_id == "marked"),
    ):
        caller.get(fact)
    caller.erase(corpus, "marked")
    counted = server.engine.run(lambda tr: [key for key, _ in tr.range(*keys.fact_accesses())])
    assert {key[len(keys.fact_accesses().begin) :][:16] for key in counted} == {UUID(other_fact).bytes}


def test_an_erased_source_that_is_added_again_is_a_new_source(
    caller: ErasingCaller, corpus: str, server: Running
) -> None:
    ids, old = caller.ids(corpus), caller.head(corpus)
    first = caller.erase(corpus, "marked").erasure
    again = caller.add(corpus, File("marked.md", f"# New\n\nThe keeper consented to this {MARKER} text.\n", "marked"))
    document = next(iter(again.ids.values()))
    assert "consented" in caller.text(corpus, document)
    for revision in range(1, old + 1):
        assert (
            marked(listed.SerializeToString() for listed in caller.list_documents(corpus, as_of=at_revision(revision)))
            == 0
        )
    assert problems(server) == ()
    second = caller.erase(corpus, "marked").erasure
    assert not set(first.erased_keys) & set(second.erased_keys)
    assert marked(caller.all_answers(corpus, [*ids, document])) == 0
    assert caller.erasures(corpus) == [first, second]


def test_erasing_one_source_leaves_the_others_history(caller: ErasingCaller, corpus: str) -> None:
    (other_document,) = [document.id for document in caller.list_documents(corpus) if document.source_id == "other"]
    chunks = {node.id for node in caller.query(corpus, level=CHUNK) if node.chunk.source_id == "other"}
    caller.erase(corpus, "marked")
    for revision in range(1, caller.head(corpus) + 1):
        assert caller.text(corpus, other_document, at_revision(revision)) == OTHER
        assert {node.id for node in caller.query(corpus, level=CHUNK, as_of=at_revision(revision))} == chunks


def test_the_last_source_of_a_corpus_can_be_erased(caller: ErasingCaller, server: Running) -> None:
    corpus = caller.corpus()
    caller.add(corpus, File("marked.md", MARKED, "marked"))
    ids = caller.ids(corpus)
    caller.erase(corpus, "marked", purge_now=True)
    assert marked(caller.all_answers(corpus, ids)) == 0
    assert caller.query(corpus, level=SECTION) == []
    assert problems(server) == ()


def test_a_source_whose_document_was_removed_before_can_be_erased(caller: ErasingCaller, server: Running) -> None:
    """Titles and categories of sections that came from the source are erased with it."""
    corpus = caller.corpus()
    caller.add(corpus, File("marked.md", MARKED, "marked"), File("other.md", OTHER, "other"))
    ids = caller.ids(corpus)
    (document,) = [document.id for document in caller.list_documents(corpus) if document.source_id == "marked"]
    caller.remove(corpus, document)
    assert marked(caller.all_answers(corpus, ids)) > 5
    erased = caller.erase(corpus, "marked").erasure
    assert (erased.documents, erased.chunks) == (0, 0)
    assert marked(caller.all_answers(corpus, ids)) == 0
    assert problems(server) == ()


def test_sections_and_masters_made_by_a_client_are_erased_with_any_source_below_them(
    caller: ErasingCaller, server: Running
) -> None:
    corpus = caller.corpus()
    server.client(ACME).put_hierarchy(corpus, list(_client_made()))
    ids = caller.ids(corpus)
    assert marked(caller.all_answers(corpus, ids)) > 4
    caller.erase(corpus, "marked")
    assert marked(caller.all_answers(corpus, ids)) == 0
    assert [document.source_id for document in caller.list_documents(corpus)] == ["other"]
    assert problems(server) == ()


def _client_made() -> Iterator[drillcore.HierarchyDocument | drillcore.NewNode]:
    """A hierarchy whose section and master contain the marker in their own texts but do not cite its source."""
    master, section = uuid4(), uuid4()
    documents = {"marked": (uuid4(), uuid4(), MARKED), "other": (uuid4(), uuid4(), OTHER)}
    for source, (document, _, _) in documents.items():
        yield drillcore.HierarchyDocument(document, source, source)
    for source, (document, chunk, text) in documents.items():
        yield drillcore.NewRaw(chunk, document, drillcore.Span(0, len(text)), text)
        yield drillcore.NewChunk(chunk, section, document, headings=[f"On {source}"], summary=text[:40])
    yield drillcore.NewSection(section, master, MARKER, MARKER, f"On the {MARKER}.", keywords=[MARKER])
    yield drillcore.NewMaster(master, f"The {MARKER} and others.", keywords=[MARKER])


def test_a_signature_of_an_erased_node_stays_without_its_salt(server: Running, caller: ErasingCaller) -> None:
    corpus = caller.corpus()
    caller.add(corpus, File("marked.md", MARKED, "marked"), File("other.md", OTHER, "other"))
    ann = person(server, "ann", Role.REVIEWER)
    client = ann.log_in()
    for level in (MASTER, SECTION, CHUNK):
        node = next(node for node in caller.query(corpus, level=level) if marked([node.SerializeToString()]))
        target = SignatureTarget(SignatureTargetKind.NODE, UUID(node.id))
        client.sign_record(client.prepare_signature(target, "read"), ann.password, login="ann")
    before = client.list_signatures().items
    assert all(signature.content_salt for signature in before)
    caller.erase(corpus, "marked")
    after = client.list_signatures().items
    assert [(signature.id, signature.content_salt) for signature in after] == [
        (signature.id, b"") for signature in before
    ]
