"""Kills and stops of processes and failing file calls of a real broker under load: no acknowledged record is lost.

ODRADEK_FAULT_SEED repeats a run's choice of faults and victims (the seed is printed), ODRADEK_FAULT_ROUNDS makes a longer one.
"""

import errno
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from contextlib import contextmanager

import pytest

from odradek.testing import Broker
from tests.faults import kafka_dump
from tests.faults.checker import faults, read_partitions
from tests.faults.failing_calls import FailingCalls, build, missing
from tests.faults.load import Load
from tests.faults.process_faults import (
    kill_group,
    kill_one,
    kill_supervisor,
    processes_of,
    stop_one_for_a_while,
    stop_supervisor_for_a_while,
)
from tests.waiting import PATIENCE_S, until
from tests.wire import TIMEOUT_S, Wire, batch

TOPIC, PARTITIONS = "killed", 4
ROUNDS = max(18, int(os.environ.get("ODRADEK_FAULT_ROUNDS", "0")))
CONTROL = "failing-calls"
CONFIG = {"num.network.threads": 2, "log.segment.bytes": 1 << 20, "auto.create.topics.enable": "false"}
LONG_STILL = {"odradek.stuck.lock.ms": 600_000, "odradek.stuck.process.ms": 600_000}

pytestmark = [pytest.mark.timeout(600 + 4 * ROUNDS)]


def let_calls_fail(broker, rng, error, count):
    """Fail some calls that change files, in any process; wait for the first failure."""
    calls = FailingCalls(broker.directory / CONTROL)
    number, halves = rng.randrange(1, 300), rng.random() < 0.5
    calls.arm(number, error, count, halves=halves)
    began = armed = time.monotonic()
    while not calls.failed:
        assert time.monotonic() < began + PATIENCE_S, "nothing was written"
        if calls.missed and time.monotonic() > armed + 10:  # and nobody is about to fail
            armed = time.monotonic()
            calls.arm(number, error, count, halves=halves)
        time.sleep(0.002)
    return f"{calls.last_file}, call {calls.seen}"


def fill_device_for_a_moment(broker, rng):
    """ENOSPC at up to 30 calls within a second. After a sync that fails, the broker stops, because its log directory is
    offline until the next start.
    """
    calls, logged = FailingCalls(broker.directory / CONTROL), broker.log_file.stat().st_size
    count = rng.choice([1, 2, 30])
    told = let_calls_fail(broker, rng, errno.ENOSPC, count)
    began = time.monotonic()
    while calls.failed < count and time.monotonic() < began + 1:  # a broker that refuses producers makes few calls
        time.sleep(0.002)
    calls.disarm()
    time.sleep(0.2)  # for the log line of a sync that failed last
    if b"cannot sync the log" in broker.log_file.read_bytes()[logged:]:
        until(lambda: not broker.running, "the broker has stopped")
        broker.start()
        told += f"; a sync failed, and the broker stopped and was started again in {broker.start_seconds:.2f} s"
    return told


def break_device(broker, rng):
    """EIO once: the log directory goes offline until the next start."""
    told = let_calls_fail(broker, rng, errno.EIO, 1)
    return f"{told}; {kill_group(broker, rng)}"


FAULTS = {
    "kill worker": lambda broker, rng: kill_one(broker, rng, "worker"),
    "kill coordinator": lambda broker, rng: kill_one(broker, rng, "coordinator"),
    "kill cleaner": lambda broker, rng: kill_one(broker, rng, "cleaner"),
    "stop worker": stop_one_for_a_while,
    "stop coordinator": lambda broker, rng: stop_one_for_a_while(broker, rng, "coordinator"),
    "stop cleaner": lambda broker, rng: stop_one_for_a_while(broker, rng, "cleaner"),
    "stop supervisor": stop_supervisor_for_a_while,
    "kill supervisor": kill_supervisor,
    "kill group": kill_group,
}
CALL_FAULTS = {"ENOSPC at some calls": fill_device_for_a_moment, "EIO at a call, then kill group": break_device}


