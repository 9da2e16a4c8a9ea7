"""The spool's files: their bytes, when they change, how large they become, and how damaged files are reported."""

import errno
import gzip
import json
import logging
import os
import zlib
from pathlib import Path

import pytest

from odradek.jobs.usage_report import intervals as of_the_job
from odradek.metrics import spool_rows
from odradek.metrics.pages import NO_API, OTHER, RETIRED
from odradek.metrics.spool import Spool
from odradek.metrics.spool_files import SpoolCalls, list_files
from odradek.metrics.spool_history import History
from odradek.metrics.spool_reader import Damage, read_file
from tests.metrics.spool_model import DISK_FULL, HOUR, MINUTE, NOON, Calls, Clock, spool, usage

FOREVER = 1 << 60


def row(number, client="c", since=5, topic="t"):
    return usage(1, "User:a", client, topic, 0, since, [number] * 8)


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def messages_of(caplog):
    """What was logged of the spool: another's thread may have something to say, too."""
    return [one.getMessage() for one in caplog.records if one.name == "odradek.reporter.spool"]


def intervals(directory):
    found = [part for one in list_files(directory) for part in read_file(one.path)]
    assert not [part for part in found if isinstance(part, Damage)]
    return found


def test_an_interval_is_its_rows_and_the_line_that_makes_them_count(tmp_path):
    clock = Clock()
    writer = spool(tmp_path, "ab12", clock)
    clock.advance(MINUTE)
    assert writer.write([row(3), spool_rows.log_dir("/d", free_bytes=1, total_bytes=2, online=True)])
    content = (tmp_path / "usage-20261024T12-ab12.jsonl").read_bytes()
    rows, mark = content[: content.rindex(b'{"kind":"interval"')], json.loads(content.splitlines()[-1])
    assert rows == (
        b'{"kind":"usage","page":1,"principal":"User:a","client":"c","topic":"t","api":"Produce","since":5,'
        b'"in":3,"out":3,"rin":3,"rout":3,"req":3,"err":3,"thr":3,"conn":3}\n'
        b'{"kind":"log_dir","path":"/d","free":1,"total":2,"online":true}\n'
    )
    assert mark == {
        "kind": "interval", "boot": "ab12", "broker": 7, "seq": 1, "from": NOON, "to": NOON + MINUTE, "elapsed": MINUTE,
        "rows": 2, "crc": zlib.crc32(rows), "clock": 1000 + MINUTE, "full": True,
    }  # fmt: skip
    assert (writer.intervals, writer.failures, writer.bytes) == (1, 0, len(content))


