"""What a client's throttle time is in Kafka 4.3: written from the behaviour of its Rate, its samples and its quota managers.

A sample begins at its first record, and is complete after the length of a window. Samples live while something was recorded in
them within all windows; one more than the windows may. The rate is their sum, divided by the time since the oldest began, which
counts as all windows but one at least. A client above its limit must wait until its sum, divided by that time and the wait, is
the limit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import floor


@dataclass
class Sample:
    began_ms: int
    last_ms: int
    total: float = 0.0


class KafkasRate:
    """:param begin: where a sample begins whose first record is at this time; as in Kafka by default."""

    def __init__(self, windows: int, window_ms: int, begin: Callable[[int], int] = lambda now_ms: now_ms) -> None:
        self.windows = windows
        self.window_ms = window_ms
        self.begin = begin
        self.samples: list[Sample] = []
        self.current = 0

    def record(self, amount: float, now_ms: int) -> None:
        if not self.samples:
            self.samples.append(self._new(now_ms))
        sample = self.samples[self.current]
        if now_ms - sample.began_ms >= self.window_ms:
            self.current = (self.current + 1) % (self.windows + 1)
            sample = self._new(now_ms)
            if self.current >= len(self.samples):
                self.samples.append(sample)
            else:
                self.samples[self.current] = sample
        sample.total += amount
        sample.last_ms = now_ms

    def _new(self, now_ms: int) -> Sample:
        return Sample(self.begin(now_ms), now_ms)

    def measure(self, now_ms: int) -> tuple[float, int]:
        """The sum and the time that it counts as."""
        for number, sample in enumerate(self.samples):
            if now_ms - sample.last_ms >= self.windows * self.window_ms:
                self.samples[number] = self._new(now_ms)
        oldest = min((sample.began_ms for sample in self.samples), default=self.begin(now_ms))
        elapsed = now_ms - oldest
        elapsed += max(0, self.windows - 1 - elapsed // self.window_ms) * self.window_ms
        return sum(sample.total for sample in self.samples), max(elapsed, 1)

    def throttle_ms(self, limit: float, now_ms: int, bounded: bool = False) -> int:
        total, elapsed = self.measure(now_ms)
        rate = total / (elapsed / 1000)
        if rate <= limit:
            return 0
        throttle = floor((rate - limit) / limit * elapsed + 0.5)
        return min(throttle, self.window_ms) if bounded else throttle
