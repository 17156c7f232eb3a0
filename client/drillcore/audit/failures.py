# ruff: noqa: N818  # named as what was found, for that is what a report says
"""What is wrong with a piece of evidence, as exceptions.

VerificationFailed
├── Malformed       it is not of the form it should have: a note, a leaf, a line, a file
├── Untrusted       it is signed by a key that nothing vouches for, or by none
├── WrongSignature  it is not what the key signed
├── ProofFailed     a proof does not lead where it is said to
└── Mismatch        two things that should agree do not
"""

from __future__ import annotations


class VerificationFailed(ValueError):
    """A piece of evidence does not show what it is said to."""


class Malformed(VerificationFailed):
    """It is not of the form it should have."""


class Untrusted(VerificationFailed):
    """It is signed by a key that nothing vouches for, or by none."""


class WrongSignature(VerificationFailed):
    """It is not what the key signed."""


class ProofFailed(VerificationFailed):
    """A proof does not prove what it is said to."""


class Mismatch(VerificationFailed):
    """Two things that should agree do not."""
