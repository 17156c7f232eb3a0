"""The introduction of a fact can be separated from it only if joining both by a space gives the fact again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from drillcore_server.envelopes.envelope_text import lead_of
from drillcore_server.facts.model import Fact, fact_hash
from drillcore_server.storage.ids import DocumentId, FactId, PrincipalId, SourceId

AT = datetime(2026, 1, 31, tzinfo=UTC)
LEAD = "The firm must:"


def fact(content: str, lead_characters: int) -> Fact:
    return Fact(
        id=FactId(UUID(int=1)),
        content=content,
        content_hash=fact_hash(content),
        tokens=10,
        source=SourceId("manual"),
        source_location="",
        importance=0.5,
        ingested_at=AT,
        modified_at=AT,
        created_by=PrincipalId("ann"),
        metadata={},
        document=DocumentId(UUID(int=2)),
        lead_characters=lead_characters,
    )


def test_a_fact_of_a_list_has_its_introduction() -> None:
    assert lead_of(fact(f"{LEAD} (a) keep records", len(LEAD))) == LEAD


def test_a_fact_without_a_document_has_no_introduction() -> None:
    assert lead_of(replace(fact(f"{LEAD} (a) keep records", len(LEAD)), document=None)) == ""


@pytest.mark.parametrize(
    ("content", "lead_characters"),
    [
        (f"{LEAD} (a) keep records", 0),
        (f"{LEAD} (a) keep records", len(LEAD) - 1),
        (f"{LEAD} (a) keep records", len(LEAD) + 1),
        (f"{LEAD}\n(a) keep records", len(LEAD)),
        ("The firm\nmust: keep records", len(LEAD)),
        ("The firm\u2028must: keep records", len(LEAD)),
        (f"{LEAD}  ", len(LEAD)),
        (LEAD, len(LEAD)),
        (LEAD, len(LEAD) + 100),
    ],
)
def test_a_beginning_that_cannot_be_joined_again_by_a_space_is_no_introduction(
    content: str, lead_characters: int
) -> None:
    assert lead_of(fact(content, lead_characters)) == ""
