"""Tokens of a trusted issuer stand for accounts, and all other tokens of that form are refused."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from drillcore import Account, DrillcoreError, Grant, Role, SettingsError
from drillcore_proto.reasons import Reason
from drillcore_server.identity.settings import OidcSettings
from tests.support.servers.people import refused
from tests.support.servers.running import ACME_ID, AUTH, GLOBEX_ID, Running, create_tenants, running
from tests.support.stores.trails import records

ISSUER, AUDIENCE, SUBJECT = "https://id.example", "drillcore", "user-1"
SKEW_S = 60.0
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
KEYS: dict[str, tuple[Any, str, Any]] = {
    "rsa": (RSA, "RS256", RSAAlgorithm),
    "ec": (EC, "ES256", ECAlgorithm),
    "ed": (ED, "EdDSA", OKPAlgorithm),
}


def key_set(*names: str) -> str:
    """The key set of an issuer with the public keys of these names."""
    keys = []
    for name in names:
        key, algorithm, kind = KEYS[name]
        keys.append({**kind.to_jwk(key.public_key(), as_dict=True), "kid": name, "alg": algorithm, "use": "sig"})
    return json.dumps({"keys": keys})


def token(kid: str = "rsa", *, header: dict[str, Any] | None = None, without: str = "", **claims: Any) -> str:
    """A valid token with the given header fields and claims changed."""
    now = time.time()
    content = {"iss": ISSUER, "aud": AUDIENCE, "sub": SUBJECT, "iat": now, "exp": now + 300, **claims}
    content.pop(without, None)
    key, algorithm, _ = KEYS[kid]
    return jwt.encode(content, key, algorithm, headers={"kid": kid, **(header or {})})


def raw_token(header: dict[str, Any], claims: dict[str, Any], signature: bytes) -> str:
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


@dataclass
class Trusting:
    """A server that trusts the issuer, and an account that its tokens stand for."""

    server: Running
    keys_file: Path
    account: Account = field(init=False)

    def __post_init__(self) -> None:
        create_tenants(self.server.client())
        self.account = self.server.client().create_account(
            "ann",
            name="Ann Example",
            grants=[Grant(Role.READER)],
            oidc_issuer=ISSUER,
            oidc_subject=SUBJECT,
            tenant_id=ACME_ID,
        )

    def principal(self, bearer: str) -> str:
        with self.server.client(bearer) as client:
            return client.server_info().principal

    def why_not(self, bearer: str) -> str:
        """The message of the refusal of the token."""
        with pytest.raises(DrillcoreError) as caught:
            self.principal(bearer)
        assert caught.value.reason is Reason.UNAUTHENTICATED
        return caught.value.message


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> OidcSettings:
    file = tmp_path_factory.mktemp("issuer") / "keys.json"
    file.write_text(key_set(*KEYS))
    return OidcSettings(issuer=ISSUER, audience=AUDIENCE, keys_file=file, clock_skew_s=SKEW_S)


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory, settings: OidcSettings) -> Iterator[Trusting]:
    with running(tmp_path_factory.mktemp("trusting"), auth=replace(AUTH, oidc=(settings,))) as server:
        yield Trusting(server, settings.keys_file)


@pytest.mark.parametrize("kid", KEYS)
def test_a_token_stands_for_the_account_of_its_subject(trusting: Trusting, kid: str) -> None:
    assert trusting.principal(token(kid)) == str(trusting.account.id)


def test_an_audience_may_be_one_of_several(trusting: Trusting) -> None:
    assert trusting.principal(token(aud=["others", AUDIENCE])) == str(trusting.account.id)


def test_calls_with_such_a_token_are_recorded_with_this_kind_of_proof(trusting: Trusting) -> None:
    trusting.server.client(token()).list_corpora(request_id="by-oidc")
    (record,) = records(trusting.server, request_id="by-oidc")
    assert (record["operator"], record["operator_login"], record["proof"]) == (str(trusting.account.id), "ann", "oidc")


CLAIMS: dict[str, tuple[dict[str, Any], str]] = {
    "another issuer": ({"iss": "https://evil.example"}, "issuer that this server does not trust"),
    "another audience": ({"aud": "others"}, "another audience"),
    "several other audiences": ({"aud": ["others", "more"]}, "another audience"),
    "another subject": ({"sub": "user-2"}, "stands for no account"),
    "no issuer": ({"without": "iss"}, "issuer that this server does not trust"),
    "no audience": ({"without": "aud"}, "no claim 'aud'"),
    "no subject": ({"without": "sub"}, "no claim 'sub'"),
    "an empty subject": ({"sub": ""}, "empty subject"),
    "no expiry": ({"without": "exp"}, "no claim 'exp'"),
    "no time of issue": ({"without": "iat"}, "no claim 'iat'"),
    "an expiry that is no number": ({"exp": "soon"}, "not signed"),
    "an issuer that is no text": ({"iss": 7}, "not"),
    "an unknown key": ({"header": {"kid": "unknown"}}, "names no key"),
    "no key": ({"header": {"kid": None}}, "names no key"),
    "the id of another key": ({"header": {"kid": "ec"}}, "not"),
    "an extension that is critical": ({"header": {"crit": ["exp"]}}, ""),
}


@pytest.mark.parametrize("case", CLAIMS)
def test_an_invalid_token_is_refused(trusting: Trusting, case: str) -> None:
    changes, why = CLAIMS[case]
    if changes.get("header") == {"kid": None}:
        now = time.time()
        content = {"iss": ISSUER, "aud": AUDIENCE, "sub": SUBJECT, "iat": now, "exp": now + 300}
        made = jwt.encode(content, RSA, "RS256")
    elif changes.get("iss") == 7:
        made = raw_token({"alg": "RS256", "kid": "rsa"}, {"iss": 7, "sub": SUBJECT}, b"x" * 256)
    else:
        made = token(**changes)
    assert why in trusting.why_not(made)


@pytest.mark.parametrize(
    ("claims", "good"),
    [
        ({"exp": -SKEW_S + 30}, True),
        ({"exp": -SKEW_S - 5}, False),
        ({"nbf": SKEW_S - 30}, True),
        ({"nbf": SKEW_S + 30}, False),
        ({"iat": SKEW_S - 30}, True),
        ({"iat": SKEW_S + 30}, False),
    ],
)
def test_clocks_may_differ_by_a_limited_time(trusting: Trusting, claims: dict[str, float], good: bool) -> None:
    made = token(**{name: time.time() + offset for name, offset in claims.items()})
    if good:
        assert trusting.principal(made) == str(trusting.account.id)
    else:
        assert trusting.why_not(made) == f"the token {'has expired' if 'exp' in claims else 'is not valid yet'}"


def test_a_token_that_is_not_signed_is_refused(trusting: Trusting) -> None:
    now = time.time()
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": SUBJECT, "iat": now, "exp": now + 300}
    for algorithm in ("none", "None", "NONE", "nOnE"):
        for signature in (b"", b"x"):
            trusting.why_not(raw_token({"alg": algorithm, "kid": "rsa", "typ": "JWT"}, claims, signature))


def test_a_token_signed_with_the_public_key_as_a_secret_is_refused(trusting: Trusting) -> None:
    """The signature is an HMAC keyed with the issuer's public key, which is not secret."""
    import hmac

    now = time.time()
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": SUBJECT, "iat": now, "exp": now + 300}
    pem = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    unsigned = raw_token({"alg": "HS256", "kid": "rsa", "typ": "JWT"}, claims, b"").rstrip(".")
    for secret in (pem, pem.strip(), json.dumps(RSAAlgorithm.to_jwk(RSA.public_key(), as_dict=True)).encode()):
        signature = base64.urlsafe_b64encode(hmac.digest(secret, unsigned.encode(), "sha256")).decode().rstrip("=")
        assert "does not use" in trusting.why_not(f"{unsigned}.{signature}")