def test_every_acknowledged_record_survives_faults_at_random_moments(tmp_path, count_faults):
    seed = int(os.environ.get("ODRADEK_FAULT_SEED") or random.SystemRandom().randrange(1 << 32))
    rng = random.Random(seed)
    possible, environment = dict(FAULTS), {}
    if missing():
        print(f"no call fails: {missing()}")
    else:
        possible |= CALL_FAULTS
        calls = FailingCalls(tmp_path / CONTROL, tmp_path / "data")
        environment = calls.environment(build(tmp_path))
    plan = [*possible, *(rng.choice(list(possible)) for _ in range(ROUNDS - len(possible)))]  # each at least once
    rng.shuffle(plan)
    print(f"\nODRADEK_FAULT_SEED={seed}")
    began = time.monotonic()
    with (
        Broker(CONFIG, {TOPIC: PARTITIONS}, directory=tmp_path, environment=environment) as broker,
        Load(broker.bootstrap_servers, TOPIC, PARTITIONS, idempotent=2, plain=2) as load,
    ):
        load.progress(200)
        for number, name in enumerate(plan):
            reached = load.progress(rng.randrange(20, 1200))
            told = possible[name](broker, rng)
            print(f"{number:2} {time.monotonic() - began:5.1f} s  after {reached:4.1f} s of load  {name}: {told}")
        load.progress(100)
        load.finish()
        failed = [failure for producer in load.producers for failure in producer.failed]
        fatal = [error for producer in load.producers for error in producer.fatal]
        assert not failed and not fatal, (len(failed), failed[:3], fatal)
        acknowledged = {}
        for producer in load.producers:
            assert len(producer.acknowledged) == producer.sent
            acknowledged |= producer.acknowledged
        found = read_partitions(broker.bootstrap_servers, TOPIC, PARTITIONS)
        wrong = faults(found, acknowledged, {one.name for one in load.producers if one.idempotent})
        stored = sum(len(records) for _, records in found.values())
        segments = len(list(broker.data_dir.glob(f"{TOPIC}-*/*.log")))
        print(
            f"{len(plan)} rounds, {len(acknowledged)} records acknowledged, {stored - len(acknowledged)} repeated by "
            f"plain producers, {segments} segments, {time.monotonic() - began:.1f} s"
        )
        assert not wrong, wrong
        assert segments > 2 * PARTITIONS
        broker.stop()
        if kafka_dump.missing():
            print(f"not dumped: {kafka_dump.missing()}")
        else:
            files, complaints = kafka_dump.complaints([broker.data_dir / f"{TOPIC}-{n}" for n in range(PARTITIONS)])
            assert not complaints, complaints[:10]
            count_faults({"checks files dumped by Kafka": files})
        count_faults(
            {"rounds faults under load": len(plan), "checks acknowledged records read back": len(acknowledged)}
        )
        count_faults(Counter(f"{name} under load" for name in plan))
        assert "Traceback" not in broker.log_file.read_text()


@pytest.fixture
def two_workers(tmp_path):
    """A broker and one connection to each of its two workers, by ordinal; stopped processes are not restarted."""
    with (
        Broker(CONFIG | LONG_STILL, {TOPIC: PARTITIONS}, directory=tmp_path) as broker,
        Wire.to(broker) as first,
    ):
        first.produce(TOPIC, batch(b"first"))
        while sum(worker["connections"] for worker in processes_of(broker, "worker")) != 1:
            continue  # the connection that made the topic is not counted out yet, or this one not counted in
        (of_first,) = [worker["ordinal"] for worker in processes_of(broker, "worker") if worker["connections"]]
        with Wire.to(broker) as second:
            second.produce(TOPIC, batch(b"second"))
            while {worker["connections"] for worker in processes_of(broker, "worker")} != {1}:
                continue
            yield broker, {of_first: first, 1 - of_first: second}


def worker(broker, ordinal):
    (found,) = [one for one in broker.processes() if one["kind"] == "worker" and one["ordinal"] == ordinal]
    return found


