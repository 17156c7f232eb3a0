"""How much a fact weighs by where it comes from: a weight for each type of source, and what adds to it.

regulatory   .90   +.05 where an article, section or paragraph is cited
official     .80   +.05 where a version is named
research     .75   +.10 for meta-analyses
internal     .70   or what its classification weighs
web          .50   +.10 for authoritative domains
user         .60
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from drillcore_server.hierarchy.source_model import Described, SourceType

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
    """`[facts.importance.classification]`: internal documents by the entry `classification` of their metadata."""

    public: float = 0.60
    internal: float = 0.70
    confidential: float = 0.75
    restricted: float = 0.80

    def __post_init__(self) -> None:
        _check_weights(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportanceSettings:
    """`[facts.importance]`: weights from 0 to 1, and what is added to them."""

    regulatory: float = 0.90
    specific_article: float = 0.05
    """Added where the fact or a heading above it cites an article, a section or the like."""
    official: float = 0.80
    version_specific: float = 0.05
    """Added where the fact, a heading above it or the document's metadata names a version."""
    research: float = 0.75
    meta_analysis: float = 0.10
    """Added where the document's title or its metadata (`study_type`) says that it is one."""
    internal: float = 0.70
    """Without a classification that is known."""
    web: float = 0.50
    authoritative_domain: float = 0.10
    authoritative_domains: tuple[str, ...] = (
        "gov", "mil", "int", "edu", "europa.eu", "gov.uk", "nhs.uk", "ac.uk", "gc.ca", "gov.au", "edu.au", "govt.nz",
        "go.jp", "ac.jp", "gouv.fr", "bund.de", "admin.ch", "gov.ie", "gov.in", "gov.sg", "iso.org", "ietf.org",
        "un.org", "oecd.org", "ich.org",
    )  # fmt: skip
    """Ends of host names: of governments, international bodies and universities."""
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
    settings: ImportanceSettings, source: Described, content: str = "", headings: Sequence[str] = ()
) -> float:
    """The weight of a fact of a source, from 0 to 1."""
    weight = _base(settings, source) + _more(settings, source, content, headings)
    return round(min(max(weight, 0.0), 1.0), _DECIMALS)


def _base(settings: ImportanceSettings, source: Described) -> float:
    if source.type is SourceType.INTERNAL:
        named = source.metadata.get(_CLASSIFICATION, "").strip().lower()
        if named in ClassificationWeights.__dataclass_fields__:
            return float(getattr(settings.classification, named))
    return float(getattr(settings, source.type.value))


def _more(settings: ImportanceSettings, source: Described, content: str, headings: Sequence[str]) -> float:
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