def test_a_token_of_a_key_that_is_not_the_issuers_is_refused(trusting: Trusting) -> None:
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    now = time.time()
    content = {"iss": ISSUER, "aud": AUDIENCE, "sub": SUBJECT, "iat": now, "exp": now + 300}
    assert "not signed" in trusting.why_not(jwt.encode(content, stranger, "RS256", headers={"kid": "rsa"}))


def test_a_key_that_a_token_brings_along_is_not_used(trusting: Trusting) -> None:
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    own = RSAAlgorithm.to_jwk(stranger.public_key(), as_dict=True)
    now = time.time()
    content = {"iss": ISSUER, "aud": AUDIENCE, "sub": SUBJECT, "iat": now, "exp": now + 300}
    for header in ({"jwk": own}, {"jku": "https://evil.example/keys"}, {"x5u": "https://evil.example/cert"}):
        made = jwt.encode(content, stranger, "RS256", headers={"kid": "rsa", **header})
        assert "not signed" in trusting.why_not(made)


def test_a_changed_token_is_refused(trusting: Trusting) -> None:
    header, claims, signature = token().split(".")
    other_claims = token(sub="user-2").split(".")[1]
    for made in (
        f"{header}.{other_claims}.{signature}",
        f"{header}.{claims}.{signature[:-4]}AAAA",
        f"{header}.{claims}.",
        f"{header}..{signature}",
        f".{claims}.{signature}",
        "a.b.c",
        "..",
        f"{header}.{claims}.{signature}.{signature}",
        f"{header}.{base64.urlsafe_b64encode(b'[1]').decode()}.{signature}",
    ):
        trusting.why_not(made)


