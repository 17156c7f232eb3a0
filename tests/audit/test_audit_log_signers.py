"""Signing keys are made once, checked at every start, and rotated so that old signatures stay verifiable."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from drillcore_fdb.engine import Options
from drillcore_formats.audit.leaves import SERVER_LOG
from drillcore_formats.audit.notes import VerifierKey
from drillcore_proto.reasons import Reason
from drillcore_server.audit.signing_keys import KeyFiles, SignerProgram, read_key
from drillcore_server.kernel.errors import Unavailable
from drillcore_server.kernel.journal import KeyKeeper, SignerUnavailableError, SigningKeys
from drillcore_server.storage import audit_keys, audit_records
from tests.support.stores.audited import Audited, audited

PROGRAM = """
import base64, hashlib, json, os, sys, time
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
for line in sys.stdin:
    asked = json.loads(line)
    key = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"%d" % asked["key"]).digest())
    mood = open(sys.argv[1]).read()
    if mood == "die":
        sys.exit(3)
    if mood == "hang":
        time.sleep(60)
    if mood == "refuse":
        print(json.dumps({"error": "the token is locked"}), flush=True)
    elif mood == "babble":
        print("what?", flush=True)
    elif mood == "lie":
        print(json.dumps({"signature": base64.b64encode(bytes(64)).decode()}), flush=True)
    elif "sign" in asked:
        signature = key.sign(base64.b64decode(asked["sign"]))
        print(json.dumps({"signature": base64.b64encode(signature).decode()}), flush=True)
    else:
        print(json.dumps({"public_key": base64.b64encode(key.public_key().public_bytes_raw()).decode()}), flush=True)
    if mood == "once":
        sys.exit(0)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Audited]:
    with audited(tmp_path / "store") as opened:
        yield opened


def reopen(store: Audited, keeper: KeyKeeper) -> SigningKeys:
    return SigningKeys.open(store.engine, store.keys, store.header.store_id, keeper, datetime.now(UTC))


def key_file(store: Audited, number: int = 1) -> Path:
    assert isinstance(store.keeper, KeyFiles)
    return Path(store.keeper.place) / f"{number}.key"


def test_the_first_start_makes_a_key_that_only_the_server_can_read_and_says_so(store: Audited) -> None:
    assert stat.S_IMODE(key_file(store).stat().st_mode) == 0o600
    notice = store.signing.notice
    assert notice is not None
    pinned = VerifierKey.parse(notice.split()[-1])
    assert pinned.public_key == read_key(key_file(store)).public_key().public_bytes_raw()
    assert pinned.name == f"drillcore-{store.header.store_id}"
    assert reopen(store, store.keeper).notice is None
    assert os.listdir(store.keeper.place) == ["1.key"]


def test_a_key_that_is_missing_different_or_readable_by_others_is_refused(store: Audited, tmp_path: Path) -> None:
    with pytest.raises(SignerUnavailableError, match=r"is not in .*restore it"):
        reopen(store, KeyFiles(tmp_path / "elsewhere"))
    assert not (tmp_path / "elsewhere").exists(), "no new key is made silently"
    key_file(store).chmod(0o640)
    with pytest.raises(SignerUnavailableError, match="chmod 600"):
        reopen(store, store.keeper)
    key_file(store).chmod(0o600)
    mine = key_file(store).read_bytes()
    key_file(store).write_bytes(bytes(32))
    with pytest.raises(SignerUnavailableError, match="is not this store's"):
        reopen(store, store.keeper)
    key_file(store).write_bytes(mine)
    reopen(store, store.keeper)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"short",
        b"-----BEGIN PRIVATE KEY-----\nnonsense\n-----END PRIVATE KEY-----\n",
        X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    ],
    ids=["empty", "short", "not PEM", "of another kind"],
)
def test_a_file_that_is_no_key_is_refused(store: Audited, content: bytes) -> None:
    key_file(store).write_bytes(content)
    with pytest.raises(SignerUnavailableError, match="is not an audit key"):
        reopen(store, store.keeper)


