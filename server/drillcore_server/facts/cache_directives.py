"""The directives of CRP-Context-Cache, by which a caller controls how a call uses the store.

reuse-ckf     read what is stored, and do not ingest its sources again
no-store      keep new facts in the session only; reading the store is allowed
no-cache      search the store, never reuse an earlier answer
only-if-ckf   fail if the store has no fact that is relevant enough
max-age=N     facts that were ingested more than N seconds ago count as stale
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.kernel.errors import BadInput, Missing

RELEVANCE_MIN: Final = 0.50
"""The cosine from which a fact counts as relevant."""
TEXT_CHARACTERS_MAX: Final = 200
AGE_S_MAX: Final = 100 * 366 * 86_400
FIELD: Final = "cache_control"
_MAX_AGE: Final = "max-age"
_FLAGS: Final = ("reuse-ckf", "no-store", "no-cache", "only-if-ckf")


@dataclass(frozen=True, slots=True)
class CacheDirectives:
    reuse_ckf: bool = False
    no_store: bool = False
    no_cache: bool = False
    only_if_ckf: bool = False
    max_age: timedelta | None = None

    def is_too_old(self, age: timedelta) -> bool:
        return self.max_age is not None and age > self.max_age

    def check_relevant(self, best: float | None) -> None:
        """Raises `Missing` if only-if-ckf is set and the best fact is not relevant. `best` is None without a fact."""
        if self.only_if_ckf and (best is None or best < RELEVANCE_MIN):
            message = f"only-if-ckf: no stored fact has a relevance of {RELEVANCE_MIN:.2f} or more for this query"
            raise Missing(Reason.NO_CKF_FACTS, message, **NO_FACTS_HEADERS)


NO_FACTS_HEADERS: Final = {
    "CRP-Status": "424",
    "CRP-Context-Cache-Status": "MISS; reason=no-ckf-facts",
    "CRP-Memory-CKF-Hits": "0",
}
"""The headers that the Context Relay Protocol requires in the answer when only-if-ckf fails."""


def parse_directives(text: str) -> CacheDirectives:
    """Parses directives separated by commas, in upper or lower case.

    Raises `BadInput` for an unknown directive, or one that is given twice.
    """
    if len(text) > TEXT_CHARACTERS_MAX:
        raise BadInput(Reason.TOO_LARGE, f"{FIELD} must have at most {TEXT_CHARACTERS_MAX} characters", field=FIELD)
    given: set[str] = set()
    max_age: timedelta | None = None
    for part in text.split(",") if text.strip() else ():
        name, separator, value = part.strip(" \t").lower().partition("=")
        if name in given:
            raise _wrong(f"has {name} twice")
        given.add(name)
        if name == _MAX_AGE:
            max_age = _age(value)
        elif name not in _FLAGS or separator:
            raise _wrong(f"has {part.strip()!r}; use {', '.join(_FLAGS)} or {_MAX_AGE}=SECONDS")
    reuse_ckf, no_store, no_cache, only_if_ckf = (flag in given for flag in _FLAGS)
    return CacheDirectives(reuse_ckf, no_store, no_cache, only_if_ckf, max_age)


def _age(value: str) -> timedelta:
    if not (value.isascii() and value.isdigit()) or len(value) > len(str(AGE_S_MAX)) or int(value) > AGE_S_MAX:
        raise _wrong(f"needs a whole number of seconds up to {AGE_S_MAX} for {_MAX_AGE}")
    return timedelta(seconds=int(value))


def _wrong(what: str) -> BadInput:
    return BadInput(Reason.INVALID_ARGUMENT, f"{FIELD} {what}", field=FIELD)
