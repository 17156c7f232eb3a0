"""The process that workers are forked from imports this once, so that they share what it loads."""

from __future__ import annotations

import gc

from drillcore_server.documents.ingestion import reader_process  # noqa: F401 - for the modules that it imports
from drillcore_server.documents.processing.keywords import ENGLISH, stopwords
from drillcore_server.tokenizers.encodings import token_counter

token_counter()
stopwords(ENGLISH)
gc.freeze()  # garbage collection does not touch shared memory, so workers do not copy it
