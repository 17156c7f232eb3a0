"""Imported once by the process that workers are forked from: they share what it loads."""

import gc

from drillcore_server.ingest import worker  # noqa: F401 - for the modules that it imports
from drillcore_server.ingest.processing.words import ENGLISH, stopwords
from drillcore_server.tokenizing.encodings import token_counter

token_counter()
stopwords(ENGLISH)
gc.freeze()  # what is shared is not walked, and so not copied, by each worker
