"""The job reads the spool that the broker's writer writes: crashes, clock changes, retired entries, compressed files."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

from odradek.jobs.usage_report.intervals import Damage, Interval, read_intervals
from odradek.jobs.usage_report.spool import find, read_share
from odradek.metrics import spool_rows
from odradek.metrics.pages import NO_API, OTHER, RETIRED, UsageRow
from odradek.metrics.spool import Spool
from odradek.metrics.spool_reader import read_file
from tests.jobs.spools import HOUR_MS, MINUTE_MS, at

DAY = at("2025-11-20")
APIS = {0: "Produce", 1: "Fetch"}


def usage_row(client: str, api: int, since_ms: int, values: list[int]) -> UsageRow:
    principal = OTHER if client == RETIRED else "User:a"
    requests, errors, bytes_in, bytes_out, records_in, records_out, throttle_ms, connection_ms = values
    return UsageRow(
        0, principal, client, None if api == NO_API else "t", api, since_ms, since_ms, requests, errors, bytes_in, bytes_out,
        records_in, records_out, throttle_ms, connection_ms,
    )  # fmt: skip


def test_the_job_reads_what_the_broker_writes(tmp_path: Path) -> None:
    chance = random.Random(7)
    clock = {"wall": DAY + 30_000, "steady": 5_000}

    def open_spool() -> Spool:
        return Spool(
            tmp_path,
            "abc123",
            4,
            began_ms=DAY,
            max_bytes=1 << 30,
            wall=lambda: clock["wall"],
            steady=lambda: clock["steady"],
        )

    spool = open_spool()
    live: dict[tuple[str, int, int], list[int]] = {}
    retired = [0] * 8
    total = [0] * 8
    for minute in range(200):
        for client in ("one", "two", "three"):
            api = chance.choice([0, 1, NO_API])
            key = next((key for key in live if key[:2] == (client, api)), (client, api, clock["wall"]))
            some = [chance.randrange(100) for _ in range(8)]
            live[key] = [a + b for a, b in zip(live.get(key, [0] * 8), some, strict=True)]
            total = [a + b for a, b in zip(total, some, strict=True)]
        if minute % 40 == 39:  # an entry is forgotten; its values go to the one that stands for all of them
            gone = live.pop(chance.choice(list(live)))
            retired = [a + b for a, b in zip(retired, gone, strict=True)]
        if minute == 70:
            spool = open_spool()  # the reporter died, and its successor goes on
        if minute == 90:
            clock["wall"] -= 45 * MINUTE_MS
        rows = [spool_rows.usage(usage_row(*key, values), APIS) for key, values in live.items()]
        if any(retired):
            rows.append(spool_rows.usage(usage_row(RETIRED, NO_API, DAY, retired), APIS))
        rows.append(spool_rows.log_dir("/data", free_bytes=9, total_bytes=10, online=True))
        rows.append(spool_rows.worker(0, connections=1, busy_us=minute, bytes_in=minute, bytes_out=minute))
        rows.append(spool_rows.group("g", "t", lag=minute, lag_seconds=None, members=1))
        rows.append(spool_rows.reader("User:a", "one", "t", lag=minute, lag_seconds=0.5))
        rows.append(
            spool_rows.topic(
                "t",
                "00" * 16,
                partitions=1,
                replicas=1,
                stored_bytes=minute,
                largest_bytes=minute,
                end_offsets=minute,
                start_offsets=0,
                led=1,
                led_end_offsets=minute,
                led_start_offsets=0,
                retention_ms=-1,
                retention_bytes=-1,
            )
        )
        assert spool.write(rows)
        clock["wall"] += MINUTE_MS
        clock["steady"] += MINUTE_MS

    files = find(tmp_path)
    assert len(files) >= 3 and any(file.path.name.endswith(".gz") for file in files)
    for file in files:  # interval by interval the same as the broker's own reader
        ours = [part for part in read_intervals(file.path) if isinstance(part, Interval)]
        theirs = list(read_file(file.path))
        assert [
            (part.boot, part.broker, part.seq, part.from_ms, part.end_ms, part.elapsed_ms, part.jump_ms)
            for part in ours
        ] == [
            (part.boot, part.broker, part.seq, part.from_ms, part.to_ms, part.elapsed_ms, part.jump_ms)
            for part in theirs
            if not isinstance(part, Damage)
        ]
        assert [row + b"\n" for part in ours for row in part.rows] == [row for part in theirs for row in part.rows]
    facts = [row for batch in read_share(files, DAY, DAY + 24 * HOUR_MS) for row in batch.to_pylist()]
    assert {row["kind"] for row in facts} == {"span", "usage", "topic", "log_dir", "worker", "group", "reader"}
    last: dict[tuple[object, ...], tuple[int, int]] = defaultdict(lambda: (-1, 0))
    for row in facts:
        if row["kind"] == "usage":
            key = (row["client"], row["topic"], row["api"], row["since"])
            last[key] = max(last[key], (row["seq"], row["bytes_in"]))
    assert sum(value for _, value in last.values()) == total[2], "the sum over all series is the broker's total"
    assert sum(row["intervals"] for row in facts if row["kind"] == "span") == 200
