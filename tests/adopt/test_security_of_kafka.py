"""Quotas, SCRAM credentials and ACLs that Kafka's own tools made are the same nodes after an adoption, in both modes."""

from __future__ import annotations

import json
import os

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from odradek.metadata import znodes
from odradek.metadata.kafka_tree import COPIED
from odradek.metadata.sqlite import SqliteStore
from odradek.testing import Broker
from tests.adopt.test_adoption import odradek, store_of
from tests.clients.kafka_peer import Peer
from tests.cluster.peer_processes import Peers, tool
from tests.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]

QUOTAS = (
    ("--entity-type", "users", "--entity-name", "al ice", "--add-config", "producer_byte_rate=1000"),
    ("--entity-type", "users", "--entity-default", "--add-config", "request_percentage=12.5"),
    ("--entity-type", "users", "--entity-name", "bob", "--entity-type", "clients", "--entity-default",
     "--add-config", "consumer_byte_rate=7"),
    ("--entity-type", "clients", "--entity-name", "c/d", "--add-config", "controller_mutation_rate=0.5"),
    ("--entity-type", "ips", "--entity-name", "10.0.0.1", "--add-config", "connection_creation_rate=3"),
)  # fmt: skip
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
ACLS = (
    (ResourceType.TOPIC, "orders", LITERAL, "User:al ice", AclOperation.READ, ALLOW),
    (ResourceType.TOPIC, "orders", LITERAL, "User:bob", AclOperation.WRITE, DENY),
    (ResourceType.TOPIC, "*", LITERAL, "User:CN=x,O=y", AclOperation.DESCRIBE_CONFIGS, ALLOW),
    (ResourceType.GROUP, "team-", PREFIXED, "User:*", AclOperation.ALL, ALLOW),
    (ResourceType.BROKER, "kafka-cluster", LITERAL, "User:bob", AclOperation.CREATE, ALLOW),
    (ResourceType.TRANSACTIONAL_ID, "t", LITERAL, "User:bob", AclOperation.WRITE, ALLOW),
)
CREDENTIALS = (("al ice", ScramMechanism.SCRAM_SHA_256, 4096), ("bob", ScramMechanism.SCRAM_SHA_512, 8192))
SETTINGS = {"allow.everyone.if.no.acl.found": "true", "super.users": "User:ANONYMOUS"}


def change(servers: str) -> None:
    """Make QUOTAS, ACLS and CREDENTIALS."""
    admin = AdminClient({"bootstrap.servers": servers})
    until(lambda: admin.list_topics(timeout=10).controller_id >= 0, "the broker knows the controller")
    bindings = [AclBinding(kind, name, pattern, who, "*", what, how) for kind, name, pattern, who, what, how in ACLS]
    for future in admin.create_acls(bindings).values():
        future.result()
    upsertions = [
        UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, iterations), b"secret", b"the same salt")
        for user, mechanism, iterations in CREDENTIALS
    ]
    for future in admin.alter_user_scram_credentials(upsertions).values():
        future.result()
    for arguments in QUOTAS:
        tool("kafka.admin.ConfigCommand", "--bootstrap-server", servers, "--alter", *arguments)


def security_nodes(store: SqliteStore, parent: str) -> dict[str, object]:
    """The content of the nodes below `parent` that have any, with ACLs in an order of their own."""
    nodes: dict[str, object] = {}
    for name in store.children(parent):
        path = f"{parent}/{name}"
        data = store.get(path)[0]
        if data:
            value = json.loads(data)
            value.get("acls", []).sort(key=str)
            nodes[path] = value
        nodes |= security_nodes(store, path)
    return nodes


def plain_address(broker: Broker) -> str:
    """The address of the broker's listener without logins."""
    return f"127.0.0.1:{broker.status()['listeners'][1]['port']}"


def adopted(directory, *options) -> dict[str, object]:
    done = odradek("adopt", "--yes", *options, directory)
    assert done.returncode == 0, done
    assert "5 client quotas" in done.stdout and "2 SCRAM credentials" in done.stdout and "6 ACLs" in done.stdout
    store = store_of(directory)
    try:
        roots = [path for path in COPIED if store.exists(path) is not None]
        return {path: value for root in roots for path, value in security_nodes(store, root).items()}
    finally:
        store.close()


def test_both_modes_give_the_same_nodes_and_the_broker_serves_them(tmp_path):
    kraft = Peer(
        tmp_path / "kraft",
        SETTINGS | {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
        "4.3.0",
    )
    with kraft:
        change(kraft.bootstrap_servers)
    from_kraft = adopted(kraft.data_dir)

    with Peers(tmp_path / "peers") as peers:
        connect = peers.connect
        kafka = peers.start_kafka(1, SETTINGS | {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"})
        change(f"127.0.0.1:{kafka.port}")
        kafka.stop()
        directory = next(path.parent for path in (tmp_path / "peers").rglob("meta.properties"))
        from_zookeeper = adopted(directory, "--zookeeper", connect)
    assert from_kraft == from_zookeeper
    assert sum(len(value["acls"]) for value in from_kraft.values() if "acls" in value) == len(ACLS)
    users = znodes.USER_CONFIGS
    assert set(from_kraft[f"{users}/{znodes.encode_name('al ice')}"]["config"]) == {
        "producer_byte_rate",
        "SCRAM-SHA-256",
    }

    name = "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config"
    settings = {
        "log.dirs": os.fspath(kraft.data_dir),
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        name: "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:bob",
    }
    with Broker(settings, directory=tmp_path / "ours") as ours:
        admin = AdminClient(
            {
                "bootstrap.servers": ours.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "bob",
                "sasl.password": "secret",
            }
        )
        anything = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        assert len(admin.describe_acls(anything).result()) == len(ACLS)
        stranger = AdminClient({"bootstrap.servers": plain_address(ours)})
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            stranger.create_topics([NewTopic("x", 1)])["x"].result()
