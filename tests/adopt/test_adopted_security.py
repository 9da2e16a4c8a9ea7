"""Adoption of quotas, SCRAM credentials, ACLs and delegation tokens: from KRaft's metadata log, and from ZooKeeper."""

from __future__ import annotations

import json
import uuid

import pytest

from odradek.config.broker_config import load
from odradek.metadata import adoption, znodes
from odradek.metadata.adopted_security import security_of
from odradek.metadata.kafka_tree import NoKafkaTree, read_kafka_tree
from odradek.metadata.kraft_log import read_cluster
from odradek.metadata.sqlite import SqliteStore
from odradek.protocol import encode
from odradek.protocol.schemas import cluster_metadata as records
from odradek.storage.verify import list_directory, verify
from tests.adopt import kraft_writer
from tests.adopt.test_adoption import CLUSTER, make_kraft, make_log, make_zookeeper, odradek, store_of

ACL = uuid.UUID(int=1).bytes
OTHER = uuid.UUID(int=2).bytes


def framed(kind, **fields) -> bytes:
    return bytes((1, kind.number, 0)) + encode(kind.schema(**fields), 0)


def quota(entity, key, value=0.0, *, remove=False):
    part = records.CLIENT_QUOTA.schema.EntityData
    parts = [part(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    return framed(records.CLIENT_QUOTA, entity=parts, key=key, value=value, remove=remove)


def acl(number, resource, name, pattern=3, principal="User:a", operation=3, permission=3):
    return framed(
        records.ACCESS_CONTROL_ENTRY, id=number, resource_type=resource, resource_name=name, pattern_type=pattern,
        principal=principal, host="*", operation=operation, permission_type=permission,
    )  # fmt: skip


def scram(user, mechanism, iterations=4096):
    return framed(
        records.USER_SCRAM_CREDENTIAL, name=user, mechanism=mechanism, salt=b"salt", stored_key=b"stored", server_key=b"server",
        iterations=iterations,
    )  # fmt: skip


RECORDS = [
    quota({"user": "a b"}, "producer_byte_rate", 1000.0),
    quota({"user": "a b"}, "producer_byte_rate", 2000.0),
    quota({"client-id": "c", "user": None}, "request_percentage", 12.5),
    quota({"client-id": "c"}, "consumer_byte_rate", 5.0),
    quota({"client-id": "c"}, "consumer_byte_rate", remove=True),
    quota({"ip": "10.0.0.1"}, "connection_creation_rate", 3.0),
    scram("a b", 1),
    scram("a b", 2, 8192),
    scram("gone", 1),
    framed(records.REMOVE_USER_SCRAM_CREDENTIAL, name="gone", mechanism=1),
    acl(ACL, 2, "orders"),
    acl(OTHER, 2, "orders", operation=4, permission=2),
    acl(uuid.UUID(int=3).bytes, 3, "team-", pattern=4, operation=2),
    acl(uuid.UUID(int=4).bytes, 4, "kafka-cluster"),
    framed(records.REMOVE_ACCESS_CONTROL_ENTRY, id=uuid.UUID(int=4).bytes),
    acl(uuid.UUID(int=5).bytes, 99, "unknown"),
    framed(
        records.DELEGATION_TOKEN, owner="User:a", requester="User:b", renewers=["User:c"], issue_timestamp=1, max_timestamp=3,
        expiration_timestamp=2, token_id="id",
    ),
    framed(
        records.DELEGATION_TOKEN, owner="User:a", requester="User:b", renewers=[], issue_timestamp=1, max_timestamp=3,
        expiration_timestamp=2, token_id="gone",
    ),
    framed(records.REMOVE_DELEGATION_TOKEN, token_id="gone"),
]  # fmt: skip

CONFIGS = {
    "/config/users/a%20b": {
        "producer_byte_rate": "2000",
        "SCRAM-SHA-256": "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096",
        "SCRAM-SHA-512": "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=8192",
    },
    "/config/users/<default>/clients/c": {"request_percentage": "12.5"},
    "/config/ips/10.0.0.1": {"connection_creation_rate": "3"},
}
READ = {"principal": "User:a", "permissionType": "Allow", "operation": "Read", "host": "*"}
JSON = {
    "/kafka-acl/Topic/orders": {
        "version": 1,
        "acls": [READ, READ | {"permissionType": "Deny", "operation": "Write"}],
    },
    "/kafka-acl-extended/prefixed/Group/team-": {"version": 1, "acls": [READ | {"operation": "All"}]},
    "/delegation_token/tokens/id": {
        "version": 3, "owner": "User%3Aa", "tokenRequester": "User%3Ab", "renewers": ["User%3Ac"], "issueTimestamp": 1,
        "maxTimestamp": 3, "expiryTimestamp": 2, "tokenId": "id",
    },
}  # fmt: skip
TAKEN = ["3 client quotas", "2 SCRAM credentials", "3 ACLs", "1 delegation token"]


def assert_nodes(nodes):
    """The nodes must be those that Kafka 3.9 would have for RECORDS."""
    configs = {path: znodes.decode_config(path, data) for path, data in nodes.items() if path.startswith("/config/")}
    assert configs == CONFIGS
    assert {path: json.loads(data) for path, data in nodes.items() if path not in configs} == JSON


@pytest.mark.parametrize("snapshot_at", [None, 9], ids=["log", "snapshot and log"])
def test_records_of_kraft_become_nodes(tmp_path, snapshot_at):
    kraft_writer.write_log(tmp_path / "log", RECORDS, snapshot_at=snapshot_at)
    adopted = security_of(read_cluster(tmp_path / "log"))
    assert_nodes(dict(adopted.nodes))
    assert adopted.taken == TAKEN
    assert len(adopted.left) == 1 and "unknown" in adopted.left[0] and "99" in adopted.left[0]


def test_the_store_of_an_adopted_kraft_broker_contains_them(tmp_path):
    path = make_kraft(tmp_path / "data", RECORDS)
    done = odradek("adopt", "--yes", path)
    assert done.returncode == 0, done
    assert "Also taken over:\n  3 client quotas\n" in done.stdout and "authorizer.class.name" in done.stdout
    assert "delegation.token.secret.key" in done.stdout
    store = store_of(path)
    assert_nodes({node: store.get(node)[0] for node in (*CONFIGS, *JSON)})
    store.close()


def test_nodes_of_zookeeper_are_copied(tmp_path):
    tree = SqliteStore(tmp_path / "tree")
    nodes = {
        "/chroot/cluster/id": znodes.encode_cluster_id(CLUSTER),
        "/chroot/config/topics/a": znodes.encode_config({"retention.ms": "5"}),
        "/chroot/config/brokers/<default>": znodes.encode_config({"log.retention.ms": "7"}),
        "/chroot/config/brokers/5": znodes.encode_config({}),
    }
    nodes |= {f"/chroot{path}": znodes.encode_config(settings) for path, settings in CONFIGS.items()}
    nodes |= {f"/chroot{path}": json.dumps(value).encode() for path, value in JSON.items()}
    for path, data in nodes.items():
        tree.create(path, data, make_parents=True)
    with pytest.raises(NoKafkaTree, match="chroot"):
        read_kafka_tree(tree, "/elsewhere")
    found = read_kafka_tree(tree, "/chroot")
    tree.close()
    assert found.cluster_id == CLUSTER and found.security.taken == TAKEN
    assert_nodes(dict(found.security.nodes))

    path = make_zookeeper(tmp_path / "data")
    for topic in ("a", "b"):
        make_log(path, topic, 0)
    files = [list_directory(path)]
    config = load(None, [f"log.dirs={path}", "authorizer.class.name="])
    adopted = adoption.survey(files, config, found)
    adoption.judge(adopted, verify(files, processes=1, gaps=adopted.compacted))
    assert adopted.topics["a"].configs == {"retention.ms": "5"} and adopted.topics["b"].configs == adoption.KEEP
    assert "settings of broker (default): log.retention.ms" in adopted.left
    adoption.carry_out(adopted)
    store = store_of(path)
    assert_nodes({node: store.get(node)[0] for node in (*CONFIGS, *JSON)})
    store.close()


def test_zookeeper_of_another_cluster_or_for_kraft_is_refused(tmp_path):
    tree = SqliteStore(tmp_path / "tree")
    tree.create("/cluster/id", znodes.encode_cluster_id("AAAAAAAAAAAAAAAAAAAAAA"), make_parents=True)
    found = read_kafka_tree(tree)
    tree.close()
    for path, word in (
        (make_zookeeper(tmp_path / "z"), "contains cluster AAAA"),
        (make_kraft(tmp_path / "k", []), "KRaft"),
    ):
        with pytest.raises(adoption.AdoptionError, match=word):
            adoption.survey([list_directory(path)], load(None, [f"log.dirs={path}"]), found)


def test_a_dump_of_the_metadata_log_hides_secrets(tmp_path):
    secret = kraft_writer.config(4, "1", "listener.name.x.ssl.keystore.password", "secret-1")
    shown = kraft_writer.config(4, "1", "log.retention.ms", "12345")
    unknown = kraft_writer.config(4, "1", "some.plugin.password", "secret-2")
    kraft_writer.write_log(tmp_path / "__cluster_metadata-0", [scram("a", 1), secret, shown, unknown])
    done = odradek("log", "dump", "--deep", "--json", tmp_path / "__cluster_metadata-0")
    assert done.returncode == 0 and "12345" in done.stdout and done.stdout.count("(hidden)") == 5
    for hidden in ("secret-1", "secret-2", b"stored".hex(), b"server".hex(), b"salt".hex()):
        assert hidden not in done.stdout
