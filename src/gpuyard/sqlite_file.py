"""What every store of gpuyard in SQLite needs of its file."""

import sqlite3
import time
import urllib.parse
from pathlib import Path

BUSY_SECONDS = 30.0
"""How long whoever wants to write waits for others."""
_RETRY_SECONDS = 0.01


def write_ahead(connection: sqlite3.Connection) -> None:
    """Switch it to a log, so that readers and a writer don't wait for each other."""
    # the switch does not wait for a busy file by itself (sqlite.org/wal.html, section 8)
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)


def schema_version(connection: sqlite3.Connection) -> int:
    """SQLite's `user_version`; 0 where nothing was made yet."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def address(path: Path, mode: str) -> str:
    """For `sqlite3.connect(…, uri=True)`: a file that is opened so, whatever its name has in it."""
    return f"file:{urllib.parse.quote(str(path.absolute()))}?{mode}"
