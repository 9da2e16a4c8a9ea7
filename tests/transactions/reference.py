"""What Kafka's transaction coordinator and a partition's leader decide, as tables.

Written from Kafka's rules, not from our code.

`expected_*` return what a verb does for an id as it is in the log: a refusal or an answer (`Told`), or a record (`Written`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.protocol.schemas.transaction_records import STATES, read_record

NONE, LOADING, EPOCH, TXN_STATE, MAPPING = 0, 14, 47, 48, 49
CONCURRENT, COORDINATOR_FENCED, FENCED, ABORTABLE = 51, 52, 90, 120
MAX = 32767


class Stored(NamedTuple):
    """An id in the log. :param format: the version of the value."""

    producer_id: int
    previous: int
    next: int
    epoch: int
    state: str
    places: frozenset
    start_ms: int
    timeout_ms: int
    version: int
    format: int


def stored_of(key, value):
    """The transactional id and what a record says of it; None for a tombstone."""
    read_key, read = read_record(key, value)
    if read is None:
        return read_key.transactional_id, None
    places = frozenset(
        (topic.topic, number) for topic in read.transaction_partitions or () for number in topic.partition_ids
    )
    return read_key.transactional_id, Stored(
        read.producer_id,
        read.previous_producer_id,
        read.next_producer_id,
        read.producer_epoch,
        STATES[read.transaction_status],
        places,
        read.transaction_start_timestamp_ms,
        read.transaction_timeout_ms,
        read.client_transaction_version,
        value[1],
    )


class Told(NamedTuple):
    """An answer without a record."""

    code: int
    producer_id: int = -1
    epoch: int = -1


class Written(NamedTuple):
    """A record. :param rotates: a new producer id is taken. :param bump: how much the epoch grows."""

    state: str
    bump: int = 0
    rotates: bool = False


SUCCESSORS = {
    None: ("Empty",),
    "Empty": ("Empty", "Ongoing", "PrepareAbort", None),
    "Ongoing": ("Ongoing", "PrepareCommit", "PrepareAbort"),
    "PrepareCommit": ("CompleteCommit",),
    "PrepareAbort": ("CompleteAbort",),
    "CompleteCommit": ("Empty", "Ongoing", "PrepareAbort", None),
    "CompleteAbort": ("Empty", "Ongoing", "PrepareAbort", None),
}

OLD_END = """
                commit        abort
Empty           TXN_STATE     TXN_STATE
Ongoing         end           end
PrepareCommit   CONCURRENT    TXN_STATE
PrepareAbort    TXN_STATE     CONCURRENT
CompleteCommit  NONE          TXN_STATE
CompleteAbort   TXN_STATE     NONE
"""
NEW_END = """
                abort-retry  abort  commit-retry  commit
