"""What to do about an error: which argument or setting helps in Python, and which flag on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Remedy:
    python: str
    command: str


REMEDIES: Final[Mapping[str, Remedy]] = {
    "TENANT_REQUIRED": Remedy(
        "pass tenant_id=, or set tenant_id in the [client] settings",
        "name it with --tenant, or set tenant_id in the [client] settings",
    ),
    "UNAUTHENTICATED": Remedy(
        "pass token= to the client, or set token_file in the [client] settings",
        "give --token-file, or run `drillcore login`",
    ),
    "SESSION_OVER": Remedy("call login() again", "run `drillcore login` again"),
    "PASSWORD_EXPIRED": Remedy("pass new_password= to login()", "give --new-password-file"),
    "REASON_REQUIRED": Remedy(
        "pass reason= to the client, or set reason in the [client] settings",
        "give --reason, or set reason in the [client] settings",
    ),
    "REVIEW_REQUIRED": Remedy(
        "sign the fact, then pass signature_id=",
        "sign the fact with `drillcore sign fact`, then give --signature",
    ),
    "BUDGET_TOO_SMALL": Remedy(
        "pass budget_tokens= or a larger context_window=", "give --budget or a larger --context-window"
    ),
    "CORPUS_ON_HOLD": Remedy(
        "end the hold with update_corpus(release_reason=...)", "end the hold with `drillcore corpus release`"
    ),
    "UNAVAILABLE": Remedy(
        "is address= right, and does the server run?", "is --address right, and does the server run?"
    ),
    "DEADLINE_EXCEEDED": Remedy("pass a longer timeout_s=", "give a longer --timeout"),
}
"""By the name of the reason, or of the gRPC code where no server gave a reason."""
