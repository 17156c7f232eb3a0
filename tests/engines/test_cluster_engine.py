"""The cluster engine's promises that need no cluster: settings, cluster file and client library.

FoundationDB's network runs once per process and cannot be stopped, so everything that loads the library runs in a
process of its own.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import fdb
import fdb.fdboptions
import pytest

from drillcore_fdb.cluster import ClusterEngine, ClusterSettings
from drillcore_fdb.cluster.cluster_file import find_cluster_file, read_cluster_file
from drillcore_fdb.engine import Atomic, Streaming
from drillcore_fdb.errors import ClusterUnreachableError, InvalidUseError

NOBODY_LISTENS = "test:test@127.0.0.1:1"

OPEN = """
import sys
from pathlib import Path
from drillcore_fdb.cluster import ClusterEngine, ClusterSettings
from drillcore_fdb.errors import EngineError

def attempt(**settings):
    try:
        ClusterEngine.open(ClusterSettings(cluster_file=Path(sys.argv[1]), connect_timeout_s=0.5, **settings))
    except EngineError as error:
        print(type(error).__name__, error)
"""


def _library_loads() -> bool:
    try:
        ctypes.CDLL("libfdb_c.so")
    except OSError:
        return False
    return True


needs_library = pytest.mark.skipif(not _library_loads(), reason="needs FoundationDB's client library libfdb_c")


@pytest.fixture
def cluster_file(tmp_path: Path) -> Path:
    path = tmp_path / "fdb.cluster"
    path.write_text(NOBODY_LISTENS)
    return path


def _run(script: str, cluster_file: Path, library_path: Path | None = None) -> str:
    environment = dict(os.environ)
    if library_path is not None:
        environment["LD_LIBRARY_PATH"] = str(library_path)
    command = [sys.executable, "-c", OPEN + script, str(cluster_file)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout


def test_importing_the_engine_does_not_load_the_client_library(cluster_file: Path) -> None:
    assert _run("print('fdb.impl' in sys.modules)", cluster_file) == "False\n"


def test_a_missing_client_library_is_reported_with_what_to_install(cluster_file: Path, tmp_path: Path) -> None:
    find = "import ctypes.util; print(ctypes.util.find_library('fdb_c'))"
    if _run(find, cluster_file, library_path=tmp_path) != "None\n":
        pytest.skip("libfdb_c is installed for the whole system and cannot be hidden")
    message = _run("attempt()", cluster_file, library_path=tmp_path)
    assert message.startswith("ClusterUnreachableError FoundationDB's client library libfdb_c.so cannot be loaded")
    assert "cannot open shared object file" in message
    assert "foundationdb-clients" in message
    assert "embedded engine" in message


def test_a_broken_client_library_is_reported_with_the_reason(cluster_file: Path, tmp_path: Path) -> None:
    (tmp_path / "libfdb_c.so").write_bytes(b"not a library")
    message = _run("attempt()", cluster_file, library_path=tmp_path)
    assert message.startswith("ClusterUnreachableError FoundationDB's client library libfdb_c.so cannot be loaded")
    assert "file too short" in message


def test_a_client_library_without_the_functions_we_need_is_reported_as_a_mismatch(
    cluster_file: Path, tmp_path: Path
) -> None:
    mathematics = next(Path("/").glob("lib*/**/libm.so.6"), None) or next(Path("/usr/lib").glob("**/libm.so.6"))
    (tmp_path / "libfdb_c.so").symlink_to(mathematics)
    message = _run("attempt()", cluster_file, library_path=tmp_path)
    assert message.startswith("ClusterUnreachableError FoundationDB's client library does not fit")
    assert "730" in message
    assert "7.3" in message


def test_opening_can_be_tried_again_after_a_failure(cluster_file: Path, tmp_path: Path) -> None:
    (tmp_path / "libfdb_c.so").write_bytes(b"not a library")
    first, second = _run("attempt(); attempt()", cluster_file, library_path=tmp_path).splitlines()
    assert first == second


@needs_library
def test_a_cluster_that_does_not_answer_is_reported_in_bounded_time(cluster_file: Path) -> None:
    message = _run("attempt()", cluster_file)
    assert message.startswith("ClusterUnreachableError")
    assert str(cluster_file) in message
    assert "127.0.0.1:1" in message
    assert "did not answer within 0.5 s" in message


@needs_library
def test_a_second_engine_with_other_network_options_is_refused(cluster_file: Path) -> None:
    other_options = "attempt(knobs={'min_trace_severity': '30'})"
    first, second = _run(f"attempt(); {other_options}", cluster_file).splitlines()
    assert "did not answer" in first
    assert second.startswith("InvalidUseError")
    assert "already running in this process with other options (knob)" in second


@needs_library
def test_a_second_engine_with_the_same_network_options_is_not_refused(cluster_file: Path) -> None:
    same = "attempt(knobs={'min_trace_severity': '30'})"
    first, second = _run(f"{same}; {same}", cluster_file).splitlines()
    assert first == second
    assert "did not answer" in second


@needs_library
def test_another_api_version_in_the_same_process_is_refused(cluster_file: Path) -> None:
    message = _run("import fdb; fdb.api_version(710); attempt()", cluster_file)
    assert message.startswith("InvalidUseError")
    assert "710" in message
    assert "730" in message


def test_a_missing_cluster_file_is_named_in_the_error(tmp_path: Path) -> None:
    missing = tmp_path / "absent.cluster"
    with pytest.raises(ClusterUnreachableError, match="does not exist") as caught:
        ClusterEngine.open(ClusterSettings(cluster_file=missing))
    assert str(missing) in caught.value.message


def test_a_directory_in_place_of_the_cluster_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ClusterUnreachableError, match="cannot be read") as caught:
        ClusterEngine.open(ClusterSettings(cluster_file=tmp_path))
    assert str(tmp_path) in caught.value.message


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("# only a comment\n", "it is empty"),
        ("127.0.0.1:4500", "there is no @"),
        ("no-dash:id@127.0.0.1:4500", "'no-dash:id'"),
        ("description@127.0.0.1:4500", "'description'"),
        ("a:b@", "'' is not the address"),
        ("a:b@127.0.0.1", "'127.0.0.1' is not the address"),
        ("a:b@127.0.0.1:4500,", "'' is not the address"),
        ("a:b@127.0.0.1:4500:ssl", "'127.0.0.1:4500:ssl' is not the address"),
    ],
)
def test_a_malformed_cluster_file_is_refused_with_the_reason(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "fdb.cluster"
    path.write_text(text)
    with pytest.raises(ClusterUnreachableError) as caught:
        ClusterEngine.open(ClusterSettings(cluster_file=path))
    assert str(path) in caught.value.message
    assert why in caught.value.message


@pytest.mark.parametrize(
    ("text", "coordinators"),
    [
        ("docker:docker@10.0.0.1:4500", ("10.0.0.1:4500",)),
        (
            "# made by hand\nmy_cluster : x1 @ 10.0.0.1:4500 ,\n 10.0.0.2:4500:tls\n",
            ("10.0.0.1:4500", "10.0.0.2:4500:tls"),
        ),
        ("a:b@[::1]:4500", ("[::1]:4500",)),
        ("a:b@fdb-1.example.internal:4500:tls", ("fdb-1.example.internal:4500:tls",)),
    ],
)
def test_a_cluster_file_yields_its_coordinators(tmp_path: Path, text: str, coordinators: tuple[str, ...]) -> None:
    path = tmp_path / "fdb.cluster"
    path.write_text(text)
    assert read_cluster_file(path).coordinators == coordinators


def test_the_environment_names_the_cluster_file_if_the_settings_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FDB_CLUSTER_FILE", str(tmp_path / "elsewhere.cluster"))
    with pytest.raises(ClusterUnreachableError, match=r"elsewhere\.cluster"):
        ClusterEngine.open(ClusterSettings())


def test_an_empty_environment_variable_is_refused_and_not_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FDB_CLUSTER_FILE", "")
    with pytest.raises(ClusterUnreachableError, match="set but empty"):
        ClusterEngine.open(ClusterSettings())


def test_the_working_directory_is_searched_for_the_cluster_file(
    cluster_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FDB_CLUSTER_FILE", raising=False)
    monkeypatch.chdir(cluster_file.parent)
    assert find_cluster_file(None) == cluster_file


def test_the_cluster_file_of_the_settings_comes_before_all_others(
    cluster_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FDB_CLUSTER_FILE", str(tmp_path / "elsewhere.cluster"))
    assert find_cluster_file(cluster_file) == cluster_file


@pytest.mark.parametrize(
    "setting",
    [
        {"timeout_s": 0.0},
        {"timeout_s": float("inf")},
        {"timeout_s": float("nan")},
        {"connect_timeout_s": -1.0},
        {"max_retry_delay_s": -0.1},
        {"transaction_bytes_max": 10_000_001},
        {"max_watches": 1_000_001},
    ],
)
def test_a_setting_out_of_bounds_is_named_in_the_error(setting: dict[str, float]) -> None:
    (name,) = setting
    with pytest.raises(InvalidUseError, match=name) as caught:
        ClusterSettings(**setting)  # type: ignore[arg-type]
    assert caught.value.code == 2006


def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidUseError, match="tls_key_path"):
        ClusterSettings(tls_certificate_path=tmp_path / "certificate.pem")


@pytest.mark.parametrize("name", ["", "max=1"])
def test_a_knob_that_is_not_a_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidUseError, match="knob"):
        ClusterSettings(knobs={name: "1"})


@pytest.mark.parametrize("name", ["tls_ca_path", "trace_directory", "external_client_directory"])
def test_a_path_that_does_not_exist_is_refused_before_connecting(cluster_file: Path, tmp_path: Path, name: str) -> None:
    settings = ClusterSettings(cluster_file=cluster_file, **{name: tmp_path / "absent"})  # type: ignore[arg-type]
    with pytest.raises(InvalidUseError, match=f"{name}: .*absent"):
        ClusterEngine.open(settings)


def test_the_password_of_the_key_is_set_before_the_key_and_never_shown(tmp_path: Path) -> None:
    settings = ClusterSettings(
        tls_certificate_path=tmp_path / "certificate.pem", tls_key_path=tmp_path / "key.pem", tls_password="secret"
    )
    names = [name for name, _ in settings.network_options()]
    assert names.index("tls_password") < names.index("tls_key_path")
    assert "secret" not in repr(settings)


def test_the_binding_knows_every_network_option_that_we_set(tmp_path: Path) -> None:
    settings = ClusterSettings(
        tls_certificate_path=tmp_path / "certificate.pem",
        tls_key_path=tmp_path / "key.pem",
        tls_ca_path=tmp_path / "ca.pem",
        tls_verify_peers="Check.Valid=1",
        tls_password="secret",
        knobs={"min_trace_severity": "30"},
        trace_directory=tmp_path,
        external_client_directory=tmp_path,
    )
    known = {name.lower(): option[2] for name, option in fdb.fdboptions.NetworkOption.items()}
    options = settings.network_options()
    assert len(options) == 8
    assert {name: type(value) for name, value in options} == {name: known.get(name) for name, _ in options}


def test_every_atomic_operation_and_streaming_mode_has_the_bindings_name() -> None:
    assert {operation.value for operation in Atomic} <= set(fdb.fdboptions.MutationType)
    assert {streaming.value for streaming in Streaming} <= set(fdb.fdboptions.StreamingMode)
