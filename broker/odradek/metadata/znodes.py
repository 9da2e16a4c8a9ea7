"""The nodes of the metadata tree: their paths, and their data in the formats of Apache Kafka 3.9 in ZooKeeper mode.

Pure functions and values. Old consumers and tools that read ZooKeeper can read these nodes. Data that cannot be decoded raises
CorruptNode, and nothing else: the cause is an error of a broker or a manual change of the store, see `corrupt_nodes`.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from odradek.config.listeners import Listener, parse_address
from odradek.metadata.store import StoreError
from odradek.storage.log_directory import decode_uuid, encode_uuid

CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONFIG = "/config"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
CLIENT_CONFIGS = "/config/clients"
USER_CONFIGS = "/config/users"
IP_CONFIGS = "/config/ips"
DEFAULT_ENTITY = "<default>"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE = "/config/changes/config_change_"
CONTROLLER = "/controller"
LOG_DIR_EVENT = "/log_dir_event_notification/log_dir_event_"
CONTROLLER_EPOCH = "/controller_epoch"
DELETE_TOPICS = "/admin/delete_topics"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
MACHINE_BOOT = "/odradek/machine_boot"
"""Not a node of Kafka: the boot id of the machine when the logs of an adopted cluster were last opened."""
LOGIN_SECRET = "/odradek/login_secret"
"""Not a node of Kafka: random bytes, from which brokers make up credentials of users who have none."""

PERSISTENT = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    "/isr_change_notification",
    PRODUCER_ID_BLOCK,
    "/log_dir_event_notification",
    TOPIC_CONFIGS,
    CLIENT_CONFIGS,
    USER_CONFIGS,
    BROKER_CONFIGS,
    IP_CONFIGS,
    GROUP_CONFIGS,
)
"""Nodes that every broker creates, if they are missing, when it starts."""

NO_LEADER = -1

UNDECODABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What the decoding of any bytes as JSON, and the use of the value, may raise."""


class CorruptNode(StoreError):
    """The data of a node is not in the expected format. The message contains the path."""


class TopicAssignment(NamedTuple):
    """``/brokers/topics/T``: determines which topics and partitions exist.

    ``topic_id`` is None for topics of Kafka before 2.8. ``partitions`` maps the index of each partition to its
    replicas, the preferred leader first; ``adding`` and ``removing`` are replicas of a reassignment in progress.
    """

    topic_id: uuid.UUID | None
    partitions: Mapping[int, Sequence[int]]
    adding: Mapping[int, Sequence[int]] = {}
    removing: Mapping[int, Sequence[int]] = {}


class PartitionState(NamedTuple):
    """``/brokers/topics/T/partitions/P/state``. The version of the node is the partition epoch."""

    controller_epoch: int
    leader: int
    leader_epoch: int
    in_sync_replicas: list[int]
    leader_recovery_state: int = 0  # 1 from an unclean election until the leader has recovered


class BrokerRegistration(NamedTuple):
    """``/brokers/ids/N``: the addresses for clients and brokers. ``timestamp_ms``: the time of the registration."""

    endpoints: list[Listener]
    rack: str | None
    timestamp_ms: int
    jmx_port: int = -1


class ProducerIdBlock(NamedTuple):
    """``/latest_producer_id_block``: the last allocated block, ``first`` to ``last`` inclusive, and its broker."""

    broker_id: int
    first: int
    last: int


def topic_path(topic: str) -> str:
    """The path of a topic's assignment."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """The path of the parent of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    """The path of the parent of a partition's state."""
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    """The path of a partition's state (leader and in-sync replicas)."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def topic_config_path(topic: str) -> str:
    """The path of a topic's settings."""
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_config_path(broker: int | None) -> str:
    """The path of a broker's dynamic settings; None for those of all brokers."""
    return f"{BROKER_CONFIGS}/{DEFAULT_ENTITY if broker is None else broker}"


