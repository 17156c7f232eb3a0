"""Makes summaries, quotes, entities, keywords, findings and claims from text, with exchangeable processors."""

from __future__ import annotations

from drillcore_server.documents.processors.claims import Claim, ClaimSplitter
from drillcore_server.documents.processors.extractive import ExtractiveProcessor, forget_passages
from drillcore_server.documents.processors.processor import (
    MASTER_TOKENS,
    SECTION_TOKENS,
    ChunkInput,
    Member,
    Processor,
    SectionMember,
    TokenRange,
)

__all__ = [
    "MASTER_TOKENS",
    "SECTION_TOKENS",
    "ChunkInput",
    "Claim",
    "ClaimSplitter",
    "ExtractiveProcessor",
    "Member",
    "Processor",
    "SectionMember",
    "TokenRange",
    "forget_passages",
]
