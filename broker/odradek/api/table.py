"""The table of the APIs that this broker serves. ApiVersions, dispatch, routing and the docs derive from it.

A row contains the served versions (not those that the schemas know), and the process and the function that execute the request.
`odradek.security.required` has what the client needs.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from importlib import import_module
from typing import Any, NamedTuple

from odradek.config.broker_config import BrokerConfig
from odradek.security.required import OF_BROKERS, REQUIRED


class Where(Enum):
    """The process that executes a request."""

    NATIVE = "worker, native"  # Produce and Fetch: broker/odradek/_ext/api/produce.pyx, fetch.pyx
    WORKER = "worker"
    COORDINATOR = "coordinator"
    CONTROLLER = (
        "coordinator, controller"  # as COORDINATOR; a broker that is not the controller refuses it (not_controller.py)
    )
    REPLICAS = "coordinator, replicas"  # in its replicas thread, in the order of arrival
    GROUPS = "coordinator, groups"  # in its loop; requests of COORDINATOR run in its store thread
    TRANSACTIONS = "coordinator, transactions"  # in its loop, without a task for each request


class ApiRow(NamedTuple):
    """A served API.

    :param handler: "module:function", called with (request, call); for TRANSACTIONS with (request, call, answer), where
        `answer` is called once with the response, now or later.
    :param at_once: only for GROUPS: "module:function" that serves the encoded request without a task if it can; see
        `offset_commit`.
    :param off_loop: whether the handler may read from the disk for long. Then it is a generator, whose steps a thread of the
        worker executes.
    :param patience_s: how long a worker waits for the coordinator's answer; a JoinGroup waits for other members.
    :param elements: the largest number of elements in all arrays of a request together; above it, the connection is closed.
    :param per_partition: this many more elements for each partition that the broker may have (odradek.max.partitions): 1 if a
        request names topics, 2 if it names topics and partitions; more if it names replicas.
    :param only_in_cluster: whether a broker with the embedded metadata store does not serve the API.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    where: Where
    handler: str
    off_loop: bool = False
    patience_s: float = 30.0
    at_once: str = ""
    elements: int = 10_000
    per_partition: int = 0
    only_in_cluster: bool = False

    @property
    def operation(self) -> str:
        """The operations on resources that the client needs."""
        return str(REQUIRED[self.key])

    @property
    def of_brokers(self) -> bool:
        """Whether only brokers send the API."""
        return REQUIRED[self.key] is OF_BROKERS

    def served(self, clustered: bool) -> bool:
        """Whether the API is served by a broker in a cluster, or by a single broker."""
        return clustered or not self.only_in_cluster


NATIVE, WORKER, COORDINATOR, GROUPS = Where.NATIVE, Where.WORKER, Where.COORDINATOR, Where.GROUPS
REPLICAS, CONTROLLER, TRANSACTIONS = Where.REPLICAS, Where.CONTROLLER, Where.TRANSACTIONS

REBALANCE_S = 3600.0
MAX_REQUEST_BYTES = 16 << 20
MESSAGE_OVERHEAD_BYTES = 1 << 20
MAX_REPLICAS = 16
"""The largest number of replicas of a partition (MAX_IN_SYNC of the shared table)."""

