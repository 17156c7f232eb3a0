"""The importance of facts: the weight of their source type, and what adds to it."""

from __future__ import annotations

import pytest

from drillcore_formats.settings import SettingsError
from drillcore_proto.reasons import Reason
from drillcore_server.app.config import load_settings
from drillcore_server.facts.importance import ClassificationWeights, ImportanceSettings, importance
from drillcore_server.hierarchy.source_model import SourceDescription, SourceType, describe
from drillcore_server.kernel.errors import BadInput
from drillcore_server.storage.ids import SourceId

TABLE = [
    ("regulatory", {}, "The firm must keep records.", (), 0.90),
    ("regulatory", {}, "As Article 6 says, the firm must keep records.", (), 0.95),
    ("regulatory", {}, "The firm must keep records.", ("§ 11.10 Controls",), 0.95),
    ("regulatory", {}, "It is set out in 21 CFR 11.10 how records are kept.", (), 0.95),
    ("official", {}, "The pump runs at four bar.", (), 0.80),
    ("official", {}, "From version 2.3 on the pump runs at four bar.", (), 0.85),
    ("official", {"version": "4"}, "The pump runs at four bar.", (), 0.85),
    ("research", {}, "The dose was halved.", (), 0.75),
    ("research", {"study_type": "Meta-analysis"}, "The dose was halved.", (), 0.85),
    ("internal", {}, "We meet on Mondays.", (), 0.70),
    ("internal", {"classification": "Restricted"}, "We meet on Mondays.", (), 0.80),
    ("internal", {"classification": "public"}, "We meet on Mondays.", (), 0.60),
    ("internal", {"classification": "whatever"}, "We meet on Mondays.", (), 0.70),
    ("web", {"uri": "https://shop.example/pumps"}, "The pump is blue.", (), 0.50),
    ("web", {"uri": "https://www.fda.gov/pumps"}, "The pump is blue.", (), 0.60),
    ("web", {"uri": "https://fda.gov.example.com/pumps"}, "The pump is blue.", (), 0.50),
    ("web", {"uri": "https://eur-lex.europa.eu/x"}, "The pump is blue.", (), 0.60),
    ("user", {}, "I like Article 6.", (), 0.60),
]


@pytest.mark.parametrize(("kind", "metadata", "content", "headings", "weight"), TABLE)
def test_weights_are_those_of_the_table(
    kind: str, metadata: dict[str, str], content: str, headings: tuple[str, ...], weight: float
) -> None:
    source = describe(SourceId("source"), "Title", {"source_type": kind, **metadata})
    assert importance(ImportanceSettings(), source, content, headings) == weight


def test_a_title_with_meta_analysis_adds_to_the_weight_of_research() -> None:
    source = describe(SourceId("x"), "Beta blockers: a meta-analysis", {"source_type": "research"})
    assert importance(ImportanceSettings(), source, "The dose was halved.") == 0.85


@pytest.mark.parametrize(
    ("source", "metadata", "kind", "uri"),
    [
        ("https://a.example/b", {}, SourceType.WEB, "https://a.example/b"),
        ("HTTP://A.example/b", {}, SourceType.WEB, "HTTP://A.example/b"),
        ("s3://bucket/b", {}, SourceType.INTERNAL, "s3://bucket/b"),
        ("manual.pdf", {}, SourceType.INTERNAL, ""),
        ("manual.pdf", {"url": "https://a.example"}, SourceType.WEB, "https://a.example"),
        ("https://a.example/b", {"source_type": "official"}, SourceType.OFFICIAL, "https://a.example/b"),
    ],
)
def test_the_type_comes_from_the_metadata_or_else_from_the_address_of_the_source(
    source: str, metadata: dict[str, str], kind: SourceType, uri: str
) -> None:
    found = describe(SourceId(source), "", metadata)
    assert (found.type, found.uri) == (kind, uri)


def test_an_unknown_type_is_refused_and_the_known_types_are_named() -> None:
    with pytest.raises(BadInput, match="regulatory, official") as caught:
        describe(SourceId("x"), "", {"source_type": "rumour"})
    assert caught.value.reason is Reason.INVALID_ARGUMENT


def test_weights_never_leave_0_to_1() -> None:
    settings = ImportanceSettings(regulatory=1.0, specific_article=0.5)
    assert importance(settings, SourceDescription(SourceType.REGULATORY), "As Article 6 says.") == 1.0


def test_a_malformed_address_weighs_as_much_as_the_web() -> None:
    assert importance(ImportanceSettings(), SourceDescription(SourceType.WEB, "https://[half")) == 0.5


def test_weights_are_set_in_the_settings() -> None:
    environment = {"DRILLCORE_FACTS_IMPORTANCE_USER": "0.25", "DRILLCORE_FACTS_IMPORTANCE_CLASSIFICATION_PUBLIC": "0.1"}
    settings = load_settings(environment=environment).facts.importance
    assert importance(settings, SourceDescription(SourceType.USER)) == 0.25
    assert settings.classification == ClassificationWeights(public=0.1)
    with pytest.raises(SettingsError, match="0 to 1"):
        load_settings(environment={"DRILLCORE_FACTS_IMPORTANCE_WEB": "1.5"})
