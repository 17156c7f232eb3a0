"""Signatures of facts in exports stand with their facts, and a change of a signed fact is found offline."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from drillcore import ExportFormat, NewFact, Role, Signature, SignatureTarget, SignatureTargetKind
from drillcore_formats.audit.bundle import verify_bundle
from drillcore_formats.audit.findings import Evidence, Findings
from drillcore_formats.audit.pins import Pins
from drillcore_formats.audit.signatures import FACT, NODE, BundleSignatures
from tests.support.servers.running import ACME, Running, create_tenants, running
from tests.support.servers.signatories import QUICK, Person, person

TEXT = "The firm must keep records of every transaction for at least seven years after it was made."


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "data", auth=QUICK) as found:
        create_tenants(found.client())
        yield found


@pytest.fixture
def ann(server: Running) -> Person:
    return person(server, "ann", Role.AUDITOR, Role.REVIEWER)


def signed_fact(server: Running, ann: Person) -> tuple[UUID, Signature]:
    """A corpus with two facts, one of which is signed."""
    writer = server.client(ACME)
    corpus = writer.create_corpus("rules").id
    put = writer.put_facts(corpus, [NewFact(TEXT, source_id="manual"), NewFact(TEXT, source_id="other")])
    session = ann.log_in()
    prepared = session.prepare_signature(SignatureTarget(SignatureTargetKind.FACT, put.fact_ids[0]), "reviewed")
    return corpus, session.sign_record(prepared, ann.password, login=ann.account.login)


def exported(ann: Person, corpus: UUID, kind: ExportFormat = ExportFormat.JSON) -> bytes:
    file = io.BytesIO()
    ann.log_in().export_corpus(corpus, file, format=kind)
    return file.getvalue()


def member(bundle: bytes, name: str) -> Any:
    return json.loads(zipfile.ZipFile(io.BytesIO(bundle)).read(name))


@pytest.mark.parametrize("kind", list(ExportFormat))
def test_an_export_with_a_signed_fact_verifies_offline(server: Running, ann: Person, kind: ExportFormat) -> None:
    corpus, signature = signed_fact(server, ann)
    bundle = exported(ann, corpus, kind)
    report = verify_bundle(io.BytesIO(bundle), Pins((server.server.logs.signing.signer(1).verifier,)))
    assert report.ok, report.problems
    assert [listed["id"] for listed in member(bundle, "signatures.json")["signatures"]] == [str(signature.id)]
    if kind is ExportFormat.JSON:
        assert not [remark for remark in report.remarks if "not in content.json" in remark], (
            "the content of the fact was checked"
        )
    if kind is ExportFormat.MARKDOWN:
        assert signature.signer_name in zipfile.ZipFile(io.BytesIO(bundle)).read("content.md").decode()


def test_a_signature_stands_with_its_fact_and_no_other(server: Running, ann: Person) -> None:
    corpus, signature = signed_fact(server, ann)
    facts = member(exported(ann, corpus), "content.json")["facts"]
    assert {fact["id"]: [listed["id"] for listed in fact["signatures"]] for fact in facts} == {
        str(signature.target.id): [str(signature.id)],
        **{fact["id"]: [] for fact in facts if fact["id"] != str(signature.target.id)},
    }


@pytest.mark.parametrize("change", ["content", "status", "kind", "moved"])
def test_a_signed_fact_that_was_changed_is_found(server: Running, ann: Person, change: str) -> None:
    corpus, signature = signed_fact(server, ann)
    bundle = exported(ann, corpus)
    facts = member(bundle, "content.json")["facts"]
    (fact,) = [fact for fact in facts if fact["id"] == str(signature.target.id)]
    (other_fact,) = [candidate for candidate in facts if candidate is not fact]
    assert problems(server, bundle, FACT, fact) == []
    if change == "moved":
        fact = other_fact | {"signatures": fact["signatures"]}
    elif change != "kind":
        fact = fact | {change: "QUARANTINED"}
    assert problems(server, bundle, NODE if change == "kind" else FACT, fact)


def problems(server: Running, bundle: bytes, kind: str, item: Any) -> list[str]:
    """The problems that a verifier finds if the export shows the fact in this form."""
    found = Findings(Evidence.BUNDLE)
    trusted = server.engine.run(server.server.logs.signing.trusted)
    check = BundleSignatures(trusted, found)
    check.listed(member(bundle, "signatures.json")["signatures"])
    check.shown([(kind, item)])
    return [problem.problem for problem in found.problems]
