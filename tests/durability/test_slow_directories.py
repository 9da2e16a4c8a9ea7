"""A device that does not answer delays the logs of its own log directory, and no others."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from odradek._ext.shm.layout import ProcessKind
from tests.durability.test_flush_messages import SYNCED, TOPIC, nothing_came, send, told
from tests.durability.test_slow_syncs import memory_of
from tests.waiting import until
from tests.wire import Wire

pytestmark = [pytest.mark.timeout(300)]

ROOT = Path(__file__).parent.parent.parent
THREADS_OF_DIRECTORY = 4


def test_a_directory_whose_syncs_hang_delays_no_acknowledgement_of_another(start, syncs, tmp_path):
    dirs = [tmp_path / "broker" / name for name in ("quick", "slow")]
    settings = {"log_dirs": ",".join(map(str, dirs)), "num_network_threads": 1}
    broker = start({TOPIC: SYNCED | {"partitions": "24"}}, **settings)
    worker = next(one.pid for one in memory_of(broker.pid).processes() if one.kind == ProcessKind.WORKER)
    quick, slow = [[int(path.name.rsplit("-")[-1]) for path in one.glob(f"{TOPIC}-*")] for one in dirs]
    assert quick and len(slow) > 2 * THREADS_OF_DIRECTORY  # the cleaner may begin to sync as many, once a second
    held = f"{dirs[1]}/{TOPIC}-"
    with ExitStack() as stack:
        waiting = [stack.enter_context(Wire.to(broker)) for _ in slow]
        other = stack.enter_context(Wire.to(broker))
        syncs.hold(held)
        sent = [send(connection, partition=number) for connection, number in zip(waiting, slow, strict=True)]
        until(
            lambda: syncs.begun_by(held)[worker] == THREADS_OF_DIRECTORY,
            "every thread of the slow directory waits for the device",
        )
        for offset in range(2):
            for number in quick:
                assert told(other, send(other, partition=number)) == (0, offset)
        assert all(nothing_came(connection) for connection in waiting)
        syncs.release()
        assert [told(*pair) for pair in zip(waiting, sent, strict=True)] == [(0, 0)] * len(slow)


def run(module: str, tmp_path: Path, syncs, *arguments: str) -> None:
    (tmp_path / "data").mkdir()
    command = [sys.executable, "-m", f"tests.durability.{module}", tmp_path / "data", syncs.directory, *arguments]
    subprocess.run(command, env=os.environ | syncs.environment, cwd=ROOT, check=True, timeout=60)


@pytest.mark.parametrize("held", ["000", "odradek-gaps-checkpoint"], ids=["segments", "gap limit"])
def test_a_log_whose_syncs_hang_delays_no_compaction_of_another(tmp_path, syncs, held):
    run("slow_compaction", tmp_path, syncs, held)


def test_a_gap_limit_that_another_process_raised_meanwhile_is_not_lowered(tmp_path, syncs):
    run("raised_gap_limit", tmp_path, syncs)
