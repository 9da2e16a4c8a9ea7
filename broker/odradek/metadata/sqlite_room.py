"""Room on the disk that belongs to the embedded metadata store alone, so that it opens and writes while the disk is full.

A full disk is when the store is needed most: topics are deleted to make room, and a coordinator that died has to start again.
What SQLite writes then lies in blocks that it has already:

- The write-ahead log (``-wal``) is extended to `LOG_BYTES` by zeros, which SQLite takes for the log's end and overwrites.
  A checkpoint every `CHECKPOINT_PAGES` pages keeps what is in use below that.
- The database file keeps at least `LEAST_FREE_PAGES` free pages, made by inserting a large value and deleting it.
- SQLite deletes the write-ahead log when the last connection closes. A second name (``-reserve``) keeps the file, and
  `before_open` puts it back in place as an empty log, its header overwritten.

Where the disk has no room for any of this the store works without; every opening and every `LOOK_EVERY` changes try again. The
shared index (``-shm``), 32 KiB that SQLite releases and takes again when it opens, is not needed in exclusive mode; the store
uses that mode when there is no room for the index. Used in the thread that owns the store.
"""

import contextlib
import errno
import logging
import os
import sqlite3
from pathlib import Path

log = logging.getLogger("odradek.controller")

LOG_BYTES = 1 << 20
CHECKPOINT_PAGES = 100
LEAST_FREE_PAGES = 64
FREE_PAGES = 128
LOOK_EVERY = 64
HEADER_BYTES = 32
NO_ROOM_CODES = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
"""Primary result codes with which SQLite reports that it found no room (and other failures of the file system)."""


class StoreRoom:
    """The room of the store in the file `path`."""

    def __init__(self, path: str) -> None:
        self._log = Path(f"{path}-wal")
        self._reserve = Path(f"{path}-reserve")
        self._changes = 0

    def before_open(self) -> None:
        """Put the file that was kept in the place of the write-ahead log, unless there is one. Raises OSError."""
        if self._log.exists():
            self._reserve.unlink(missing_ok=True)  # its author died between the two names of the file, or after that
        elif self._reserve.exists():
            self._forget_content()
            self._reserve.rename(self._log)

    def after_open(self, db: sqlite3.Connection) -> None:
        """Take the room; as much as there is."""
        db.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        db.execute("PRAGMA temp_store=MEMORY")
        self._look(db)

    def changed(self, db: sqlite3.Connection) -> None:
        """A transaction was committed: it may have used free pages."""
        self._changes += 1
        if self._changes % LOOK_EVERY == 0:
            self._look(db)

    def before_close(self) -> None:
        """Keep the write-ahead log's blocks under another name."""
        self._reserve.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # no log, or a file system without links: the next opening takes new blocks
            os.link(self._log, self._reserve)

    def after_close(self) -> None:
        """What was kept is the store's alone, unless SQLite left the log to others. Raises OSError."""
        if self._log.exists():
            self._reserve.unlink(missing_ok=True)
        elif self._reserve.exists() and self._reserve.stat().st_size > LOG_BYTES:
            os.truncate(self._reserve, LOG_BYTES)

    def _forget_content(self) -> None:
        """What the log held is in the database by now, and older than what is written there next: it must not be replayed."""
        descriptor = os.open(self._reserve, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, bytes(HEADER_BYTES), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _look(self, db: sqlite3.Connection) -> None:
        try:
            self._extend_log()
            (free,) = db.execute("PRAGMA freelist_count").fetchone()
            if free < LEAST_FREE_PAGES:
                self._free_pages(db, FREE_PAGES - free)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            log.debug("no room to keep for the metadata store: %s", error)
        except sqlite3.Error as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            if error.sqlite_errorcode & 0xFF not in NO_ROOM_CODES:
                raise
            log.debug("no room to keep for the metadata store: %s", error)

    def _extend_log(self) -> None:
        """Raises OSError."""
        if not self._log.exists() or self._log.stat().st_size >= LOG_BYTES:
            return
        descriptor = os.open(self._log, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.posix_fallocate(descriptor, 0, LOG_BYTES)
        finally:
            os.close(descriptor)

    def _free_pages(self, db: sqlite3.Connection, count: int) -> None:
        """Add free pages. In two transactions: pages that one transaction takes and frees are never written."""
        (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
        db.execute("BEGIN IMMEDIATE")
        db.execute("CREATE TABLE IF NOT EXISTS room (filler BLOB)")
        db.execute("INSERT INTO room VALUES (zeroblob(?))", (count * page_bytes,))
        db.execute("COMMIT")
        db.execute("DELETE FROM room")
