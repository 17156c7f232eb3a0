"""Settings: where they come from, which source wins, and which values are refused."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from drillcore import TLS, ClientSettings
from drillcore._transport.client_settings import load_client_settings
from drillcore_formats.settings import Origin, SettingsError, find_file, load, load_with_sources, secret


class Level(enum.Enum):
    FULL = "full"
    RELAXED = "relaxed"


@dataclass(frozen=True, slots=True)
class Principal:
    name: str
    token: str = secret()


@dataclass(frozen=True, slots=True)
class Nested:
    file: Path | None = None
    on: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    text: str = "default"
    count: int = 1
    ratio: float = 0.5
    on: bool = False
    path: Path | None = None
    level: Level = Level.FULL
    names: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    principals: tuple[Principal, ...] = ()
    password: str | None = secret()
    nested: Nested | None = None

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError("count must not be negative")


@dataclass(frozen=True, slots=True)
class Root:
    part: Part = field(default_factory=Part)


def read(
    tmp_path: Path,
    toml: str = "",
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Part:
    file = tmp_path / "drillcore.toml"
    file.write_text(toml)
    return load(
        Root, file=file, environment=environment or {}, overrides=overrides or {}, known_elsewhere=["elsewhere"]
    ).part


def refusal(tmp_path: Path, toml: str = "", environment: Mapping[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, toml, environment)
    return str(caught.value)


def test_without_any_source_the_defaults_hold() -> None:
    assert load(Root, file=None, environment={}, overrides={}) == Root()


def test_the_environment_wins_over_the_file_and_flags_over_both(tmp_path: Path) -> None:
    toml = '[part]\ntext = "file"\ncount = 2\nratio = 2'
    part = read(
        tmp_path, toml, {"DRILLCORE_PART_TEXT": "environment", "DRILLCORE_PART_COUNT": "3"}, {"part.text": "flag"}
    )
    assert (part.text, part.count, part.ratio) == ("flag", 3, 2.0)


def test_a_flag_that_was_not_given_overrides_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, '[part]\ntext = "file"', overrides={"part.text": None}).text == "file"


def test_every_type_is_read_from_a_file(tmp_path: Path) -> None:
    part = read(
        tmp_path,
        """
        [part]
        text = "t"
        count = 2
        ratio = 1
        on = true
        path = "/absolute"
        level = "relaxed"
        names = ["a", "b"]
        labels = { k = "v" }
        password = "p"
        principals = [{ name = "ann", token = "t1" }, { name = "bob" }]
        [part.nested]
        on = true
        """,
    )
    assert part == Part(
        text="t",
        count=2,
        ratio=1.0,
        on=True,
        path=Path("/absolute"),
        level=Level.RELAXED,
        names=("a", "b"),
        labels={"k": "v"},
        password="p",
        principals=(Principal("ann", "t1"), Principal("bob")),
        nested=Nested(on=True),
    )


def test_every_type_but_tables_is_read_from_the_environment(tmp_path: Path) -> None:
    values = {
        "TEXT": "t",
        "COUNT": "2",
        "RATIO": "1.5",
        "ON": "Yes",
        "PATH": "relative",
        "LEVEL": "relaxed",
        "NAMES": "a, b",
        "LABELS": "k=v, l=w",
        "NESTED_ON": "1",
    }
    part = read(tmp_path, "", {f"DRILLCORE_PART_{name}": value for name, value in values.items()})
    assert part == Part(
        text="t",
        count=2,
        ratio=1.5,
        on=True,
        path=Path("relative"),
        level=Level.RELAXED,
        names=("a", "b"),
        labels={"k": "v", "l": "w"},
        nested=Nested(on=True),
    )


def test_a_relative_path_in_a_file_counts_from_the_file(tmp_path: Path) -> None:
    assert read(tmp_path, '[part]\npath = "data"').path == tmp_path / "data"


def test_an_optional_table_is_set_only_if_it_is_named(tmp_path: Path) -> None:
    assert read(tmp_path, "[part]").nested is None
    assert read(tmp_path, "[part.nested]").nested == Nested()


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ('[part]\ntxt = "x"', 'unknown setting "part.txt" in {file}: did you mean "part.text"?'),
        ("[prat]\n", 'unknown setting "prat" in {file}: did you mean "part"?'),
        ("[elswhere]\n", 'unknown setting "elswhere" in {file}: did you mean "elsewhere"?'),
        ("[part.nested]\nfiel = 1", 'unknown setting "part.nested.fiel" in {file}: did you mean "part.nested.file"?'),
        (
            '[[part.principals]]\nname = "a"\ntokne = "t"',
            'unknown setting "part.principals[0].tokne" in {file}: did you mean "part.principals[0].token"?',
        ),
        ("[[part.principals]]\n", "part.principals[0].name must be set"),
        ("[part]\nprincipals = 1", "part.principals in {file} must be an array of tables [[part.principals]], not 1"),
        ("[part]\nprincipals = [1]", "part.principals[0] in {file} must be a table"),
        ("part = 1", "part in {file} must be a table: write it as [part]"),
        ("[part]\ntext = 1", "part.text in {file} must be text, not 1"),
        ('[part]\ncount = "1"', "part.count in {file} must be a whole number, not '1'"),
        ("[part]\ncount = true", "part.count in {file} must be a whole number, not True"),
        ("[part]\ncount = 1.5", "part.count in {file} must be a whole number, not 1.5"),
        ("[part]\nratio = nan", "part.ratio in {file} must be a number, not nan"),
        ('[part]\non = "true"', "part.on in {file} must be true or false, not 'true'"),
        ("[part]\npath = 1", "part.path in {file} must be a path, not 1"),
        ('[part]\nlevel = "half"', "part.level in {file} must be one of full, relaxed, not 'half'"),
        ('[part]\nnames = "a"', "part.names in {file} must be a list of texts, not 'a'"),
        ("[part]\nlabels = { a = 1 }", "part.labels in {file} must be a table of texts, not {{'a': 1}}"),
        ("[part]\ncount = -1", "[part] count must not be negative (set in {file})"),
    ],
)
def test_a_wrong_file_is_refused_with_name_place_and_remedy(tmp_path: Path, toml: str, expected: str) -> None:
    assert refusal(tmp_path, toml) == expected.format(file=tmp_path / "drillcore.toml")


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        (
            "DRILLCORE_PART_TXT",
            "x",
            'unknown variable "DRILLCORE_PART_TXT" in the environment: did you mean "DRILLCORE_PART_TEXT"?',
        ),
        (
            "DRILLCORE_PART_COUNT",
            "one",
            "part.count in environment variable DRILLCORE_PART_COUNT must be a whole number, not 'one'",
        ),
        (
            "DRILLCORE_PART_ON",
            "maybe",
            "part.on in environment variable DRILLCORE_PART_ON must be true or false, not 'maybe'",
        ),
        (
            "DRILLCORE_PART_RATIO",
            "inf",
            "part.ratio in environment variable DRILLCORE_PART_RATIO must be a number, not 'inf'",
        ),
        (
            "DRILLCORE_PART_LABELS",
            "a",
            "part.labels in environment variable DRILLCORE_PART_LABELS must be key=value pairs with commas, not 'a'",
        ),
    ],
)
def test_a_wrong_variable_is_refused_with_name_and_remedy(
    tmp_path: Path, variable: str, value: str, expected: str
) -> None:
    assert refusal(tmp_path, "", {variable: value}) == expected


def test_an_unknown_override_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r'"part\.txt" in the command line: did you mean "part\.text"'):
        read(tmp_path, overrides={"part.txt": "x"})


def test_tables_and_variables_of_other_programs_are_ignored(tmp_path: Path) -> None:
    assert read(tmp_path, "[elsewhere]\nanything = 1", {"DRILLCORE_ELSEWHERE_ANYTHING": "1"}) == Part()


def test_variables_that_are_no_settings_are_ignored(tmp_path: Path) -> None:
    kubernetes = {
        "DRILLCORE_SERVICE_HOST": "10.0.0.1",
        "DRILLCORE_PORT": "tcp://10.0.0.1:7600",
        "DRILLCORE_PORT_7600_TCP_ADDR": "10.0.0.1",
        "DRILLCORE_GATEWAY_SERVICE_PORT_GRPC": "7600",
    }
    others = {"DRILLCORE_CONFIG": "x", "DRILLCORE_REQUIRE_FDB": "1", "DRILLCORE_FDB_CLUSTER_FILE": "x", "PATH": "x"}
    assert read(tmp_path, "", kubernetes | others) == Part()


def test_a_port_that_kubernetes_did_not_set_is_refused(tmp_path: Path) -> None:
    assert "DRILLCORE_PART_PORT" in refusal(tmp_path, "", {"DRILLCORE_PART_PORT": "7600"})


@pytest.mark.parametrize("content", [b"[part", b"\xff\xfe", b"[part]\ntext = 1\ntext = 2"])
def test_a_file_that_is_no_toml_is_refused_with_its_name(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broken.toml"
    file.write_bytes(content)
    with pytest.raises(SettingsError, match=r"broken\.toml"):
        load(Root, file=file, environment={}, overrides={})


def test_a_secret_is_neither_in_a_repr_nor_in_an_error_nor_in_the_list_of_values(tmp_path: Path) -> None:
    assert "hunter2" not in repr(read(tmp_path, '[part]\npassword = "hunter2"'))
    assert "12345" not in refusal(tmp_path, "[part]\npassword = 12345")
    loaded = load_with_sources(
        Root, file=None, environment={"DRILLCORE_PART_PASSWORD": "hunter2"}, overrides={}, known_elsewhere=()
    )
    assert [text for name, text, _ in loaded.values() if name == "part.password"] == ["set, not shown"]


def test_each_value_names_the_source_it_came_from(tmp_path: Path) -> None:
    file = tmp_path / "drillcore.toml"
    file.write_text('[part]\ntext = "x"\non = true')
    environment = {"DRILLCORE_PART_COUNT": "7", "DRILLCORE_PART_ON": "false"}
    loaded = load_with_sources(Root, file=file, environment=environment, overrides={"part.ratio": 2.0})
    origins = {name: (text, source.origin) for name, text, source in loaded.values()}
    assert origins["part.text"] == ("x", Origin.FILE)
    assert origins["part.on"] == ("False", Origin.ENVIRONMENT)
    assert origins["part.count"] == ("7", Origin.ENVIRONMENT)
    assert origins["part.ratio"] == ("2.0", Origin.FLAG)
    assert origins["part.level"][1] is Origin.DEFAULT


def test_the_file_comes_from_the_flag_the_variable_the_directory_or_the_user_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [tmp_path / "named.toml", tmp_path / "variable.toml", Path("drillcore.toml")]
    users = tmp_path / "home" / ".config" / "drillcore" / "drillcore.toml"
    users.parent.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for place in [*places, users]:
        place.touch()
    environment = {"HOME": str(tmp_path / "home")}
    with_variable = environment | {"DRILLCORE_CONFIG": str(places[1])}
    assert find_file(places[0], with_variable) == places[0]
    assert find_file(None, with_variable) == places[1]
    assert find_file(None, environment) == places[2]
    places[2].unlink()
    assert find_file(None, environment) == users
    users.unlink()
    assert find_file(None, environment) is None


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    with pytest.raises(SettingsError, match=rf"--config names the file {missing}"):
        find_file(missing, {})
    with pytest.raises(SettingsError, match=rf"DRILLCORE_CONFIG names the file {missing}"):
        find_file(None, {"DRILLCORE_CONFIG": str(missing)})


def client_settings(tmp_path: Path, toml: str = "", **environment: str) -> ClientSettings:
    file = tmp_path / "drillcore.toml"
    file.write_text(toml)
    variables = {f"DRILLCORE_CLIENT_{name}": value for name, value in environment.items()}
    return load_client_settings(file, variables).settings


def test_the_clients_settings_are_the_client_table(tmp_path: Path) -> None:
    toml = '[client]\naddress = "db:1"\n[client.tls]\nca_file = "/ca.pem"\n[server]\nanything = 1\n[engine]\nkind = 2'
    settings = client_settings(tmp_path, toml, TIMEOUT_S="5", ATTEMPTS="2")
    assert settings == ClientSettings(address="db:1", timeout_s=5, attempts=2, tls=TLS(ca_file=Path("/ca.pem")))


@pytest.mark.parametrize("wrong", [{"TIMEOUT_S": "0"}, {"ATTEMPTS": "0"}, {"ATTEMPTS": "6"}, {"ADDRESS": ""}])
def test_client_settings_out_of_bounds_are_refused(tmp_path: Path, wrong: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong)).lower()):
        client_settings(tmp_path, **wrong)


def test_tls_can_be_switched_on_and_off_by_a_variable(tmp_path: Path) -> None:
    assert client_settings(tmp_path, TLS_ENABLED="true").tls == TLS()
    assert client_settings(tmp_path, "[client.tls]\n", TLS_ENABLED="false").tls == TLS(enabled=False)


def test_the_token_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "operator.token").write_text("secret\n")
    assert client_settings(tmp_path, '[client]\ntoken_file = "operator.token"').bearer_token() == "secret"


def test_the_stronger_source_decides_between_token_and_token_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from the file")
    assert client_settings(tmp_path, '[client]\ntoken_file = "token"', TOKEN="direct").bearer_token() == "direct"
    weaker = client_settings(tmp_path, '[client]\ntoken = "direct"', TOKEN_FILE=str(tmp_path / "token"))
    assert (weaker.token, weaker.token_file) == (None, tmp_path / "token")


def test_token_and_token_file_from_one_source_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"both token .* keep one"):
        client_settings(tmp_path, '[client]\ntoken = "a"\ntoken_file = "b"')


@pytest.mark.parametrize(
    ("content", "expected"), [("", "is empty"), ("two words", "only the token"), (None, "cannot be read")]
)
def test_a_token_file_without_a_token_is_refused(tmp_path: Path, content: str | None, expected: str) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    with pytest.raises(SettingsError, match=expected):
        client_settings(tmp_path, '[client]\ntoken_file = "token"').bearer_token()
