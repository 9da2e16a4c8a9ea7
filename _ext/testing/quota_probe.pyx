"""The rates of throttled replication for tests: what the native code of other processes calls, with a clock of the test."""

from libc.stdint cimport int64_t
from libc.string cimport memset

from odradek._ext.shm.clock cimport coarse_ms
from odradek._ext.shm.layout cimport ReplicationQuota, region
from odradek._ext.shm.replication_quota cimport quota_record, quota_room, quota_wait_ms


def record(int side, int64_t bytes_, now_ms=None) -> None:
    """Count bytes. :param now_ms: monotonic time in ms; None: the present time, by the clock that fetches use."""
    quota_record(side, bytes_, coarse_ms() if now_ms is None else now_ms)


def room(int side, int64_t now_ms) -> int:
    """The bytes that may be sent at a monotonic time in ms; 0: none."""
    return quota_room(side, now_ms)


def wait_ms(int side, int64_t now_ms) -> int:
    """After how many ms there may be room again."""
    return quota_wait_ms(side, now_ms)


def clear(int side) -> None:
    """Empty the windows, as after a long time without replication."""
    memset(&region().header.quotas[side], 0, sizeof(ReplicationQuota))
