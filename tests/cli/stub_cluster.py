"""Brokers of one process that show a cluster as a test says, each in its own way: for states in which real brokers stay only
for a moment, such as metadata that is out of date."""

import socket
from contextlib import ExitStack

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_log_dirs, metadata
from tests.cli.stub_broker import StubBroker


class Member(StubBroker):
    """A broker of a `StubCluster`.

    :ivar shows: the ids of the brokers in its metadata. :ivar controller: the id of the controller in it.
    :ivar topics: what it shows of each topic: rows of (leader, replicas, in sync); or an ErrorCode.
    :ivar logs: the topics of which it has the log of partition 0; an ErrorCode if it refuses to say.
    """

    def __init__(self, cluster, broker_id):
        super().__init__()
        self.id = broker_id
        self.shows = set(cluster.ids)
        self.topics = {}
        self.logs = ("t",)
        self.controller = 1
        self._cluster = cluster

    def _metadata(self, request):
        make = metadata.Response
        brokers = []
        for broker_id in sorted(self.shows):
            host, _, port = self._cluster.addresses[broker_id].rpartition(":")
            brokers.append(make.MetadataResponseBroker(node_id=broker_id, host=host, port=int(port)))
        named = self.topics if request.topics is None else [topic.name for topic in request.topics]
        topics = {name: rows for name, rows in self.topics.items() if name in named}
        return make(
            brokers=brokers, controller_id=self.controller, topics=[self._topic(*item) for item in topics.items()]
        )

    def _describe_log_dirs(self, _):
        make = describe_log_dirs.Response
        if isinstance(self.logs, ErrorCode):
            return make(error_code=self.logs)
        logs = [make.DescribeLogDirsPartition(partition_index=0)]
        topics = [make.DescribeLogDirsTopic(name=name, partitions=logs) for name in self.logs]
        return make(results=[make.DescribeLogDirsResult(log_dir="/data", topics=topics)])

    def _topic(self, name, rows):
        make = metadata.Response
        if isinstance(rows, ErrorCode):
            return make.MetadataResponseTopic(name=name, error_code=rows)
        partitions = [
            make.MetadataResponsePartition(
                partition_index=number, leader_id=leader, leader_epoch=0, replica_nodes=replicas, isr_nodes=in_sync
            )
            for number, (leader, replicas, in_sync) in enumerate(rows)
        ]
        return make.MetadataResponseTopic(name=name, partitions=partitions)


class StubCluster:
    """Brokers 1 to `size`, which listen while the context is entered, except those in `down`.

    All of them show all brokers, and the topic t with two partitions that are in sync. :ivar addresses: by broker id.
    """

    def __init__(self, size=3, down=()):
        self.ids = range(1, size + 1)
        self.addresses = {}
        self.members = {}
        self._down = down
        self._stack = ExitStack()

    def __enter__(self):
        for broker_id in self.ids:
            self.members[broker_id] = Member(self, broker_id)
            if broker_id in self._down:
                held = self._stack.enter_context(socket.socket())  # bound, and does not listen: connections are refused
                held.bind(("127.0.0.1", 0))
                self.addresses[broker_id] = f"127.0.0.1:{held.getsockname()[1]}"
            else:
                self.start(broker_id)
        self.show({"t": [(1, [1, 2], [1, 2]), (2, [2, 3], [3, 2])]})
        return self

    def __exit__(self, *_):
        self._stack.close()

    def start(self, broker_id):
        """Let a broker listen, at a new address."""
        member = self._stack.enter_context(self.members[broker_id])
        self.addresses[broker_id] = member.address

    def show(self, topics, *ids):
        """Let brokers, or all, show these topics."""
        for broker_id in ids or self.ids:
            self.members[broker_id].topics = dict(topics)

    @property
    def servers(self):
        """All addresses, that of broker 1 first."""
        return ",".join(self.addresses[broker_id] for broker_id in self.ids)

    def after(self, broker_id, requests, change):
        """Call `change` before a broker answers its Metadata request of this number, counted from 1."""
        member, seen = self.members[broker_id], []

        def count():
            seen.append(None)
            if len(seen) == requests:
                change()

        member.before["Metadata"] = count
