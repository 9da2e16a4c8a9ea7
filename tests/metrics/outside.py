"""The meter pages of a running broker, read from the process of the test through the supervisor's descriptor of the mapping."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from odradek._ext.shm.layout import ProcessKind
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.metrics import pages
from odradek.testing import Broker
from tests import waiting

PATIENCE_S = 120.0
SUMS = ("bytes_in", "bytes_out", "records_in", "records_out", "requests", "errors", "throttle_ms", "connection_ms")


def memory_of(broker: Broker) -> SharedMemory:
    """Map the broker's shared memory for reading. Only one mapping at a time: the next call replaces it."""
    for place in Path(f"/proc/{broker.pid}/fd").iterdir():
        if place.is_symlink() and str(place.readlink()) == "/memfd:odradek (deleted)":
            return SharedMemory(look_at=str(place))
    raise AssertionError("the supervisor has no mapping")


def words_of(shm: SharedMemory, kind: ProcessKind) -> dict[str, int]:
    """Return the counters of the only process of that kind."""
    (place,) = [info.index for info in shm.processes() if info.kind == kind]
    return pages.counters(shm, place)


class Totals:
    """Return the sums over the pages of all workers."""

    def __init__(self, shm: SharedMemory) -> None:
        self.rows: list[pages.UsageRow] = []
        self.words: Counter[str] = Counter()
        self.requests: Counter[tuple[int, int]] = Counter()
        self.errors: Counter[tuple[int, int]] = Counter()
        self.software: Counter[tuple[str, str, int]] = Counter()
        self.positions: list[pages.PositionRow] = []
        self.times: list[dict[tuple[int, str], pages.RequestTimes]] = []
        self.open = self.accepted = 0
        for info in shm.processes():
            if info.kind != ProcessKind.WORKER:
                continue
            self.words.update(pages.counters(shm, info.index))
            self.rows += pages.usage_rows(shm, info.index)
            self.positions += pages.positions(shm, info.index)
            self.requests.update(pages.request_counts(shm, info.index))
            self.errors.update(pages.request_errors(shm, info.index))
            self.software.update(pages.software(shm, info.index))
            self.times.append(pages.request_times(shm, info.index))
            for counts in pages.listeners(shm, info.index).values():
                self.open += counts.open
                self.accepted += counts.accepted

    def of(self, **wanted: Any) -> Counter[str]:
        """Sums over the rows with these fields (`client_id`, `topic`, `api_key`, ...)."""
        found: Counter[str] = Counter(dict.fromkeys(SUMS, 0))
        for row in self.rows:
            if all(getattr(row, name) == value for name, value in wanted.items()):
                found.update({name: getattr(row, name) for name in SUMS})
        return found

    @property
    def balance(self) -> tuple[int, int]:
        """Return (bytes in, bytes out) of the usage minus those of the sockets: 0, 0 if no request is in progress."""
        usage, words = self.of(), self.words
        return (
            usage["bytes_in"] + words["unused_bytes_in"] - words["socket_bytes_in"],
            usage["bytes_out"] - words["socket_bytes_out"] - words["unsent_bytes"],
        )


def until(shm: SharedMemory, condition: Callable[[Totals], bool]) -> Totals:
    """Poll until the condition holds; return the totals. Raises AssertionError with the last totals."""
    last = Totals(shm)

    def met() -> bool:
        nonlocal last
        last = Totals(shm)
        return condition(last)

    waiting.until(met, lambda: f"balance {last.balance}, words {dict(last.words)}, usage {last.of()}", PATIENCE_S)
    return last
