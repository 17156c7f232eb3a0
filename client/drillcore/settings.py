"""Settings from a TOML file, the environment and flags."""

from drillcore_formats.settings import Loaded, Origin, SettingsError, Source, find_file, load, load_with_sources, secret

__all__ = [
    "Loaded",
    "Origin",
    "SettingsError",
    "Source",
    "find_file",
    "load",
    "load_with_sources",
    "secret",
]
