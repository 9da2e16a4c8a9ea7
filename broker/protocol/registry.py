"""Which module describes which API. Modules are imported when first asked for.

Nothing here changes after import.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from broker.protocol.schema import ApiSchema

MODULES = {
    0: "produce",
    1: "fetch",
    2: "list_offsets",
    3: "metadata",
    18: "api_versions",
    19: "create_topics",
    20: "delete_topics",
    22: "init_producer_id",
    23: "offset_for_leader_epoch",
    32: "describe_configs",
    37: "create_partitions",
    60: "describe_cluster",
    75: "describe_topic_partitions",
}

ALL_KEYS: tuple[int, ...] = tuple(MODULES)


class UnknownApiError(LookupError):
    """An API key that no schema has."""


@cache
def by_key(api_key: int) -> ApiSchema:
    """The schema of an API. Raises UnknownApiError."""
    name = MODULES.get(api_key)
    if name is None:
        raise UnknownApiError(f"no API has the key {api_key}")
    schema: ApiSchema = import_module(f"broker.protocol.{name}").SCHEMA
    return schema
