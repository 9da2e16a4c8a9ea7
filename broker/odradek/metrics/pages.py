"""The meter pages as Python sees them; what is in them says docs/decisions/0016-metering.md.

In any process, mostly the reporter. Nothing here writes. A page belongs to a place of the process table (`shm.process(page)`),
so it outlives the process: values never go back while the broker runs, but for the gauges of a process that died: they are 0.
Every function raises ValueError for a page that is no place of the table; those that read entries raise
`odradek._ext.shm.meter_reading.PageInMotion` in the case, never seen, that a page is rearranged at each of 64 looks.
"""

from collections.abc import Iterator
from typing import NamedTuple

import odradek._ext.shm.meter_reading as meter_reading
from odradek._ext.shm.shared_memory import SharedMemory

OTHER = "other"  # principal and client id, or topic, of what was folded because it did not fit
RETIRED = "retired"  # client id (principal OTHER) of the values of entries that were not used for long
NO_API = -1
UNKNOWN_API = -2
PHASES = ("queue", "local", "remote", "send", "total")


class UsageRow(NamedTuple):
    """What one client did with one topic (None: not of a topic) by one API since `since_ms` (wall clock).

    The sum over all rows of all pages is the broker's total of bytes_in, bytes_out, records_in, records_out, throttle_ms and
    connection_ms. `requests` of rows with a topic are the requests that named it: they are counted without topic, too. So are
    `errors`: without topic, requests with an error; with one, partitions that were answered with one.
    `since_ms` of RETIRED is the page's own beginning.
    Another `since_ms` under the same page and key is another count, that began at 0. It never repeats within a page.
    """

    page: int
    principal: str
    client_id: str
    topic: str | None
    api_key: int
    since_ms: int
    last_ms: int
    requests: int
    errors: int
    bytes_in: int
    bytes_out: int
    records_in: int
    records_out: int
    throttle_ms: int
    connection_ms: int


class PositionRow(NamedTuple):
    """Where a client reads a partition: that of the slot, if the slot still has that incarnation.

    :param offset: behind the last record that it was given, or the offset that it has asked for since.
    :param at_ms: when it last asked or was given records, or when the last of its readers ended.
    :param readers: how many open connections read the partition as this client; 0: all have ended.
    """

    page: int
    principal: str
    client_id: str
    slot: int
    incarnation: int
    offset: int
    at_ms: int
    readers: int


class RequestTimes(NamedTuple):
    """How long requests were in a phase: bucket i counts t < 2**i microseconds, the last is the rest."""

    phase: str
    buckets: tuple[int, ...]
    sum_us: int


class ListenerCounts(NamedTuple):
    """Connections of a listener: open now, and accepted ever."""

    open: int
    accepted: int


def usage_rows(shm: SharedMemory, page: int) -> Iterator[UsageRow]:
    """All usage of one page, as of one moment; with two rows RETIRED (topic None, and OTHER) once something was retired."""
    for principal, client_id, topic, api_key, since_ms, last_ms, values in meter_reading.read_usage(page):
        yield UsageRow(page, principal, client_id, topic, api_key, since_ms, last_ms, *values)


def positions(shm: SharedMemory, page: int) -> Iterator[PositionRow]:
    """The positions of the clients that read from one page's process."""
    for row in meter_reading.read_positions(page):
        yield PositionRow(page, *row)


def counters(shm: SharedMemory, page: int) -> dict[str, int]:
    """The page's words by name (`odradek._ext.shm.metering.PROBE_NAMES`): `parked_...` and `queued_bytes` are what is now."""
    return dict(meter_reading.read_counters(page))


def request_counts(shm: SharedMemory, page: int) -> dict[tuple[int, int], int]:
    """{(api key, version): requests}."""
    return dict(meter_reading.read_requests(page))


def request_errors(shm: SharedMemory, page: int) -> dict[tuple[int, int], int]:
    """{(api key, error code): how often}; of Produce and Fetch once a partition. Without error 0."""
    return dict(meter_reading.read_errors(page))


def request_times(shm: SharedMemory, page: int) -> dict[tuple[int, str], RequestTimes]:
    """{(api key, phase): times}."""
    return {
        (key, PHASES[phase]): RequestTimes(PHASES[phase], buckets, sum_us)
        for (key, phase), (buckets, sum_us) in meter_reading.read_times(page).items()
    }


def loop_delay(shm: SharedMemory, page: int) -> RequestTimes:
    """How late the timers of the process's loop came (phase "loop")."""
    return RequestTimes("loop", *meter_reading.read_loop_delay(page))


def batch_sizes(shm: SharedMemory, page: int) -> tuple[int, ...]:
    """Batches that producers sent, by size: number i counts those above 2**(i-1) up to 2**i bytes, the last one the rest."""
    return tuple(meter_reading.read_batch_sizes(page))


def largest_batches(shm: SharedMemory, page: int) -> dict[str, int]:
    """{topic: bytes of the largest batch that a producer sent}, of topics that are used; OTHER for those without a place."""
    return dict(meter_reading.read_largest_batches(page))


def listeners(shm: SharedMemory, page: int) -> dict[int, ListenerCounts]:
    """{index of the listener: counts}."""
    return {index: ListenerCounts(*counts) for index, counts in meter_reading.read_listeners(page).items()}


def software(shm: SharedMemory, page: int) -> dict[tuple[str, str, int], int]:
    """{(client software name, version, index of the listener): open connections} of clients that said what they are.

    What found no place in the page's table is (OTHER, OTHER, listener).
    """
    return dict(meter_reading.read_software(page))
