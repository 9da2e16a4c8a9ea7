"""Maps API keys to the modules with their schemas, which are imported on first use.

Constants, except for the cache of imported schemas.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from odradek.protocol.schema import ApiSchema

MODULES = {
    0: "produce",
    1: "fetch",
    2: "list_offsets",
    3: "metadata",
    4: "leader_and_isr",
    5: "stop_replica",
    6: "update_metadata",
    7: "controlled_shutdown",
    8: "offset_commit",
    9: "offset_fetch",
    10: "find_coordinator",
    11: "join_group",
    12: "heartbeat",
    13: "leave_group",
    14: "sync_group",
    15: "describe_groups",
    16: "list_groups",
    17: "sasl_handshake",
    18: "api_versions",
    19: "create_topics",
    20: "delete_topics",
    21: "delete_records",
    22: "init_producer_id",
    23: "offset_for_leader_epoch",
    24: "add_partitions_to_txn",
    25: "add_offsets_to_txn",
    26: "end_txn",
    27: "write_txn_markers",
    28: "txn_offset_commit",
    29: "describe_acls",
    30: "create_acls",
    31: "delete_acls",
    32: "describe_configs",
    33: "alter_configs",
    34: "alter_replica_log_dirs",
    35: "describe_log_dirs",
    36: "sasl_authenticate",
    37: "create_partitions",
    38: "create_delegation_token",
    39: "renew_delegation_token",
    40: "expire_delegation_token",
    41: "describe_delegation_token",
    42: "delete_groups",
    43: "elect_leaders",
    44: "incremental_alter_configs",
    45: "alter_partition_reassignments",
    46: "list_partition_reassignments",
    47: "offset_delete",
    48: "describe_client_quotas",
    49: "alter_client_quotas",
    50: "describe_user_scram_credentials",
    51: "alter_user_scram_credentials",
    52: "vote",
    53: "begin_quorum_epoch",
    54: "end_quorum_epoch",
    55: "describe_quorum",
    56: "alter_partition",
    57: "update_features",
    58: "envelope",
    59: "fetch_snapshot",
    60: "describe_cluster",
    61: "describe_producers",
    62: "broker_registration",
    63: "broker_heartbeat",
    64: "unregister_broker",
    65: "describe_transactions",
    66: "list_transactions",
    67: "allocate_producer_ids",
    68: "consumer_group_heartbeat",
    69: "consumer_group_describe",
    70: "controller_registration",
    71: "get_telemetry_subscriptions",
    72: "push_telemetry",
    73: "assign_replicas_to_dirs",
    74: "list_config_resources",
    75: "describe_topic_partitions",
    76: "share_group_heartbeat",
    77: "share_group_describe",
    78: "share_fetch",
    79: "share_acknowledge",
    80: "add_raft_voter",
    81: "remove_raft_voter",
    82: "update_raft_voter",
    83: "initialize_share_group_state",
    84: "read_share_group_state",
    85: "write_share_group_state",
    86: "delete_share_group_state",
    87: "read_share_group_state_summary",
    88: "streams_group_heartbeat",
    89: "streams_group_describe",
    90: "describe_share_group_offsets",
    91: "alter_share_group_offsets",
    92: "delete_share_group_offsets",
}

ALL_KEYS: tuple[int, ...] = tuple(MODULES)
"""The keys of Kafka's APIs."""

PRIVATE = {
    20101: "explain_group",
    20102: "list_tree_offsets",
    20103: "explain_partition",
}
"""Odradek's own APIs."""


class UnknownApiError(LookupError):
    """No schema has this API key."""


@cache
def by_key(api_key: int) -> ApiSchema:
    """The schema of an API. Raises UnknownApiError."""
    name = MODULES.get(api_key) or PRIVATE.get(api_key)
    if name is None:
        raise UnknownApiError(f"no API has the key {api_key}")
    schema: ApiSchema = import_module(f"odradek.protocol.schemas.{name}").SCHEMA
    return schema
