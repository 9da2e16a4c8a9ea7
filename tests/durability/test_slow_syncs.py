"""A slow device: the supervisor does not treat processes that wait for it as stuck."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from odradek._ext.shm.layout import ProcessKind
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.cleaner.waiting_beats import WaitingBeats
from odradek.processes.supervisor.children import waits_for_device
from tests.durability.test_flush_messages import TOPIC, send, told
from tests.waiting import until
from tests.wire import Wire

pytestmark = [pytest.mark.timeout(300)]

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("count", [1, 2, 70])
def test_there_are_beats_while_logs_are_synced_however_many(tmp_path, syncs, count):
    (tmp_path / "data").mkdir()
    command = [sys.executable, "-m", "tests.durability.slow_sync", tmp_path / "data", syncs.directory, str(count)]
    subprocess.run(command, env=os.environ | syncs.environment, cwd=ROOT, check=True, timeout=60)


def memory_of(pid):
    """A running broker's shared memory, to be read."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        if "memfd:odradek " in f"{link.readlink()} ":
            return SharedMemory(look_at=str(link))
    raise AssertionError("no shared memory")


def progress_of_the_cleaner(shm):
    return next((one.pid, one.progress) for one in shm.processes() if one.kind == ProcessKind.CLEANER)


@pytest.mark.parametrize("what", ["records", "checkpoints"])
def test_the_cleaner_makes_progress_while_it_waits_for_a_sync(start, syncs, what):
    settings = {"log_flush_offset_checkpoint_interval_ms": 200, "log_initial_task_delay_ms": 0}
    broker = start({TOPIC: {"partitions": "1", "flush.ms": "1"}}, **(settings if what == "checkpoints" else {}))
    shm = memory_of(broker.pid)
    with Wire.to(broker) as connection:
        syncs.hold("recovery-point-offset-checkpoint" if what == "checkpoints" else ".log")
        syncs.ask_who_comes()
        assert told(connection, send(connection)) == (0, 0)
        cleaner = syncs.who_came()
        pid, before = progress_of_the_cleaner(shm)
        assert pid == cleaner
        until(lambda: progress_of_the_cleaner(shm)[1] > before + 5, "the cleaner beats", 30.0)
        syncs.release()
    assert progress_of_the_cleaner(shm)[0] == cleaner


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize(("used_s", "beats"), [(0.0, 1), (0.2, 1), (0.3, 0), (0.5, 0)])
def test_a_thread_that_computes_is_not_beaten_for(used_s, beats):
    clock, heard = Clock(), []
    beating = WaitingBeats(lambda: heard.append(1), clock)
    clock.now = used_s
    beating.look(0.5)
    assert len(heard) == beats
    beating.look(0.5)
    assert len(heard) == beats + 1


def test_a_thread_that_waits_is_beaten_for_until_that_is_stopped():
    heard = threading.Semaphore(0)
    beating = WaitingBeats(heard.release)
    beating.start()
    for _ in range(2):
        heard.acquire()
    beating.stop()


STUCK = """
#include <unistd.h>
int main(void) {
    if (vfork() == 0) pause();  /* until the child has ended the parent is in uninterruptible sleep */
    return 0;
}
"""


def test_a_process_that_no_signal_ends_yet_is_recognised(tmp_path):
    (tmp_path / "stuck.c").write_text(STUCK)
    subprocess.run(["gcc", "-o", tmp_path / "stuck", tmp_path / "stuck.c"], check=True)
    stuck = subprocess.Popen([tmp_path / "stuck"], start_new_session=True)
    try:
        until(lambda: waits_for_device(stuck.pid), "it is in uninterruptible sleep")
        assert waits_for_device(stuck.pid, stuck.pid)
    finally:
        os.killpg(stuck.pid, 9)
        stuck.wait()
    assert not waits_for_device(stuck.pid)
    assert not waits_for_device(os.getpid())
