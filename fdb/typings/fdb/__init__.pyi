"""The parts of FoundationDB's Python binding (API version 730) that Drillcore uses.

Most of these names exist at run time only after `api_version()`.
"""

from fdb.directory_impl import DirectoryLayer as DirectoryLayer
from fdb.directory_impl import directory as directory
from fdb.impl import Database as Database
from fdb.impl import FDBError as FDBError
from fdb.impl import Future as Future
from fdb.impl import KeySelector as KeySelector
from fdb.impl import KeyValue as KeyValue
from fdb.impl import StreamingMode as StreamingMode
from fdb.impl import Transaction as Transaction
from fdb.impl import open as open
from fdb.impl import options as options

LATEST_API_VERSION: int

def api_version(ver: int) -> None: ...
def is_api_version_selected() -> bool: ...
def get_api_version() -> int: ...
