"""Reading the spool's files without Spark: damage is reported with its offset, and never taken for an interval."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.jobs.usage_report.gaps import FileDamage, Gap, Scraped, Span, clip, find_gaps, find_scrape_gaps
from odradek.jobs.usage_report.intervals import Damage, Interval, read_intervals
from odradek.jobs.usage_report.spool import SpoolFile, find, needed, read_share, shares
from tests.jobs import spools
from tests.jobs.spools import HOUR_MS, MINUTE_MS, at

DAY = at("2025-11-20")


def life(directory: Path, minutes: int = 20, seed: int = 3) -> spools.Boot:
    directory.mkdir(parents=True, exist_ok=True)
    boot = spools.Boot(directory, "aa01", DAY + 30_000)
    spools.live(boot, minutes, seed)
    return boot


def parts(path: Path) -> tuple[list[Interval], list[Damage]]:
    found = list(read_intervals(path))
    return [one for one in found if isinstance(one, Interval)], [one for one in found if isinstance(one, Damage)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[tuple[int, int]], list[Interval]]:
    """Return the content of a file, the offsets of its intervals, and the intervals."""
    boot = life(tmp_path_factory.mktemp("whole"))
    [path] = boot.files
    intervals, damages = parts(path)
    assert len(intervals) == 20 and not damages
    return path.read_bytes(), [(start, end) for _, start, end in boot.places], intervals


quick = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@quick
@given(st.data())
def test_a_file_cut_anywhere_returns_the_complete_intervals_and_the_end(tmp_path: Path, whole: Any, data: Any) -> None:
    content, places, intervals = whole
    cut = data.draw(st.integers(0, len(content)))
    path = tmp_path / "cut.jsonl"
    path.write_bytes(content[:cut])
    found, damages = parts(path)
    kept = [interval for (_, end), interval in zip(places, intervals, strict=True) if end <= cut]
    assert found == kept
    last = max([0, *(end for _, end in places if end <= cut)])
    assert damages == ([] if cut == last else [Damage("ends in the middle of an interval", last)])


@quick
@given(st.data())
def test_a_changed_byte_costs_its_interval_or_two_and_no_other(tmp_path: Path, whole: Any, data: Any) -> None:
    content, places, intervals = whole
    byte = data.draw(st.integers(0, len(content) - 1))
    changed = bytearray(content)
    changed[byte] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "changed.jsonl"
    path.write_bytes(changed)
    found, damages = parts(path)
    hurt = next(number for number, (start, end) in enumerate(places) if start <= byte < end)
    # without its line's end it runs into the first row of the next one, which is lost with it
    lost = intervals[hurt : hurt + 2] if byte == places[hurt][1] - 1 else [intervals[hurt]]
    lost_rows = [interval.rows for interval in lost]
    # a change within an interval's own line may leave it readable; what is in its rows may never
    in_line = byte >= places[hurt][0] + sum(len(row) + 1 for row in intervals[hurt].rows)
    assert [one.rows for one in found if one.rows not in lost_rows] == [
        one.rows for one in intervals if one.rows not in lost_rows
    ]
    assert in_line or (len(found) == len(intervals) - 1 and len(damages) == 1 and damages[0].position <= byte)


@quick
@given(st.data())
def test_intervals_after_an_incomplete_interval_are_read(tmp_path: Path, whole: Any, data: Any) -> None:
    content, places, intervals = whole
    number = data.draw(st.integers(0, 18))
    start, end = places[number]
    cut = data.draw(st.integers(start + 1, end - 1))
    path = tmp_path / "torn.jsonl"
    path.write_bytes(content[:cut] + content[end:])
    found, damages = parts(path)
    assert found[:number] == intervals[:number]
    assert number == 18 or found[-(18 - number) :] == intervals[number + 2 :]
    assert damages and damages[0].position >= start and len(damages) <= 2
    row_ends = start + sum(len(row) + 1 for row in intervals[number].rows)
    if cut <= row_ends:  # within its rows: the next one's can be told from them
        assert found[number:] == intervals[number + 1 :]


def test_compressed_files_are_read_in_members_and_named_where_they_end(tmp_path: Path, whole: Any) -> None:
    content, _, intervals = whole
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(content[:1000]) + gzip.compress(content[1000:]))
    assert parts(path) == (intervals, [])
    packed = gzip.compress(content)
    path.write_bytes(packed[:-10])
    found, damages = parts(path)
    assert 15 < len(found) < 20 and found == intervals[: len(found)]
    assert damages == [Damage("is an incomplete gzip file", len(packed) - 10, "compressed byte")]
    path.write_bytes(b"")
    assert parts(path) == ([], [Damage("is an incomplete gzip file", 0, "compressed byte")])
    path.write_bytes(b"plain text")
    [damage] = parts(path)[1]
    assert damage.reason == "is not valid gzip"
    assert parts(tmp_path / "gone.jsonl")[1] == [Damage("cannot be read (No such file or directory)", 0)]


@pytest.mark.parametrize(
    "change",
    [
        {"seq": "7"}, {"boot": 5}, {"to": None}, {"rows": 1.0}, {"crc": True}, {"jump": "x"},
    ],
)  # fmt: skip
def test_an_interval_line_with_wrong_fields_is_a_damage(tmp_path: Path, change: dict[str, Any]) -> None:
    rows = b'{"kind":"log_dir"}\n'
    line = {"kind": "interval", "boot": "a", "broker": 1, "seq": 1, "from": 0, "to": 9, "rows": 1, "crc": zlib.crc32(rows),
            "elapsed": 9}  # fmt: skip
    path = tmp_path / "x.jsonl"
    path.write_bytes(rows + spools.line(line))
    assert len(parts(path)[0]) == 1
    path.write_bytes(rows + spools.line(line | change))
    assert parts(path) == ([], [Damage("has an interval line that cannot be parsed", len(rows))])


def test_rows_that_cannot_be_parsed_are_reported_despite_their_checksum(tmp_path: Path) -> None:
    rows = b'{"kind":"usage","page":0,"in":1\n{"kind":"usage","page":"zero","in":1}\n{"kind":"group"}\nnothing\n'
    line = {"kind": "interval", "boot": "aa01", "broker": 1, "seq": 1, "from": DAY, "to": DAY + MINUTE_MS, "rows": 4,
            "crc": zlib.crc32(rows), "elapsed": MINUTE_MS}  # fmt: skip
    path = tmp_path / "usage-20251120T00-aa01.jsonl"
    path.write_bytes(rows + spools.line(line))
    facts = [row for batch in read_share(find(tmp_path), DAY, DAY + HOUR_MS) for row in batch.to_pylist()]
    assert [row["kind"] for row in facts] == ["span", "damage"]
    assert facts[-1]["reason"] == "has 4 rows with a valid checksum that cannot be parsed"


def test_files_are_found_by_name_and_time_and_boot(tmp_path: Path) -> None:
    names = [
        "usage-20251119T22-aa.jsonl.gz", "usage-20251119T23-aa.jsonl.gz", "usage-20251120T00-aa.jsonl",
        "usage-20251120T00-aa.jsonl.gz", "usage-20251120T01-bb.jsonl", "usage-20251121T00-bb.jsonl",
        "usage-20251119T01-cc.jsonl",        "usage-20251399T01-bb.jsonl", "usage-20251120T01-bb.jsonl.gz.tmp", "other",
    ]  # fmt: skip
    for name in names:
        (tmp_path / name).write_bytes(b"")
    found = find(tmp_path)
    assert [file.path.name for file in found] == [names[0], names[1], names[2], names[6 - 2], names[5], names[6]]
    # of boot aa also the last one before: it says what counters stood at; of cc nothing is of that day
    chosen = [file.path.name for file in needed(found, DAY, DAY + 24 * HOUR_MS)]
    assert chosen == [names[1], names[2], names[4]]


def test_shares_are_of_one_boot_each_in_order_and_about_as_many_as_requested() -> None:
    files = [SpoolFile(Path(f"{boot}{hour}"), hour, boot, 10) for boot in "ab" for hour in range(10)]
    shared = shares(files, 5, at_least=1)
    assert [file for share in shared for file in share] == files
    assert all(len({file.boot for file in share}) == 1 for share in shared) and 4 <= len(shared) <= 6
    assert len(shares(files, 5, at_least=1000)) == 2


def test_a_task_keeps_one_row_of_a_series_and_hour(tmp_path: Path) -> None:
    boot = life(tmp_path / "spool", minutes=150)
    usage = 0
    for batch in read_share(find(tmp_path / "spool"), DAY, DAY + 24 * HOUR_MS):
        usage += sum(row["kind"] == "usage" for row in batch.to_pylist())
    assert 0 < usage <= 3 * len({json.dumps(key) for key in boot.series})


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(seed=st.integers(0, 1 << 30))
def test_random_lives_with_random_wounds_lose_no_count(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Intervals are damaged at random; the sums stay right, because a later row of a series contains all earlier counts."""
    chance = random.Random(seed)
    directory = tmp_path_factory.mktemp("life")
    boots, wall_ms = [], DAY + 7_000
    for number in range(2):
        boot = spools.Boot(directory, f"ff{number}", wall_ms)
        spools.live(boot, chance.randrange(40, 150), chance.randrange(1 << 30), retire=0)
        for series in list(boot.counters):  # so that of each a row comes behind the last wound
            boot.count(series, [1] * 8)
        boot.tick()
        boots.append(boot)
        wall_ms = boot.wall_ms + chance.randrange(1, 3000) * 1000
        for path, start, end in chance.sample(boot.places[:-1], 15):  # not the last: nothing tells of that later
            content = bytearray(path.read_bytes())
            # by its number an interval's rows are the newest or not, and no checksum is over an interval's own line
            number_at = content.rindex(b'"seq":', start, end) + len(b'"seq":')
            spared = range(number_at, content.index(b",", number_at))
            byte = chance.choice([at for at in range(start, end - 1) if at not in spared])
            content[byte] ^= 1 << chance.randrange(8)
            path.write_bytes(content)
        for path in boot.files[: chance.randrange(len(boot.files))]:
            spools.compress(path)
    files = find(directory)
    last: dict[tuple[Any, ...], tuple[int, int]] = {}
    for share in shares(files, chance.randrange(1, 6), at_least=1):
        for batch in read_share(share, DAY, DAY + 24 * HOUR_MS):
            for row in batch.to_pylist():
                if row["kind"] == "usage":
                    key = tuple(row[name] for name in ("boot", "page", "principal", "client", "topic", "api", "since"))
                    last[key] = max(last.get(key, (0, 0)), (row["seq"], row["bytes_out"]))
    truth = spools.traffic(*boots)
    assert sum(value for _, value in last.values()) == sum(values[1] for values in truth.values())


