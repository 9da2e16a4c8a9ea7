"""The reserved disk space of the embedded store: it opens and writes on a full disk, and never replays an old log."""

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from odradek.metadata.sqlite import SqliteStore
from odradek.metadata.sqlite_room import LEAST_FREE_PAGES, LOG_BYTES
from odradek.metadata.store import StoreUnavailable
from tests.children import end_of, fork
from tests.faults.small_disk import SmallDisk

NAME = "store.db"
MIB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with SmallDisk(tmp_path / "disk", 8 * MIB) as small_disk:
        yield small_disk


def in_a_process_that_is_killed(work: Callable[[], object]) -> None:
    """Call `work` in a child process that is killed before it closes anything."""

    def work_and_die() -> None:
        work()
        os.kill(os.getpid(), signal.SIGKILL)

    assert end_of(fork(work_and_die)) == -signal.SIGKILL


def change_much(store: SqliteStore, root: str) -> None:
    """Write as much as a coordinator does when it starts, and then creates and deletes topics."""
    store.create(root)
    for number in range(300):
        store.create(f"{root}/topic", b"x" * 500)
        store.create(f"{root}/topic/partitions", b"x" * 300)
        store.set(f"{root}/topic", b"y" * 500)
        store.delete(f"{root}/topic/partitions")
        store.delete(f"{root}/topic")
        if number % 10 == 0:
            store.create(f"{root}/kept-{number}", b"z" * 100)


def names_kept(store: SqliteStore, root: str) -> int:
    return len(store.children(root))


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "closed"])
def test_a_store_opens_and_writes_on_a_full_disk(disk: SmallDisk, killed: bool) -> None:
    path = disk.path / NAME

    def write() -> None:
        store = SqliteStore(path, keeps_room=True)
        change_much(store, "/before")
        if not killed:
            store.close()

    if killed:
        in_a_process_that_is_killed(write)
    else:
        write()
    for number in range(3):
        disk.fill_up()
        assert disk.free() == 0
        store = SqliteStore(path, keeps_room=True)
        change_much(store, f"/full-{number}")
        store.close()
    store = SqliteStore(path, keeps_room=True)
    assert [names_kept(store, root) for root in ("/before", "/full-0", "/full-1", "/full-2")] == [30] * 4
    assert store._db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    store.close()


def test_a_store_without_reserved_space_fails_on_a_full_disk(disk: SmallDisk) -> None:
    """Shows that the disk of the tests above is really full."""
    path = disk.path / NAME
    SqliteStore(path).close()
    disk.fill_up()
    with pytest.raises(StoreUnavailable):
        change_much(SqliteStore(path), "/full")


def test_space_is_reserved_when_the_store_opens_and_again_after_it_was_used(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / NAME, keeps_room=True)
    assert (tmp_path / f"{NAME}-wal").stat().st_blocks * 512 >= LOG_BYTES
    for number in range(400):
        store.create(f"/node-{number}", b"x" * 1000)
    (free,) = store._db.execute("PRAGMA freelist_count").fetchone()
    assert free >= LEAST_FREE_PAGES // 2
    store.close()


def test_a_reserved_log_is_not_replayed_over_newer_data(tmp_path: Path) -> None:
    path = tmp_path / NAME
    for value in (b"1", b"2", b"3"):
        with ExitStack() as stack:
            store = SqliteStore(path, keeps_room=True)
            stack.callback(store.close)
            store.set("/a", value) if store.exists("/a") else store.create("/a", value)
        other = SqliteStore(path)  # like a version that reserves no space
        assert other.get("/a")[0] == value
        other.set("/a", value * 2)
        other.close()
        store = SqliteStore(path, keeps_room=True)
        assert store.get("/a")[0] == value * 2
        store.close()


def test_a_death_while_the_log_has_both_names_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / NAME

    def die() -> None:
        store = SqliteStore(path, keeps_room=True)
        store.create("/a", b"1")
        store._room.before_close()  # type: ignore[union-attr]

    in_a_process_that_is_killed(die)
    assert (tmp_path / f"{NAME}-reserve").samefile(tmp_path / f"{NAME}-wal")
    store = SqliteStore(path, keeps_room=True)
    assert store.get("/a")[0] == b"1"
    assert not (tmp_path / f"{NAME}-reserve").exists()
    store.close()


def test_a_log_that_another_connection_reads_stays_with_it(tmp_path: Path) -> None:
    path = tmp_path / NAME
    store = SqliteStore(path, keeps_room=True)
    store.create("/a", b"1")
    reader = sqlite3.connect(path)
    assert reader.execute("SELECT data FROM node WHERE path = '/a'").fetchone() == (b"1",)
    store.close()
    assert not (tmp_path / f"{NAME}-reserve").exists()
    assert reader.execute("SELECT data FROM node WHERE path = '/a'").fetchone() == (b"1",)
    reader.close()
    store = SqliteStore(path, keeps_room=True)
    assert store.get("/a")[0] == b"1"
    store.close()
