"""Summaries, quotes, entities, keywords, findings and claims: what ingestion makes of text, by pluggable processors."""

from drillcore_server.ingest.processing.claims import Claim, ClaimSplitter
from drillcore_server.ingest.processing.extractive import ExtractiveProcessor, forget_passages
from drillcore_server.ingest.processing.ports import (
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