def span(boot: str, seqs: tuple[int, int], minutes: tuple[int, int], **changed: Any) -> Span:
    """Intervals of a minute."""
    count = seqs[1] - seqs[0] + 1
    from_ms, end_ms = (DAY + minute * MINUTE_MS for minute in minutes)
    hour = (end_ms - 1) // HOUR_MS * HOUR_MS
    one = Span(boot, seqs[0], seqs[1], from_ms, end_ms, count, count * MINUTE_MS, MINUTE_MS, 0, hour, f"file-{boot}")
    return one._replace(**changed)


def gaps_of(*spans: Span, damages: Any = (), hours: int = 2) -> list[tuple[float, float, str]]:
    found = find_gaps(spans, damages, DAY, DAY + hours * HOUR_MS, DAY + 99 * HOUR_MS)
    return [((gap.from_ms - DAY) / MINUTE_MS, (gap.to_ms - DAY) / MINUTE_MS, gap.reason) for gap in found]


def test_gaps_are_reported_only_where_intervals_are_missing() -> None:
    assert gaps_of(span("a", (1, 120), (0, 120))) == []
    assert gaps_of(span("a", (1, 120), (-1, 119))) == [], "the next interval ends behind the period"
    assert gaps_of() == [(0, 120, "there is no interval")]
    assert gaps_of(span("a", (1, 50), (10, 60))) == [(0, 10, "there is no interval"), (60, 120, "there is no interval")]
    [missing] = gaps_of(span("a", (1, 50), (0, 50)), span("a", (54, 123), (53, 120)))
    assert missing == (50, 53, "3 intervals missing")
    damage = FileDamage("a", 50, DAY + 50 * MINUTE_MS, "has an interval with a wrong checksum", "file, byte 7", "file")
    [missing] = gaps_of(span("a", (1, 50), (0, 50)), span("a", (52, 120), (51, 120)), damages=[damage])
    assert missing == (
        50,
        51,
        "1 interval missing; the file has an interval with a wrong checksum",
    )
    [down] = gaps_of(span("a", (1, 50), (0, 50)), span("b", (1, 60), (60, 120)))
    assert down == (50, 60, "the broker did not run, or did not write its usage spool")


