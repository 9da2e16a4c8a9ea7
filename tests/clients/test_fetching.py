"""The command's reader with leaders that do not answer, missing topics, and batches larger than a request allows."""

import socket
from collections import deque
from types import SimpleNamespace

import pytest

from odradek.clients import fetch_deadline, fetching, partition_leaders
from odradek.clients.cluster import Address, Partition, TopicInfo, View
from odradek.clients.errors import ClientError
from odradek.clients.fetching import Fetcher
from odradek.clients.wire import which_readable
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import fetch

PARTITIONS = 3


class Leader:
    """A connection to a leader. A request is answered with the next of `answers`: (partition, records) in its order."""

    def __init__(self, address):
        self.address = address
        self.answers = deque()
        self.requests = []
        self.buffered = False
        self.arrived_bytes = 0
        self._ours, self._theirs = socket.socketpair()

    def fileno(self):
        return self._ours.fileno()

    def close(self):
        self._ours.close()
        self._theirs.close()

    def version_of(self, api, oldest=0, newest=None):
        return newest

    def send(self, api, request, *, version):
        (topic,) = request.topics
        self.requests.append([part.partition for part in topic.partitions])
        if self.answers:
            self._theirs.send(b"x")

    def advance(self):
        return True

    def receive(self):
        self._ours.recv(1)
        make = fetch.Response
        parts = [
            make.PartitionData(partition_index=number, high_watermark=9, records=memoryview(data))
            for number, data in self.answers.popleft()
        ]
        return make(responses=[make.FetchableTopicResponse(topic="t", partitions=parts)])


class Members:
    """A cluster of leaders, by their ids. :ivar leads: the one that leads all partitions."""

    timeout_s = 0.0

    def __init__(self, *leaders):
        self.leaders = dict(enumerate(leaders, 1))
        self.leads = 1
        self.topics = {"t"}
        self.forgotten = []

    def metadata(self, names):
        partitions = tuple(Partition("t", n, self.leads, 0, (1,), (1,), (), ErrorCode.NONE) for n in range(PARTITIONS))
        there = {name: TopicInfo(name, bytes(16), False, partitions) for name in self.topics}
        return View("c", 1, {number: Address("leader", number) for number in self.leaders}, {}, there)

    def broker(self, node_id):
        return self.leaders[node_id]

    def forget(self, node_id):
        self.forgotten.append(node_id)


@pytest.fixture
def members():
    leaders = Leader("leader:1"), Leader("leader:2")
    yield Members(*leaders)
    for leader in leaders:
        leader.close()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(partition_leaders, "PAUSE_S", 0.0)


def fetcher_of(members, warnings):
    return Fetcher(members, {("t", number): 0 for number in range(PARTITIONS)}, True, warnings.append)


def test_a_leader_that_does_not_answer_in_time_is_looked_up_again(members, monkeypatch):
    monkeypatch.setattr(fetching, "WAIT_MS", 20)
    warnings = []
    fetcher = fetcher_of(members, warnings)
    assert list(fetcher.poll(10.0)) == [] and members.forgotten == [1]
    assert warnings == ["leader:1 did not answer a Fetch request in time; retrying"]
    members.leads = 2
    members.leaders[2].answers.append([(0, b"abc")])
    assert [fetched.place for fetched in fetcher.poll(10.0)] == [("t", 0)]


def test_an_answer_that_arrived_while_the_caller_used_records_is_not_lost(members, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(fetch_deadline, "time", SimpleNamespace(monotonic=lambda: now))
    warnings, leader = [], members.leaders[1]
    leader.answers += [[(0, b"first")], [(0, b"second")]]
    fetcher = fetcher_of(members, warnings)
    found = []
    for fetched in fetcher.poll(10.0):
        found.append(bytes(fetched.records))
        fetcher.request()
        now += 3600.0
    found += [bytes(fetched.records) for fetched in fetcher.poll(10.0)]
    assert found == [b"first", b"second"]
    assert warnings == [] and members.forgotten == [] and len(leader.requests) == 2


def test_a_topic_that_is_missing_for_a_moment_is_waited_for_and_then_counts_as_deleted(members, monkeypatch):
    now = 1000.0
    for module in (fetching, partition_leaders):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(fetching, "which_readable", lambda candidates, _: which_readable(candidates, 0))
    fetcher = fetcher_of(members, [])
    members.topics = set()
    assert list(fetcher.poll(1.0)) == []
    now += partition_leaders.MISSING_S / 2
    assert list(fetcher.poll(1.0)) == []
    members.topics = {"t"}
    assert list(fetcher.poll(1.0)) == [] and len(members.leaders[1].requests) == 1
    fetcher._leaders.schedule()
    members.topics = set()
    now += partition_leaders.MISSING_S / 2
    assert list(fetcher.poll(1.0)) == []
    now += partition_leaders.MISSING_S
    with pytest.raises(ClientError, match="'t' was deleted while it was being read"):
        list(fetcher.poll(1.0))


def test_a_partition_whose_batch_was_cut_off_comes_first_until_it_is_read(members):
    """Only the first partition of a request may return a batch that is larger than the request allows."""
    leader = members.leaders[1]
    leader.answers += [[(0, b"whole"), (1, b"cut off"), (2, b"whole")], [(1, b"whole")], []]
    fetcher = fetcher_of(members, [])
    for _ in range(2):
        for fetched in fetcher.poll(10.0):
            if fetched.records == b"whole":
                fetcher.advance(fetched.place, 1)
    list(fetcher.poll(0.0))
    assert leader.requests == [[0, 1, 2], [1, 0, 2], [0, 2, 1]]
