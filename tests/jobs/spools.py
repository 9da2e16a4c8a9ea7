"""A model of a broker that only counts, with its spool: the input of the job, and the expected result by plain additions.

The truth is kept apart from the spool: `Truth` adds up what each client did to the hour in which the interval ended, while
the clients' cumulative counters go to the spool as the broker writes it (`broker/odradek/metrics/spool.py`).
"""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
VALUES = ("in", "out", "rin", "rout", "req", "err", "thr", "conn")
COLUMNS = ("bytes_in", "bytes_out", "records_in", "records_out", "requests", "errors", "throttle_ms", "connection_ms")

Series = tuple[int, str, str, "str | None", str]  # page, principal, client, topic, api


def at(text: str) -> int:
    """Milliseconds of an ISO time in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def line(row: dict[str, Any]) -> bytes:
    """Return the bytes as the broker writes them."""
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


class Boot:
    """The broker from a start to its end."""

    def __init__(self, directory: Path, name: str, began_ms: int, broker: int = 1) -> None:
        self.directory, self.name, self.broker = directory, name, broker
        self.wall_ms = began_ms  # where the last interval ended
        self.seq = 0
        self.truth: dict[tuple[int, str, str, str | None, str], list[int]] = defaultdict(lambda: [0] * len(VALUES))
        self.counters: dict[Series, tuple[int, list[int]]] = {}  # since, values
        self.series: set[tuple[Any, ...]] = set()  # all there ever were, with their since
        self.state: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._pending: list[tuple[Series, list[int]]] = []
        self._told: dict[Any, bytes] = {}
        self._file: Path | None = None
        self.files: list[Path] = []
        self.places: list[tuple[Path, int, int]] = []  # of each interval: file, first byte, behind its last one

    def count(self, series: Series, values: list[int]) -> None:
        """Add counts of a client to the current interval."""
        since, before = self.counters.setdefault(series, (self.wall_ms, [0] * len(VALUES)))
        self.series.add((*series, since))
        self.counters[series] = since, [a + b for a, b in zip(before, values, strict=True)]
        self._pending.append((series, values))

    def retire(self, series: Series) -> None:
        """Remove the entry; another entry with the same key may begin later, with another `since`."""
        self.counters.pop(series, None)

    def set(self, **row: Any) -> None:
        """Set a row of another kind."""
        key = tuple(row[name] for name in ("kind", "topic", "path", "group", "client", "worker") if name in row)
        self.state[key] = row

    def tick(self, length_ms: int = MINUTE_MS, jump_ms: int = 0, lost: bool = False) -> int:
        """End the interval; returns the hour that it belongs to.

        :param jump_ms: how far the clock was set meanwhile
        :param lost: what was counted since the last interval is never written: the broker dies
        """
        before_ms, self.wall_ms = self.wall_ms, self.wall_ms + length_ms + jump_ms
        hour_ms = self.wall_ms // HOUR_MS * HOUR_MS
        if lost:
            self._pending.clear()
            return hour_ms
        path = self.directory / f"usage-{datetime.fromtimestamp(hour_ms / 1000, UTC):%Y%m%dT%H}-{self.name}.jsonl"
        if path in self.files:
            path = self.files[-1] if jump_ms or path != self.files[-1] else path
        full = path not in self.files
        if full:
            self.files.append(path)
        begun = int(datetime.strptime(path.name[6:17] + "+0000", "%Y%m%dT%H%z").timestamp() * 1000)
        hour_ms = max(hour_ms, begun)
        rows: dict[Any, bytes] = {}
        for (page, principal, client, topic, api), (since, values) in self.counters.items():
            row = {"kind": "usage", "page": page, "principal": principal, "client": client, "topic": topic, "api": api}
            rows[(page, principal, client, topic, api, since)] = line(
                row | {"since": since} | dict(zip(VALUES, values, strict=True))
            )
        rows |= {key: line(row) for key, row in self.state.items()}
        body = b"".join(content for key, content in rows.items() if full or self._told.get(key) != content)
        self._told = rows
        self.seq += 1
        end = {
            "kind": "interval", "boot": self.name, "broker": self.broker, "seq": self.seq,
            "from": self.wall_ms - length_ms if jump_ms else before_ms, "to": self.wall_ms, "rows": body.count(b"\n"),
            "crc": zlib.crc32(body), "elapsed": length_ms, "clock": self.seq * 1000, "full": full,
        }  # fmt: skip
        if jump_ms:
            end["jump"] = jump_ms
        with path.open("ab") as file:
            start = file.tell()
            file.write(body + line(end))
            self.places.append((path, start, file.tell()))
        for (_, *series), values in self._pending:
            total = self.truth[(hour_ms, *series)]  # type: ignore[index]
            total[:] = [a + b for a, b in zip(total, values, strict=True)]
        self._pending.clear()
        return hour_ms


def compress(path: Path) -> Path:
    """Compress a file, as the broker does after its hour."""
    target = path.with_name(path.name + ".gz")
    target.write_bytes(gzip.compress(path.read_bytes(), 6, mtime=0))
    path.unlink()
    return target


def traffic(*boots: Boot) -> dict[tuple[Any, ...], tuple[int, ...]]:
    """Return the expected table of traffic: {(hour, principal, client, topic, api) to `COLUMNS`."""
    result: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0] * len(VALUES))
    for boot in boots:
        for key, values in boot.truth.items():
            result[key] = [a + b for a, b in zip(result[key], values, strict=True)]
    return {key: tuple(values) for key, values in result.items() if any(values)}


def live(boot: Boot, minutes: int, seed: int, clients: int = 6, retire: float = 0.02) -> None:
    """Random minutes: clients of several pages produce, fetch, pause, and are retired."""
    chance = random.Random(seed)
    names = [
        (chance.randrange(2), f"User:u{n % 3}", f"client-{n}", chance.choice([None, "orders", 'a "quoted",\\topic', "päge"]),
         chance.choice(["Produce", "Fetch", ""]))
        for n in range(clients)
    ]  # fmt: skip
    for _ in range(minutes):
        for series in names:
            if chance.random() < 0.6:
                boot.count(series, [chance.randrange(1, 1000) for _ in VALUES])
            elif chance.random() < retire:
                boot.retire(series)
        boot.tick()
