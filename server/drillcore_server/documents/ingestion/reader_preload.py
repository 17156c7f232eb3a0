"""Loads what all workers need, so that they share it. Only the process that workers are forked from imports this.

This must stay a module of its own: it runs code on import, and `set_forkserver_preload` takes nothing but module names.
"""

from __future__ import annotations

import gc

from drillcore_server.documents.ingestion import reader_process  # noqa: F401 - loads the modules that a worker imports
from drillcore_server.documents.processors.keywords import ENGLISH, stopwords
from drillcore_server.tokenizers.encodings import token_counter

token_counter()
stopwords(ENGLISH)
gc.freeze()  # garbage collection then leaves the shared memory alone, and workers do not copy it
