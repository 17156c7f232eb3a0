"""Checks a set-up, and says how to fix what is wrong. Other packages add checks: see `drillcore_formats.plugins`."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import ssl
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from drillcore._api.server import ServerInfo, health
from drillcore._client import Client
from drillcore._transport.channel import is_local
from drillcore._transport.client_settings import TLS, ClientSettings, load_client_settings
from drillcore._version import api_version, client_version
from drillcore.errors import DrillcoreError, Incompatible, PermissionDenied, Unauthenticated
from drillcore_formats.plugins import Check, Status
from drillcore_formats.settings import Loaded, SettingsError, find_file

__all__ = ["Check", "Status", "examine"]

GROUP: Final = "drillcore.doctor"
PYTHON_MIN: Final = (3, 11)
PATIENCE_S: Final = 5.0
"""The doctor waits no longer than this for an answer."""


def examine(file: Path | None, environment: Mapping[str, str], overrides: Mapping[str, object]) -> Iterator[Check]:
    """Runs all checks. `file` is the settings file that was named, if any."""
    yield _python()
    yield _server_parts()
    try:
        found = find_file(file, environment)
        loaded = load_client_settings(found, environment, overrides)
    except SettingsError as error:
        yield Check(
            "settings", Status.FAIL, str(error), "correct or remove the setting, then run `drillcore doctor` again"
        )
        return
    yield _settings(found, loaded)
    yield from _connection(loaded.settings)
    yield from _checks_of_others(environment, found)


def _python() -> Check:
    version = f"Python {platform.python_version()}, drillcore {client_version()}"
    if sys.version_info < PYTHON_MIN:
        return Check("python", Status.FAIL, version, "install Python {}.{} or newer".format(*PYTHON_MIN))
    return Check("python", Status.OK, version)


def _server_parts() -> Check:
    """Whether the packages that only a server needs are installed. It does not import them."""
    needed = _requirements("server")
    missing = [name for name in needed if not _is_installed(name)]
    if not missing:
        return Check("server packages", Status.OK, "installed")
    if len(missing) == len(needed):
        return Check("server packages", Status.OK, "not installed: this is a client only")
    remedy = "run `pip install 'drillcore[server]'` if a server is to run on this machine"
    return Check("server packages", Status.WARN, f"not installed: {', '.join(missing)}", remedy)


def _requirements(extra: str) -> list[str]:
    lines = importlib.metadata.requires("drillcore") or []
    matches = [re.match(r"[\w.-]+", line) for line in lines if re.search(rf"extra == ['\"]{extra}['\"]", line)]
    return [match[0] for match in matches if match]


def _is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _settings(file: Path | None, loaded: Loaded[ClientSettings]) -> Check:
    details = tuple(f"{name} = {value}  ({source.place})" for name, value, source in loaded.values())
    return Check("settings", Status.OK, f"from {file}" if file else "no settings file, none needed", details=details)


def _connection(settings: ClientSettings) -> Iterator[Check]:
    try:
        client = Client.from_settings(replace(settings, attempts=1, timeout_s=min(settings.timeout_s, PATIENCE_S)))
    except SettingsError as error:
        yield Check("connection", Status.FAIL, str(error), "correct the setting it names")
        return
    yield _encryption(settings)
    with client:
        reached = _reach(client)
        yield reached
        if reached.status is not Status.FAIL:
            yield from _introduction(client)


def _encryption(settings: ClientSettings) -> Check:
    if settings.tls is None or not settings.tls.enabled:
        if is_local(settings.address):
            return Check("encryption", Status.OK, "off, and not needed: the address is on this machine")
        return Check(
            "encryption", Status.WARN, "off: everyone on the network can read the traffic", "set up TLS ([client.tls])"
        )
    try:
        _read_certificates(settings.tls)
    except (OSError, ssl.SSLError) as error:
        remedy = "ca_file and certificate_file must be PEM certificates, and key_file the PEM key of certificate_file"
        return Check("encryption", Status.FAIL, f"TLS files cannot be used: {error}", remedy)
    return Check("encryption", Status.OK, "TLS" + (" with a client certificate" if settings.tls.key_file else ""))


def _read_certificates(tls: TLS) -> None:
    """Raises SSLError if a file is not a certificate, or if the key does not match the certificate."""
    context = ssl.create_default_context(cafile=tls.ca_file)
    if tls.certificate_file:
        context.load_cert_chain(tls.certificate_file, tls.key_file)


def _reach(client: Client) -> Check:
    address = client.settings.address
    try:
        serving = client._carry_out(health())
    except Incompatible:
        return Check(
            "server", Status.WARN, f"{address} answers, but does not know health checks", "is it a Drillcore server?"
        )
    except DrillcoreError as error:
        remedy = "start a server with `drillcore serve`, or give --address; TLS must be on at both ends or at neither"
        return Check("server", Status.FAIL, f"{error.reason_name}: {error.message}", remedy)
    if not serving:
        return Check("server", Status.FAIL, f"{address} answers, but does not accept calls now", "see the server's log")
    return Check("server", Status.OK, f"{address} answers and accepts calls")


def _introduction(client: Client) -> Iterator[Check]:
    """Whether the server knows the caller, and whether both use the same protocol."""
    try:
        info = client.server_info()
    except (Unauthenticated, PermissionDenied) as error:
        remedy = "give --token-file; operators use the file operator.token in the server's data directory"
        yield Check("token", Status.FAIL, f"{error.reason_name}: {error.message}", remedy)
    except DrillcoreError as error:
        yield Check(
            "protocol",
            Status.FAIL,
            f"{error.reason_name}: {error.message}",
            "do what the message says, or see the server's log",
        )
    else:
        who = f"tenant {info.tenant_id}" if info.tenant_id else "no tenant: an operator"
        yield Check("token", Status.OK, f"accepted, you are {info.principal} ({who})")
        yield _protocol(info)


def _protocol(info: ServerInfo) -> Check:
    message = (
        f"server {info.version} (API {info.api_version}, {info.engine} engine), "
        f"client {client_version()} (API {api_version()})"
    )
    theirs, ours = _major_minor(info.api_version), _major_minor(api_version())
    if theirs[0] != ours[0]:
        return Check("protocol", Status.FAIL, message, "upgrade the older one: the major versions differ")
    if theirs[1] < ours[1]:
        return Check(
            "protocol", Status.WARN, message, "upgrade the server: it does not know this client's newest calls"
        )
    return Check("protocol", Status.OK, message)


def _major_minor(version: str) -> tuple[int, int]:
    """The numbers of a version "major.minor"; -1 for both if it cannot be parsed."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (-1, -1)


def _checks_of_others(environment: Mapping[str, str], file: Path | None) -> Iterator[Check]:
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            checks: Iterable[Check] = entry.load()(environment, file)
            yield from checks
        except ModuleNotFoundError:
            continue  # only the client is installed, as the check of the server packages says
        except Exception as error:  # a defect in one check must not hide the others
            yield Check(entry.name, Status.FAIL, f"the check failed with {error!r}", "this is a defect: report it")