def encode_name(name: str) -> str:
    """The node name of a user, client or group with any characters, encoded like Kafka's tools do."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(name, safe="").replace("~", "%7E")


def decode_name(node: str) -> str:
    """The user, client or group of a node name."""
    return unquote(node)


def group_config_path(group_id: str) -> str:
    """The path of a group's settings."""
    return f"{GROUP_CONFIGS}/{encode_name(group_id)}"


def quota_path(user: str | None, client_id: str | None, ip: str | None) -> str:
    """The path of the quotas of a user, a client id, both, or an address. Arguments are node names, or None if not used."""
    if ip is not None:
        return f"{IP_CONFIGS}/{ip}"
    if user is None:
        return f"{CLIENT_CONFIGS}/{client_id}"
    return f"{USER_CONFIGS}/{user}" + ("" if client_id is None else f"/clients/{client_id}")


def broker_path(broker_id: int) -> str:
    """The path of a broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def broker_ids(names: Iterable[str]) -> list[int]:
    """The broker ids among the children of ``/brokers/ids``; names that are no ids, which no broker writes, are ignored."""
    return [int(name) for name in names if name.isascii() and name.isdigit()]


def delete_topic_path(topic: str) -> str:
    """The path of the deletion mark of a topic."""
    return f"{DELETE_TOPICS}/{topic}"


def _encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


Decoded = TypeVar("Decoded")


def _decode(path: str, data: bytes, build: Callable[[Any], Decoded]) -> Decoded:
    try:
        return build(json.loads(data))
    except UNDECODABLE as error:
        raise CorruptNode(
            f"cannot decode the metadata node {path} ({type(error).__name__}: {error}): {data[:200]!r}"
        ) from error


def _by_partition(replicas: Mapping[int, Sequence[int]]) -> dict[str, list[int]]:
    return {str(partition): list(brokers) for partition, brokers in replicas.items()}


def _replicas(value: Mapping[str, Sequence[int]] | None) -> dict[int, Sequence[int]]:
    """Decode replicas by partition. Partitions with equal replicas share one list, which saves memory."""
    known: dict[tuple[int, ...], list[int]] = {}
    by_partition: dict[int, Sequence[int]] = {}
    for partition, brokers in (value or {}).items():
        replicas = [int(broker) for broker in brokers]
        by_partition[int(partition)] = known.setdefault(tuple(replicas), replicas)
    return by_partition


def encode_topic(assignment: TopicAssignment) -> bytes:
    """Encode a topic's assignment in version 3, which contains the topic id."""
    value: dict[str, Any] = {
        "version": 3,
        "partitions": _by_partition(assignment.partitions),
        "adding_replicas": _by_partition(assignment.adding),
        "removing_replicas": _by_partition(assignment.removing),
    }
    if assignment.topic_id is not None:
        value["topic_id"] = encode_uuid(assignment.topic_id)
    return _encode(value)


def decode_topic(topic: str, data: bytes) -> TopicAssignment:
    """Decode a topic's assignment of version 1 to 3. Raises CorruptNode."""

    def build(value: Any) -> TopicAssignment:
        topic_id = value.get("topic_id")
        return TopicAssignment(
            None if topic_id is None else decode_uuid(topic_id),
            dict(sorted(_replicas(value["partitions"]).items())),
            _replicas(value.get("adding_replicas")),
            _replicas(value.get("removing_replicas")),
        )

    return _decode(topic_path(topic), data, build)


def encode_state(state: PartitionState) -> bytes:
    """Encode a partition's state in version 1."""
    value: dict[str, Any] = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.in_sync_replicas),
    }
    if state.leader_recovery_state:
        value["leader_recovery_state"] = state.leader_recovery_state
    return _encode(value)


def decode_state(topic: str, partition: int, data: bytes) -> PartitionState:
    """Decode a partition's state of version 1. Raises CorruptNode."""
    return _decode(
        state_path(topic, partition),
        data,
        lambda value: PartitionState(
            int(value["controller_epoch"]),
            int(value["leader"]),
            int(value["leader_epoch"]),
            [int(broker) for broker in value["isr"]],
            int(value.get("leader_recovery_state", 0)),
        ),
    )