def test_a_key_can_be_given_as_a_seed_or_as_pem(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    forms = {
        "seed": key.private_bytes_raw(),
        "pem": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    }
    for name, content in forms.items():
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o600)
        assert read_key(tmp_path / name).public_key() == key.public_key()


def test_a_call_is_refused_when_its_record_cannot_be_signed(store: Audited) -> None:
    def rotate_elsewhere() -> None:
        store.engine.run(
            lambda tr: audit_records.set_state(tr, store.keys, audit_records.AuditState(0, 2)), Options(idempotent=True)
        )

    rotate_elsewhere()
    with pytest.raises(Unavailable) as refused:
        store.record()
    assert refused.value.reason is Reason.AUDIT_UNAVAILABLE


def test_a_key_that_another_server_rotated_to_is_found_when_it_is_needed(store: Audited, tmp_path: Path) -> None:
    other_keys = reopen(store, store.keeper)
    half = other_keys.prepare_next(2, store.run(lambda tr: audit_keys.chain(tr, store.keys)))
    store.run(lambda tr: other_keys.introduce(tr, 2, half.public_key, datetime.now(UTC)))
    assert store.signing.signer(2).public_key == half.public_key
    with pytest.raises(SignerUnavailableError, match="has no key 3"):
        store.signing.signer(3)


def test_a_key_file_left_by_a_failed_rotation_is_used_by_the_next(store: Audited) -> None:
    first = store.signing.prepare_next(2, [])
    assert store.signing.prepare_next(2, []).public_key == first.public_key


@pytest.fixture
def mood(tmp_path: Path) -> Path:
    (tmp_path / "signer.py").write_text(PROGRAM)
    (tmp_path / "mood").write_text("well")
    return tmp_path / "mood"


@pytest.fixture
def program(mood: Path) -> Iterator[SignerProgram]:
    made = SignerProgram([sys.executable, str(mood.with_name("signer.py")), str(mood)], timeout_s=20.0)
    yield made
    made.close()


def test_a_program_signs_records_and_checkpoints(store: Audited, program: SignerProgram, tmp_path: Path) -> None:
    with audited(tmp_path / "other", keeper=program) as other_store:
        other_store.record()
        other_store.sequence()
        assert other_store.head(SERVER_LOG).size == 1
        assert other_store.signing.signer(1).public_key == program.find_or_make(1).public_key


def test_a_program_that_ends_is_started_again(program: SignerProgram, mood: Path) -> None:
    mood.write_text("once")
    half = program.find(1)
    assert half is not None
    for number in range(3):
        assert len(half.sign(b"%d" % number)) == 64


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("die", "ended without an answer"),
        ("hang", "did not answer within"),
        ("refuse", "the token is locked"),
        ("babble", "does not sign"),
        ("lie", "signature of the program is not right"),
    ],
)
def test_a_program_that_fails_is_reported_and_asked_again_next_time(mood: Path, how: str, says: str) -> None:
    command = [sys.executable, str(mood.with_name("signer.py")), str(mood)]
    program = SignerProgram(command, timeout_s=2.0 if how == "hang" else 20.0)
    half = program.find(1)
    assert half is not None
    mood.write_text(how)
    with pytest.raises(SignerUnavailableError, match=says):
        half.sign(b"message")
    mood.write_text("well")
    assert len(half.sign(b"message")) == 64
    program.close()


def test_a_missing_program_is_reported() -> None:
    with pytest.raises(SignerUnavailableError, match=r"audit\.signer_command.*No such file"):
        SignerProgram(["/nowhere/signer"], timeout_s=1.0).find(1)


def test_two_servers_that_share_a_directory_make_one_key(tmp_path: Path) -> None:
    one_server, other_server = KeyFiles(tmp_path), KeyFiles(tmp_path)
    one_server._make(1)
    first = read_key(tmp_path / "1.key").private_bytes_raw()
    other_server._make(1)
    assert read_key(tmp_path / "1.key").private_bytes_raw() == first
    assert [path.name for path in tmp_path.iterdir()] == ["1.key"]
    assert stat.S_IMODE((tmp_path / "1.key").stat().st_mode) == 0o600