def test_the_reports_reader_takes_the_files_as_they_are(tmp_path):
    clock = Clock()
    writer = spool(tmp_path, "ab12", clock)
    for number in range(1, 71):
        clock.advance(MINUTE)
        assert writer.write([row(number), row(7, client="päter"), row(number // 50, topic=None)])
    ours, theirs = intervals(tmp_path), []
    for one in list_files(tmp_path):
        theirs += of_the_job.read_intervals(one.path)
    assert [(one.seq, one.from_ms, one.to_ms, [line.rstrip(b"\n") for line in one.rows]) for one in ours] == [
        (one.seq, one.from_ms, one.end_ms, one.rows) for one in theirs
    ]
    assert len(ours) == 70


def test_a_row_is_written_when_it_changed_and_all_rows_in_a_new_file(tmp_path):
    clock = Clock()
    writer = spool(tmp_path, clock=clock)
    for rows in ([row(1), row(1, "d")], [row(1), row(2, "d")], [row(1), row(2, "d")], [row(1, since=9)]):
        clock.advance(MINUTE)
        assert writer.write(rows)
    clock.advance(HOUR)
    assert writer.write([row(1, since=9)])
    found = intervals(tmp_path)
    assert [len([line for line in one.rows if b'"usage"' in line]) for one in found] == [2, 1, 0, 1, 1]
    assert [len([line for line in one.rows if b'"retired"' in line]) for one in found] == [0, 0, 0, 1, 1]
    assert [one.full for one in found] == [True, False, False, False, True]


def test_a_file_whose_hour_is_over_is_compressed_and_reads_the_same(tmp_path):
    clock = Clock()
    writer = spool(tmp_path, clock=clock)
    clock.advance(MINUTE)
    assert writer.write([row(1)])
    plain = (tmp_path / "usage-20261024T12-b0.jsonl").read_bytes()
    clock.advance(HOUR)
    assert writer.write([row(2)])
    assert names(tmp_path) == ["usage-20261024T12-b0.jsonl.gz", "usage-20261024T13-b0.jsonl"]
    assert gzip.decompress((tmp_path / "usage-20261024T12-b0.jsonl.gz").read_bytes()) == plain
    assert writer.bytes == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_another_boots_file_is_left_alone_for_a_while_and_kept_as_it_is(tmp_path):
    torn = b'{"kind":"usage","pa'
    (tmp_path / "usage-20261024T11-dead.jsonl").write_bytes(torn)
    clock = Clock(NOON + 2 * MINUTE)
    writer = spool(tmp_path, clock=clock)
    assert writer.write([row(1)])
    assert "usage-20261024T11-dead.jsonl" in names(tmp_path)
    clock.advance(3 * MINUTE)
    assert writer.write([row(1)])
    assert gzip.decompress((tmp_path / "usage-20261024T11-dead.jsonl.gz").read_bytes()) == torn


def test_the_oldest_files_go_when_the_bound_is_reached(tmp_path):
    clock = Clock()
    bound = 6000
    writer = spool(tmp_path, clock=clock, max_bytes=bound)
    for number in range(200):
        clock.advance(10 * MINUTE)
        assert writer.write([row(number), row(number, "d")])
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= bound
    assert len(names(tmp_path)) > 2
    history = History(tmp_path, 0, FOREVER)
    (counts,) = {tuple(one.values) for one in history.usage.values()}
    assert 0 < counts[0] < 199  # the counts of the deleted files are missing, and are not counted as new
    found = intervals(tmp_path)
    first = json.loads(found[0].rows[0])["in"]
    assert counts[0] == 199 - first and history.from_ms == found[0].to_ms


def test_a_maximum_size_below_that_of_an_hour_is_logged_and_kept(tmp_path, caplog):
    clock = Clock()
    writer = spool(tmp_path, clock=clock, max_bytes=1000)
    for number in range(5):
        clock.advance(MINUTE)
        writer.write([row(number)])
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1000
    assert writer.failures == 2
    (message,) = [one for one in messages_of(caplog) if "usage.spool.max.bytes=1000" in one]
    assert "usage-20261024T12-b0.jsonl" in message
    clock.advance(HOUR)
    assert writer.write([row(9)])
    assert json.loads(intervals(tmp_path)[-1].rows[0])["in"] == 9


@pytest.mark.parametrize("error", [DISK_FULL, OSError(errno.EIO, os.strerror(errno.EIO))])
@pytest.mark.parametrize("at", range(1, 6))
def test_a_failing_disk_is_logged_once_and_loses_no_count(tmp_path, caplog, error, at):
    clock, calls = Clock(), Calls()
    writer = spool(tmp_path, clock=clock, calls=calls)
    clock.advance(MINUTE)
    assert writer.write([row(1)])
    caplog.set_level(logging.INFO)
    for number in (2, 3):
        calls.fail(at, error)
        clock.advance(MINUTE)
        assert not writer.write([row(number)])
    calls.fail(0, error)
    assert (writer.failures, writer.intervals) == (2, 1)
    assert [one for one in messages_of(caplog) if error.strerror in one] == messages_of(caplog)[:1]
    clock.advance(MINUTE)
    assert writer.write([row(4)])
    assert "continues after 2 failed intervals" in messages_of(caplog)[-1]
    found = intervals(tmp_path)
    assert [(one.seq, one.from_ms, one.to_ms) for one in found] == [
        (1, NOON, NOON + MINUTE), (2, NOON + MINUTE, NOON + 4 * MINUTE),
    ]  # fmt: skip
    assert [one.values[0] for one in History(tmp_path, 0, FOREVER).usage.values()] == [4]


def test_a_file_that_cannot_be_compressed_is_logged_once_and_retried(tmp_path, caplog):
    clock = Clock()

    class Full(SpoolCalls):
        full = True

        def rename(self, old, new):
            if self.full:
                raise DISK_FULL
            super().rename(old, new)

    calls = Full()
    writer = spool(tmp_path, clock=clock, calls=calls)
    for _ in range(3):
        clock.advance(HOUR)
        assert writer.write([row(1)])
    assert writer.failures == 2 and not list(tmp_path.glob("*.tmp"))
    (message,) = messages_of(caplog)
    assert "usage-20261024T13-b0.jsonl.gz.tmp: No space left" in message
    calls.full = False
    clock.advance(MINUTE)
    assert writer.write([row(1)])
    assert [name.endswith(".gz") for name in names(tmp_path)] == [True, True, False]


def test_a_directory_that_cannot_be_created_is_logged(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    writer = spool(tmp_path / "file" / "usage")
    assert not writer.write([row(1)])
    (message,) = messages_of(caplog)
    assert str(tmp_path / "file") in message and "Not a directory" in message


def test_a_deleted_spool_begins_again_with_all_rows(tmp_path):
    clock = Clock()
    directory = tmp_path / "usage"
    writer = spool(directory, clock=clock)
    clock.advance(MINUTE)
    assert writer.write([row(1), row(1, "d")])
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    clock.advance(MINUTE)
    assert writer.write([row(1), row(2, "d")])
    (one,) = intervals(directory)
    assert (one.seq, len(one.rows), one.full) == (2, 2, True)


def test_a_clock_that_is_set_is_marked_and_intervals_are_as_long_as_they_were(tmp_path):
    clock = Clock()
    writer = spool(tmp_path, clock=clock)
    for jump in (0, 2 * HOUR, 0, -5 * HOUR, 0, 900):
        clock.advance(MINUTE)
        clock.now += jump
        assert writer.write([row(1)])
    found = sorted(intervals(tmp_path), key=lambda one: one.seq)
    assert [one.jump_ms for one in found] == [0, 2 * HOUR, 0, -5 * HOUR, 0, 0]
    assert [one.elapsed_ms for one in found] == [MINUTE] * 6
    assert [one.to_ms - one.from_ms for one in found] == [MINUTE] * 5 + [MINUTE + 900]
    assert names(tmp_path) == [
        "usage-20261024T09-b0.jsonl", "usage-20261024T12-b0.jsonl.gz", "usage-20261024T14-b0.jsonl",
    ]  # fmt: skip


def test_a_clock_set_back_into_a_closed_hour_continues_the_open_file(tmp_path):
    clock = Clock()
    writer = spool(tmp_path, clock=clock)
    for jump in (0, HOUR, -HOUR, 0, HOUR):
        clock.advance(MINUTE)
        clock.now += jump
        assert writer.write([row(clock.ran)])
    assert names(tmp_path) == ["usage-20261024T12-b0.jsonl.gz", "usage-20261024T13-b0.jsonl"]
    assert [one.seq for one in intervals(tmp_path)] == [1, 2, 3, 4, 5]
    history = History(tmp_path, 0, FOREVER)
    assert [one.values[0] for one in history.usage.values()] == [clock.ran] and not history.gaps


def test_retired_entries_are_counted_by_name_and_only_the_rest_as_retired(tmp_path):
    clock = Clock()
    writer = spool(tmp_path, clock=clock)

    def retired(number):
        return usage(1, OTHER, RETIRED, None, NO_API, 1, [number] * 8)

    assert writer.write([row(5), row(3, "d"), row(1, "e")])
    # "c" grew by 2 before it was retired, "d" not; one that was never seen here had 10
    clock.advance(MINUTE)
    assert writer.write([row(1, "e"), retired(7 + 3 + 10)])
    clock.advance(MINUTE)
    successor = spool(tmp_path, clock=clock)
    assert successor.write([retired(7 + 3 + 10 + 1)])
    clock.advance(MINUTE)
    assert successor.write([row(4, since=77), retired(7 + 3 + 10 + 1)])  # the first one is back
    clock.advance(MINUTE)
    assert spool(tmp_path, clock=clock).write([row(4, since=77), retired(7 + 3 + 10 + 1 + 5)])  # 5 never seen
    sums = {key.client: one.values[0] for key, one in History(tmp_path, 0, FOREVER).usage.items()}
    assert sums == {"c": 5 + 4, "d": 3, "e": 1, RETIRED: 2 + 10 + 5}


def test_pages_that_are_left_out_stay_as_they_were(tmp_path):
    clock = Clock()
    writer = spool(tmp_path, clock=clock)
    both = [row(1), usage(2, "User:a", "x", None, 3, 1, [5] * 8)]
    for minutes, rows in ((1, both), (1, both[:1]), (60, both[:1]), (1, both)):
        clock.advance(minutes * MINUTE)
        assert writer.write(rows)
    assert [len(one.rows) for one in intervals(tmp_path)] == [2, 0, 2, 0]


def test_damaged_intervals_are_skipped_and_named_with_their_place(tmp_path):
    clock = Clock()
    writer = spool(tmp_path, clock=clock)
    for number in range(1, 6):
        clock.advance(MINUTE)
        assert writer.write([row(number)])
    path = tmp_path / "usage-20261024T12-b0.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    ends = [sum(map(len, lines[: 2 * number])) for number in range(6)]
    lines[2] = lines[2].replace(b'"in":2', b'"in":9')  # seq 2
    del lines[6]  # the row of seq 4
    path.write_bytes(b"".join(lines)[:-10])  # the end of seq 5
    damages = [part for part in read_file(path) if isinstance(part, Damage)]
    assert [one.position for one in damages] == [ends[1], ends[3], ends[4] - len(row_line(4))]
    assert "wrong checksum" in damages[0].reason and "0 rows instead of 1" in damages[1].reason
    assert str(damages[2]) == f"{path}, byte {damages[2].position}: ends in the middle of an interval"
    history = History(tmp_path, 0, FOREVER)
    assert len(history.damages) == 3 and [(one.missing, one.boot) for one in history.gaps] == [(1, "b0")]
    assert [one.values[0] for one in history.usage.values()] == [3]  # of seq 3, which contains the count of seq 2


def row_line(number):
    return json.dumps(row(number), separators=(",", ":")).encode() + b"\n"


def test_files_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "usage-20261024T12-aa.jsonl.gz").write_bytes(gzip.compress(b"x" * 1000)[:-9])
    (tmp_path / "usage-20261024T12-bb.jsonl.gz").write_bytes(b"no gzip")
    (tmp_path / "usage-20261024T12-cc.jsonl").mkdir()
    (tmp_path / "usage-20261024T12-dd.jsonl").write_bytes(b'{"kind":"interval","rows":"x"}\n')
    (tmp_path / "usage-20261399T12-ee.jsonl").write_bytes(b"no date: not a file of the spool")
    damages = [str(one) for one in History(tmp_path, 0, FOREVER).damages]
    for name, words in (
        ("aa", "cannot be read"),
        ("bb", "cannot be read"),
        ("cc", "directory"),
        ("dd", "instead of x"),
    ):
        assert [one for one in damages if f"-{name}." in one and words in one], (name, damages)
    assert len(damages) == 4


@pytest.mark.parametrize("cut", range(0, 400, 13))
def test_a_torn_tail_of_the_same_boot_is_replaced_and_of_another_kept(tmp_path, cut):
    clock = Clock()
    writer = spool(tmp_path, clock=clock)
    assert writer.write([row(1)])
    path = tmp_path / "usage-20261024T12-b0.jsonl"
    first = path.stat().st_size
    clock.advance(MINUTE)
    assert writer.write([row(2)])
    os.truncate(path, min(first + cut, path.stat().st_size - 1))
    torn = path.read_bytes()
    clock.advance(MINUTE)
    assert spool(tmp_path, "b1", clock, began=clock.now - 1000).write([row(10)])
    assert path.read_bytes() == torn
    assert spool(tmp_path, "b0", clock).write([row(3)])
    assert [one.seq for one in read_file(path)] == [1, 2]
    assert sum(one.values[0] for one in History(tmp_path, 0, FOREVER).usage.values()) == 13


def test_history_counts_the_intervals_that_end_in_its_time(tmp_path):
    clock = Clock()
    writer = spool(tmp_path, clock=clock)
    for number in range(1, 181):
        clock.advance(MINUTE)
        assert writer.write([row(number * 10), row(1, "d")])
    history = History(tmp_path, NOON + 100 * MINUTE, NOON + 130 * MINUTE)
    assert (history.from_ms, history.to_ms, history.intervals) == (NOON + 100 * MINUTE, NOON + 130 * MINUTE, 30)
    assert [(key.client, one.values[0], one.last_ms) for key, one in history.usage.items()] == [
        ("c", 300, NOON + 130 * MINUTE)
    ]
    none = History(tmp_path, NOON + 500 * MINUTE, FOREVER)
    assert (none.usage, none.from_ms, none.intervals) == ({}, None, 0)
    filtered = History(tmp_path, 0, FOREVER, lambda one: one["client"] == "d", b'"client":"d"')
    assert [(key.client, one.values[0]) for key, one in filtered.usage.items()] == [("d", 1)]


def test_ten_thousand_entries_are_written_in_one_write(tmp_path):
    """The size of an interval is not in the number of calls."""

    class Counting(SpoolCalls):
        writes = 0

        def write(self, descriptor, at, content):
            self.writes += 1
            super().write(descriptor, at, content)

    calls = Counting()
    writer = spool(tmp_path, calls=calls)
    assert writer.write([row(1, f"client-{number}") for number in range(10_000)])
    assert calls.writes == 1 and len(intervals(tmp_path)[0].rows) == 10_000


def test_the_spool_of_its_own_clocks_goes_forward(tmp_path):
    writer = Spool(Path(tmp_path), "ff", 1, began_ms=NOON, max_bytes=1 << 20)
    assert writer.write([row(1)]) and writer.write([row(2)])
    first, second = intervals(tmp_path)
    assert first.to_ms <= second.from_ms <= second.to_ms and second.jump_ms == 0
