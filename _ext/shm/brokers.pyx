"""The brokers of the cluster, as the controller published them, and the identity of the controller and of this broker [R 10].

One writer, the coordinator's replicas thread, fills the block of the table that is not in use and then switches to it with the
version. Readers copy the current block and compare the version before and after, so they need no lock.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.string cimport memcpy, memset

from typing import NamedTuple

from odradek._ext.shm.atomics cimport (
    copy_words,
    cpu_pause,
    fence_acquire,
    fence_release,
    fill_words,
    load_acquire_64,
    load_acquire_i64,
    load_relaxed_64,
    store_relaxed_32,
    store_relaxed_64,
    store_relaxed_i32,
    store_relaxed_i64,
    store_release_64,
    store_release_i64,
)
from odradek._ext.shm.layout cimport BROKER_TEXT_BYTES, MAX_BROKERS, BrokerEntry, BrokerTable, Header, region
from odradek._ext.shm.partition_view cimport MAX_IN_SYNC
from odradek._ext.shm.slot cimport MAX_FOLLOWERS


cdef enum:
    ENDED = -2                    # a registration of epoch n that has ended is noted as ENDED - n

LIMIT = MAX_BROKERS
"""The largest number of live brokers that can be published."""
MOST_REPLICAS = min(MAX_IN_SYNC, MAX_FOLLOWERS + 1)
"""The largest number of replicas of a partition: a slot has room for that many in-sync replicas, and its leader for its followers."""


class Endpoint(NamedTuple):
    """The address of a listener of a broker. ``name``: of the listener."""

    name: str
    host: str
    port: int


class BrokerInfo(NamedTuple):
    """A live broker. ``epoch``: of its registration, -1 if it is not known."""

    id: int
    epoch: int
    rack: str | None
    endpoints: tuple[Endpoint, ...]

    def endpoint(self, listener) -> Endpoint | None:
        """The address of the listener with this name; None if the broker has no such listener."""
        for endpoint in self.endpoints:
            if endpoint.name == listener:
                return endpoint
        return None


def fits(broker) -> bool:
    """Whether the table has room for the rack and the endpoints of a broker."""
    return len((broker.rack or "").encode()) + len(_endpoints_text(broker).encode()) <= BROKER_TEXT_BYTES


def publish_brokers(brokers) -> None:
    """Replace the live brokers. Only the one writer of the table calls this.

    :param brokers: BrokerInfo objects. :raises ValueError: more brokers, or a longer text, than the table can hold; then nothing is
    changed.
    """
    cdef Header* header = region().header
    cdef BrokerTable* table = &header.brokers[(header.brokers_version + 1) & 1]
    cdef BrokerEntry filled
    cdef bytes rack, text
    cdef uint64_t i = 0
    encoded = [(broker.id, broker.epoch, (broker.rack or "").encode(), _endpoints_text(broker).encode()) for broker in brokers]
    if len(encoded) > MAX_BROKERS:
        raise ValueError(f"a cluster may have at most {MAX_BROKERS} brokers, not {len(encoded)}")
    for broker_id, _, rack, text in encoded:
        if len(rack) + len(text) > BROKER_TEXT_BYTES:
            raise ValueError(f"broker {broker_id}: its rack and its endpoints have more than {BROKER_TEXT_BYTES} bytes together")
    fence_release()     # a reader that sees the block being filled also sees that the other one was published before
    for broker_id, epoch, rack, text in encoded:
        memset(&filled, 0, sizeof(filled))
        store_relaxed_i32(&filled.broker_id, broker_id)
        store_relaxed_i64(&filled.broker_epoch, epoch)
        store_relaxed_32(&filled.alive, 1)
        filled.rack_bytes = <uint16_t>len(rack)
        filled.endpoint_bytes = <uint16_t>len(text)
        memcpy(filled.text, <const char*>rack, len(rack))
        memcpy(filled.text + len(rack), <const char*>text, len(text))
        fill_words(&table.entries[i], &filled, sizeof(filled))
        i += 1
    store_relaxed_64(&table.count, i)
    store_release_64(&header.brokers_version, header.brokers_version + 1)


def _endpoints_text(broker) -> str:
    return ",".join(f"{name}://{f'[{host}]' if ':' in host else host}:{port}" for name, host, port in broker.endpoints)


def _endpoints(str text) -> tuple[Endpoint, ...]:
    endpoints = []
    for part in text.split(",") if text else ():
        name, _, address = part.partition("://")
        host, _, port = address.rpartition(":")
        endpoints.append(Endpoint(name, host.strip("[]"), int(port)))
    return tuple(endpoints)


def brokers() -> list[BrokerInfo]:
    """The live brokers as a list of BrokerInfo, in the order of their ids; empty without a cluster."""
    cdef Header* header = region().header
    cdef BrokerTable copy
    cdef BrokerEntry* entry
    cdef uint64_t version, i
    while True:
        version = load_acquire_64(&header.brokers_version)
        copy_words(&copy, &header.brokers[version & 1], sizeof(BrokerTable))
        fence_acquire()
        if load_relaxed_64(&header.brokers_version) == version:
            break
        cpu_pause()
    known = []
    for i in range(copy.count):
        entry = &copy.entries[i]
        rack = (<char*>entry.text)[:entry.rack_bytes].decode()
        text = (<char*>entry.text + entry.rack_bytes)[:entry.endpoint_bytes].decode()
        known.append(BrokerInfo(entry.broker_id, entry.broker_epoch, rack or None, _endpoints(text)))
    return sorted(known)


def version() -> int:
    """A number that changes with every `publish_brokers`."""
    return load_acquire_64(&region().header.brokers_version)


cdef int64_t find_epoch(int32_t broker_id, bint* alive) noexcept nogil:
    """The epoch of a broker, and whether it is alive."""
    cdef Header* header = region().header
    cdef BrokerTable* table
    cdef uint64_t version, i
    cdef int64_t epoch
    while True:
        version = load_acquire_64(&header.brokers_version)
        table = &header.brokers[version & 1]
        alive[0] = False
        epoch = -1
        for i in range(min(table.count, <uint64_t>MAX_BROKERS)):
            if table.entries[i].broker_id == broker_id:
                alive[0] = table.entries[i].alive != 0
                epoch = table.entries[i].broker_epoch
                break
        fence_acquire()
        if load_relaxed_64(&header.brokers_version) == version:
            return epoch
        cpu_pause()


cdef bint broker_alive(int32_t broker_id) noexcept nogil:
    cdef bint alive
    find_epoch(broker_id, &alive)
    return alive


cdef int64_t epoch_of_broker(int32_t broker_id) noexcept nogil:
    cdef bint alive
    return find_epoch(broker_id, &alive)


def is_alive(int32_t broker_id) -> bool:
    """Whether a broker is registered and alive, as the controller last published."""
    return broker_alive(broker_id)


# -- the controller, and this broker -----------------------------------------------------------------------------------

def set_controller(int broker_id, int epoch) -> None:
    """Note the controller, and the largest controller epoch that a request had."""
    store_relaxed_i64(&region().header.controller_id, broker_id)
    store_release_64(&region().header.controller_epoch, <uint64_t><int64_t>epoch)


def controller() -> tuple[int, int]:
    """(id of the controller, -1 if it is not known; the largest controller epoch that a request had, 0 for none)."""
    return region().header.controller_id, <int64_t>load_acquire_64(&region().header.controller_epoch)


def set_broker_epoch(int64_t epoch) -> None:
    """Note the epoch of this broker's registration; -1: it is not registered."""
    store_release_i64(&region().header.broker_epoch, epoch)


