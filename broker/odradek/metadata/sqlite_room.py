"""Reserves disk space for the embedded metadata store, so that it can open and write while the disk is full.

The store must work on a full disk: topics are deleted to free space, and a coordinator that died must start again. SQLite then
writes only to blocks that are already allocated:

- The write-ahead log (``-wal``) is extended to `LOG_BYTES` with zeros, which SQLite takes for the end of the log and
  overwrites. A checkpoint every `CHECKPOINT_PAGES` pages keeps the used part below that size.
- The database file has at least `LEAST_FREE_PAGES` free pages, created by inserting and deleting a large value.
- SQLite deletes the write-ahead log when the last connection closes. A second link (``-reserve``) keeps the file, and
  `before_open` restores it as an empty log with an overwritten header.

If the disk has no space for this, the store works without the reserve, and retries on every opening and after every
`LOOK_EVERY` changes. The shared index (``-shm``), 32 KiB that SQLite releases and allocates again when it opens, is not needed
in exclusive mode; the store uses that mode if the disk has no space for the index. Used in the thread that owns the store.
"""

import contextlib
import logging
import os
import sqlite3
from pathlib import Path

from odradek.storage.atomic_file import NO_ROOM

log = logging.getLogger("odradek.controller")

LOG_BYTES = 1 << 20
CHECKPOINT_PAGES = 100
LEAST_FREE_PAGES = 64
FREE_PAGES = 128
LOOK_EVERY = 64
HEADER_BYTES = 32
NO_ROOM_CODES = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
"""Primary result codes with which SQLite reports a full disk (and other failures of the file system)."""


class StoreRoom:
    """The reserved space of the store in the file `path`."""

    def __init__(self, path: str) -> None:
        self._log = Path(f"{path}-wal")
        self._reserve = Path(f"{path}-reserve")
        self._changes = 0

    def before_open(self) -> None:
        """Restore the reserved file as the write-ahead log, unless a log exists. Raises OSError."""
        if self._log.exists():
            self._reserve.unlink(missing_ok=True)  # the last process died while the file had both names, or later
        elif self._reserve.exists():
            self._overwrite_header()
            self._reserve.rename(self._log)

    def after_open(self, db: sqlite3.Connection) -> None:
        """Reserve the space, as far as the disk has it."""
        db.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        db.execute("PRAGMA temp_store=MEMORY")
        self._check_reserve(db)

    def changed(self, db: sqlite3.Connection) -> None:
        """Called after a commit, which may have used free pages; checks the reserve every `LOOK_EVERY` calls."""
        self._changes += 1
        if self._changes % LOOK_EVERY == 0:
            self._check_reserve(db)

    def before_close(self) -> None:
        """Keep the blocks of the write-ahead log under another name."""
        self._reserve.unlink(missing_ok=True)
        with contextlib.suppress(
            OSError
        ):  # no log, or a file system without links: the next opening allocates new blocks
            os.link(self._log, self._reserve)

    def after_close(self) -> None:
        """Truncate the reserved file, or delete it if SQLite kept the log for other connections. Raises OSError."""
        if self._log.exists():
            self._reserve.unlink(missing_ok=True)
        elif self._reserve.exists() and self._reserve.stat().st_size > LOG_BYTES:
            os.truncate(self._reserve, LOG_BYTES)

    def _overwrite_header(self) -> None:
        """Make the log empty: its content is already in the database, and replaying it would undo later changes."""
        descriptor = os.open(self._reserve, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, bytes(HEADER_BYTES), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _check_reserve(self, db: sqlite3.Connection) -> None:
        try:
            self._extend_log()
            (free,) = db.execute("PRAGMA freelist_count").fetchone()
            if free < LEAST_FREE_PAGES:
                self._free_pages(db, FREE_PAGES - free)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            log.debug("cannot reserve disk space for the metadata store: %s", error)
        except sqlite3.Error as error:
            if db.in_transaction:
                db.execute("ROLLBACK")
            if error.sqlite_errorcode & 0xFF not in NO_ROOM_CODES:
                raise
            log.debug("cannot reserve disk space for the metadata store: %s", error)

    def _extend_log(self) -> None:
        """Allocate the blocks of the write-ahead log. Raises OSError."""
        if not self._log.exists() or self._log.stat().st_size >= LOG_BYTES:
            return
        descriptor = os.open(self._log, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.posix_fallocate(descriptor, 0, LOG_BYTES)
        finally:
            os.close(descriptor)

    def _free_pages(self, db: sqlite3.Connection, count: int) -> None:
        """Add free pages. Uses two transactions: pages that one transaction allocates and frees are never written."""
        (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
        db.execute("BEGIN IMMEDIATE")
        db.execute("CREATE TABLE IF NOT EXISTS room (filler BLOB)")
        db.execute("INSERT INTO room VALUES (zeroblob(?))", (count * page_bytes,))
        db.execute("COMMIT")
        db.execute("DELETE FROM room")
