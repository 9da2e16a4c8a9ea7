"""A process of a running broker is suspended; its clients give up, disconnect and use another process. The process must not
execute their requests when it continues.
"""

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from odradek.protocol.schemas import leave_group, offset_commit, produce
from odradek.testing import Broker
from odradek.testing.process_tree import open_files
from tests.api.group_talk import GroupTalk
from tests.waiting import until
from tests.wire import batch, produce_request, values

STILL_S = 1.2
"""Longer than a loop may be silent and then take what it finds as fresh."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    config = {"num.network.threads": 2, "offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}
    with Broker(config, {"t": 1, "u": 1}, directory=tmp_path_factory.mktemp("late")) as started:
        with GroupTalk(started.host, started.port) as wire:
            wire.until_coordinated("any")
        yield started


@contextlib.contextmanager
def standing_still(pid):
    """A process does nothing meanwhile, for long enough to be noticed."""
    began = time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
        time.sleep(max(0.0, began + STILL_S - time.monotonic()))  # the fault itself
    finally:
        os.kill(pid, signal.SIGCONT)


def process(broker, kind):
    """The pid of the first process of a kind."""
    return min(process["pid"] for process in broker.processes() if process["kind"] == kind)


def connections(broker, count):
    """So many connections of the first worker, and of another one: those have had an answer."""
    first, ours, theirs = process(broker, "worker"), [], []
    while len(ours) < count or len(theirs) < count:
        wire = GroupTalk(broker.host, broker.port)
        wire.metadata("t")
        (ours if has(first, wire) else theirs).append(wire)
    return ours, theirs


def has(pid, wire):
    """Whether a process has the other end of a connection."""
    remote, local = (f"{end[1]:04X}" for end in (wire.socket.getsockname(), wire.socket.getpeername()))
    for line in Path("/proc/net/tcp").read_text().split("\n")[1:-1]:
        fields = line.split()
        if fields[1].endswith(f":{local}") and fields[2].endswith(f":{remote}"):
            return f"socket:[{fields[9]}]" in open_files(pid)
    raise AssertionError(f"the connection from port {remote} was not found")


def send_commit(wire, group, offset):
    make = offset_commit.Request
    place = make.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [make.OffsetCommitRequestTopic(name="t", partitions=[place])]
    wire.send(make(group_id=group, topics=topics), offset_commit.API_KEY, 7)


def end(*wires):
    for wire in wires:
        wire.socket.close()


def until_read(broker):
    """Both workers have read what was sent to them before."""
    for wires in connections(broker, 2):
        end(*wires)


def test_a_worker_that_was_suspended_does_not_commit_abandoned_requests(broker):
    stuck, alive = connections(broker, 3)
    with standing_still(process(broker, "worker")):
        handed_over = [GroupTalk(broker.host, broker.port) for _ in range(4)]
        for wire in (*stuck, *handed_over):  # of these some are the other worker's, which executes them at once
            send_commit(wire, "g", 10)
        until(lambda: alive[0].committed("g") == {("t", 0): 10}, "the other worker commits")
        end(*stuck, *handed_over)
        alive[0].commit("g", {("t", 0): 20})
    until_read(broker)
    assert alive[0].committed("g") == {("t", 0): 20}
    end(*alive)


@pytest.mark.parametrize("group", ["h", "i"])
def test_a_coordinator_that_was_suspended_does_not_commit_abandoned_requests(broker, group):
    """The streams of two workers wait for it; whichever it reads first, the older commit is that of the one or of the other."""
    older, newer = connections(broker, 3)
    if group == "i":
        older, newer = newer, older
    with standing_still(process(broker, "coordinator")):
        for wire in older:
            send_commit(wire, group, 10)
        end(*older)
        send_commit(newer[0], group, 20)
    assert newer[0].receive().topics[0].partitions[0].error_code == 0
    until_read(broker)
    assert newer[0].committed(group) == {("t", 0): 20}
    end(*newer)


def test_a_worker_that_was_suspended_executes_requests_that_expect_no_response(broker):
    """As of a producer with acks=0 that closes, and of a consumer that leaves its group and closes."""
    stuck, alive = connections(broker, 3)
    member_id, _ = alive[0].joined("leaving", session_timeout_ms=600_000)
    with standing_still(process(broker, "worker")):
        for number, wire in enumerate(stuck):
            wire.send(produce_request([("u", [(0, batch(b"%d" % number))])], 0), produce.API_KEY, 9)
            wire.send(produce_request([("u", [(0, batch(b"with an answer"))])], 1), produce.API_KEY, 9)
        make = leave_group.Request
        leaving = make(group_id="leaving", members=[make.MemberIdentity(member_id=member_id)])
        stuck[0].send(leaving, leave_group.API_KEY, 5)
        end(*stuck)
    until(lambda: alive[0].describe("leaving").groups[0].group_state == "Empty", "the member has left")
    until_read(broker)
    records = values(alive[0].fetch("u", 0).records)
    assert sorted(records) == sorted(b"%d" % number for number in range(len(stuck)))
    end(*alive)


def test_a_worker_that_was_suspended_answers_waiting_clients(broker):
    stuck, alive = connections(broker, 2)
    with standing_still(process(broker, "worker")):
        for wire in stuck:
            send_commit(wire, "patient", 5)
    for wire in stuck:
        assert wire.receive().topics[0].partitions[0].error_code == 0
    end(*stuck, *alive)