def test_an_account_that_is_disabled_or_not_bound_any_more_is_refused_at_once(trusting: Trusting) -> None:
    root = trusting.server.client()
    bob = root.create_account(
        "bob", name="Bob", oidc_issuer=ISSUER, oidc_subject="bob", grants=[Grant(Role.READER)], tenant_id=ACME_ID
    )
    made = token(sub="bob")
    assert trusting.principal(made) == str(bob.id)
    root.update_account(bob.id, disabled=True, tenant_id=ACME_ID)
    with refused(Reason.ACCOUNT_DISABLED):
        trusting.principal(made)
    root.update_account(bob.id, disabled=False, tenant_id=ACME_ID)
    assert trusting.principal(made) == str(bob.id)
    root.update_account(bob.id, oidc_issuer="", oidc_subject="", tenant_id=ACME_ID)
    assert "no longer stands for an account" in trusting.why_not(made)


def test_grants_apply_to_callers_with_such_tokens_too(trusting: Trusting) -> None:
    client = trusting.server.client(token())
    client.list_corpora()
    with refused(Reason.PERMISSION_DENIED):
        client.create_corpus("mine")


def test_without_a_trusted_issuer_all_such_tokens_are_refused(tmp_path: Path) -> None:
    with running(tmp_path) as server, refused(Reason.UNAUTHENTICATED):
        server.client(token()).server_info()


def test_the_key_set_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(key_set("rsa"))
    settings = OidcSettings(issuer=ISSUER, audience=AUDIENCE, keys_file=file)
    with running(tmp_path / "data", auth=replace(AUTH, oidc=(settings,))) as server:
        trusting = Trusting(server, file)
        trusting.principal(token("rsa"))
        assert "names no key" in trusting.why_not(token("ec"))
        replace_file(file, key_set("ec"))
        trusting.principal(token("ec"))
        assert "names no key" in trusting.why_not(token("rsa"))
        replace_file(file, "{")
        assert "key set of its issuer is broken" in trusting.why_not(token("ec"))
        file.unlink()
        assert "key set of its issuer is broken" in trusting.why_not(token("ec"))
        replace_file(file, key_set("rsa", "ec"))
        trusting.principal(token("rsa"))


def replace_file(file: Path, content: str) -> None:
    draft = file.with_suffix(".new")
    draft.write_text(content)
    os.replace(draft, file)


SECRET_KEY = json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQ", "kid": "rsa", "alg": "HS256"}]})


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"keys": []}', '{"keys": 7}', SECRET_KEY, " " * (1 << 21)])
def test_a_server_does_not_start_with_a_bad_key_set(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "keys.json"
    if content is not None:
        file.write_text(content)
    settings = OidcSettings(issuer=ISSUER, audience=AUDIENCE, keys_file=file)
    with (
        pytest.raises(SettingsError, match=r"keys\.json"),
        running(tmp_path / "data", auth=replace(AUTH, oidc=(settings,))),
    ):
        pass


@pytest.mark.parametrize("algorithms", [(), ("none",), ("HS256",), ("RS256", "HS256")])
def test_algorithms_that_need_a_secret_cannot_be_set(tmp_path: Path, algorithms: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="must be among"):
        OidcSettings(issuer=ISSUER, audience=AUDIENCE, keys_file=tmp_path, algorithms=algorithms)


def test_an_algorithm_that_is_not_set_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(key_set(*KEYS))
    settings = OidcSettings(issuer=ISSUER, audience=AUDIENCE, keys_file=file, algorithms=("ES256",))
    with running(tmp_path / "data", auth=replace(AUTH, oidc=(settings,))) as server:
        trusting = Trusting(server, file)
        trusting.principal(token("ec"))
        assert "does not use" in trusting.why_not(token("rsa"))


def test_where_the_issuer_names_the_tenant_it_must_be_the_accounts(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(key_set("rsa"))
    settings = OidcSettings(issuer=ISSUER, audience=AUDIENCE, keys_file=file, tenant_claim="tenant")
    with running(tmp_path / "data", auth=replace(AUTH, oidc=(settings,))) as server:
        trusting = Trusting(server, file)
        assert trusting.principal(token(tenant=str(ACME_ID))) == str(trusting.account.id)
        for tenant in (str(GLOBEX_ID), str(UUID(int=0)), "acme", "", 7):
            assert "another tenant" in trusting.why_not(token(tenant=tenant))
        assert "no claim 'tenant'" in trusting.why_not(token())
