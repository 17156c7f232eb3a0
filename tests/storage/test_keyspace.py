"""Keys: their bytes are those of the golden file, they sort as listings need, and parsing inverts building."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_fdb.tuples import KeyRange, pack, prefix_end
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import (
    AccountId,
    BlockId,
    CommunityId,
    CorpusId,
    CorpusNumber,
    DocumentId,
    EnvelopeId,
    FactId,
    Membership,
    NodeId,
    PrincipalId,
    RecordId,
    RequestId,
    Revision,
    TenantId,
    TurnId,
)
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.spaces import BY_REVISION
from tests.support.paths import GOLDEN_FILES, ROOT
from tests.support.stores.keyspaces import keyspace_below

GOLDEN = json.loads((GOLDEN_FILES / "keys.json").read_text("utf-8"))
KEYS = keyspace_below()
TENANT = TenantId(UUID("00112233-4455-6677-8899-aabbccddeeff"))
CORPUS = CorpusId(UUID("ffeeddcc-bbaa-9988-7766-554433221100"))
OPERATOR, REQUEST = PrincipalId("operator"), RequestId("r-1")
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NUMBER = CorpusNumber(0xC0FFEE)
NODE = NodeId(UUID("0a1a2a3a-4a5a-6a7a-8a9a-aabacadaeafa"))
CHUNK = NodeId(UUID("0c1c2c3c-4c5c-6c7c-8c9c-acbcccdc0000"))
DOCUMENT = DocumentId(UUID("0d1d2d3d-4d5d-6d7d-8d9d-adbdcdddedfd"))
FACT = FactId(UUID("0f1f2f3f-4f5f-6f7f-8f9f-afbfcfdfefff"))
BLOCK = BlockId(UUID("0b1b2b3b-4b5b-8b7b-8b9b-abbbcbdb0000"))
COMMUNITY = CommunityId(UUID("0e1e2e3e-4e5e-6e7e-8e9e-aebecedeeefe"))
REVISION = Revision(0x0102)
ACCOUNT = AccountId(UUID("0b1b2b3b-4b5b-6b7b-8b9b-abbbcbdbebfb"))
TOKEN_HASH = bytes(range(1, 33))
KIND, VALUE = b"kind", b"a value "
STAMP = bytes(range(10))
PLACE = bytes(range(64))
TURN, OTHER_TURN = TurnId(UUID(int=5)), TurnId(UUID(int=6))
ENVELOPE = EnvelopeId(UUID(int=7))
BUILT = {
    "tenant": KEYS.tenant(TENANT),
    "tenants": KEYS.tenants(),
    "tenants_after": KEYS.tenants(TENANT),
    "tenant_name": KEYS.tenant_name("Größe\0x"),
    "corpus": KEYS.corpus(TENANT, CORPUS),
    "corpora": KEYS.corpora(TENANT),
    "corpora_after": KEYS.corpora(TENANT, CORPUS),
    "corpus_name": KEYS.corpus_name(TENANT, "plan"),
    "corpus_names": KEYS.corpus_names(TENANT),
    "request": KEYS.request(OPERATOR, REQUEST),
    "request_time": KEYS.request_time(AT, OPERATOR, REQUEST),
    "request_times_before": KEYS.request_times_before(AT),
    "corpus_number": KEYS.corpus_number(NUMBER),
    "locator": KEYS.locator(TENANT, NODE),
    "account": KEYS.account(ACCOUNT),
    "tenant_account": KEYS.tenant_account(TENANT, ACCOUNT),
    "tenant_accounts": KEYS.tenant_accounts(TENANT),
    "tenant_accounts_after": KEYS.tenant_accounts(TENANT, ACCOUNT),
    "login": KEYS.login("ann@acme"),
    "credential": KEYS.credential(ACCOUNT),
    "session": KEYS.session(TOKEN_HASH),
    "sessions": KEYS.sessions(),
    "account_session": KEYS.account_session(ACCOUNT, TOKEN_HASH),
    "account_sessions": KEYS.account_sessions(ACCOUNT),
    "binding": KEYS.binding("subject", "issuer", "1"),
    "audit_state": KEYS.audit_state(),
    "audit_record_template": KEYS.audit_record_template(1, 7),
    "audit_record": KEYS.audit_record(1, 7, STAMP),
    "audit_records": KEYS.audit_records(1, 7),
    "audit_records_after": KEYS.audit_records(1, 7, STAMP),
    "audit_request": KEYS.audit_request(OPERATOR, REQUEST),
    "audit_request_after": KEYS.audit_request(OPERATOR, REQUEST, "TOO_LARGE"),
    "audit_entry": KEYS.audit_entry(TENANT, 5),
    "audit_entries": KEYS.audit_entries(TENANT, 5, 9),
    "audit_tile": KEYS.audit_tile(TENANT, 2, 5),
    "audit_head": KEYS.audit_head(TENANT),
    "audit_heads": KEYS.audit_heads(),
    "audit_checkpoint": KEYS.audit_checkpoint(TENANT, 5),
    "audit_checkpoints": KEYS.audit_checkpoints(TENANT),
    "audit_published": KEYS.audit_published(TENANT),
    "audit_place": KEYS.audit_place(RecordId(NODE)),
    "audit_index": KEYS.audit_index(TENANT, 3, VALUE, 5),
    "audit_indexed": KEYS.audit_indexed(TENANT, 3, VALUE),
    "audit_sequencer": KEYS.audit_sequencer(),
    "audit_key": KEYS.audit_key(2),
    "audit_keys": KEYS.audit_keys(),
    "signature": KEYS.signature(TENANT, NODE),
    "signatures": KEYS.signatures(TENANT),
    "signatures_after": KEYS.signatures(TENANT, NODE),
    "signatures_of": KEYS.signatures_of(TENANT, 1, NODE, 4),
    "signed": KEYS.signed(TENANT, 1, NODE),
    "challenge": KEYS.challenge(TOKEN_HASH),
    "challenges": KEYS.challenges(),
    "review": KEYS.review(TENANT, NODE),
    "reviews": KEYS.reviews(TENANT),
    "reviews_after": KEYS.reviews(TENANT, NODE),
    "export": KEYS.export(TENANT, NODE),
    "shared_corpus": KEYS.shared_corpus(TENANT, CORPUS),
    "shared_corpora": KEYS.shared_corpora(TENANT),
    "shared_corpora_after": KEYS.shared_corpora(TENANT, CORPUS),
    "all_shared_corpora": KEYS.all_shared_corpora(),
    "session_facts_head": KEYS.session_facts_head(TENANT, OPERATOR, "s-1"),
    "session_fact": KEYS.session_fact(TENANT, OPERATOR, "s-1", FACT),
    "session_facts": KEYS.session_facts(TENANT, OPERATOR, "s-1"),
    "session_end": KEYS.session_end(AT, 300),
    "session_ends_up_to": KEYS.session_ends_up_to(AT),
    "envelope": KEYS.envelope(TENANT, EnvelopeId(NODE)),
    "envelopes": KEYS.envelopes(TENANT),
    "envelope_session": KEYS.envelope_session(TENANT, OPERATOR, "s-1"),
    "etag": KEYS.etag(TENANT, STAMP, b"8 bytes."),
    "etags": KEYS.etags(TENANT, STAMP),
    "envelope_end": KEYS.envelope_end(AT, STAMP),
    "envelope_ends_up_to": KEYS.envelope_ends_up_to(AT),
    "change_template": KEYS.change_template(TENANT, 3),
    "change": KEYS.change(TENANT, 3, STAMP),
    "changes": KEYS.changes(TENANT),
    "migrations": KEYS.migrations(),
}
OF_CORPUS = KEYS.of_corpus(NUMBER)
BUILT_OF_CORPUS = {
    "head": OF_CORPUS.head(),
    "revision": OF_CORPUS.revision(REVISION),
    "revisions": OF_CORPUS.revisions(Revision(1), REVISION),
    "revision_time": OF_CORPUS.revision_time(AT, REVISION),
    "revision_times_up_to": OF_CORPUS.revision_times_up_to(AT),
    "claim": OF_CORPUS.claim(),
    "staged": OF_CORPUS.staged(REVISION, 7),
    "all_staged": OF_CORPUS.all_staged(),
    "master": OF_CORPUS.master(),
    "section": OF_CORPUS.section(NODE),
    "sections": OF_CORPUS.sections(),
    "listed_section": OF_CORPUS.listed_section(NODE),
    "listed_sections": OF_CORPUS.listed_sections(),
    "listed_sections_from": OF_CORPUS.listed_sections(NODE),
    "chunk": OF_CORPUS.chunk(CHUNK),
    "chunks": OF_CORPUS.chunks(),
    "raw": OF_CORPUS.raw(DOCUMENT, 1_000, 3),
    "raws": OF_CORPUS.raws(),
    "raws_of_document": OF_CORPUS.raws(DOCUMENT),
    "vector": OF_CORPUS.vector(2, CHUNK),
    "vectors": OF_CORPUS.vectors(2),
    "all_vectors": OF_CORPUS.all_vectors(),
    "member": OF_CORPUS.member(NODE, DOCUMENT, 3, CHUNK),
    "members": OF_CORPUS.members(NODE),
    "all_members": OF_CORPUS.all_members(),
    "parent": OF_CORPUS.parent(CHUNK),
    "parents": OF_CORPUS.parents(),
    "document": OF_CORPUS.document(DOCUMENT),
    "documents": OF_CORPUS.documents(),
    "documents_after": OF_CORPUS.documents(DOCUMENT),
    "source": OF_CORPUS.source(VALUE),
    "sources": OF_CORPUS.sources(),
    "entity": OF_CORPUS.entity(KIND, VALUE, CHUNK),
    "entities": OF_CORPUS.entities(KIND, VALUE),
    "entities_of_kind": OF_CORPUS.entities(KIND),
    "all_entities": OF_CORPUS.all_entities(),
    "category": OF_CORPUS.category(VALUE, NODE),
    "categories": OF_CORPUS.categories(VALUE),
    "all_categories": OF_CORPUS.all_categories(),
    "embedded": OF_CORPUS.embedded(VALUE, CHUNK),
    "embedded_as": OF_CORPUS.embedded_as(VALUE),
    "all_embedded": OF_CORPUS.all_embedded(),
    "floor": OF_CORPUS.floor(),
    "manifest": OF_CORPUS.manifest(REVISION, 3),
    "manifests": OF_CORPUS.manifests(REVISION),
    "fact_block": OF_CORPUS.fact_block(BLOCK),
    "fact_blocks": OF_CORPUS.fact_blocks(),
    "fact_blocks_from": OF_CORPUS.fact_blocks(BLOCK),
    "block_vectors": OF_CORPUS.block_vectors(2, BLOCK),
    "fact_vectors": OF_CORPUS.fact_vectors(2),
    "all_fact_vectors": OF_CORPUS.all_fact_vectors(),
    "embeddings": OF_CORPUS.embeddings(),
    "migration": OF_CORPUS.migration(),
    "chunk_block": OF_CORPUS.chunk_block(CHUNK, BLOCK),
    "chunk_blocks": OF_CORPUS.chunk_blocks(CHUNK),
    "all_chunk_blocks": OF_CORPUS.all_chunk_blocks(),
    "source_block": OF_CORPUS.source_block(VALUE, BLOCK),
    "source_blocks": OF_CORPUS.source_blocks(VALUE),
    "source_blocks_from": OF_CORPUS.source_blocks(VALUE, BLOCK),
    "all_source_blocks": OF_CORPUS.all_source_blocks(),
    "fact_changes": OF_CORPUS.fact_changes(),
    "fact_changes_between": OF_CORPUS.fact_changes_between(Revision(1), REVISION),
    "fact_changes_of": OF_CORPUS.fact_changes_of(REVISION),
    "fact_changes_of_from": OF_CORPUS.fact_changes_of(REVISION, BLOCK),
    "fact_change": OF_CORPUS.fact_change(REVISION, BLOCK),
    "fact_upkeep": OF_CORPUS.fact_upkeep(),
    "fact_expiry": OF_CORPUS.fact_expiry(AT, FACT),
    "fact_expiries_between": OF_CORPUS.fact_expiries_between(None, AT),
    "fact_expiries_between_after": OF_CORPUS.fact_expiries_between(AT, AT + timedelta(microseconds=1)),
    "all_fact_expiries": OF_CORPUS.all_fact_expiries(),
    "fact_access": OF_CORPUS.fact_access(FACT),
    "fact_accesses": OF_CORPUS.fact_accesses(),
    "state_hash": OF_CORPUS.state_hash(),
    "community": OF_CORPUS.community(COMMUNITY),
    "communities": OF_CORPUS.communities(),
    "community_page": OF_CORPUS.community_page(COMMUNITY, 3),
    "community_pages": OF_CORPUS.community_pages(COMMUNITY),
    "all_community_pages": OF_CORPUS.all_community_pages(),
    "community_run": OF_CORPUS.community_run(),
    "community_lease": OF_CORPUS.community_lease(),
    "erasure": OF_CORPUS.erasure(3),
    "erasures": OF_CORPUS.erasures(),
    "erasures_after": OF_CORPUS.erasures(3),
    "erasure_notes_count": OF_CORPUS.erasure_notes.count,
    "erasure_notes_note": OF_CORPUS.erasure_notes.note(7),
    "erasure_notes_after": OF_CORPUS.erasure_notes.after(7),
    "purge": OF_CORPUS.purge(2),
    "purges": OF_CORPUS.purges(),
    "purged": OF_CORPUS.purged(2, 5),
    "all_purged": OF_CORPUS.all_purged(2),
    "quad": OF_CORPUS.quad(PLACE),
    "quads": OF_CORPUS.quads(),
    "quads_from": OF_CORPUS.quads(PLACE[:24]),
    "quad_entry": OF_CORPUS.quad_entry(3, PLACE),
    "quad_entries": OF_CORPUS.quad_entries(3, PLACE[:12]),
    "all_quad_entries": OF_CORPUS.all_quad_entries(),
    "library_document": OF_CORPUS.library_document(PLACE[:16]),
    "library_documents": OF_CORPUS.library_documents(),
    "library_blob": OF_CORPUS.library_blob(PLACE[:16], 9),
    "library_blobs": OF_CORPUS.library_blobs(PLACE[:16]),
    "all_library_blobs": OF_CORPUS.all_library_blobs(),
    "entity_vector": OF_CORPUS.entity_vector(1, PLACE[:16]),
    "entity_vectors": OF_CORPUS.entity_vectors(1),
    "all_entity_vectors": OF_CORPUS.all_entity_vectors(),
    "turn": OF_CORPUS.turn(TURN),
    "turns": OF_CORPUS.turns(),
    "turns_after": OF_CORPUS.turns(TURN),
    "edge": OF_CORPUS.edge(TURN, OTHER_TURN, 2),
    "edges": OF_CORPUS.edges(TURN),
    "all_edges": OF_CORPUS.all_edges(),
    "edge_to": OF_CORPUS.edge_to(OTHER_TURN, TURN, 2),
    "edges_to": OF_CORPUS.edges_to(OTHER_TURN),
    "session_turn": OF_CORPUS.session_turn(PLACE[:16], TURN),
    "session_turns": OF_CORPUS.session_turns(PLACE[:16]),
    "session_turns_after": OF_CORPUS.session_turns(PLACE[:16], TURN),
    "all_graph_entries": OF_CORPUS.all_graph_entries(),
    "graph_changes": OF_CORPUS.graph_changes(),
    "graph_changes_between": OF_CORPUS.graph_changes_between(Revision(1), REVISION),
    "foreign_signature": OF_CORPUS.foreign_signature(1, NODE, 3, ACCOUNT),
    "foreign_signatures": OF_CORPUS.foreign_signatures(1, NODE),
    "all_foreign_signatures": OF_CORPUS.all_foreign_signatures(),
    "fact_envelope": OF_CORPUS.fact_envelope(FACT, ENVELOPE),
    "fact_envelopes": OF_CORPUS.fact_envelopes(FACT),
    "all_fact_envelopes": OF_CORPUS.all_fact_envelopes(),
    "by_source": OF_CORPUS.by_source(7, REVISION, 3),
    "all_by_source": OF_CORPUS.all_by_source(7),
}
IDS = st.uuids()
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
MOMENTS = st.datetimes(datetime(1971, 1, 1), datetime(2900, 1, 1), timezones=st.just(UTC))


NUMBERS = st.integers(0, 2**32 - 1).map(CorpusNumber)
REVISIONS = st.integers(0, 2**47).map(Revision)


def golden(name: str) -> list[bytes]:
    """The bytes in hexadecimal. `<directory>` stands for a prefix, `<directory> end` for the end of its keys."""
    return [_golden_key(part) for part in GOLDEN[name].split(" / ")]


def _golden_key(part: str) -> bytes:
    directory, rest = re.fullmatch(r"<(.+?)>(.*)", part).groups()  # type: ignore[union-attr]
    prefix = pack((directory,))
    return prefix_end(prefix) if rest == " end" else prefix + bytes.fromhex(rest)


@pytest.mark.parametrize("name", BUILT)
def test_key_bytes_never_change(name: str) -> None:
    built = BUILT[name]
    assert golden(name) == (list(built) if isinstance(built, KeyRange) else [built])


@pytest.mark.parametrize("name", BUILT_OF_CORPUS)
def test_key_bytes_of_a_corpus_never_change(name: str) -> None:
    built = BUILT_OF_CORPUS[name]
    assert golden(f"of_corpus.{name}") == (list(built) if isinstance(built, KeyRange) else [built])


def methods(builder: type) -> set[str]:
    return {name for name in vars(builder) if not name.startswith(("_", "parse"))}


def test_every_method_that_builds_a_key_is_in_the_golden_file() -> None:
    several_at_once = {"of_corpus", "audit_index_of"}
    assert methods(Keyspace) == {name.removesuffix("_after") for name in BUILT} | several_at_once
    built = {
        name.removesuffix("_after").removesuffix("_from").removesuffix("_of_kind").removesuffix("_of_document")
        for name in BUILT_OF_CORPUS
    }
    built -= {"erasure_notes", "erasure_notes_count", "erasure_notes_note"}
    assert methods(CorpusKeys) == built | {"by_revision", "committed", "is_committed", "space_of"}
    assert BUILT.keys() | {f"of_corpus.{name}" for name in BUILT_OF_CORPUS} == GOLDEN.keys()


def test_spaces_kept_by_revision_are_those_of_the_documented_layout() -> None:
    """Trimming walks these spaces. A space that is left out would grow for ever."""
    layout = (ROOT / "fdb" / "README.md").read_text("utf-8")
    marked = set(re.findall(r"^\| `([a-z/-]+)` \*", layout, re.MULTILINE))
    assert len(marked) >= 12
    assert marked == set(BY_REVISION)
    ranges = [(prefix, prefix_end(prefix)) for prefix in sorted(pack((name, NUMBER)) for name in marked)]
    assert OF_CORPUS.by_revision() == ranges


@given(NUMBERS, NUMBERS)
def test_no_corpus_has_a_key_below_the_prefix_of_another(first: CorpusNumber, second: CorpusNumber) -> None:
    """Some keys are the bare prefix of the corpus, so no prefix may be the beginning of another."""
    own, others = KEYS.of_corpus(first), KEYS.of_corpus(second)
    assert others.master().startswith(own.master()) == (first == second)
    assert others.head().startswith(own.head()) == (first == second)
    assert not own.claim().startswith(own.head())


@given(IDS, IDS, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), IDS)
def test_members_sort_by_document_and_place_and_their_chunk_is_parsed(
    document: UUID, other_document: UUID, ordinal: int, later: int, chunk: UUID
) -> None:
    first, second = sorted([(document.bytes, ordinal), (other_document.bytes, later)])
    keys = [OF_CORPUS.member(NODE, DocumentId(UUID(bytes=d)), place, NodeId(chunk)) for d, place in (first, second)]
    assert keys == sorted(keys)
    assert OF_CORPUS.members(NODE).begin <= keys[0] < OF_CORPUS.members(NODE).end
    assert CorpusKeys.parse_member(keys[0]) == Membership(NodeId(chunk), DocumentId(UUID(bytes=first[0])), first[1])


@given(REVISIONS, REVISIONS, st.integers(1, 2**16))
def test_a_range_of_revisions_includes_the_last_with_its_parts_and_excludes_the_first(
    first: Revision, second: Revision, part: int
) -> None:
    after, up_to = sorted((first, second))
    begin, end = OF_CORPUS.revisions(after, up_to)
    assert not begin <= pack((part,), OF_CORPUS.revision(after)) < end
    assert (begin <= pack((part,), OF_CORPUS.revision(up_to)) < end) == (after < up_to)


@given(MOMENTS, MOMENTS, REVISIONS)
def test_revision_times_up_to_a_moment_include_that_moment(
    at: datetime, other_at: datetime, revision: Revision
) -> None:
    begin, end = OF_CORPUS.revision_times_up_to(other_at)
    assert (begin <= OF_CORPUS.revision_time(at, revision) < end) == (at <= other_at)


@given(IDS, IDS, REVISIONS)
def test_the_next_page_of_documents_begins_after_every_revision_of_the_last_document(
    document: UUID, other_document: UUID, revision: Revision
) -> None:
    stored = OF_CORPUS.document(DocumentId(other_document)) + revision.to_bytes(6, "big") + b"\0\0"
    begin, end = OF_CORPUS.documents(DocumentId(document))
    assert (begin <= stored < end) == (other_document.bytes > document.bytes)


@given(IDS, IDS)
def test_records_sort_by_id_and_the_next_page_begins_after_the_last_record_and_its_parts(
    tenant_id: UUID, other_id: UUID
) -> None:
    first, second = sorted((TenantId(tenant_id), TenantId(other_id)), key=lambda tenant: tenant.bytes)
    whole, rest = KEYS.tenants(), KEYS.tenants(first)
    part = pack((2**60,), KEYS.tenant(first))
    assert whole.begin <= KEYS.tenant(first) < part < rest.begin < rest.end == whole.end
    if first != second:
        assert KEYS.tenant(first) < part < rest.begin <= KEYS.tenant(second) < whole.end


@given(IDS, IDS, IDS)
def test_the_range_of_a_tenants_corpora_has_no_corpora_of_others(
    tenant: UUID, other_tenant: UUID, corpus: UUID
) -> None:
    own, names = KEYS.corpora(TenantId(tenant)), KEYS.corpus_names(TenantId(tenant))
    key, name_key = (
        KEYS.corpus(TenantId(other_tenant), CorpusId(corpus)),
        KEYS.corpus_name(TenantId(other_tenant), "name"),
    )
    assert (own.begin <= key < own.end) == (tenant == other_tenant)
    assert (names.begin <= name_key < names.end) == (tenant == other_tenant)


@given(TEXTS, TEXTS)
def test_names_sort_as_text_and_different_names_have_different_keys(first: str, second: str) -> None:
    assert (first < second) == (KEYS.tenant_name(first) < KEYS.tenant_name(second))
    assert (first == second) == (KEYS.tenant_name(first) == KEYS.tenant_name(second))


@given(MOMENTS, TEXTS, TEXTS)
def test_a_request_time_is_parsed_back_into_its_parts(at: datetime, principal: str, request: str) -> None:
    key = KEYS.request_time(at, PrincipalId(principal), RequestId(request))
    assert KEYS.parse_request_time(key) == (principal, request)


@given(MOMENTS, MOMENTS, TEXTS)
def test_request_times_sort_by_time_to_the_second(at: datetime, other_at: datetime, request: str) -> None:
    key = KEYS.request_time(at, OPERATOR, RequestId(request))
    before = KEYS.request_times_before(other_at)
    assert (before.begin <= key < before.end) == (int(at.timestamp()) < int(other_at.timestamp()))


def test_a_request_time_of_the_same_second_is_not_before_it() -> None:
    before = KEYS.request_times_before(AT + timedelta(milliseconds=999))
    assert not KEYS.request_time(AT, OPERATOR, REQUEST) < before.end


def test_ids_of_accounts_and_sessions_are_parsed_from_their_keys() -> None:
    assert KEYS.parse_tenant_account(KEYS.tenant_account(TENANT, ACCOUNT)) == ACCOUNT
    assert KEYS.parse_session(KEYS.session(TOKEN_HASH)) == TOKEN_HASH
    assert KEYS.parse_account_session(KEYS.account_session(ACCOUNT, TOKEN_HASH)) == TOKEN_HASH


def test_entries_of_several_indexes_equal_the_entries_of_each_index() -> None:
    terms = [(3, VALUE), (4, KIND)]
    assert KEYS.audit_index_of(TENANT, terms, 5) == [KEYS.audit_index(TENANT, kind, value, 5) for kind, value in terms]


def test_manifests_list_keys_that_cannot_be_derived_from_other_records() -> None:
    listed = [OF_CORPUS.master(), OF_CORPUS.section(NODE), OF_CORPUS.chunk(CHUNK), OF_CORPUS.vector(1, CHUNK)]
    listed += [OF_CORPUS.parent(CHUNK), OF_CORPUS.document(DOCUMENT), OF_CORPUS.source(VALUE)]
    assert all(map(OF_CORPUS.is_committed, listed))
    assert [any(begin <= key < end for begin, end in OF_CORPUS.committed()) for key in listed] == [True] * len(listed)
    derived = [OF_CORPUS.member(NODE, DOCUMENT, 3, CHUNK), OF_CORPUS.entity(KIND, VALUE, CHUNK), OF_CORPUS.head()]
    assert not any(map(OF_CORPUS.is_committed, [*derived, KEYS.of_corpus(CorpusNumber(1)).chunk(CHUNK)]))


@given(IDS, IDS, IDS)
def test_the_range_of_a_readers_shared_corpora_is_exact_and_its_keys_are_parsed(
    reader: UUID, other_reader: UUID, corpus: UUID
) -> None:
    key, (begin, end) = KEYS.shared_corpus(reader, CorpusId(corpus)), KEYS.shared_corpora(other_reader)
    assert KEYS.parse_shared_corpus(key) == (reader, corpus)
    assert (begin <= key < end) == (reader == other_reader)
    assert KEYS.all_shared_corpora().begin <= key < KEYS.all_shared_corpora().end


@given(MOMENTS, MOMENTS, st.integers(1, 2**32))
def test_ends_of_sessions_sort_by_time(at: datetime, other_at: datetime, number: int) -> None:
    begin, end = KEYS.session_ends_up_to(other_at)
    assert (begin <= KEYS.session_end(at, number) < end) == (at <= other_at)


@given(TEXTS, TEXTS, IDS)
def test_the_range_of_a_sessions_facts_has_no_facts_of_others(first: str, second: str, fact: UUID) -> None:
    begin, end = KEYS.session_facts(TENANT, OPERATOR, first)
    assert (begin <= KEYS.session_fact(TENANT, OPERATOR, second, FactId(fact)) < end) == (first == second)
    assert not begin <= KEYS.session_facts_head(TENANT, OPERATOR, first) < end
