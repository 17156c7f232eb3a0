"""Which tokenizer and which context window a model has, by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from drillcore.settings import SettingsError
from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import BadInput
from drillcore_server.tokenizing.encodings import VocabularyError, token_counter
from drillcore_server.tokenizing.hugging_face import HuggingFaceTokenizer
from drillcore_server.tokenizing.openai_models import FAMILIES, FINE_TUNED, Family
from drillcore_server.tokenizing.ports import ModelTokenizer
from drillcore_server.tokenizing.sentence_piece import SentencePieceTokenizer
from drillcore_server.tokenizing.settings import HUGGING_FACE_SUFFIX, ModelSettings

_NAME_CHARS_SHOWN: Final = 100
_PROBE: Final = "Records are kept, 中文 and 😀 too.\n"
"""Words, and characters that a vocabulary may lack: a tokenizer that cannot say so fails on them."""


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    tokenizer: ModelTokenizer
    context_window: int | None
    """In tokens; None: nobody said."""


@dataclass(frozen=True, slots=True)
class _Entry:
    tokenizer: Callable[[], ModelTokenizer]
    """Built-in ones are loaded when first asked for, and kept."""
    context_window: int | None


class Models:
    """The models that a server counts for. May be used by several threads."""

    def __init__(self, entries: Mapping[str, _Entry], default: str) -> None:
        self._entries = entries
        self._default = default

    def find(self, name: str) -> Model:
        """By name, empty for the default; of several patterns that fit the longest counts. Raises BadInput."""
        wanted = name or self._default
        entry = self._entry(wanted) or self._entry(_trained_from(wanted))
        if entry is None:
            raise BadInput(Reason.UNKNOWN_MODEL, self._unknown(wanted))
        return Model(wanted, entry.tokenizer(), entry.context_window)

    def _entry(self, name: str) -> _Entry | None:
        if name in self._entries and not name.endswith("*"):
            return self._entries[name]
        fitting = [one for one in self._entries if one.endswith("*") and name.startswith(one[:-1])]
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
    """The built-in models and those of the settings, which win over a built-in one of the same name.

    Files are loaded and tried out here, once each, and so is the default model's tokenizer. Raises SettingsError.
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
    except Exception as error:  # these packages raise whatever they come upon
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
