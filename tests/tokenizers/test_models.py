"""A model's name leads to its tokenizer and its context window, or to a message that says what to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from tiktoken import model as tiktoken_model

from drillcore_formats.settings import SettingsError, load
from drillcore_proto.reasons import Reason
from drillcore_server.kernel.errors import BadInput
from drillcore_server.tokenizers.encodings import EncodingName, token_counter
from drillcore_server.tokenizers.models import Models, open_models
from drillcore_server.tokenizers.settings import DEFAULT_MODEL, ModelSettings
from tests.support.data.tokenizer_files import byte_level_json, file_tokenizers, sentence_piece_model

BUILT_IN = open_models(DEFAULT_MODEL)
ENCODINGS = [name.value for name in EncodingName]
OF_TIKTOKEN = {
    name: encoding
    for names in (tiktoken_model.MODEL_TO_ENCODING, tiktoken_model.MODEL_PREFIX_TO_ENCODING)
    for name, encoding in names.items()
    if encoding in ENCODINGS
}
NOT_OURS = ("gpt-35-turbo", "davinci-002", "babbage-002", "ft:davinci-002", "ft:babbage-002", "text-embedding-ada")
"""Names that only Azure uses, a shorthand, and models that are no longer served."""


@dataclass(frozen=True, slots=True)
class Envelopes:
    model: str = DEFAULT_MODEL
    models: tuple[ModelSettings, ...] = ()


@dataclass(frozen=True, slots=True)
class File:
    envelopes: Envelopes


def from_file(folder: Path, toml: str) -> Models:
    file = folder / "drillcore.toml"
    file.write_text(toml, encoding="utf-8")
    settings = load(File, file=file, environment={}, overrides={}).envelopes
    return open_models(settings.model, settings.models)


def configured(name: str, tokenizer: str | Path = "cl100k_base", window: int | None = 100) -> ModelSettings:
    return ModelSettings(name=name, tokenizer=Path(tokenizer), context_window=window)


@pytest.mark.parametrize(
    "name", sorted(name for name in OF_TIKTOKEN if not name.startswith(NOT_OURS) and name != "gpt-3.5")
)
def test_models_have_the_encodings_that_tiktoken_names(name: str) -> None:
    whole = f"{name}:firm::1" if name.startswith("ft:") else f"{name}x" if name.endswith("-") else name
    assert BUILT_IN.find(whole).tokenizer.name == OF_TIKTOKEN[name]


@pytest.mark.parametrize(
    ("name", "encoding", "window"),
    [
        ("gpt-4o", "o200k_base", 128_000),
        ("gpt-4o-mini-2024-07-18", "o200k_base", 128_000),
        ("chatgpt-4o-latest", "o200k_base", 128_000),
        ("gpt-4.1-nano", "o200k_base", 1_047_576),
        ("gpt-5.2", "o200k_base", 272_000),
        ("gpt-5-chat-latest", "o200k_base", 128_000),
        ("o1", "o200k_base", 200_000),
        ("o1-mini", "o200k_base", 128_000),
        ("o3-pro", "o200k_base", 200_000),
        ("o4-mini", "o200k_base", 200_000),
        ("gpt-4", "cl100k_base", 8_192),
        ("gpt-4-0613", "cl100k_base", 8_192),
        ("gpt-4-turbo-2024-04-09", "cl100k_base", 128_000),
        ("gpt-3.5-turbo", "cl100k_base", 16_385),
        ("text-embedding-3-small", "cl100k_base", 8_191),
        ("ft:gpt-4o-2024-08-06:firm::1", "o200k_base", 128_000),
        ("cl100k_base", "cl100k_base", None),
        ("o200k_base", "o200k_base", None),
    ],
)
def test_openai_models_are_known(name: str, encoding: str, window: int | None) -> None:
    model = BUILT_IN.find(name)
    assert (model.name, model.tokenizer.name, model.context_window) == (name, encoding, window)


def test_an_empty_name_means_the_default_model() -> None:
    assert BUILT_IN.find("").name == DEFAULT_MODEL
    assert open_models("gpt-4").find("").tokenizer.name == "cl100k_base"


@pytest.mark.parametrize("name", ["claude", "gpt-4.2", "GPT-4o", " gpt-4o", "*", "x" * 10_000])
def test_an_unknown_model_is_refused_with_a_remedy(name: str) -> None:
    with pytest.raises(BadInput) as refused:
        BUILT_IN.find(name)
    assert refused.value.reason is Reason.UNKNOWN_MODEL
    assert "gpt-4o*" in refused.value.message
    assert "[[envelopes.models]]" in refused.value.message
    assert len(refused.value.message) < 2_000


def test_models_of_the_settings_take_precedence_and_the_longest_match_wins() -> None:
    models = open_models(
        "mine",
        [configured("mine", window=1), configured("gpt-4o*", window=2), configured("gpt-*", window=3)],
    )
    windows = {name: models.find(name).context_window for name in ("mine", "gpt-4o-x", "gpt-9", "gpt-4", "o3")}
    assert windows == {"mine": 1, "gpt-4o-x": 2, "gpt-9": 3, "gpt-4": 8_192, "o3": 200_000}


def test_a_star_alone_matches_all_unknown_models() -> None:
    models = open_models("gpt-4", [configured("*", window=7)])
    assert models.find("anything").context_window == 7
    assert models.find("gpt-4").context_window == 8_192


def test_files_are_found_from_the_settings_file(tmp_path: Path) -> None:
    (tmp_path / "of-llama").mkdir()
    (tmp_path / "of-llama" / "tokenizer.json").write_bytes(byte_level_json())
    (tmp_path / "gemma.model").write_bytes(sentence_piece_model())
    models = from_file(
        tmp_path,
        """
        [envelopes]
        model = "gemma-2"
        [[envelopes.models]]
        name = "llama-3*"
        tokenizer = "of-llama/tokenizer.json"
        context_window = 131072
        [[envelopes.models]]
        name = "gemma-2"
        tokenizer = "gemma.model"
        [[envelopes.models]]
        name = "mine"
        tokenizer = "o200k_base"
        """,
    )
    llama, gemma, mine = models.find("llama-3.1-8b"), models.find(""), models.find("mine")
    assert (llama.tokenizer.name, llama.context_window) == ("tokenizer.json", 131_072)
    assert llama.tokenizer.fingerprint == file_tokenizers()["byte level"].fingerprint
    assert (gemma.name, gemma.tokenizer.name, gemma.context_window) == ("gemma-2", "gemma.model", None)
    assert gemma.tokenizer.count("the record") == file_tokenizers()["unigram"].count("the record")
    assert mine.tokenizer is token_counter(EncodingName.O200K_BASE)


def test_two_models_of_one_file_share_it(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_bytes(byte_level_json())
    models = open_models("gpt-4", [configured("one", file), configured("two", file, 200)])
    assert models.find("one").tokenizer is models.find("two").tokenizer
    assert models.find("two").context_window == 200


NO_UNKNOWN = b'{"version":"1.0","model":{"type":"WordLevel","vocab":{"a":0},"unk_token":"[UNK]"}}'
NO_TOKENS = b'{"version":"1.0","model":{"type":"BPE","vocab":{},"merges":[]}}'


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("missing.json", None, "No such file"),
        ("empty.json", b"", "tokenizer.json of Hugging Face"),
        ("config.json", b'{"tokenizer_class": "LlamaTokenizer"}', "not tokenizer_config.json"),
        ("no_unknown.json", NO_UNKNOWN, "Missing"),
        ("no_tokens.json", NO_TOKENS, "finds no tokens"),
        ("missing.model", None, "No such file"),
        ("empty.model", b"", "sentencepiece model"),
        ("tiktoken.model", b"IQ== 0\nIg== 1\n", "take their tokenizer.json"),
        ("noise.model", bytes(range(256)) * 10, "sentencepiece model"),
    ],
)
def test_an_unusable_file_is_reported_at_the_start(tmp_path: Path, name: str, content: bytes | None, told: str) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError, match=told) as refused:
        open_models(DEFAULT_MODEL, [configured("mine", file)])
    assert "'mine'" in str(refused.value)
    assert name in str(refused.value)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ('name = "*mine"\ntokenizer = "cl100k_base"', "only at its end"),
        ('name = ""\ntokenizer = "cl100k_base"', "cannot be named"),
        ('name = "mine"\ntokenizer = "p50k_base"', "must be cl100k_base, o200k_base, a Hugging Face"),
        ('name = "mine"\ntokenizer = "cl100k_base"\ncontext_window = 0', "must be more than 0"),
        ('name = "mine"', "tokenizer must be set"),
    ],
)
def test_a_wrong_setting_is_reported(tmp_path: Path, model: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        from_file(tmp_path, f"[[envelopes.models]]\n{model}\n")


def test_a_duplicate_name_is_reported() -> None:
    with pytest.raises(SettingsError, match="'mine' twice"):
        open_models(DEFAULT_MODEL, [configured("mine"), configured("mine")])


def test_an_unknown_default_model_is_reported() -> None:
    with pytest.raises(SettingsError, match=r"envelopes\.model: .*'mine'"):
        open_models("mine")
