"""Summaries, quotes, entities, keywords, findings and claims: what ingestion makes of text, by pluggable processors."""

from drillcore_server.ingest.processing.claims import Claim, split_claims
from drillcore_server.ingest.processing.extractive import ExtractiveProcessor
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
    "ExtractiveProcessor",
    "Member",
    "Processor",
    "SectionMember",
    "TokenRange",
    "split_claims",
]
