"""The index log: a subscription's index, kept where another owner can open it.

Grammar: docs/format.md. The rest of the project may use the exported names.
"""

from tidegate.index.log.home import (
    AwayError,
    FencedError,
    Home,
    HomeError,
    NoLedgerError,
    RefusedError,
    StalePointerError,
)
from tidegate.index.log.landing import Landing
from tidegate.index.log.log_options import LogOptions
from tidegate.index.log.object_home import ABOUT, About, ObjectHome
from tidegate.index.log.objects import FolderObjects, Objects
from tidegate.index.log.patient import Patient
from tidegate.index.log.places import (
    BlockRecord,
    Places,
    StoredBlock,
    block_ids,
    by_record,
    read_record,
    writes,
)
from tidegate.index.log.pointer import NO_LEDGER, Pointer, of_home
from tidegate.index.log.reader import read_log
from tidegate.index.log.restore import named_places
from tidegate.index.log.writer import LogWriter

__all__ = [
    "ABOUT",
    "NO_LEDGER",
    "About",
    "AwayError",
    "BlockRecord",
    "FencedError",
    "FolderObjects",
    "Home",
    "HomeError",
    "Landing",
    "LogOptions",
    "LogWriter",
    "NoLedgerError",
    "ObjectHome",
    "Objects",
    "Patient",
    "Places",
    "Pointer",
    "RefusedError",
    "StalePointerError",
    "StoredBlock",
    "block_ids",
    "by_record",
    "named_places",
    "of_home",
    "read_log",
    "read_record",
    "writes",
]
