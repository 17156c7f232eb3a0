"""Tokenizers from files count any text as their original packages do, without special tokens."""

from __future__ import annotations

import json
import time

import pytest
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer

from drillcore_server.tokenizers import encodings as hugging_face
from drillcore_server.tokenizers.encodings import HuggingFaceTokenizer, SentencePieceTokenizer
from tests.support.data.ranked_facts import NASTY
from tests.support.data.tokenizer_files import (
    SENTENCES,
    byte_level_json,
    file_tokenizers,
    llama_json,
    sentence_piece_model,
)

RUNS = ["a", " ", " \t", "\n", "-", "7", "中", "\u0301", "'s", "ab "]

every_file = pytest.mark.parametrize("name", ["llama", "byte level", "unigram", "bpe"])


@pytest.mark.parametrize("text", ["hello world", *SENTENCES[:3]])
def test_counts_are_those_of_the_packages(text: str) -> None:
    llama = Tokenizer.from_buffer(llama_json()).encode(text, add_special_tokens=False)
    assert file_tokenizers()["llama"].count(text) == len(llama.ids)
    unigram = SentencePieceProcessor(model_proto=sentence_piece_model("unigram"))
    assert file_tokenizers()["unigram"].count(text) == len(unigram.encode(text))


def test_known_counts() -> None:
    assert file_tokenizers()["llama"].count("Hello world!") == 3
    assert file_tokenizers()["llama"].count("") == 0


def test_tokens_for_the_beginning_and_the_end_are_not_counted() -> None:
    with_beginning = Tokenizer.from_buffer(llama_json()).encode("hello")
    assert with_beginning.tokens == ["<s>", "▁hello"]
    assert file_tokenizers()["llama"].count("hello") == 1


@pytest.mark.parametrize(("name", "special"), [("llama", "</s>"), ("byte level", "<|end|>"), ("unigram", "</s>")])
def test_a_special_token_in_a_text_is_ordinary_text(name: str, special: str) -> None:
    counter = file_tokenizers()[name]
    assert counter.count(f"a{special}b") > counter.count("ab") + 1


def test_a_file_that_truncates_and_pads_texts_counts_them_whole() -> None:
    content = json.loads(byte_level_json())
    content["truncation"] = {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    content["padding"] = {
        "strategy": {"Fixed": 64},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<|end|>",
    }
    counter = HuggingFaceTokenizer("tokenizer.json", json.dumps(content).encode())
    assert counter.count(SENTENCES[0]) == file_tokenizers()["byte level"].count(SENTENCES[0])
    assert counter.count("a") == 1


@every_file
def test_many_texts_have_the_same_counts_together_as_alone(name: str) -> None:
    counter = file_tokenizers()[name]
    assert counter.count_many(NASTY) == [counter.count(text) for text in NASTY]


@every_file
@pytest.mark.parametrize("run", RUNS)
def test_a_long_unbroken_run_is_counted_in_time(name: str, run: str) -> None:
    started = time.process_time()
    assert file_tokenizers()[name].count("x" + run * (400_000 // len(run)) + "x") > 1
    assert time.process_time() - started < 5


@every_file
def test_a_very_long_text_is_counted_in_parts(name: str) -> None:
    counter = file_tokenizers()[name]
    text = " ".join(SENTENCES)
    times = 2 * hugging_face.TEXT_CHARS_MAX // len(text) + 1
    whole = counter.count(f"{text} ") * times
    assert counter.count(f"{text} " * times) == pytest.approx(whole, rel=0.001)


def test_each_file_has_its_own_fingerprint() -> None:
    by_name = {name: counter.fingerprint for name, counter in file_tokenizers().items()}
    assert len(set(by_name.values())) == len(by_name)
    again = SentencePieceTokenizer("another name.model", sentence_piece_model("unigram"))
    assert again.fingerprint == by_name["unigram"]
    assert again.name == "another name.model"
