"""Knows the tokenizer and the context window of a model by its name.

For OpenAI's models, windows are those that OpenAI publishes; where a family has several, that of the smallest model. A
prompt that is shorter than it could be is answered, one that is too long is not. The settings can override both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from drillcore_formats.settings import SettingsError
from drillcore_proto.reasons import Reason
from drillcore_server.kernel.errors import BadInput
from drillcore_server.tokenizers.encodings import (
    EncodingName,
    HuggingFaceTokenizer,
    ModelTokenizer,
    SentencePieceTokenizer,
    VocabularyError,
    token_counter,
)
from drillcore_server.tokenizers.settings import HUGGING_FACE_SUFFIX, ModelSettings

_CL100K, _O200K = EncodingName.CL100K_BASE, EncodingName.O200K_BASE


@dataclass(frozen=True, slots=True)
class Family:
    pattern: str
    """A name, or the beginning of names with a * at its end. The longest match wins."""
    encoding: EncodingName
    context_window: int | None


FAMILIES: Final = (
    Family("gpt-5*", _O200K, 272_000),  # the part of the 400,000 that a prompt may have; later models take more
    Family("gpt-5-chat*", _O200K, 128_000),
    Family("gpt-5.1-chat*", _O200K, 128_000),
    Family("gpt-5.2-chat*", _O200K, 128_000),
    Family("gpt-5.3-chat*", _O200K, 128_000),
    Family("gpt-4.5*", _O200K, 128_000),
    Family("gpt-4.1*", _O200K, 1_047_576),
    Family("gpt-4o*", _O200K, 128_000),
    Family("gpt-4o-realtime*", _O200K, 32_000),
    Family("gpt-4o-mini-realtime*", _O200K, 16_000),
    Family("chatgpt-4o*", _O200K, 128_000),
    Family("o1*", _O200K, 200_000),
    Family("o1-mini*", _O200K, 128_000),
    Family("o1-preview*", _O200K, 128_000),
    Family("o3*", _O200K, 200_000),
    Family("o4-mini*", _O200K, 200_000),
    # Not gpt-4*: a later model such as gpt-4.2 might have another encoding.
    Family("gpt-4", _CL100K, 8_192),
    Family("gpt-4-*", _CL100K, 8_192),
    Family("gpt-4-32k*", _CL100K, 32_768),
    Family("gpt-4-turbo*", _CL100K, 128_000),
    Family("gpt-4-0125-preview", _CL100K, 128_000),
    Family("gpt-4-1106-*", _CL100K, 128_000),
    Family("gpt-4-vision-preview", _CL100K, 128_000),
    Family("gpt-3.5-turbo*", _CL100K, 16_385),
    Family("gpt-3.5-turbo-0301", _CL100K, 4_096),
    Family("gpt-3.5-turbo-0613", _CL100K, 4_096),
    Family("gpt-3.5-turbo-instruct*", _CL100K, 4_096),
    Family("text-embedding-3-*", _CL100K, 8_191),
    *(Family(name.value, name, None) for name in EncodingName),
)

FINE_TUNED: Final = "ft:"
"""Comes before the name of a fine-tuned model, as in ft:gpt-4o-2024-08-06:firm::1. It has the tokenizer and the window
of the base model."""


_NAME_CHARS_SHOWN: Final = 100
_PROBE: Final = "Records are kept, 中文 and 😀 too.\n"
"""Words, and characters that a vocabulary may lack: a tokenizer without a fallback fails on them."""


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    tokenizer: ModelTokenizer
    context_window: int | None
    """In tokens; None if unknown."""


@dataclass(frozen=True, slots=True)
class _Entry:
    tokenizer: Callable[[], ModelTokenizer]
    """Built-in tokenizers are loaded on first use and kept."""
    context_window: int | None


class Models:
    """The models that a server counts for. Several threads may use it."""

    def __init__(self, entries: Mapping[str, _Entry], default: str) -> None:
        self._entries = entries
        self._default = default

    def find(self, name: str) -> Model:
        """Finds a model by name; empty: the default. The longest matching pattern wins. Raises `BadInput`."""
        wanted = name or self._default
        entry = self._entry(wanted) or self._entry(_trained_from(wanted))
        if entry is None:
            raise BadInput(Reason.UNKNOWN_MODEL, self._unknown(wanted))
        return Model(wanted, entry.tokenizer(), entry.context_window)

    def _entry(self, name: str) -> _Entry | None:
        if name in self._entries and not name.endswith("*"):
            return self._entries[name]
        fitting = [entry for entry in self._entries if entry.endswith("*") and name.startswith(entry[:-1])]
        return self._entries[max(fitting, key=len)] if fitting else None

    def _unknown(self, name: str) -> str:
        return (
            f"the server has no tokenizer for the model {name[:_NAME_CHARS_SHOWN]!r}; it knows "
            f"{', '.join(sorted(self._entries))}. Its operator can add one by [[envelopes.models]] in the settings, "
            "with name, tokenizer (a file tokenizer.json or *.model, or one of the encodings) and context_window"
        )


def _trained_from(name: str) -> str:
    return name.removeprefix(FINE_TUNED).partition(":")[0] if name.startswith(FINE_TUNED) else name


def open_models(default: str, configured: Sequence[ModelSettings] = ()) -> Models:
    """Returns the built-in models and those of the settings, which win over built-in ones of the same name.

    Loads each file and the default model's tokenizer once and tries them. Raises `SettingsError`.
    """
    entries = {family.pattern: _built_in(family) for family in FAMILIES} | _from_settings(configured)
    models = Models(entries, default)
    try:
        models.find(default)
    except BadInput as refused:
        raise SettingsError(f"envelopes.model: {refused.message}") from refused
    except VocabularyError as error:
        raise SettingsError(f"envelopes.model {default}: {error}") from error
    return models


def _built_in(family: Family) -> _Entry:
    return _Entry(lambda: token_counter(family.encoding), family.context_window)


def _from_settings(configured: Sequence[ModelSettings]) -> dict[str, _Entry]:
    loaded: dict[Path, ModelTokenizer] = {}
    entries: dict[str, _Entry] = {}
    for model in configured:
        if model.name in entries:
            raise SettingsError(f"envelopes.models has the name {model.name!r} twice")
        entries[model.name] = _entry_of(model, loaded)
    return entries


def _entry_of(model: ModelSettings, loaded: dict[Path, ModelTokenizer]) -> _Entry:
    if model.encoding is not None:
        encoding = model.encoding
        return _Entry(lambda: token_counter(encoding), model.context_window)
    if model.tokenizer not in loaded:
        loaded[model.tokenizer] = _load(model)
    tokenizer = loaded[model.tokenizer]
    return _Entry(lambda: tokenizer, model.context_window)


def _load(model: ModelSettings) -> ModelTokenizer:
    path, where = model.tokenizer, f"envelopes.models, {model.name!r}: the tokenizer {model.tokenizer}"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{where} cannot be read: {error.strerror or error}") from error
    try:
        tokenizer = _tokenizer(path, content)
        counted = tokenizer.count(_PROBE)
    except Exception as error:  # these packages raise anything
        raise SettingsError(f"{where} cannot be used: {error}{_hint(path)}") from error
    if not counted:
        raise SettingsError(f"{where} cannot be used: it finds no tokens in a text")
    return tokenizer


def _tokenizer(path: Path, content: bytes) -> ModelTokenizer:
    if path.suffix == HUGGING_FACE_SUFFIX:
        return HuggingFaceTokenizer(path.name, content)
    return SentencePieceTokenizer(path.name, content)


def _hint(path: Path) -> str:
    if path.suffix == HUGGING_FACE_SUFFIX:
        return ". It must be the tokenizer.json of Hugging Face's tokenizers, not tokenizer_config.json"
    return ". It must be a sentencepiece model; some models' tokenizer.model is not: take their tokenizer.json then"