def broker_epoch() -> int:
    """The epoch of this broker's registration; -1 if it is not registered, or if its registration has ended."""
    return own_epoch()


cdef int64_t own_epoch() noexcept nogil:
    return max(load_acquire_i64(&region().header.broker_epoch), <int64_t>-1)


def end_registration(int64_t epoch=-1) -> None:
    """Note that the registration has ended: requests that the controller sent to it are refused from now on. A repetition changes
    nothing.

    :param epoch: of the registration; -1: the one that is noted.
    """
    if epoch < 0:
        epoch = own_epoch()
    if epoch >= 0:
        set_broker_epoch(ENDED - epoch)


def least_epoch() -> int:
    """The smallest broker epoch that requests for this broker may have; -1: all. The epochs of registrations grow, unless ZooKeeper
    was restored from an older backup."""
    cdef int64_t word = load_acquire_i64(&region().header.broker_epoch)
    return ENDED - word + 1 if word <= ENDED else word


def was_registered() -> bool:
    """Whether this broker has been registered since its start."""
    return load_acquire_i64(&region().header.broker_epoch) != -1


def note_published() -> None:
    """Note that the controller has sent the brokers and all partitions. It stays so until the broker stops."""
    store_release_64(&region().header.published, 1)


def published() -> bool:
    """Whether the controller has sent the brokers and all partitions since this broker started, so that Metadata can be answered."""
    return load_acquire_64(&region().header.published) != 0


# -- the session in the metadata store --------------------------------------------------------------------------------

def note_session(int64_t session_id, bytes password not None, int64_t zxid) -> None:
    """Note the session of the coordinator for its successor. Only the coordinator's store thread calls this.

    The id is written last: after a death in between there is no session, and the successor begins a new one.

    :param session_id: 0: there is no session. :param zxid: the last transaction that the coordinator has seen.
    :raises ValueError: the password is longer than the header can hold.
    """
    cdef Header* header = region().header
    cdef const uint8_t* text = <const uint8_t*>password
    cdef size_t length = <size_t>len(password)
    if length > sizeof(header.session_password):
        raise ValueError(f"the password of the session has {length} bytes")
    store_release_i64(&header.session_id, 0)
    fence_release()
    memcpy(header.session_password, text, length)
    header.session_password_bytes = length
    store_relaxed_i64(&header.session_zxid, zxid)
    store_release_i64(&header.session_id, session_id)


def note_zxid(int64_t zxid) -> None:
    """Note the last transaction that the coordinator has seen."""
    store_relaxed_i64(&region().header.session_zxid, zxid)


def session() -> tuple[int, bytes, int] | None:
    """(id, password, last transaction seen) of the session that the coordinator noted last; None if there is none."""
    cdef Header* header = region().header
    cdef int64_t session_id = load_acquire_i64(&header.session_id)
    if session_id == 0:
        return None
    return session_id, bytes(header.session_password[:header.session_password_bytes]), header.session_zxid


def clustered() -> bool:
    """Whether the metadata store is ZooKeeper, so that other brokers may belong to the cluster."""
    return region().header.clustered != 0


def begin_cluster(int64_t lag_limit_ms) -> None:
    """Mark the mapping as that of a broker in a cluster. Called once, before the first child starts.

    :param lag_limit_ms: replica.lag.time.max.ms.
    """
    cdef Header* header = region().header
    header.clustered = 1
    header.lag_limit_ms = lag_limit_ms
    store_relaxed_i64(&header.controller_id, -1)
    store_relaxed_i64(&header.broker_epoch, -1)
