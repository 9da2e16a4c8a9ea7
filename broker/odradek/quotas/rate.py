"""A rate over windows of time, as Kafka measures it, for rates that one process counts."""

from collections import OrderedDict


class WindowedRate:
    """The sum of windows, divided by the time since the oldest of them began, which counts as at least all windows but one.

    :param windows: number of windows. :param window_ms: length of one; a window begins at the first event after the former one.
    """

    __slots__ = ("_samples", "_window_ms", "_windows")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._samples: list[list[float]] = []  # [beginning, last event, sum], the newest last

    def add(self, amount: float, now_ms: float) -> None:
        """Count an amount; a negative one takes it back."""
        if not self._samples or now_ms - self._samples[-1][0] >= self._window_ms:
            self._samples.append([now_ms, now_ms, 0.0])
            del self._samples[: -self._windows - 1]
        sample = self._samples[-1]
        sample[1] = now_ms
        sample[2] += amount

    def wait_ms(self, limit: float, now_ms: float) -> int:
        """The time until the rate is at the limit, at most a window; 0: it is not above it."""
        self._drop_old(now_ms)
        elapsed = now_ms - self._samples[0][0] if self._samples else 0.0
        full = int(elapsed // self._window_ms)
        elapsed = max(elapsed + max(self._windows - 1 - full, 0) * self._window_ms, 1.0)
        rate = sum(sample[2] for sample in self._samples) * 1000 / elapsed
        if rate <= limit:
            return 0
        if limit <= 0:
            return self._window_ms
        return min(int((rate - limit) / limit * elapsed + 0.5), self._window_ms)

    def _drop_old(self, now_ms: float) -> None:
        self._samples = [sample for sample in self._samples if now_ms - sample[1] < self._windows * self._window_ms]

    def idle(self, now_ms: float) -> bool:
        """Whether nothing was counted in the time of all windows."""
        self._drop_old(now_ms)
        return not self._samples


class RatesByName:
    """The rates of many names, bounded: a name in whose windows nothing was counted is forgotten first.

    :param most: the largest number of names; above it, the name that was counted least recently is forgotten.
    """

    def __init__(self, windows: int, window_ms: int, most: int = 65536) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._most = most
        self._rates: OrderedDict[str, WindowedRate] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rates)

    def admit(self, name: str, limit: float, now_ms: float) -> int:
        """Count one event of a name. Returns 0, or the time that it must wait; then it is not counted."""
        rate = self._rates.get(name)
        if rate is None:
            self._forget(now_ms)
            rate = self._rates[name] = WindowedRate(self._windows, self._window_ms)
        self._rates.move_to_end(name)
        rate.add(1.0, now_ms)
        wait_ms = rate.wait_ms(limit, now_ms)
        if wait_ms:
            rate.add(-1.0, now_ms)
        return wait_ms

    def _forget(self, now_ms: float) -> None:
        for _ in range(2):
            oldest = next(iter(self._rates), None)
            if oldest is None or not (self._rates[oldest].idle(now_ms) or len(self._rates) >= self._most):
                return
            del self._rates[oldest]