# fmt: off
APIS = (
    ApiRow(0, "Produce", 0, 13, NATIVE, "odradek._ext.api.produce:ProduceHandler"),
    ApiRow(1, "Fetch", 0, 18, NATIVE, "odradek._ext.api.fetch:FetchHandler"),
    ApiRow(2, "ListOffsets", 0, 11, WORKER, "odradek.api.list_offsets:handle",
        off_loop=True, per_partition=2),
    ApiRow(3, "Metadata", 0, 13, WORKER, "odradek.api.metadata:handle", per_partition=1),
    ApiRow(4, "LeaderAndIsr", 0, 7, REPLICAS, "odradek.api.leader_and_isr:handle",
        only_in_cluster=True, per_partition=2 + 3 * MAX_REPLICAS),
    ApiRow(5, "StopReplica", 0, 4, REPLICAS, "odradek.api.stop_replica:handle",
        only_in_cluster=True, per_partition=2),
    ApiRow(6, "UpdateMetadata", 0, 8, REPLICAS, "odradek.api.update_metadata:handle",
        only_in_cluster=True, per_partition=2 + 3 * MAX_REPLICAS),
    ApiRow(7, "ControlledShutdown", 0, 3, CONTROLLER, "odradek.api.controlled_shutdown:handle",
        only_in_cluster=True),
    ApiRow(8, "OffsetCommit", 0, 10, GROUPS, "odradek.api.offset_commit:handle",
        at_once="odradek.api.offset_commit:at_once", per_partition=2),
    ApiRow(9, "OffsetFetch", 0, 10, GROUPS, "odradek.api.offset_fetch:handle", per_partition=2),
    ApiRow(10, "FindCoordinator", 0, 6, WORKER, "odradek.api.find_coordinator:handle"),
    ApiRow(11, "JoinGroup", 0, 9, GROUPS, "odradek.api.join_group:handle", patience_s=REBALANCE_S,
        at_once="odradek.api.join_group:at_once", elements=1000),
    ApiRow(12, "Heartbeat", 0, 4, GROUPS, "odradek.api.heartbeat:handle",
        at_once="odradek.api.heartbeat:at_once"),
    ApiRow(13, "LeaveGroup", 0, 5, GROUPS, "odradek.api.leave_group:handle", elements=2000),
    ApiRow(14, "SyncGroup", 0, 5, GROUPS, "odradek.api.sync_group:handle", patience_s=REBALANCE_S,
        at_once="odradek.api.sync_group:at_once", elements=65536),
    ApiRow(15, "DescribeGroups", 0, 6, GROUPS, "odradek.api.describe_groups:handle"),
    ApiRow(16, "ListGroups", 0, 5, GROUPS, "odradek.api.list_groups:handle"),
    ApiRow(17, "SaslHandshake", 0, 1, WORKER, "odradek.api.sasl_handshake:handle"),
    ApiRow(18, "ApiVersions", 0, 4, WORKER, "odradek.api.api_versions:handle"),
    ApiRow(19, "CreateTopics", 0, 7, CONTROLLER, "odradek.api.create_topics:handle",
        elements=30000),
    ApiRow(20, "DeleteTopics", 0, 6, CONTROLLER, "odradek.api.delete_topics:handle"),
    ApiRow(21, "DeleteRecords", 0, 2, COORDINATOR, "odradek.api.delete_records:handle", per_partition=2),
    ApiRow(22, "InitProducerId", 0, 5, TRANSACTIONS, "odradek.api.init_producer_id:handle"),
    ApiRow(23, "OffsetForLeaderEpoch", 0, 4, WORKER, "odradek.api.offset_for_leader_epoch:handle",
        off_loop=True, per_partition=2),
    ApiRow(24, "AddPartitionsToTxn", 0, 5, TRANSACTIONS, "odradek.api.add_partitions_to_txn:handle", per_partition=2),
    ApiRow(25, "AddOffsetsToTxn", 0, 4, TRANSACTIONS, "odradek.api.add_offsets_to_txn:handle"),
    ApiRow(26, "EndTxn", 0, 5, TRANSACTIONS, "odradek.api.end_txn:handle"),
    ApiRow(27, "WriteTxnMarkers", 0, 2, TRANSACTIONS, "odradek.api.write_txn_markers:handle", per_partition=2),
    ApiRow(28, "TxnOffsetCommit", 0, 5, GROUPS, "odradek.api.txn_offset_commit:handle",
        at_once="odradek.api.txn_offset_commit:at_once", per_partition=2),
    ApiRow(29, "DescribeAcls", 0, 3, COORDINATOR, "odradek.api.acls:describe"),
    ApiRow(30, "CreateAcls", 0, 3, COORDINATOR, "odradek.api.acls:create"),
    ApiRow(31, "DeleteAcls", 0, 3, COORDINATOR, "odradek.api.acls:delete"),
    ApiRow(32, "DescribeConfigs", 0, 4, COORDINATOR, "odradek.api.describe_configs:handle"),
    ApiRow(33, "AlterConfigs", 0, 2, COORDINATOR, "odradek.api.alter_configs:handle"),
    ApiRow(34, "AlterReplicaLogDirs", 0, 2, COORDINATOR, "odradek.api.alter_replica_log_dirs:handle",
        per_partition=2),
    ApiRow(35, "DescribeLogDirs", 0, 5, COORDINATOR, "odradek.api.describe_log_dirs:handle",
        per_partition=2),
    ApiRow(36, "SaslAuthenticate", 0, 2, WORKER, "odradek.api.sasl_authenticate:handle"),
    ApiRow(37, "CreatePartitions", 0, 3, CONTROLLER, "odradek.api.create_partitions:handle", elements=30000),
    ApiRow(38, "CreateDelegationToken", 0, 3, COORDINATOR, "odradek.api.delegation_tokens:create", elements=200),
    ApiRow(39, "RenewDelegationToken", 0, 2, COORDINATOR, "odradek.api.delegation_tokens:renew"),
    ApiRow(40, "ExpireDelegationToken", 0, 2, COORDINATOR, "odradek.api.delegation_tokens:expire"),
    ApiRow(41, "DescribeDelegationToken", 0, 3, COORDINATOR, "odradek.api.delegation_tokens:describe"),
    ApiRow(42, "DeleteGroups", 0, 2, GROUPS, "odradek.api.delete_groups:handle"),
    ApiRow(43, "ElectLeaders", 0, 2, CONTROLLER, "odradek.api.elect_leaders:handle", per_partition=2),
    ApiRow(44, "IncrementalAlterConfigs", 0, 1, COORDINATOR, "odradek.api.incremental_alter_configs:handle"),
    ApiRow(45, "AlterPartitionReassignments", 0, 1, CONTROLLER, "odradek.api.alter_partition_reassignments:handle",
        elements=40000),
    ApiRow(46, "ListPartitionReassignments", 0, 0, WORKER, "odradek.api.list_partition_reassignments:handle", per_partition=2),
    ApiRow(47, "OffsetDelete", 0, 0, GROUPS, "odradek.api.offset_delete:handle",
        per_partition=2),
    ApiRow(48, "DescribeClientQuotas", 0, 1, COORDINATOR, "odradek.api.describe_client_quotas:handle"),
    ApiRow(49, "AlterClientQuotas", 0, 1, COORDINATOR, "odradek.api.alter_client_quotas:handle"),
    ApiRow(50, "DescribeUserScramCredentials", 0, 0, COORDINATOR, "odradek.api.describe_user_scram_credentials:handle"),
    ApiRow(51, "AlterUserScramCredentials", 0, 0, CONTROLLER, "odradek.api.alter_user_scram_credentials:handle"),
    ApiRow(56, "AlterPartition", 0, 3, CONTROLLER, "odradek.api.alter_partition:handle",
        only_in_cluster=True, per_partition=2 + MAX_REPLICAS),
    ApiRow(57, "UpdateFeatures", 0, 2, CONTROLLER, "odradek.api.update_features:handle"),
    ApiRow(60, "DescribeCluster", 0, 2, WORKER, "odradek.api.describe_cluster:handle"),
    ApiRow(61, "DescribeProducers", 0, 0, WORKER, "odradek.api.describe_producers:handle",
        off_loop=True, per_partition=2),
    ApiRow(65, "DescribeTransactions", 0, 0, TRANSACTIONS, "odradek.api.describe_transactions:handle"),
    ApiRow(66, "ListTransactions", 0, 2, TRANSACTIONS, "odradek.api.list_transactions:handle"),
    ApiRow(67, "AllocateProducerIds", 0, 0, CONTROLLER, "odradek.api.allocate_producer_ids:handle",
        only_in_cluster=True),
    ApiRow(68, "ConsumerGroupHeartbeat", 0, 1, GROUPS, "odradek.api.consumer_group_heartbeat:handle",
        per_partition=2),
    ApiRow(69, "ConsumerGroupDescribe", 0, 1, GROUPS, "odradek.api.consumer_group_describe:handle"),
    ApiRow(74, "ListConfigResources", 0, 1, COORDINATOR, "odradek.api.list_config_resources:handle"),
    ApiRow(75, "DescribeTopicPartitions", 0, 0, WORKER, "odradek.api.describe_topic_partitions:handle",
        per_partition=1),
)
PRIVATE_APIS = (
    ApiRow(20101, "ExplainGroup", 0, 1, GROUPS, "odradek.api.explain_group:handle"),
    ApiRow(20103, "ExplainPartition", 0, 1, WORKER, "odradek.api.explain_partition:handle", off_loop=True),
    ApiRow(20102, "ListTreeOffsets", 0, 0, COORDINATOR, "odradek.api.list_tree_offsets:handle"),
)
"""APIs that are served to every client, but that ApiVersions lists only for Odradek's own clients, so that other clients
receive no unknown API keys."""
CLUSTER_APIS = (
    ApiRow(46, "ListPartitionReassignments", 0, 0, CONTROLLER, "odradek.api.list_partition_reassignments:in_cluster",
        per_partition=2, only_in_cluster=True),
)
"""The rows that replace those of APIS in a cluster."""
# fmt: on
BY_KEY = {row.key: row for row in APIS + PRIVATE_APIS}
API_VERSIONS = 18


