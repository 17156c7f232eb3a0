"""`[envelopes]`: how context envelopes are packed, and how long they are kept."""

from __future__ import annotations

from dataclasses import dataclass, field

from drillcore_server.envelopes.model import WINDOWS_MAX_DEFAULT
from drillcore_server.envelopes.scoring import ScoringSettings
from drillcore_server.tokenizers.settings import DEFAULT_MODEL, ModelSettings

KEEP_DAYS_MAX = 36_500


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeSettings:
    model: str = DEFAULT_MODEL
    """Whose tokenizer and context window are taken where the caller names no model."""
    models: tuple[ModelSettings, ...] = ()
    """`[[envelopes.models]]`: tokenizers and context windows of further models."""
    scoring: ScoringSettings = field(default_factory=ScoringSettings)
    """`[envelopes.scoring]`."""
    windows_max: int = WINDOWS_MAX_DEFAULT
    """Of one chain of continuations."""
    community_header: bool = True
    """Whether CRP-Memory-CKF-Community is sent: it tells which domain of knowledge a query is about."""
    keep_days: int = 400
    """How long what is needed to build an envelope again is kept. Its audit record is kept for ever."""

    def __post_init__(self) -> None:
        if self.windows_max < 1:
            raise ValueError("windows_max must be 1 or more")
        if not 1 <= self.keep_days <= KEEP_DAYS_MAX:
            raise ValueError(f"keep_days must be 1 to {KEEP_DAYS_MAX}")