def encode_config(settings: Mapping[str, str]) -> bytes:
    """Encode settings in version 1."""
    return _encode({"version": 1, "config": dict(settings)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Decode settings; empty if the node has no data. Raises CorruptNode."""
    if not data:
        return {}
    return _decode(path, data, lambda value: {str(k): str(v) for k, v in value.get("config", {}).items()})


def encode_config_change(entity_path: str) -> bytes:
    """The notification of a change of settings. :param entity_path: the path of the settings below ``/config``."""
    return _encode({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, data: bytes) -> str:
    """The path below ``/config`` of a notification of version 1 or 2. Raises CorruptNode.

    :param path: of the notification.
    """

    def build(value: Any) -> str:
        if int(value["version"]) == 1:
            return f"{value['entity_type']}/{value['entity_name']}"
        return str(value["entity_path"])

    return _decode(path, data, build)


def encode_log_dir_event(broker_id: int, event: int) -> bytes:
    """The notification of a broker whose log directories changed."""
    return _encode({"version": 1, "broker": broker_id, "event": event})


def encode_broker(broker: BrokerRegistration) -> bytes:
    """Encode a registration in version 5. `host` and `port` are those of the first PLAINTEXT listener, for old consumers."""
    plaintext = next((endpoint for endpoint in broker.endpoints if endpoint.protocol == "PLAINTEXT"), None)
    value: dict[str, Any] = {
        "features": {},
        "listener_security_protocol_map": {endpoint.name: endpoint.protocol for endpoint in broker.endpoints},
        "endpoints": [str(endpoint) for endpoint in broker.endpoints],
        "jmx_port": broker.jmx_port,
        "port": plaintext.port if plaintext else -1,
        "host": plaintext.host if plaintext else None,
        "version": 5,
        "timestamp": str(broker.timestamp_ms),
    }
    if broker.rack is not None:
        value["rack"] = broker.rack
    return _encode(value)


def decode_broker(broker_id: int, data: bytes) -> BrokerRegistration:
    """Decode a registration of version 2 to 5. Raises CorruptNode."""

    def build(value: Any) -> BrokerRegistration:
        protocols = value.get("listener_security_protocol_map", {})
        endpoints = []
        for text in value["endpoints"]:
            name, host, port = parse_address("endpoints", text)
            endpoints.append(Listener(name, host, port, protocols.get(name, name)))
        return BrokerRegistration(endpoints, value.get("rack"), int(value["timestamp"]), int(value["jmx_port"]))

    return _decode(broker_path(broker_id), data, build)


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    """Encode ``/controller`` in version 2."""
    return _encode({"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    """The id of the controller. Raises CorruptNode."""
    return _decode(CONTROLLER, data, lambda value: int(value["brokerid"]))


def encode_controller_epoch(epoch: int) -> bytes:
    """Encode ``/controller_epoch``, a decimal number."""
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    """The epoch of the last election. Raises CorruptNode."""
    return _decode(CONTROLLER_EPOCH, data, int)


def encode_cluster_id(cluster_id: str) -> bytes:
    """Encode ``/cluster/id`` in version 1. The version is a string, as in Kafka."""
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """The cluster id. Raises CorruptNode."""
    return _decode(CLUSTER_ID, data, lambda value: str(value["id"]))


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """Encode a block in version 1. The bounds are strings, because they exceed the range of JSON numbers."""
    return _encode(
        {"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)}
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock | None:
    """The last allocated block; None if no block was allocated. Raises CorruptNode."""
    if not data:
        return None
    return _decode(
        PRODUCER_ID_BLOCK,
        data,
        lambda value: ProducerIdBlock(int(value["broker"]), int(value["block_start"]), int(value["block_end"])),
    )
