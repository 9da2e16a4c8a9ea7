"""Flushes for tests: one log's last flush, and the number of flush threads."""

from libc.stdint cimport uint32_t

from odradek._ext.partition.flusher cimport Flusher

from odradek._ext.partition.flushing import settle_many


def settle(uint32_t index) -> None:
    """`settle_many` for one slot. :raises OSError: a file could not be written or synced."""
    failed = settle_many([index])
    if failed:
        raise failed[index]


def thread_count(Flusher flusher not None) -> int:
    """How many flush threads the flusher has started."""
    return len(flusher.threads)
