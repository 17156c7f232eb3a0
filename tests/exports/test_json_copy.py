"""The JSON copy is canonical, complete and reproducible."""

from __future__ import annotations

import hashlib
import json
from contextlib import ExitStack
from uuid import UUID

import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from drillcore_fdb.engine import Reader
from drillcore_formats.audit.signatures import content_hash
from drillcore_server.exports.copies import copy_json
from drillcore_server.exports.walk import CorpusWalk, Part
from drillcore_server.hierarchy.reader import NodeReader
from drillcore_server.hierarchy.signable import node_content
from drillcore_server.kernel.canonical_json import canonical
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.storage.ids import Level, NodeId, Revision
from tests.support.data.exported_corpora import ARABIC, FAKES, HEBREW, TEXTS, Desk

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
)


def written(walk: CorpusWalk, files: ExitStack) -> bytes:
    (member,) = copy_json(walk, files, lambda _: None).members
    return b"".join(member.read())


@given(JSON)
def test_the_fast_writer_follows_rfc_8785(value: object) -> None:
    assert canonical(value) == rfc8785.dumps(value)  # type: ignore[arg-type]


def test_a_copy_of_hard_text_is_canonical(desk: Desk, files: ExitStack) -> None:
    copy = written(desk.walk(), files)
    assert rfc8785.dumps(json.loads(copy)) == copy


def test_a_copy_has_every_character_of_every_document(desk: Desk, files: ExitStack) -> None:
    copy = json.loads(written(desk.walk(), files))
    sources = {document["id"]: document["source_id"] for document in copy["documents"]}
    assert set(sources.values()) == set(TEXTS)
    told: dict[str, str] = dict.fromkeys(TEXTS, "")
    raws = [node for node in copy["nodes"] if node["level"] == "raw"]
    for raw in sorted(raws, key=lambda node: node["span"]["start"]):
        told[sources[raw["document_id"]]] += raw["content"]
    assert told == TEXTS
    assert all(text in json.dumps(copy, ensure_ascii=False) for text in (HEBREW, ARABIC))
    assert told["fakes"] == FAKES


def test_a_copy_has_hashes_metadata_and_history(desk: Desk, files: ExitStack) -> None:
    copy = json.loads(written(desk.walk(), files))
    for document in copy["documents"]:
        assert document["content_hash"] == hashlib.sha256(TEXTS[document["source_id"]].encode()).hexdigest()
        assert document["preprocessing"][0] == "decoded as utf-8"
    assert {document["metadata"].get("𐐷 key") for document in copy["documents"]} == {"ключ", None}
    assert [entry["revision"] for entry in copy["history"]] == [1, 2]
    assert copy["revision"] == 2


def test_nodes_are_in_reading_order_below_their_parents(desk: Desk, files: ExitStack) -> None:
    copy = json.loads(written(desk.walk(), files))
    above: list[str] = []
    depths = {"master": 0, "section": 1, "chunk": 2, "raw": 3}
    for node, parent in zip(copy["nodes"], copy["parents"], strict=True):
        depth = depths[node["level"]]
        assert parent == (above[depth - 1] if depth else None)
        above[depth:] = [node["id"]]
    assert {node["level"] for node in copy["nodes"]} == set(depths)


def test_two_copies_of_a_revision_are_the_same_bytes_even_after_later_revisions(empty: Desk, files: ExitStack) -> None:
    empty.archive.add({"consent": TEXTS["consent"]})
    first = written(empty.walk(), files)
    empty.archive.add({"fishing": TEXTS["fishing"]})
    assert written(empty.walk(Revision(1)), files) == first
    assert written(empty.walk(), files) != first


def test_an_empty_corpus_has_a_copy_with_empty_lists(empty: Desk, files: ExitStack) -> None:
    copy = json.loads(written(empty.walk(), files))
    assert (copy["documents"], copy["history"], copy["nodes"], copy["parents"]) == ([], [], [], [])
    assert (copy["drillcore_export"], copy["revision"], copy["corpus"]["id"]) == (1, 0, str(empty.archive.corpus.id))


def test_a_node_is_exported_as_callers_see_it(desk: Desk) -> None:
    shown = {item.content["id"]: item for item in desk.walk().items() if item.part is Part.NODE}

    def check(tr: Reader) -> None:
        archive = desk.archive
        view = CorpusAtRevision(tr, archive.corpus, archive.keys, archive.sealed, archive.head())
        nodes = NodeReader(view)
        for node, item in shown.items():
            level = Level[item.content["level"].upper()]
            seen = nodes.node(NodeId(UUID(node)), level, with_embedding=True)
            assert node_content(seen) | {"signatures": item.content["signatures"]} == item.content
            assert seen.parent == item.parent

    desk.archive.engine.run(check)


def test_a_signature_covers_every_field_but_the_signatures(desk: Desk) -> None:
    item = next(item for item in desk.walk().items() if item.part is Part.NODE)
    hashed = content_hash(b"salt", item.content)
    assert content_hash(b"salt", item.content | {"signatures": [{"id": "x"}]}) == hashed
    assert content_hash(b"other", item.content) != hashed
    for name in item.content.keys() - {"signatures"}:
        assert content_hash(b"salt", item.content | {name: "changed"}) != hashed, name
    plain = {name: value for name, value in item.content.items() if name != "signatures"}
    assert hashed == hashlib.sha256(b"drillcore signed content 1\nsalt" + rfc8785.dumps(plain)).digest()


def test_a_copy_has_every_fact_with_its_place_and_the_hash_of_its_vector(desk: Desk, files: ExitStack) -> None:
    copy = json.loads(written(desk.walk(), files))
    facts = {fact["id"]: fact for fact in copy["facts"]}
    nodes = {node["id"]: node for node in copy["nodes"]}
    assert facts
    assert list(facts) == sorted(facts)
    for fact in facts.values():
        chunk = nodes[fact["chunk_id"]]
        assert (chunk["source_id"], chunk["document_id"]) == (fact["source_id"], fact["document_id"])
        assert fact["content_hash"] == hashlib.sha256(fact["content"].encode()).hexdigest()
        assert (fact["status"], fact["embedding"]["dimensions"]) == ("ACTIVE", 256)
        assert len(fact["embedding"]["sha256"]) == 64
    assert sum(entry["facts_changed"] for entry in copy["history"]) == len(facts)


def test_a_copy_has_deleted_facts_without_a_vector(empty: Desk, files: ExitStack) -> None:
    archive = empty.archive
    archive.add({name: TEXTS[name] for name in ("consent", "fishing")})
    archive.remove([archive.documents()["consent"]])
    facts = json.loads(written(empty.walk(), files))["facts"]
    deleted = [fact for fact in facts if fact["status"] == "DELETED"]
    assert {fact["source_id"] for fact in deleted} == {"consent"}
    assert {fact["embedding"] for fact in deleted} == {None}