@contextmanager
def busy(connection, partition):
    """Appends on `connection`, one after the other in a thread, until the connection is lost or the context left."""
    begun = threading.Event()
    codes = set()

    def run():
        try:
            while True:
                codes.add(connection.produce(TOPIC, batch(b"of the victim" * 100), partition).error_code)
                begun.set()
        except (ConnectionError, EOFError):
            return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert begun.wait(PATIENCE_S)
    try:
        yield
    finally:
        try:
            connection.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # lost already, with the worker
        thread.join(PATIENCE_S)
    assert not thread.is_alive() and codes == {0}


def append_and_fetch(connection, partition):
    """Write and read one record; return the seconds that it took."""
    began = time.monotonic()
    result = connection.produce(TOPIC, batch(b"of the other worker"), partition)
    assert result.error_code == 0, result
    read = connection.fetch(TOPIC, result.base_offset, partition)
    assert read.error_code == 0 and b"of the other worker" in bytes(read.records)
    assert read.high_watermark > result.base_offset
    return time.monotonic() - began


@pytest.mark.parametrize("victim", [0, 1])
def test_the_other_worker_serves_on_while_one_is_dead(two_workers, victim):
    broker, connections = two_workers
    dead = deaths = appends = 0
    slowest = 0.0
    with busy(connections[victim], 0):
        while dead < 30:
            found = worker(broker, victim)
            if found["pid"] is not None and found["state"] == "serving":
                try:
                    os.kill(found["pid"], signal.SIGKILL)  # it stays away the longer, the more often it dies
                    deaths += 1
                except ProcessLookupError:
                    pass  # the supervisor has yet to notice its last death
            for partition in range(PARTITIONS):
                slowest = max(slowest, append_and_fetch(connections[1 - victim], partition))
                appends += 1
            dead += found["pid"] is None and worker(broker, victim)["pid"] is None
    assert deaths and worker(broker, victim)["restarts"] >= 1 and worker(broker, 1 - victim)["restarts"] == 0
    print(f"\n{deaths} deaths, {appends} appends and fetches, the slowest {slowest * 1000:.0f} ms")
    assert slowest < TIMEOUT_S  # and no append stayed busy, which would be an error long before


def test_the_other_worker_serves_on_while_one_stands_still(two_workers):
    broker, connections = two_workers
    with busy(connections[0], 0):
        victim = os.pidfd_open(worker(broker, 0)["pid"])
        try:
            signal.pidfd_send_signal(victim, signal.SIGSTOP)
            times = [
                append_and_fetch(connections[1], partition) for _ in range(100) for partition in range(1, PARTITIONS)
            ]
        finally:
            signal.pidfd_send_signal(victim, signal.SIGCONT)
            os.close(victim)
        print(f"\n{len(times)} appends and fetches beside a stopped worker, the slowest {max(times) * 1000:.0f} ms")
        # No lock of these partitions is the victim's: an append that met one would be an error long before.
        assert max(times) < TIMEOUT_S
        for partition in range(PARTITIONS):
            append_and_fetch(connections[1], partition)
    assert worker(broker, 0)["restarts"] == 0 and worker(broker, 1)["restarts"] == 0


def test_produce_and_fetch_go_on_while_the_coordinator_stands_still(two_workers):
    broker, connections = two_workers
    (coordinator,) = processes_of(broker, "coordinator")
    victim = os.pidfd_open(coordinator["pid"])
    try:
        signal.pidfd_send_signal(victim, signal.SIGSTOP)
        times = [append_and_fetch(connections[number % 2], number % PARTITIONS) for number in range(200)]
        with Wire.to(broker) as fresh:
            times.append(append_and_fetch(fresh, 0))
        print(f"\n{len(times)} appends and fetches without a coordinator, the slowest {max(times) * 1000:.0f} ms")
        assert max(times) < TIMEOUT_S
    finally:
        signal.pidfd_send_signal(victim, signal.SIGCONT)
        os.close(victim)
    (after,) = processes_of(broker, "coordinator")
    assert after["pid"] == coordinator["pid"]
