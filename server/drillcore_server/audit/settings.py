"""`[audit]` settings: what signs the audit trail, and where its checkpoints go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from drillcore_formats.audit.findings import Malformed
from drillcore_formats.audit.notes import COSIGNATURE_V1, VerifierKey


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessSettings:
    """`[[audit.witnesses]]`: a witness that cosigns checkpoints (c2sp.org/tlog-witness)."""

    url: str
    """The witness's URL, without `/add-checkpoint`."""
    key: str
    """The witness's public key: a verifier key for cosignatures."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("https://", "http://")):
            raise ValueError(f"the url of a witness must begin with https:// or http://, not {self.url!r}")
        try:
            kind = VerifierKey.parse(self.key).kind
        except Malformed as error:
            raise ValueError(f"the key of the witness {self.url}: {error}") from error
        if kind != COSIGNATURE_V1:
            raise ValueError(f"the key of the witness {self.url} is not a key for cosignatures (kind {COSIGNATURE_V1})")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    key_dir: Path | None = None
    """Where the signing keys are, by default `engine.secret_dir`, or audit/keys in the data directory."""
    signer_command: tuple[str, ...] = ()
    """A program that signs, instead of keys in files; see `SignerProgram` in `audit/signing_keys.py`."""
    signer_timeout_s: float = 5.0
    """How long to wait for one answer of that program."""
    lease_s: float = 10.0
    """How long a dead server keeps others from putting records in order."""
    checkpoint_every_s: float = 10.0
    """How often a log that has grown gets a checkpoint that is cosigned, kept and written to the sink."""
    sink: Path | None = None
    """Where checkpoints are written outside the store. A path with a suffix is a file, any other a directory."""
    witnesses: tuple[WitnessSettings, ...] = ()
    witness_timeout_s: float = 5.0
    pdf_key_file: Path | None = None
    """The private key, in PEM, that signs PDF copies of a corpus. By default the server makes one."""
    pdf_certificate_file: Path | None = None
    """The certificate of that key, in PEM. Set both or none."""
    pdf_font_dir: Path | None = None
    """TrueType fonts (*.ttf) for scripts that the server's own fonts lack, such as Chinese."""

    def __post_init__(self) -> None:
        if (self.pdf_key_file is None) != (self.pdf_certificate_file is None):
            raise ValueError("pdf_key_file and pdf_certificate_file go together: set both or none")
        for name in ("signer_timeout_s", "lease_s", "checkpoint_every_s", "witness_timeout_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0")
