"""A process in which a log's gap limit is raised twice at the same time: the lower limit is written first and named last.

Arguments: a directory for the logs, the directory of the `Syncs` in whose environment it runs.
"""

import sys
import threading
from pathlib import Path

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import flushing, slot_upkeep, slots
from odradek._ext.testing import slot_probe
from odradek.storage.checkpoints import read_gap_limit
from tests.durability.conftest import Syncs
from tests.shm.one_broker import OneBroker, batch
from tests.waiting import until


def main(data: Path, home: Path) -> None:
    syncs = Syncs.attached(home)
    with OneBroker(data) as broker:
        slot = broker.create()
        slot_probe.append(slot, [batch(2)])
        flushing.flush(slot, whole=True)
        broker.obey(slot, 1)
        facts = slot_facts.of_open_log(slot)
        known = {"incarnation": facts.incarnation, "truncations": facts.truncations}
        syncs.hold(".prepared")
        thread = threading.Thread(target=slot_upkeep.raise_gap_limit, args=(slot, 1), kwargs=known)
        thread.start()
        until(
            lambda: any(file.endswith(".prepared") for file in syncs.counts("begin")),
            "the lower limit is being written",
        )
        slots.follow(slot, batch(1, base_offset=12), 0)  # behind a gap of its leader
        syncs.release()
        thread.join()
        limits = slot_facts.describe(slot).gap_limit, read_gap_limit(data / "t-0")
        assert limits == (12, 12), limits
        assert not list((data / "t-0").glob("*.prepared"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