def in_cluster(config: BrokerConfig) -> bool:
    """Whether the broker's metadata store is that of a cluster."""
    return config["metadata.store"] == "zookeeper"


def served_rows(clustered: bool) -> dict[int, ApiRow]:
    """The rows of the APIs that are served, by key; also of the private ones."""
    rows = {key: row for key, row in BY_KEY.items() if row.served(clustered)}
    return rows | {row.key: row for row in CLUSTER_APIS} if clustered else rows


def limits_of(config: BrokerConfig) -> dict[int, int]:
    """The largest number of elements in all arrays of a request together, by API key."""
    partitions = config.integer("odradek.max.partitions")
    return {row.key: row.elements + row.per_partition * partitions for row in BY_KEY.values()}


def max_request_bytes(config: BrokerConfig) -> int:
    """The largest size of a request other than Produce. It depends on message.max.bytes, because a SyncGroup request contains
    all assignments of a group, which are stored in one message."""
    return max(MAX_REQUEST_BYTES, config.integer("message.max.bytes") + MESSAGE_OVERHEAD_BYTES)


class Handlers:
    """Functions by API key. Each is imported at its first use; `import_all` imports all before the first request.

    :param named: API keys with "module:function".
    """

    def __init__(self, named: Iterable[tuple[int, str]]) -> None:
        self._named = dict(named)
        self._imported: dict[int, Callable[..., Any]] = {}

    def __contains__(self, key: int) -> bool:
        return key in self._named

    def get(self, key: int) -> Callable[..., Any] | None:
        """The function for an API; None if the API is not among these."""
        function = self._imported.get(key)
        if function is None and key in self._named:
            function = self._imported[key] = function_named(self._named[key])
        return function

    def __getitem__(self, key: int) -> Callable[..., Any]:
        function = self.get(key)
        if function is None:
            raise KeyError(key)
        return function

    def import_all(self) -> None:
        """Import all functions; may be called from any thread."""
        for key in self._named:
            self.get(key)


def handlers_of(*places: Where, clustered: bool = False) -> Handlers:
    """The handlers of the APIs that are executed in these places, of a broker in a cluster or of a single broker."""
    return Handlers((row.key, row.handler) for row in served_rows(clustered).values() if row.where in places)


def function_named(text: str) -> Callable[..., Any]:
    """The function that "module:function" names; imports its module."""
    module, _, name = text.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function
