"""Types of flags and arguments beyond those of click."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import click

from drillcore._api.envelope_data import QualityTier
from drillcore._api.messages import AsOf
from drillcore._api.node_data import Entity, Level


class KeyValue(click.ParamType[tuple[str, str]]):
    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is not of the form key=value", param, ctx)
        return key, text


class TextFile(click.ParamType[str]):
    """A UTF-8 file, - for stdin. The command gets its text."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            with click.open_file(str(value), encoding="utf-8") as file:
                return str(file.read())
        except UnicodeDecodeError:
            self.fail(f"{value} is not valid UTF-8", param, ctx)
        except OSError as error:
            self.fail(f"{value} cannot be read: {error.strerror}", param, ctx)


class Tiers(click.ParamType[tuple[QualityTier, ...]]):
    """Quality tiers with commas between them."""

    name = "tiers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[QualityTier, ...]:
        if isinstance(value, tuple):
            return value
        names = [name.strip().upper() for name in str(value).split(",")]
        if not {*names} <= {*QualityTier.__members__}:
            self.fail(f"{value!r} is not a list of tiers: write S, A, B, C or D, as in S,A", param, ctx)
        return tuple(QualityTier[name] for name in names)


class Weight(click.ParamType[tuple[str, float]]):
    """A part of the composite score and its weight."""

    name = "part=number"
    parts = ("relevance", "importance", "freshness", "diversity")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        if isinstance(value, tuple):
            return value
        part, _, number = str(value).partition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = -1.0
        if part not in self.parts or not 0 <= weight < math.inf:
            self.fail(f"{value!r} is not of the form {'|'.join(self.parts)}=NUMBER", param, ctx)
        return part, weight


class LevelName(click.ParamType[Level]):
    """A level by its name or its number."""

    name = "level"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Level:
        if isinstance(value, Level):
            return value
        named = {name: level for level in Level for name in (level.name.lower(), str(level.value))}
        if str(value).lower() not in named:
            self.fail(f"{value!r} is not a level: write master (3), section (2), chunk (1) or raw (0)", param, ctx)
        return named[str(value).lower()]


class EntityFilter(click.ParamType[Entity]):
    """An entity by type and value, or any entity of a type."""

    name = "type[=value]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Entity:
        if isinstance(value, Entity):
            return value
        kind, equals, text = str(value).partition("=")
        if not kind or (equals and not text):
            self.fail(f"{value!r} is not of the form type or type=value", param, ctx)
        return Entity(kind, text)


class Time(click.ParamType[datetime]):
    """A time in ISO 8601. Without a zone it is local time, like the times that commands show."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            time = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a time: write it as 2026-01-31 or 2026-01-31T12:00:00Z", param, ctx)
        return time if time.tzinfo else time.astimezone()


class Moment(click.ParamType[AsOf]):
    """A revision or a time."""

    name = "revision|time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> AsOf:
        if isinstance(value, int):
            return value
        if str(value).isascii() and str(value).isdigit() and int(value) < 2**64:
            return int(value)
        return Time().convert(value, param, ctx)
