"""Faults of the network between clients and brokers: requests delayed beyond the clients' patience, lost answers, cut
connections.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable

from odradek.protocol.schemas import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    offset_fetch,
    produce,
    txn_offset_commit,
    write_txn_markers,
)
from tests.frame_relay import FORWARD, Fate, Frame, FrameRelay

OF_TRANSACTIONS = {
    schema.API_KEY
    for schema in (add_offsets_to_txn, add_partitions_to_txn, end_txn, init_producer_id, produce, txn_offset_commit)
}
OF_COORDINATORS = {add_partitions_to_txn.API_KEY, write_txn_markers.API_KEY}
OF_READERS = {fetch.API_KEY, find_coordinator.API_KEY, offset_fetch.API_KEY}
DELAYED = dict.fromkeys(OF_TRANSACTIONS, 0.05) | {end_txn.API_KEY: 0.2, txn_offset_commit.API_KEY: 0.2}
"""By API, the part of the requests that arrives late."""
FAULTY_S = 2.5


class _Chance:
    """A random generator for the threads of a relay."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._lock = threading.Lock()

    def random(self) -> float:
        with self._lock:
            return self._rng.random()


def _while_faulty(relays: Iterable[FrameRelay], rule: object, seconds: float = FAULTY_S) -> None:
    relays = list(relays)
    for relay in relays:
        relay.rule = rule  # type: ignore[assignment]
    time.sleep(seconds)  # the duration is the fault
    for relay in relays:
        relay.heal()


def delay(relays: Iterable[FrameRelay], rng: random.Random, answer_s: float) -> str:
    """Some requests of transactions arrive late, most of them after the client sent them again."""
    chance = _Chance(rng.randrange(1 << 32))
    count = 0

    def rule(frame: Frame) -> Fate:
        nonlocal count
        if chance.random() > DELAYED.get(frame.api_key, 0):
            return FORWARD
        count += 1
        return Fate(answer_s * (0.8 + 2 * chance.random()))

    _while_faulty(relays, rule)
    return f"{count} requests delayed"


def delay_between_brokers(relays: Iterable[FrameRelay], rng: random.Random, timeout_s: float) -> str:
    """Some markers, and some questions about transactions, arrive at the other broker late, or after the coordinator has
    given them up and sent them again.

    :param timeout_s: after which a broker gives up a request to another one.
    """
    chance = _Chance(rng.randrange(1 << 32))
    count = 0

    def rule(frame: Frame) -> Fate:
        nonlocal count
        if frame.api_key not in OF_COORDINATORS or chance.random() > 0.3:
            return FORWARD
        count += 1
        return Fate(timeout_s * 2.5 * chance.random())

    _while_faulty(relays, rule, 4 * timeout_s)
    return f"{count} requests between brokers delayed"


def lose_answers(relays: Iterable[FrameRelay], rng: random.Random) -> str:
    """Some requests or their answers are lost, with their connections."""
    chance = _Chance(rng.randrange(1 << 32))
    count = 0

    def rule(frame: Frame) -> Fate:
        nonlocal count
        if frame.api_key not in OF_TRANSACTIONS | OF_READERS or chance.random() > 0.05:
            return FORWARD
        count += 1
        return Fate(answer_lost=True, cut=True) if chance.random() < 0.7 else Fate(lost=True, cut=True)

    _while_faulty(relays, rule)
    return f"{count} requests or answers lost"


def cut(relays: Iterable[FrameRelay], rng: random.Random) -> str:
    """All connections are cut, several times."""
    relays = list(relays)
    count = rng.randrange(2, 6)
    for _ in range(count):
        for relay in relays:
            relay.cut()
        time.sleep(FAULTY_S / 5)  # the time in between is load
    return f"connections cut {count} times"
