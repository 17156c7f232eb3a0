"""What an audit trail is made of, and how to verify one without trusting the server that keeps it.

    encoding     base64 and JSON, read strictly and written canonically
    leaves       a record's leaf: what is signed, and what the tree is made of
    merkle       RFC 6962: hashes, inclusion and consistency proofs
    notes        C2SP signed notes and verifier keys
    checkpoints  C2SP checkpoints, and what witnesses sign of them
    keys         the chain of a store's signing keys, and which of them to trust
    pins         what a verifier trusts: keys, checkpoints seen before, witnesses
    records      one record with its content; the order of records; erased private parts
    proofs       the proof of one record, a file                    verify_proof
    exported     an audit export, line by line                      verify_export
    pairs        two checkpoints, where one continues the other     verify_checkpoints
    bundle       the signed copy of a corpus, a ZIP file            verify_bundle
    signatures   signatures of people, and those within PDF files
    zip_members  the files of a bundle
    findings     what was found: exceptions and reports

Nothing here needs a server or a network. No content is trusted before a pinned key vouches for it.
"""

from drillcore_formats.audit.bundle import verify_bundle
from drillcore_formats.audit.exported import verify_export
from drillcore_formats.audit.findings import Evidence, Outcome, Problem, RecordOutcome, Report, VerificationFailed
from drillcore_formats.audit.notes import Note, VerifierKey
from drillcore_formats.audit.pairs import verify_checkpoints
from drillcore_formats.audit.pins import Continuation, Pins
from drillcore_formats.audit.proofs import verify_proof

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
