"""The processor that the settings ask for. Light, since every worker process imports it."""

from __future__ import annotations

from contextlib import ExitStack

from drillcore_server.ingest.processing.chat import ChatSettings
from drillcore_server.ingest.processing.extractive import ExtractiveProcessor
from drillcore_server.ingest.processing.openai import OpenAIProcessor
from drillcore_server.ingest.processing.ports import Processor
from drillcore_server.tokenizing.ports import TokenCounter


def open_processor(chat: ChatSettings | None, counter: TokenCounter, opened: ExitStack) -> Processor:
    """A model's, if one is to be asked, else the built-in one. Its connections are closed with `opened`."""
    if chat is None:
        return ExtractiveProcessor(counter)
    return opened.enter_context(OpenAIProcessor(chat, counter))
