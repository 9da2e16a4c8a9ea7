"""The rates of clients for tests: one use of a bucket, with an injected clock."""

from libc.stdint cimport int64_t

from odradek._ext.shm.client_quotas cimport (
    QUOTA_REQUEST,
    QuotaRate,
    QuotaUse,
    quota_add,
    quota_burst,
    quota_count,
    quota_find,
    quota_throttled,
    quota_wait_at,
    quota_wait_ms,
)


cdef class Use:
    """A client's use of a bucket; see `quota_find`."""

    cdef QuotaUse use
    cdef int kind

    def __init__(self, int kind, user, client, double limit, *, owner=1, int64_t now_ms=1):
        self.kind = kind
        quota_find(kind, user, client, limit, owner, now_ms, &self.use)

    @property
    def bucket(self) -> int:
        return self.use.bucket

    @property
    def burst(self) -> float:
        return quota_burst(&self.use)

    def add(self, int64_t amount, int64_t now_ms) -> None:
        quota_add(&self.use, amount, now_ms)

    def count(self, amounts, int64_t now_ms) -> list[int] | None:
        """Count amounts together. Returns the throttle time after each of them; None if none was above the limit."""
        cdef QuotaRate rate
        cdef int64_t left = sum(amounts)
        if not quota_count(&self.use, left, now_ms, &rate):
            return None
        waits = []
        for amount in amounts:
            left -= amount
            waits.append(quota_wait_at(&self.use, &rate, left, self.kind == QUOTA_REQUEST))
        return waits

    def wait_ms(self, int64_t now_ms, bint bounded=False) -> int:
        return quota_wait_ms(&self.use, now_ms, bounded)

    def throttled(self, int64_t wait_ms, int64_t now_ms) -> None:
        quota_throttled(&self.use, self.kind, wait_ms, now_ms)
