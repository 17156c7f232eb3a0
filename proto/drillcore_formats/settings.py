"""Reads settings into frozen dataclasses: from a TOML file, then the environment, then flags. The last one wins.

A nested dataclass is a TOML table. The variable for a field is the prefix, the tables and the field, in capitals:
`client.tls.ca_file` is `[client.tls] ca_file` in the file and `DRILLCORE_CLIENT_TLS_CA_FILE` in the environment.
An unknown name is an error, so that a misspelt setting does not silently keep its default. A field declared with
`secret()` is never printed.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import re
import tomllib
import typing
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from drillcore_formats.setting_values import convert, is_table_array, optional_inner

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

PREFIX: Final = "DRILLCORE"
FILE_NAME: Final = "drillcore.toml"

NOT_SETTINGS: Final = frozenset({"CONFIG", "INVITATION_PASSPHRASE", "FDB_CLUSTER_FILE", "REQUIRE_FDB"})
"""Variables with our prefix that are not settings: the path of the file, the passphrase of an invitation to a cluster,
and what the test suite reads."""

_KUBERNETES: Final = re.compile(r"(\w+_)?(SERVICE_(HOST|PORT\w*)|PORT_\d+_(TCP|UDP|SCTP)\w*)")
_KUBERNETES_URL: Final = re.compile(r"(tcp|udp|sctp)://")


class SettingsError(ValueError):
    """A setting cannot be used. The message names the setting, where it came from and, if known, the remedy."""


class Origin(enum.IntEnum):
    """Where a value came from. A greater origin overrides a smaller one."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    FLAG = 3


@dataclass(frozen=True, slots=True)
class Source:
    """Where one value came from, with the place in words."""

    origin: Origin
    place: str


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """Settings, with the source of each value by dotted name."""

    settings: T
    sources: Mapping[str, Source]

    def values(self) -> Iterator[tuple[str, str, Source]]:
        """Name, value as text, and source of every setting. Secrets only show whether they are set."""
        for name, field, value in _leaves(self.settings, ""):
            shown = str(value) if field.repr else "set, not shown"
            yield name, "not set" if value is None else shown, self.sources.get(name, Source(Origin.DEFAULT, "default"))


@dataclass(frozen=True, slots=True)
class _Given:
    value: object
    source: Source
    directory: Path | None = None
    """The directory of the file. Relative paths are relative to it."""


def secret() -> Any:
    """A field with the default None whose value is never printed."""
    return dataclasses.field(default=None, repr=False)


def find_file(named: Path | None, environment: Mapping[str, str]) -> Path | None:
    """The settings file: `named`, else `$DRILLCORE_CONFIG`, else `./drillcore.toml`, else the user's file, else None.

    Raises SettingsError if `named` or `$DRILLCORE_CONFIG` names a file that does not exist.
    """
    variable = environment.get(f"{PREFIX}_CONFIG")
    asked = named or (Path(variable).expanduser() if variable else None)
    if asked is not None:
        if not asked.is_file():
            who = "--config" if named else f"{PREFIX}_CONFIG"
            raise SettingsError(f"{who} names the file {asked}, which does not exist")
        return asked
    home = Path(environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".config")
    return next((path for path in (Path(FILE_NAME), home / "drillcore" / FILE_NAME) if path.is_file()), None)


def load(
    cls: type[T],
    *,
    file: Path | None,
    environment: Mapping[str, str],
    overrides: Mapping[str, object],
    prefix: str = PREFIX,
    known_elsewhere: Collection[str] = (),
) -> T:
    """Like `load_with_sources`, without the sources."""
    return load_with_sources(
        cls, file=file, environment=environment, overrides=overrides, prefix=prefix, known_elsewhere=known_elsewhere
    ).settings


def load_with_sources(
    cls: type[T],
    *,
    file: Path | None,
    environment: Mapping[str, str],
    overrides: Mapping[str, object],
    prefix: str = PREFIX,
    known_elsewhere: Collection[str] = (),
) -> Loaded[T]:
    """The settings of `cls`, each from the source that overrides the others.

    `overrides` maps dotted names to values; None means not given. `known_elsewhere` names top-level tables of other
    programs: they, and the variables that begin with them, are ignored.
    Raises SettingsError for an unknown name, a wrong value, a missing value or an unreadable file.
    """
    schema = _schema(cls, "")
    given = _from_file(file, schema, known_elsewhere) if file else {}
    given |= _from_environment(environment, schema, prefix, known_elsewhere)
    given |= _from_overrides(overrides, schema)
    return Loaded(_build(cls, "", given), {name: value.source for name, value in given.items()})


def _schema(cls: type[DataclassInstance], above: str) -> dict[str, Any]:
    """Maps dotted names to types, for every table and field. A table's own name maps to its dataclass."""
    schema: dict[str, Any] = {}
    for name, kind in typing.get_type_hints(cls).items():
        schema[above + name] = kind
        table = optional_inner(kind)
        if _is_table(table):
            schema |= _schema(table, f"{above}{name}.")
    return schema


def _is_table(kind: object) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def _from_file(file: Path, schema: Mapping[str, Any], known_elsewhere: Collection[str]) -> dict[str, _Given]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file} is not valid TOML: {error}") from error
    ours = {name: value for name, value in document.items() if name not in known_elsewhere}
    source = Source(Origin.FILE, str(file))
    return {
        name: _Given(value, source, file.absolute().parent)
        for name, value in _flatten(ours, schema, "", source, known_elsewhere)
    }