Empty           FENCED       end    FENCED        TXN_STATE
Ongoing         FENCED       end    FENCED        end
CompleteAbort   NONE         end    FENCED        TXN_STATE
CompleteCommit  TXN_STATE    end    NONE          TXN_STATE
PrepareCommit   TXN_STATE    FENCED CONCURRENT    FENCED
PrepareAbort    CONCURRENT   FENCED TXN_STATE     FENCED
"""


def _table(text):
    head, *rows = (line.split() for line in text.strip().splitlines())
    return {(row[0], column): cell for row in rows for column, cell in zip(head, row[1:], strict=True)}


OLD_TABLE, NEW_TABLE = _table(OLD_END), _table(NEW_END)


def expected_init(stored, pending, last, given, server, ids):
    """:param last: the epoch that a retry may name. :param given: producer id and epoch, or None. :param ids: whether new
    producer ids are in hand."""
    if pending:
        return Told(CONCURRENT)
    if stored is None:
        return Written("Empty", rotates=True) if ids else Told(LOADING)
    exhausted = stored.epoch >= MAX - 1
    if given is not None:
        of_before = given[0] == stored.previous and given[1] >= MAX - 1
        if given[0] != stored.producer_id and not of_before:
            return Told(FENCED)
    if stored.state.startswith("Prepare"):
        return Told(CONCURRENT)
    if stored.state == "Ongoing":
        return expected_fence(stored, server, ids)
    if given is None or given[1] == stored.epoch:
        if exhausted:
            return Written("Empty", rotates=True) if ids else Told(LOADING)
        return Written("Empty", bump=1)
    return Written("Empty") if given[1] == last else Told(FENCED)


def expected_fence(stored, server, ids):
    """The abort of an ongoing transaction by the coordinator."""
    if server >= 2:
        return _bumped("PrepareAbort", stored, ids)
    return Written("PrepareAbort", bump=0 if stored.epoch == MAX else 1)


def _bumped(state, stored, ids):
    if stored.epoch < MAX - 1:
        return Written(state, bump=1)
    if not ids:
        return Told(LOADING)
    return Written(state, bump=0 if stored.epoch == MAX else 1, rotates=True)


def expected_add(stored, pending, producer_id, epoch, places):
    if pending:
        return Told(CONCURRENT)
    if stored is None or stored.producer_id != producer_id:
        return Told(MAPPING)
    if stored.epoch != epoch:
        return Told(FENCED)
    if stored.state.startswith("Prepare"):
        return Told(CONCURRENT)
    if stored.state == "Ongoing" and stored.places.issuperset(places):
        return Told(NONE)
    return Written("Ongoing")


def expected_verify(stored, ending, producer_id, epoch, place):
    """:param ending: whether a record that ends the transaction is being written."""
    if ending:
        return CONCURRENT
    if stored is None or stored.producer_id != producer_id:
        return MAPPING
    if stored.epoch != epoch:
        return FENCED
    if stored.state.startswith("Prepare"):
        return CONCURRENT
    return NONE if place in stored.places else ABORTABLE


def expected_end(stored, pending, producer_id, epoch, commits, client, ids):
    state = "PrepareCommit" if commits else "PrepareAbort"
    if client < 2:
        if stored is None or stored.producer_id != producer_id:
            return Told(MAPPING)
        if stored.epoch != epoch:
            return Told(FENCED)
        if pending:
            return Told(CONCURRENT)
        cell = OLD_TABLE[stored.state, "commit" if commits else "abort"]
        return Written(state) if cell == "end" else Told(globals()[cell])
    if pending:
        return Told(CONCURRENT)
    if stored is None:
        return Told(MAPPING)
    overflown = producer_id == stored.previous and epoch == MAX - 1 and stored.epoch == 0
    if stored.producer_id != producer_id and not overflown:
        return Told(MAPPING)
    retry = overflown or epoch == stored.epoch - 1
    if not retry and epoch != stored.epoch:
        return Told(FENCED)
    cell = NEW_TABLE[stored.state, ("commit" if commits else "abort") + ("-retry" if retry else "")]
    if cell == "end":
        return _bumped(state, stored, ids)
    return Told(NONE, stored.producer_id, stored.epoch) if cell == "NONE" else Told(globals()[cell])


@dataclass
class Producer:
    """A producer in a partition. :ivar open: the epoch of its open transaction. :ivar mark: it may open one with this epoch."""

    epoch: int = -1
    coordinator_epoch: int = -1
    open: int | None = None
    mark: int | None = None


@dataclass
class Partition:
    """The leader of a partition. :ivar outcomes: how the transactions with data ended, by producer id and epoch of the data."""

    producers: dict = field(default_factory=dict)
    outcomes: dict = field(default_factory=dict)

    def of(self, producer_id):
        return self.producers.setdefault(producer_id, Producer())

    def allow(self, producer_id, epoch):
        producer = self.of(producer_id)
        if epoch < producer.epoch:
            return EPOCH
        producer.mark = epoch
        return NONE

    def append(self, producer_id, epoch):
        """Append data; return whether they are accepted."""
        producer = self.of(producer_id)
        if epoch < producer.epoch or (producer.open != epoch and producer.mark != epoch):
            return False
        assert producer.open in (None, epoch), "a transaction of an older epoch is open"
        producer.epoch = producer.open = epoch
        return True

    def marker(self, marker):
        """Write a marker."""
        producer = self.of(marker.producer_id)
        epoch = marker.producer_epoch
        if marker.coordinator_epoch < producer.coordinator_epoch:
            return COORDINATOR_FENCED
        if epoch < producer.epoch:
            return EPOCH
        repeated = producer.open is None or epoch == MAX
        if marker.transaction_version >= 2 and epoch == producer.epoch and not repeated:
            return EPOCH
        if producer.open is not None:
            self.outcomes.setdefault((marker.producer_id, producer.open), []).append(marker.commits)
        self.producers[marker.producer_id] = Producer(epoch, marker.coordinator_epoch)
        return NONE
