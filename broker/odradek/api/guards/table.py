"""Which guard decides about an API, by API key. A test requires that every served API is here, in one of the three tables."""

from collections.abc import Generator

from odradek.api.guards import groups, settings, topics, transactions
from odradek.api.guards.guarded import Asked, Guard, Verdict, VerdictInSteps
from odradek.api.guards.whole import of_cluster, of_name, of_write_txn_markers
from odradek.security.acl import Operation, ResourceType
from odradek.stepwise import Stepwise

_OF_CLUSTER = {
    Operation.CLUSTER_ACTION: (4, 5, 6, 7, 56, 67),
    Operation.DESCRIBE: (29, 35, 46, 50),
    Operation.ALTER: (30, 31, 34, 43, 45, 51, 57),
    Operation.DESCRIBE_CONFIGS: (48, 74),
    Operation.ALTER_CONFIGS: (49,),
}
_OF_GROUP = (11, 12, 13, 14)

GUARDS: dict[int, Guard] = {
    **{key: of_cluster(key, operation) for operation, keys in _OF_CLUSTER.items() for key in keys},
    **{key: of_name(key, Operation.READ, ResourceType.GROUP, "group_id") for key in _OF_GROUP},
    2: topics.of_list_offsets,
    8: groups.of_offset_commit,
    9: groups.of_offset_fetch,
    10: transactions.of_find_coordinator,
    15: groups.of_describe_groups,
    19: topics.of_create_topics,
    20: topics.of_delete_topics,
    21: topics.of_delete_records,
    22: transactions.of_init_producer_id,
    23: topics.of_offset_for_leader_epoch,
    24: transactions.of_add_partitions_to_txn,
    25: transactions.of_add_offsets_to_txn,
    26: of_name(26, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"),
    27: of_write_txn_markers,
    28: groups.of_txn_offset_commit,
    32: settings.of_describe_configs,
    33: settings.of_alter_configs,
    37: topics.of_create_partitions,
    42: groups.of_delete_groups,
    44: settings.of_incremental_alter_configs,
    47: groups.of_offset_delete,
    61: topics.of_describe_producers,
    65: transactions.of_describe_transactions,
    68: groups.of_consumer_group_heartbeat,
    69: groups.of_consumer_group_describe,
    20101: groups.of_explain_group,
    20102: groups.of_list_tree_offsets,
    20103: topics.of_explain_partition,
}

NATIVE = frozenset({0, 1})
"""Produce and Fetch, whose native handlers decide."""
INSIDE = frozenset({3, 16, 38, 39, 40, 41, 60, 66, 75})
"""Metadata, ListGroups, DescribeCluster, ListTransactions, DescribeTopicPartitions: the handlers decide what they show.
The APIs of delegation tokens: who may use them depends on the connection and the token first, and only then on rights."""
FREE = frozenset({17, 18, 36})
"""SaslHandshake, ApiVersions, SaslAuthenticate: allowed for every client."""


class NoGuard(Exception):
    """An API that nobody protects: it is not served while the broker has an authorizer."""


def judge(api_key: int, asked: Asked) -> Verdict | VerdictInSteps:
    """The verdict of an API's guard, or the steps that return it. Raises NoGuard."""
    if not asked.permits.restricted:
        return None
    guard = GUARDS.get(api_key)
    if guard is not None:
        return guard(asked)
    if api_key in INSIDE or api_key in FREE:
        return None
    raise NoGuard(f"API {api_key} has no guard, so it is not served while authorizer.class.name is set")


def judge_at_once(api_key: int, asked: Asked) -> Verdict:
    """As `judge`, for services whose APIs have no guard in steps."""
    verdict = judge(api_key, asked)
    return Stepwise(verdict).finish() if isinstance(verdict, Generator) else verdict
