"""The weight of a fact follows from its source: each type of source has a weight, and some features add to it.

regulatory   .90   +.05 where an article, section or paragraph is cited
official     .80   +.05 where a version is named
research     .75   +.10 for meta-analyses
internal     .70   or the weight of its classification, if it has a known one
web          .50   +.10 for authoritative domains
user         .60
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from drillcore_server.hierarchy.source_model import SourceDescription, SourceType

_CLASSIFICATION: Final = "classification"
_STUDY_TYPE: Final = "study_type"
_VERSION: Final = "version"
_DECIMALS: Final = 6

_ARTICLE: Final = re.compile(
    r"§{1,2}\s?\d|\b(?:art(?:icle|ikel)?|sec(?:tion)?|para(?:graph)?|clause|annex|appendix|schedule|rule|regulation|part"
    r"|chapter)s?\.?\s{1,2}(?:\d|[ivxlc]+\b|[a-z]\b(?=[.)\s]|$))|\b\d{1,3}\s(?:CFR|U\.?S\.?C\.?)\b",
    re.IGNORECASE,
)
_VERSION_NAMED: Final = re.compile(
    r"\b(?:v|version|release|revision|edition)\.?\s?\d+(?:\.\d+)*\b|\b\d+\.\d+\.\d+\b", re.IGNORECASE
)
_META_ANALYSIS: Final = re.compile(r"\bmeta-?\s?analys[ei]s\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassificationWeights:
    """`[facts.importance.classification]`: weights of internal documents by `classification` in their metadata."""

    public: float = 0.60
    internal: float = 0.70
    confidential: float = 0.75
    restricted: float = 0.80

    def __post_init__(self) -> None:
        _check_weights(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportanceSettings:
    """`[facts.importance]`: weights from 0 to 1, and additions to them."""

    regulatory: float = 0.90
    specific_article: float = 0.05
    """Added if the fact or a heading above it cites an article, a section or the like."""
    official: float = 0.80
    version_specific: float = 0.05
    """Added if the fact, a heading above it or the document's metadata names a version."""
    research: float = 0.75
    meta_analysis: float = 0.10
    """Added if the document's title or `study_type` in its metadata says that it is a meta-analysis."""
    internal: float = 0.70
    """For internal documents without a known classification."""
    web: float = 0.50
    authoritative_domain: float = 0.10
    authoritative_domains: tuple[str, ...] = (
        "gov", "mil", "int", "edu", "europa.eu", "gov.uk", "nhs.uk", "ac.uk", "gc.ca", "gov.au", "edu.au", "govt.nz",
        "go.jp", "ac.jp", "gouv.fr", "bund.de", "admin.ch", "gov.ie", "gov.in", "gov.sg", "iso.org", "ietf.org",
        "un.org", "oecd.org", "ich.org",
    )  # fmt: skip
    """Endings of host names of governments, international bodies and universities."""
    user: float = 0.60
    classification: ClassificationWeights = field(default_factory=ClassificationWeights)

    def __post_init__(self) -> None:
        _check_weights(self)


def _check_weights(settings: ImportanceSettings | ClassificationWeights) -> None:
    for name in type(settings).__dataclass_fields__:
        value = getattr(settings, name)
        if isinstance(value, float) and not 0 <= value <= 1:
            raise ValueError(f"{name} must be 0 to 1")


def importance(
    settings: ImportanceSettings, source: SourceDescription, content: str = "", headings: Sequence[str] = ()
) -> float:
    """The weight of a fact from this source, from 0 to 1. `headings` are the headings above it."""
    weight = _base(settings, source) + _addition(settings, source, content, headings)
    return round(min(max(weight, 0.0), 1.0), _DECIMALS)


def _base(settings: ImportanceSettings, source: SourceDescription) -> float:
    if source.type is SourceType.INTERNAL:
        classification = source.metadata.get(_CLASSIFICATION, "").strip().lower()
        if classification in ClassificationWeights.__dataclass_fields__:
            return float(getattr(settings.classification, classification))
    return float(getattr(settings, source.type.value))


def _addition(settings: ImportanceSettings, source: SourceDescription, content: str, headings: Sequence[str]) -> float:
    texts = (content, *headings)
    if source.type is SourceType.REGULATORY:
        return settings.specific_article if any(map(_ARTICLE.search, texts)) else 0.0
    if source.type is SourceType.OFFICIAL:
        named = source.metadata.get(_VERSION) or any(map(_VERSION_NAMED.search, texts))
        return settings.version_specific if named else 0.0
    if source.type is SourceType.RESEARCH:
        said = (source.title, source.metadata.get(_STUDY_TYPE, ""))
        return settings.meta_analysis if any(map(_META_ANALYSIS.search, said)) else 0.0
    if source.type is SourceType.WEB:
        return settings.authoritative_domain if _is_authoritative(settings, source.uri) else 0.0
    return 0.0


def _is_authoritative(settings: ImportanceSettings, uri: str) -> bool:
    host = f".{_host(uri)}"
    return any(host.endswith(f".{domain.lower().lstrip('.')}") for domain in settings.authoritative_domains)


def _host(uri: str) -> str:
    try:
        return (urlsplit(uri).hostname or "").rstrip(".")
    except ValueError:
        return ""
