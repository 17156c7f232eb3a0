"""Checks of accounts and grants, before anything is stored."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.kernel.account_model import Grant, Role
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.named import checked_name
from drillcore_server.storage.ids import TenantId

GRANTS_MAX: Final = 200
CERTIFICATES_MAX: Final = 20
OIDC_CHARACTERS_MAX: Final = 500
_SHA256_BYTES: Final = 32


def checked_login(login: str) -> str:
    """The login in the form that is stored and looked up: upper and lower case, and Unicode forms, do not matter."""
    folded = unicodedata.normalize("NFKC", login).casefold()
    checked_name(folded, "login")
    if any(character.isspace() for character in folded):
        raise BadInput(Reason.INVALID_ARGUMENT, "login has a space", field="login")
    return folded


def checked_grants(grants: Iterable[Grant], tenant: TenantId | None) -> tuple[Grant, ...]:
    """Grants for an account of a tenant, or of the server, without duplicates.

    Does not check that what they name exists.
    """
    checked = dict.fromkeys(_checked_grant(grant, tenant) for grant in grants)
    if len(checked) > GRANTS_MAX:
        raise BadInput(Reason.TOO_LARGE, f"over {GRANTS_MAX} grants", field="grants")
    return tuple(checked)


def _checked_grant(grant: Grant, tenant: TenantId | None) -> Grant:
    granted = grant.tenant or tenant
    if tenant is not None and granted != tenant:
        raise BadInput(
            Reason.INVALID_ARGUMENT, "an account of a tenant can only have grants in that tenant", field="grants"
        )
    if grant.corpus is not None and granted is None:
        raise BadInput(
            Reason.TENANT_REQUIRED,
            "a grant for a corpus must name the corpus's tenant too (--grant ROLE@TENANT:CORPUS)",
            field="grants",
        )
    if grant.role is Role.OPERATOR and grant.levels:
        raise BadInput(
            Reason.INVALID_ARGUMENT,
            "leave levels out of an operator's grant: operators read no content",
            field="grants",
        )
    return Grant(grant.role, granted, grant.corpus, tuple(sorted(set(grant.levels))))


def checked_certificate(text: str) -> bytes:
    """The SHA-256 of a certificate, from hexadecimal text with or without colons."""
    try:
        digest = bytes.fromhex(text.replace(":", ""))
    except ValueError:
        digest = b""
    if len(digest) != _SHA256_BYTES:
        message = "certificate_sha256 must be the SHA-256 of a certificate, in hex"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="certificate_sha256")
    return digest


def check_certificates(certificates: Iterable[bytes]) -> None:
    if len(tuple(certificates)) > CERTIFICATES_MAX:
        message = f"over {CERTIFICATES_MAX} certificates for one account"
        raise BadInput(Reason.TOO_LARGE, message, field="certificate_sha256")


def check_subject(issuer: str, subject: str) -> None:
    if bool(issuer) != bool(subject):
        message = "oidc_issuer and oidc_subject go together: set both or none"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="oidc_subject")
    if max(len(issuer), len(subject)) > OIDC_CHARACTERS_MAX:
        message = f"oidc_issuer or oidc_subject has over {OIDC_CHARACTERS_MAX} characters"
        raise BadInput(Reason.TOO_LARGE, message, field="oidc_subject")
