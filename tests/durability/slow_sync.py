"""A process that syncs logs on a device that answers only after some beats of the process.

Arguments: a directory for the logs, the directory of the `Syncs` in whose environment it runs, the number of logs.
"""

import sys
from pathlib import Path

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import flushing
from odradek._ext.testing import slot_probe
from tests.durability.conftest import Syncs
from tests.shm.one_broker import OneBroker, batch

BEATS = 3


def main(data: Path, home: Path, count: int) -> None:
    syncs, beats = Syncs.attached(home), 0

    def beat() -> None:
        nonlocal beats
        beats += 1
        if beats == BEATS:
            syncs.release()

    with OneBroker(data, max_slots=128) as broker:
        made = [broker.create("t", number) for number in range(count)]
        for slot in made:
            slot_probe.append(slot, [batch()])
        syncs.hold(str(data))
        assert flushing.flush_many(made, beat=beat) == []
        assert beats >= BEATS
        assert {slot_facts.describe(slot).flushed_offset for slot in made} == {1}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
