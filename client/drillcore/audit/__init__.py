"""What an audit trail is made of, and how to verify one without trusting the server that keeps it.

    leaves       a record's leaf: what is signed, and what the tree is made of
    merkle       RFC 6962: hashes, inclusion and consistency proofs
    notes        C2SP signed notes and verifier keys
    checkpoints  C2SP checkpoints, and what witnesses sign of them
    keys         the chain of a store's signing keys, and which of them to trust
    documents    JSON, read strictly and written canonically
    pins         what whoever verifies goes by: keys, checkpoints seen before, witnesses
    records      one record with its content
    proofs       the proof of one record, a file                    verify_proof
    exported     an audit export, line by line                      verify_export
    pairs        two checkpoints, of which one continues the other  verify_checkpoints
    bundle       the signed copy of a corpus, a ZIP file            verify_bundle
    reports      what was found
    failures     what may be wrong, as a tree of exceptions

Nothing here needs a server or a network, and nothing that is verified is believed before a pinned key vouches for it.
"""

from drillcore.audit.bundle import verify_bundle
from drillcore.audit.exported import verify_export
from drillcore.audit.failures import VerificationFailed
from drillcore.audit.notes import Note, VerifierKey
from drillcore.audit.pairs import verify_checkpoints
from drillcore.audit.pins import Continuation, Pins
from drillcore.audit.proofs import verify_proof
from drillcore.audit.reports import Evidence, Outcome, Problem, RecordOutcome, Report

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
