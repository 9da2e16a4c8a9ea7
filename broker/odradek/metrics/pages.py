"""Reads the meter pages; docs/decisions/0016-metering.md describes their contents.

Runs in any process, mostly the reporter. Nothing here writes. A page belongs to a place of the process table
(`shm.process(page)`), so it outlives the process: values never decrease while the broker runs, except for the gauges of a
process that died, which become 0. Every function raises ValueError for a page that is not a place of the table. Functions
that read entries raise `odradek._ext.shm.meter_reading.PageInMotion` if a page is rearranged during each of 64 attempts,
which has never been observed.
"""

from collections.abc import Iterator
from typing import NamedTuple

import odradek._ext.shm.meter_reading as meter_reading
from odradek._ext.shm.shared_memory import SharedMemory

OTHER = "other"  # principal and client id, or topic, of usage that did not fit into the page's tables
RETIRED = "retired"  # client id (principal OTHER) of the sums of entries that were not used for a long time
NO_API = -1
UNKNOWN_API = -2
PHASES = ("queue", "local", "remote", "send", "total")


class UsageRow(NamedTuple):
    """The usage of one client, topic (None: without a topic) and API since `since_ms` (wall clock).

    The sum over all rows of all pages is the broker's total of bytes_in, bytes_out, records_in, records_out, throttle_ms and
    connection_ms. `requests` of rows with a topic are the requests that contained it; the row without a topic counts them
    too. `errors` without a topic are requests with an error, with a topic partitions with an error. `since_ms` of RETIRED is
    the time at which the page was created. A row with another `since_ms` under the same page and key is another count, which
    began at 0. A `since_ms` never repeats within a page.
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
    """The position of a client in the partition of a slot; valid only if the slot still has the same incarnation.

    :param offset: the offset after the last record that the broker sent, or the offset that the client has requested since
        then.
    :param at_ms: when the client last fetched or received records, or when the last of its readers ended.
    :param readers: number of open connections of this client that read the partition; 0: all have ended.
    :param back_ms: when the client's only connection last requested an offset before that of the previous request, which may
        be of an earlier connection; 0: never, as far as this page knows.
    """

    page: int
    principal: str
    client_id: str
    slot: int
    incarnation: int
    offset: int
    at_ms: int
    readers: int
    back_ms: int = 0


class RequestTimes(NamedTuple):
    """A histogram of the time of requests in a phase: bucket i counts t < 2**i microseconds, the last bucket the rest."""

    phase: str
    buckets: tuple[int, ...]
    sum_us: int


class ListenerCounts(NamedTuple):
    """Connections of a listener: currently open, and accepted in total."""

    open: int
    accepted: int


def usage_rows(shm: SharedMemory, page: int) -> Iterator[UsageRow]:
    """Yield a consistent copy of a page's usage, with two rows RETIRED (topic None, and OTHER) if entries have been retired."""
    for principal, client_id, topic, api_key, since_ms, last_ms, values in meter_reading.read_usage(page):
        yield UsageRow(page, principal, client_id, topic, api_key, since_ms, last_ms, *values)


def positions(shm: SharedMemory, page: int) -> Iterator[PositionRow]:
    """Yield the positions of the clients that are connected to the page's process."""
    for row in meter_reading.read_positions(page):
        yield PositionRow(page, *row)


def counters(shm: SharedMemory, page: int) -> dict[str, int]:
    """Return the page's counters by name (`odradek._ext.shm.probes.Probe`); `parked_...` and `queued_bytes` are
    gauges."""
    return dict(meter_reading.read_counters(page))


def request_counts(shm: SharedMemory, page: int) -> dict[tuple[int, int], int]:
    """Return {(API key, version): requests}."""
    return dict(meter_reading.read_requests(page))


def request_errors(shm: SharedMemory, page: int) -> dict[tuple[int, int], int]:
    """Return {(API key, error code): count}; Produce and Fetch count once per partition. Error code 0 is left out."""
    return dict(meter_reading.read_errors(page))


def request_times(shm: SharedMemory, page: int) -> dict[tuple[int, str], RequestTimes]:
    """Return {(API key, phase): times}."""
    return {
        (key, PHASES[phase]): RequestTimes(PHASES[phase], buckets, sum_us)
        for (key, phase), (buckets, sum_us) in meter_reading.read_times(page).items()
    }


def loop_delay(shm: SharedMemory, page: int) -> RequestTimes:
    """Return how late the timers of the process's event loop ran (phase "loop")."""
    return RequestTimes("loop", *meter_reading.read_loop_delay(page))


def batch_sizes(shm: SharedMemory, page: int) -> tuple[int, ...]:
    """Return the numbers of batches that producers sent, by size: index i counts 2**(i-1) < size <= 2**i, the last the rest."""
    return tuple(meter_reading.read_batch_sizes(page))


def largest_batches(shm: SharedMemory, page: int) -> dict[str, int]:
    """Return {topic: bytes of the largest batch that a producer sent} of topics in use; OTHER: topics without an entry."""
    return dict(meter_reading.read_largest_batches(page))


def listeners(shm: SharedMemory, page: int) -> dict[int, ListenerCounts]:
    """Return {index of the listener: counts}."""
    return {index: ListenerCounts(*counts) for index, counts in meter_reading.read_listeners(page).items()}


def logins(shm: SharedMemory, page: int) -> dict[tuple[int, str, str], int]:
    """Return {(index of the listener, SASL mechanism, outcome): number of ended logins}; see `count_login`."""
    return dict(meter_reading.read_logins(page))


def expired_killed(shm: SharedMemory, page: int) -> dict[int, int]:
    """Return {index of the listener: connections closed because they outlived their session}."""
    return dict(meter_reading.read_expired_killed(page))


def software(shm: SharedMemory, page: int) -> dict[tuple[str, str, int], int]:
    """Return {(client software name, version, index of the listener): open connections} of clients that sent their software
    name.

    Software that does not fit into the page's table is (OTHER, OTHER, listener).
    """
    return dict(meter_reading.read_software(page))