def _flatten(
    table: Mapping[str, object], schema: Mapping[str, Any], above: str, source: Source, known_elsewhere: Collection[str]
) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        name = above + key
        if name not in schema:
            raise SettingsError(_unknown("setting", name, source.place, [*schema, *known_elsewhere]))
        if not _is_table(optional_inner(schema[name])):
            yield name, value
        elif isinstance(value, Mapping):
            yield name, {}
            yield from _flatten(value, schema, f"{name}.", source, ())
        else:
            raise SettingsError(f"{name} in {source.place} must be a table: write it as [{name}]")


def _from_environment(
    environment: Mapping[str, str], schema: Mapping[str, Any], prefix: str, known_elsewhere: Collection[str]
) -> dict[str, _Given]:
    names = {
        f"{prefix}_{name.replace('.', '_').upper()}": name
        for name, kind in schema.items()
        if not _is_table(optional_inner(kind)) and not is_table_array(kind)
    }
    elsewhere = tuple(f"{prefix}_{table.upper()}_" for table in known_elsewhere)
    given = {}
    for variable, value in environment.items():
        if variable in names:
            given[names[variable]] = _Given(value, Source(Origin.ENVIRONMENT, f"environment variable {variable}"))
        elif variable.startswith(f"{prefix}_") and not variable.startswith(elsewhere):
            _refuse_unless_foreign(variable, value, prefix, names)
    return given


def _refuse_unless_foreign(variable: str, value: str, prefix: str, names: Collection[str]) -> None:
    # Kubernetes sets such variables in every pod for a service named drillcore or drillcore-something.
    rest = variable.removeprefix(f"{prefix}_")
    if rest in NOT_SETTINGS or _KUBERNETES.fullmatch(rest) or (rest.endswith("PORT") and _KUBERNETES_URL.match(value)):
        return
    raise SettingsError(_unknown("variable", variable, "the environment", names))


def _from_overrides(overrides: Mapping[str, object], schema: Mapping[str, Any]) -> dict[str, _Given]:
    given = {}
    for name, value in overrides.items():
        if name not in schema:
            raise SettingsError(_unknown("setting", name, "the command line", schema))
        if value is not None:
            given[name] = _Given(value, Source(Origin.FLAG, "the command line"))
    return given


def _unknown(what: str, name: str, place: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f'unknown {what} "{name}" in {place}' + (f': did you mean "{close[0]}"?' if close else "")


def _build(cls: type[T], above: str, given: Mapping[str, _Given]) -> T:
    values: dict[str, object] = {}
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        name, kind = above + field.name, hints[field.name]
        table = optional_inner(kind)
        if _is_table(table):
            if _wanted(name, given) or not _has_default(field):
                values[field.name] = _build(table, f"{name}.", given)
        elif name in given:
            values[field.name] = _converted(name, field, kind, given[name])
        elif not _has_default(field):
            raise SettingsError(f"{name} must be set")
    try:
        return cls(**values)
    except ValueError as error:
        places = sorted({given[name].source.place for name in given if name.startswith(above)} or {"the defaults"})
        raise SettingsError(f"[{above.rstrip('.')}] {error} (set in {', '.join(places)})") from error


def _wanted(table: str, given: Mapping[str, _Given]) -> bool:
    return any(name == table or name.startswith(f"{table}.") for name in given)


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _converted(name: str, field: dataclasses.Field[Any], kind: object, given: _Given) -> object:
    as_text = given.source.origin is not Origin.FILE and isinstance(given.value, str)
    try:
        if is_table_array(kind):
            return _table_array(name, kind, given)
        return convert(given.value, kind, as_text=as_text, directory=given.directory)
    except SettingsError:
        raise
    except ValueError as error:
        shown = "its value (a secret, not shown)" if not field.repr else repr(given.value)
        raise SettingsError(f"{name} in {given.source.place} must be {error}, not {shown}") from error


def _table_array(name: str, kind: object, given: _Given) -> object:
    """Reads an array of tables, which only a file can contain. Flags may pass dataclasses instead."""
    table = typing.get_args(kind)[0]
    if not isinstance(given.value, list | tuple):
        raise ValueError(f"an array of tables [[{name}]]")
    if all(isinstance(item, table) for item in given.value):
        return tuple(given.value)
    return tuple(_table_item(f"{name}[{number}]", table, item, given) for number, item in enumerate(given.value))


def _table_item(name: str, table: type[DataclassInstance], item: object, given: _Given) -> object:
    if not isinstance(item, Mapping):
        raise SettingsError(f"{name} in {given.source.place} must be a table")
    inner = {f"{name}.{key}": kind for key, kind in _schema(table, "").items()}
    flat = {
        key: dataclasses.replace(given, value=value)
        for key, value in _flatten(item, inner, f"{name}.", given.source, ())
    }
    return _build(table, f"{name}.", flat)


def _leaves(settings: DataclassInstance, above: str) -> Iterator[tuple[str, dataclasses.Field[Any], object]]:
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from _leaves(value, f"{above}{field.name}.")
        else:
            yield above + field.name, field, value
