"""`[audit]`: what signs the audit trail, and where its checkpoints go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from drillcore.audit.failures import Malformed
from drillcore.audit.notes import COSIGNATURE_V1, VerifierKey


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessSettings:
    """`[[audit.witnesses]]`: who cosigns checkpoints that continue what it has seen (c2sp.org/tlog-witness)."""

    url: str
    """What `/add-checkpoint` is added to."""
    key: str
    """Its public key, as a verifier key of the kind for cosignatures."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("https://", "http://")):
            raise ValueError(f"the url of a witness begins with https:// or http://, not {self.url!r}")
        try:
            kind = VerifierKey.parse(self.key).kind
        except Malformed as error:
            raise ValueError(f"the key of the witness {self.url}: {error}") from error
        if kind != COSIGNATURE_V1:
            raise ValueError(f"the key of the witness {self.url} is not of the kind for cosignatures")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    key_dir: Path | None = None
    """The keys that sign, by default audit/keys in the data directory. Servers on one cluster need the same ones."""
    signer_command: tuple[str, ...] = ()
    """A program that signs, instead of keys in files; see `audit/signer_program.py`."""
    signer_timeout_s: float = 5.0
    """For one answer of that program."""
    lease_s: float = 10.0
    """How long a server that no longer answers keeps others from putting records in order."""
    checkpoint_every_s: float = 10.0
    """How often a log's checkpoint is kept, cosigned and written to the sink, if the log has grown."""
    sink: Path | None = None
    """Where checkpoints go besides the store: a file, if it is one or its name has a suffix, or else a directory."""
    witnesses: tuple[WitnessSettings, ...] = ()
    witness_timeout_s: float = 5.0
    pdf_key_file: Path | None = None
    """The private key, in PEM, that PDF copies of a corpus are signed with; by default one that the server makes."""
    pdf_certificate_file: Path | None = None
    """Its certificate, in PEM. Both or none."""
    pdf_font_dir: Path | None = None
    """TrueType fonts (*.ttf) for scripts that those of the server do not have, such as Chinese."""

    def __post_init__(self) -> None:
        if (self.pdf_key_file is None) != (self.pdf_certificate_file is None):
            raise ValueError("pdf_key_file and pdf_certificate_file go together: give both or none")
        for name in ("signer_timeout_s", "lease_s", "checkpoint_every_s", "witness_timeout_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0")
