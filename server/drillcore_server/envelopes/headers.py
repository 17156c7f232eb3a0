"""The response headers of the Context Relay Protocol: ASCII, and nothing of the content but a community's label.

The etag of an envelope: which facts it holds, whatever their order.

It does not say whether an envelope is still good: that is the state revision's to say.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import re
import unicodedata
from collections.abc import Iterable
from decimal import ROUND_DOWN, Decimal
from typing import Final

from drillcore_server.envelopes.model import WINDOWS_MAX_DEFAULT, Envelope, QualityTier
from drillcore_server.envelopes.rank import age_days
from drillcore_server.storage.ids import FactId

STATUS: Final = "CRP-Status"
"""What the protocol's HTTP status would be, where it is not 200."""
REUSE_SATURATION_MIN: Final = 0.95
"""From which on packing again would bring little."""
PARTIAL_SATURATION_BELOW: Final = 0.70
SLUG_CHARACTERS_MAX: Final = 64
_HIT: Final = "HIT"
_PARTIAL: Final = "PARTIAL; reason=limited-ckf-coverage"
_REUSE: Final = "reuse-ckf"
_THOUSANDTH: Final = Decimal("0.001")
_NOT_OF_A_SLUG: Final = re.compile(r"[^a-z0-9]+")


class Miss(enum.Enum):
    """Why an envelope was made."""

    NOT_CACHED = "not-cached"
    """The caller named no etag."""
    UNKNOWN_ETAG = "unknown-etag"
    """The etag is of no envelope that was issued for this question."""
    FACTS_UPDATED = "facts-updated"
    """The state has changed since."""
    NO_CACHE = "no-cache"
    """The caller wanted no answer that was kept."""


def headers(
    envelope: Envelope,
    *,
    ckf_hits: int,
    miss: Miss,
    continuation_id: str = "",
    windows_max: int = WINDOWS_MAX_DEFAULT,
    community_shown: bool = True,
) -> dict[str, str]:
    """Of an envelope that was made: all that apply. `ckf_hits`: facts that were found in the store."""
    made = _context(envelope, miss, windows_max) | _memory(envelope, ckf_hits)
    if continuation_id:
        made["CRP-Context-Continuation-Id"] = continuation_id
    if envelope.quality.saturation >= REUSE_SATURATION_MIN:
        made["CRP-Context-Cache"] = _REUSE
    if community_shown and envelope.communities and (label := slug(envelope.communities[0])):
        made["CRP-Memory-CKF-Community"] = label
    return checked(made)


def not_modified_headers(etag: str) -> dict[str, str]:
    """Of an answer that has no envelope, since the caller's is still good."""
    return checked({STATUS: "304", "CRP-Context-ETag": etag, "CRP-Context-Cache-Status": _HIT})


def refused_quality_headers(best: QualityTier) -> dict[str, str]:
    """Of a refusal because no tier that the caller accepts was reached."""
    return {STATUS: "503", "CRP-Context-Quality-Tier": best.name}


def cache_status(saturation: float, miss: Miss) -> str:
    """Of an envelope that was made. That the store has little to say goes before why it was made."""
    return _PARTIAL if saturation < PARTIAL_SATURATION_BELOW else f"MISS; reason={miss.value}"


def saturation_text(saturation: float) -> str:
    """Three decimals, rounded down: only a full envelope is 1.000."""
    return str(Decimal(repr(saturation)).quantize(_THOUSANDTH, ROUND_DOWN))


def slug(label: str) -> str:
    """A label as a header can say it: `EU AI Act compliance` is `eu-ai-act-compliance`. Empty where nothing is left."""
    plain = unicodedata.normalize("NFKD", label).encode("ascii", "ignore").decode().lower()
    return _NOT_OF_A_SLUG.sub("-", plain).strip("-")[:SLUG_CHARACTERS_MAX].rstrip("-")


def knowledge_age(envelope: Envelope) -> str:
    """Of the newest fact from the store, as an ISO 8601 duration in days; empty without one."""
    packed = (one.ranked.candidate for one in envelope.packing.included)
    ages = [age_days(one, envelope.ranked_on) for one in packed if not one.is_answer]
    return f"P{min(ages)}D" if ages else ""


def checked(given: dict[str, str]) -> dict[str, str]:
    """The same. What is not ASCII, or could end a line, must never come to be a header."""
    for name, value in given.items():
        is_safe = value.isascii() and value.isprintable()
        assert is_safe, f"{name} is no value of a header"
    return given


def _context(envelope: Envelope, miss: Miss, windows_max: int) -> dict[str, str]:
    saturation = envelope.quality.saturation
    return {
        "CRP-Context-Quality-Tier": envelope.quality.tier.name,
        "CRP-Context-Saturation": saturation_text(saturation),
        "CRP-Context-Facts-Used": f"{len(envelope.packing.included)}/{envelope.available}",
        "CRP-Context-Tokens-Used": str(envelope.packing.tokens),
        "CRP-Context-Token-Budget": str(envelope.budget.tokens),
        "CRP-Context-ETag": envelope.etag,
        "CRP-Context-Cache-Status": cache_status(saturation, miss),
        "CRP-Context-Strategy": envelope.strategy,
        "CRP-Context-Window": f"{envelope.window}/{windows_max}",
    }


def _memory(envelope: Envelope, ckf_hits: int) -> dict[str, str]:
    made = {"CRP-Memory-Tier-Hit": str(envelope.memory_tier_hit), "CRP-Memory-CKF-Hits": str(ckf_hits)}
    if age := knowledge_age(envelope):
        made["CRP-Memory-Knowledge-Age"] = age
    return made


PREFIX: Final = "sha256:"
_SEPARATOR: Final = "|"


def etag(ids: Iterable[FactId], salt: bytes = b"") -> str:
    """The SHA-256 of the sorted ids and their number.

    With a salt it is keyed (HMAC): the same facts have another etag in each session, and who sees both learns nothing.
    """
    names = sorted(map(str, ids))
    text = _SEPARATOR.join([*names, str(len(names))] if names else ["", "0"]).encode()
    digest = hmac.new(salt, text, hashlib.sha256) if salt else hashlib.sha256(text)
    return PREFIX + digest.hexdigest()