def test_a_gap_names_the_damaged_files_that_are_its_reason_and_no_others() -> None:
    spans = [span("a", (1, 50), (0, 50)), span("a", (52, 90), (51, 90)), span("a", (92, 120), (91, 120))]
    damages = [
        FileDamage("a", 50, DAY + 50 * MINUTE_MS, "ends in an interval", "one, byte 7", "one"),
        FileDamage("a", 50, DAY + 50 * MINUTE_MS, "cannot be read", "two, byte 0", "two"),
        FileDamage("a", 70, DAY + 70 * MINUTE_MS, "has a row that cannot be parsed", "three", "three"),
    ]
    found = find_gaps(spans, damages, DAY, DAY + 2 * HOUR_MS, DAY + 99 * HOUR_MS)
    minutes = [((gap.from_ms - DAY) // MINUTE_MS, gap.damaged_files) for gap in found]
    assert minutes == [(50, "one two"), (70, "three"), (90, "")]


def test_a_clock_that_was_set_is_reported() -> None:
    forward = gaps_of(span("a", (1, 50), (0, 50)), span("a", (51, 80), (90, 120), jump_ms=40 * MINUTE_MS))
    assert forward == [(50, 90, "the clock was set forward by 2400 s")]
    back = gaps_of(span("a", (1, 50), (0, 50)), span("a", (51, 150), (20, 120), jump_ms=-30 * MINUTE_MS))
    assert back == [(20, 20, "the clock was set back by 1800 s")]


def test_gaps_are_cut_at_midnight_and_at_the_ends() -> None:
    day = 24 * HOUR_MS
    gap = Gap(DAY - HOUR_MS, DAY + day + HOUR_MS, "r", "s")
    assert [(one.from_ms, one.to_ms) for one in clip([gap], DAY - day, DAY + 2 * day)] == [
        (DAY - HOUR_MS, DAY), (DAY, DAY + day), (DAY + day, DAY + day + HOUR_MS),
    ]  # fmt: skip
    assert [(one.from_ms, one.to_ms) for one in clip([gap, gap], DAY, DAY + HOUR_MS)] == [(DAY, DAY + HOUR_MS)]


def test_nothing_is_missing_before_the_first_interval_of_all_times() -> None:
    begun, cut = span("a", (1, 60), (60, 120)), span("a", (7, 66), (60, 120))
    now_ms = DAY + 99 * HOUR_MS

    def found(some: Span, has_older: bool) -> list[Gap]:
        return find_gaps([some], [], DAY, DAY + 2 * HOUR_MS, now_ms, has_older=has_older)

    assert found(begun, has_older=False) == []
    for some, has_older in ((begun, True), (cut, False), (cut, True)):
        [gap] = found(some, has_older)
        assert (gap.from_ms, gap.to_ms) == (DAY, DAY + HOUR_MS)


def test_a_broker_that_joined_in_the_period_is_not_missing_before_its_first_sample() -> None:
    old = [Scraped("odradek/a", DAY, DAY, DAY + 2 * HOUR_MS, 120, 1.0)]
    new = [Scraped("odradek/b", DAY + HOUR_MS, DAY + HOUR_MS, DAY + 2 * HOUR_MS, 60, 2.0)]
    arguments = ([*old, *new], DAY, DAY + 2 * HOUR_MS, DAY + 99 * HOUR_MS, MINUTE_MS)
    assert find_scrape_gaps(*arguments, {"odradek/a"}) == []
    for older in (None, {"odradek/a", "odradek/b"}):
        [gap] = find_scrape_gaps(*arguments, older)
        assert (gap.from_ms, gap.to_ms, gap.source) == (DAY, DAY + HOUR_MS, "odradek/b")
