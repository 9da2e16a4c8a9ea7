"""Finds the schema of an API by its key. Schemas are imported on first use; their table is `schemas/keys.py`."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from odradek.protocol.schema import ApiSchema
from odradek.protocol.schemas.keys import MODULES

PRIVATE_FROM = 20_000
"""The first key of Odradek's own APIs."""
ALL_KEYS: tuple[int, ...] = tuple(key for key in MODULES if key < PRIVATE_FROM)
"""The keys of Kafka's APIs, without those that are only for the controllers of a KRaft cluster."""
KRAFT = {
    52: "Vote",
    53: "BeginQuorumEpoch",
    54: "EndQuorumEpoch",
    55: "DescribeQuorum",
    58: "Envelope",
    59: "FetchSnapshot",
    62: "BrokerRegistration",
    63: "BrokerHeartbeat",
    64: "UnregisterBroker",
    70: "ControllerRegistration",
    73: "AssignReplicasToDirs",
    80: "AddRaftVoter",
    81: "RemoveRaftVoter",
    82: "UpdateRaftVoter",
}
"""APIs that are never served: they are those of a KRaft cluster's controllers."""


class UnknownApiError(LookupError):
    """No schema has this API key."""


@cache
def by_key(api_key: int) -> ApiSchema:
    """The schema of an API. Raises UnknownApiError."""
    name = MODULES.get(api_key)
    if name is None:
        raise UnknownApiError(f"no API has the key {api_key}")
    schema: ApiSchema = import_module(f"odradek.protocol.schemas.{name}").SCHEMA
    return schema
