"""Counts, and the state of the meter page's tables, for tests: with a clock of their own, and as a successor finds the page.

Called in the thread that counts.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memset

from odradek._ext.shm.probes import PROBE_WORDS

from odradek._ext.shm.atomics cimport count_64
from odradek._ext.shm.meter_layout cimport (
    METER_CLIENTS,
    METER_KEY_NONE,
    METER_POSITIONS,
    METER_TOPICS,
    METER_USAGE,
    USAGE_VALUES,
    MeterUsage,
)
from odradek._ext.shm.meter_tables cimport meter_state
from odradek._ext.shm.metering cimport (
    Client,
    ReaderPlace,
    api_index,
    find_client,
    find_topic,
    leave_position,
    own_page,
    put_requested,
    turn_clock,
    usage_of,
)


def word(str name not None) -> int:
    """The value of a word of this process's page, by its name in PROBE_WORDS."""
    return own_page().words[<int>PROBE_WORDS[name]]


def use_clock(int64_t wall_ms) -> None:
    """Use this wall-clock time for the dates of entries; 0: use the clock again."""
    meter_state().fixed_now_ms = wall_ms
    turn_clock()


def use_owner(uint32_t owner) -> None:
    """Look clients up for connections of this address, a number below PRODUCER_OWNERS."""
    meter_state().owner = owner


def count_usage(bytes principal, bytes client_id, topic, int api_key, tuple values) -> None:
    """Add (requests, errors, bytes in, bytes out, records in, records out, throttle ms, connection ms) to a client's entry.

    :param topic: the topic's name as bytes; None: no topic. :param api_key: -1: belongs to no request.
    """
    cdef Client client
    cdef MeterUsage* entry
    cdef uint32_t number = 0
    cdef uint64_t since = 0
    cdef int i
    own_page()
    turn_clock()
    find_client(principal, len(principal), <const uint8_t*><const char*>client_id, len(client_id), &client)
    if topic is not None:
        number = find_topic(topic, len(topic), &number, &since)
    entry = usage_of(client.number, number, METER_KEY_NONE if api_key == -1 else api_index(api_key))
    for i in range(USAGE_VALUES):
        count_64(&entry.values[i], <uint64_t>values[i])


def put_reader_position(bytes principal, bytes client_id, uint32_t slot, uint32_t incarnation, int64_t offset, bint ended=False) -> None:
    """Store a reader's position in a partition. :param ended: the reader's connection is closed."""
    cdef Client client
    cdef ReaderPlace place
    memset(&place, 0, sizeof(ReaderPlace))
    own_page()
    turn_clock()
    find_client(principal, len(principal), <const uint8_t*><const char*>client_id, len(client_id), &client)
    put_requested(client.number, slot, incarnation, offset, &place)
    if ended:
        leave_position(&place)


def tables() -> dict[str, tuple[int, int]]:
    """{name of a table: (entries in use, maximum entries)}."""
    own_page()
    return {
        "clients": (meter_state().live_clients, METER_CLIENTS - 1),
        "topics": (meter_state().live_topics, METER_TOPICS - 2),
        "usage": (meter_state().live_usage, METER_USAGE),
        "positions": (meter_state().live_positions, METER_POSITIONS),
    }


def forget_indexes() -> None:
    """Read the page again as a successor of this process does: only from the page's content."""
    meter_state().page = NULL
