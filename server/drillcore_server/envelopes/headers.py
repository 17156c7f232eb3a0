"""The response headers of the Context Relay Protocol, and the etags of envelopes.

Headers are ASCII. The only content in them is the label of a community. An etag stands for the facts of an envelope,
whatever their order. It does not tell whether an envelope is still valid: the revisions of its corpora decide that.
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
"""The protocol's HTTP status, if it is not 200."""
REUSE_SATURATION_MIN: Final = 0.95
"""From this saturation on, another envelope would add little."""
PARTIAL_SATURATION_BELOW: Final = 0.70
SLUG_CHARACTERS_MAX: Final = 64
_HIT: Final = "HIT"
_PARTIAL: Final = "PARTIAL; reason=limited-ckf-coverage"
_REUSE: Final = "reuse-ckf"
_THOUSANDTH: Final = Decimal("0.001")
_NOT_IN_SLUGS: Final = re.compile(r"[^a-z0-9]+")


class Miss(enum.Enum):
    """Why an envelope was built, and the caller's own not confirmed."""

    NOT_CACHED = "not-cached"
    """The caller named no etag."""
    UNKNOWN_ETAG = "unknown-etag"
    """No envelope that was issued for this question has the etag."""
    FACTS_UPDATED = "facts-updated"
    """Something that the envelope depends on has changed since."""
    NO_CACHE = "no-cache"
    """The caller asked for a new envelope."""


def headers(
    envelope: Envelope,
    *,
    ckf_hits: int,
    miss: Miss,
    continuation_id: str = "",
    windows_max: int = WINDOWS_MAX_DEFAULT,
    community_shown: bool = True,
) -> dict[str, str]:
    """Returns the headers of a new envelope. `ckf_hits` is the number of facts that were found in the store."""
    made = _context(envelope, miss, windows_max) | _memory(envelope, ckf_hits)
    if continuation_id:
        made["CRP-Context-Continuation-Id"] = continuation_id
    if envelope.quality.saturation >= REUSE_SATURATION_MIN:
        made["CRP-Context-Cache"] = _REUSE
    if community_shown and envelope.communities and (label := slug(envelope.communities[0])):
        made["CRP-Memory-CKF-Community"] = label
    return checked(made)


def not_modified_headers(etag: str) -> dict[str, str]:
    """Returns the headers of an answer without an envelope: the caller's envelope is still valid."""
    return checked({STATUS: "304", "CRP-Context-ETag": etag, "CRP-Context-Cache-Status": _HIT})


def refused_quality_headers(best: QualityTier) -> dict[str, str]:
    """Returns the headers of a refusal because the best possible tier is none that the caller accepts."""
    return {STATUS: "503", "CRP-Context-Quality-Tier": best.name}


def cache_status(saturation: float, miss: Miss) -> str:
    """Returns the cache status of a new envelope: that the store has little on the query, else why it was built."""
    return _PARTIAL if saturation < PARTIAL_SATURATION_BELOW else f"MISS; reason={miss.value}"


def saturation_text(saturation: float) -> str:
    """Returns the saturation with three decimals, rounded down: only a full envelope has 1.000."""
    return str(Decimal(repr(saturation)).quantize(_THOUSANDTH, ROUND_DOWN))


def slug(label: str) -> str:
    """Turns a label into ASCII for a header: `EU AI Act compliance` becomes `eu-ai-act-compliance`. May be empty."""
    plain = unicodedata.normalize("NFKD", label).encode("ascii", "ignore").decode().lower()
    return _NOT_IN_SLUGS.sub("-", plain).strip("-")[:SLUG_CHARACTERS_MAX].rstrip("-")


def knowledge_age(envelope: Envelope) -> str:
    """Returns the age of the newest fact, as an ISO 8601 duration in days; empty without facts."""
    candidates = (packed.ranked.candidate for packed in envelope.packing.included)
    ages = [age_days(candidate, envelope.ranked_on) for candidate in candidates if not candidate.is_answer]
    return f"P{min(ages)}D" if ages else ""


def checked(given: dict[str, str]) -> dict[str, str]:
    """Returns the headers after a check: a value that is not ASCII, or could end a line, must never become a header."""
    for name, value in given.items():
        is_safe = value.isascii() and value.isprintable()
        assert is_safe, f"{name} has a value that no header can have"
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


ETAG_PREFIX: Final = "sha256:"
_SEPARATOR: Final = "|"


def etag(ids: Iterable[FactId], salt: bytes = b"") -> str:
    """Returns the SHA-256 of the sorted ids and their number.

    A salt makes it a keyed hash (HMAC). The same facts then have a different etag in each session, and nobody can tell
    from two etags that the facts are the same.
    """
    names = sorted(map(str, ids))
    text = _SEPARATOR.join([*names, str(len(names))] if names else ["", "0"]).encode()
    digest = hmac.new(salt, text, hashlib.sha256) if salt else hashlib.sha256(text)
    return ETAG_PREFIX + digest.hexdigest()
