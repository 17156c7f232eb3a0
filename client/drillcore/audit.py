"""Verifies audit trails, proofs and signed copies without trust in the server that made them."""

from drillcore_formats.audit import (
    Continuation,
    Evidence,
    Note,
    Outcome,
    Pins,
    Problem,
    RecordOutcome,
    Report,
    VerificationFailed,
    VerifierKey,
    verify_bundle,
    verify_checkpoints,
    verify_export,
    verify_proof,
)

__all__ = [
    "Continuation",
    "Evidence",
    "Note",
    "Outcome",
    "Pins",
    "Problem",
    "RecordOutcome",
    "Report",
    "VerificationFailed",
    "VerifierKey",
    "verify_bundle",
    "verify_checkpoints",
    "verify_export",
    "verify_proof",
]
