"""Waits for the lock of a slot while the wall clock is set; run by `test_clock_steps` under a `ShiftedClock`."""

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import odradek._ext.partition.log_start as log_start
import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition.slot_access import AppendResult
from odradek._ext.testing import lock_probe, slot_probe
from tests.faults.shifted_clock import HOUR_S, ShiftedClock
from tests.shm.one_broker import OneBroker, batch
from tests.waiting import until

WAITS: dict[str, Callable[[int, int], object]] = {
    "advance": lambda slot, ms: log_start.advance(slot, 1, incarnation=slot_probe.incarnation_of(slot), timeout_ms=ms)[
        0
    ],
    "roll": lambda slot, ms: log_start.roll(slot, 0, 1, incarnation=slot_probe.incarnation_of(slot), timeout_ms=ms),
    "remove": lambda slot, ms: log_start.remove_before(
        slot, 0, incarnation=slot_probe.incarnation_of(slot), timeout_ms=ms
    ),
}


def held_in_a_child(broker: OneBroker, slot: int, path: Path) -> tuple[int, int]:
    """A process that holds the slot's lock until the descriptor that comes with its id is closed."""
    ready, asked = os.pipe(), os.pipe()

    def hold() -> None:
        os.close(asked[1])
        lock_probe.lock_and_hold(slot)
        os.write(ready[1], b"!")
        os.read(asked[0], 1)

    pid = broker.fork(1, hold)
    os.read(ready[0], 1)
    return pid, asked[1]


def main(data: Path, what: str) -> None:
    clock = ShiftedClock.attached()
    before = time.time()
    clock.set(HOUR_S)
    assert 3500 < time.time() - before < 3700, "the clock is not shifted here"
    with OneBroker(data, processes=2) as broker:
        slot = broker.create()
        slot_probe.append(slot, [batch()])
        for shift, ms, outcome in (
            (10 * HOUR_S, 60_000, AppendResult.APPEND_OK),
            (-10 * HOUR_S, 300, AppendResult.APPEND_BUSY),
        ):
            clock.set(0)
            pid, release = held_in_a_child(broker, slot, data)
            busy = slot_facts.describe(slot).lock_busy
            got: list[object] = []
            waiting = threading.Thread(target=lambda ms=ms, got=got: got.append(WAITS[what](slot, ms)))
            waiting.start()
            until(lambda busy=busy: slot_facts.describe(slot).lock_busy > busy + 3, "it waits for the lock")
            clock.set(shift)
            if outcome == AppendResult.APPEND_OK:
                seen = slot_facts.describe(slot).lock_busy
                until(lambda seen=seen, got=got: got or slot_facts.describe(slot).lock_busy > seen + 3, "it waits on")
                assert not got, "the step ended the wait"
                os.close(release)
            waiting.join()
            assert got == [outcome], got
            if outcome != AppendResult.APPEND_OK:
                os.close(release)
            broker.reap(pid, 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
