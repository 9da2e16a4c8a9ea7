"""A process that compacts two logs while the device does not answer the syncs of one of them.

Arguments: a directory for the logs, the directory of the `Syncs` in whose environment it runs, the beginning of the names of
the files in `slow-0` whose syncs get no answer.
"""

import sys
import threading
from pathlib import Path

from tests.durability.conftest import Syncs
from tests.shm.compaction_harness import CompactedLog, compaction, record
from tests.shm.one_broker import OneBroker
from tests.waiting import until

NOW_MS = 5000


def filled(broker: OneBroker, topic: str) -> CompactedLog:
    log = CompactedLog(broker, topic=topic)
    for number in range(3):
        log.append([record("key", f"{number}")])
        log.roll()
    return log


def main(data: Path, home: Path, held: str) -> None:
    syncs = Syncs.attached(home)
    with OneBroker(data) as broker:
        slow, quick = filled(broker, "slow"), filled(broker, "quick")
        compacted = {log: log.expected(NOW_MS) for log in (slow, quick)}
        before = slow.content()
        compactions = compaction(broker, **{"log.cleaner.threads": 2})
        syncs.hold(f"/slow-0/{held}")
        thread = threading.Thread(target=compactions.run_once, args=(compactions.make_compactor(), NOW_MS))
        thread.start()
        until(lambda: any(f"/slow-0/{held}" in file for file in syncs.counts("begin")), "the sync has begun")
        assert compactions.run_once(compactions.make_compactor(), NOW_MS)
        assert (slow.content(), quick.content()) == (before, compacted[quick])
        syncs.release()
        thread.join()
        assert slow.content() == compacted[slow]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
