"""The quota for changes of topics (KIP-599): partitions that are created and deleted, in token buckets.

Used in one thread of the controller. After the death of its process all buckets are full again.
"""

import time
from collections import OrderedDict
from collections.abc import Callable

from odradek.quotas.quotas import MUTATION, Quotas, user_of

BUCKETS_KEPT = 10_000
"""The largest number of buckets. The bucket that was used least recently is dropped for a new one."""
LONGEST_MS = (1 << 31) - 1
"""The longest throttle time: the protocol has room for it."""

Key = tuple[str | None, str | None]


class QuotaExceeded(Exception):
    """A change must not be made now. :ivar throttle_ms: it is admitted after this time, if nothing else is changed."""

    def __init__(self, throttle_ms: int) -> None:
        super().__init__("The throttling quota has been exceeded.")
        self.throttle_ms = throttle_ms


class TokenBucket:
    """Tokens that are added at a rate, up to a limit, and may become negative.

    :param rate: tokens per second. :param burst_s: the limit of the tokens is what is added in this time.
    """

    __slots__ = ("filled_s", "tokens")

    def __init__(self, rate: float, burst_s: float, now_s: float) -> None:
        self.tokens = rate * burst_s
        self.filled_s = now_s

    def fill(self, rate: float, burst_s: float, now_s: float) -> None:
        """Add the tokens of the time that has passed."""
        self.tokens = min(rate * burst_s, self.tokens + rate * (now_s - self.filled_s))
        self.filled_s = now_s

    def wait_ms(self, rate: float) -> int:
        """The time until the tokens are not negative, at most `LONGEST_MS`."""
        return int(min(max(0.0, -self.tokens / rate * 1000 + 0.5), LONGEST_MS))


class MutationRates:
    """The buckets of all clients.

    :param windows: `controller.quota.window.num`. :param window_s: `controller.quota.window.size.seconds`.
    :param clock: monotonic seconds.
    """

    def __init__(self, windows: int, window_s: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst_s = float(windows * window_s)
        self._clock = clock
        self._buckets: OrderedDict[Key, TokenBucket] = OrderedDict()

    def charge_for(self, quotas: Quotas, principal: str, client_id: str, strict: bool) -> "MutationCharge":
        """The charge of one request. :param strict: whether changes above the limit are refused; else they are made, and their
        client is throttled."""
        limit = quotas.limit(MUTATION, user_of(principal), client_id)
        return MutationCharge(
            self, None if limit is None else limit.rate, limit and (limit.user, limit.client_id), strict
        )

    def take(self, key: Key, rate: float, partitions: int, strict: bool) -> int:
        """Take tokens. Returns the throttle time in ms. Raises QuotaExceeded, if `strict`, and takes none."""
        now_s = self._clock()
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(rate, self._burst_s, now_s)
            if len(self._buckets) > BUCKETS_KEPT:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(key)
        bucket.fill(rate, self._burst_s, now_s)
        if strict:
            if bucket.tokens < 0:
                raise QuotaExceeded(bucket.wait_ms(rate))
            bucket.tokens -= partitions
            return 0
        bucket.tokens -= partitions
        return bucket.wait_ms(rate)


class MutationCharge:
    """The charge of one request's changes. :ivar throttle_ms: the throttle time of its response."""

    def __init__(self, rates: MutationRates, rate: float | None, key: Key | None, strict: bool) -> None:
        self._rates = rates
        self._rate = rate
        self._key = key
        self._strict = strict
        self.throttle_ms = 0

    def partitions(self, number: int) -> None:
        """Charge the creation or deletion of partitions. Raises QuotaExceeded."""
        if self._rate is None or self._key is None:
            return
        try:
            wait_ms = self._rates.take(self._key, self._rate, number, self._strict)
        except QuotaExceeded as error:
            self.throttle_ms = max(self.throttle_ms, error.throttle_ms)
            raise
        self.throttle_ms = max(self.throttle_ms, wait_ms)
