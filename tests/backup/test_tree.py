"""The backup of a broker of a cluster: its logs, and the nodes in ZooKeeper, restored into an empty chroot."""

import json

import pytest

from odradek.backup.errors import BackupError
from odradek.backup.tree import dump_tree, restore_tree
from odradek.metadata import znodes
from odradek.metadata.zookeeper import ZookeeperStore
from odradek.metadata.zookeeper_connection import ZookeeperOptions
from odradek.testing import Broker
from tests.backup import clients
from tests.backup.test_stopped import fill
from tests.cli.command import Command
from tests.zookeeper import chroot

AUTH = {
    "odradek.zookeeper.auth": "digest",
    "odradek.zookeeper.username": "broker",
    "odradek.zookeeper.password": "secret",
    "zookeeper.set.acl": "true",
}
CONFIG = AUTH | {
    "metadata.store": "zookeeper",
    "broker.id": 7,
    "default.replication.factor": 1,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "zookeeper.session.timeout.ms": 4000,
    "controlled.shutdown.enable": "false",
}


def options(connect):
    return [
        text for name, value in (AUTH | {"zookeeper.connect": connect}).items() for text in ("--set", f"{name}={value}")
    ]


def store_of(connect):
    return ZookeeperStore(ZookeeperOptions(connect, auth=(("digest", "broker:secret"),), set_acl=True))


@pytest.fixture(scope="module")
def backed_up(tmp_path_factory):
    """The chroot of the original, its records, and the backup."""
    directory, connect = tmp_path_factory.mktemp("cluster"), chroot()
    config = CONFIG | {"zookeeper.connect": connect}
    with Broker(config, {"orders": {"partitions": "2"}}, directory=directory / "broker") as broker:
        odradek = Command(broker.bootstrap_servers)
        odradek("user", "add", "alice", "--password-file", "-", stdin="secret-of-alice\n")
        odradek("config", "set", "-t", "orders", "retention.ms=12345678")
        fill(broker.bootstrap_servers, "orders")
        found = clients.read_all(broker.bootstrap_servers, "orders", 2)
        report = odradek.json(
            "backup", "create", directory / "backup", "--set", f"log.dirs={broker.data_dir}", *options(connect)
        )
        assert report["clustered"] and report["tree"] and report["notes"] == []
        done = odradek.run("backup", "create", directory / "logs", "--data-dir", broker.data_dir)
        assert done.returncode == 0 and "the nodes in ZooKeeper are not in this backup" in done.stderr
        return connect, found, directory / "backup"


def test_a_restored_broker_serves_what_the_original_had(backed_up, tmp_path):
    _, found, backup = backed_up
    odradek, connect = Command(""), chroot()
    assert odradek.json("backup", "verify", backup)["errors"] == []
    odradek("backup", "restore", backup, "--tree", *options(connect))
    odradek("backup", "restore", backup, "--into", tmp_path / "data")
    with Broker(CONFIG | {"zookeeper.connect": connect}, directory=tmp_path) as broker:
        odradek = Command(broker.bootstrap_servers)
        assert clients.read_all(broker.bootstrap_servers, "orders", 2) == found
        assert {user["user"] for user in odradek.json("user", "list")} == {"alice"}
        settings = odradek.json("config", "get", "-t", "orders", "retention.ms")
        assert "12345678" in json.dumps(settings)
        odradek("topic", "create", "later")
    odradek.refused(
        "backup", "restore", backup, "--tree", *options(connect), words=["not empty", "the nodes of a cluster"]
    )


def test_nodes_have_their_data_and_their_acl(backed_up):
    original, _, backup = backed_up
    connect = chroot()
    data = (backup / "zookeeper.json").read_bytes()
    store, copy = store_of(original), store_of(connect)
    try:
        restore_tree(copy, data, "zookeeper.json", "A" * 22)
        paths = [node["path"] for node in json.loads(data)["nodes"]]
        assert len(paths) > 30 and f"{znodes.BROKER_IDS}/7" not in paths and znodes.CONTROLLER not in paths
        for path in paths:
            if path == znodes.CLUSTER_ID:
                assert znodes.decode_cluster_id(copy.get(path)[0]) == "A" * 22
            elif not path.startswith(znodes.CONTROLLER_EPOCH):
                assert copy.get(path)[0] == store.get(path)[0], path
            assert copy.acl_of(path) == store.acl_of(path), path
        secret = copy.acl_of(f"{znodes.USER_CONFIGS}/alice")
        assert [(scheme, name.partition(":")[0]) for scheme, name, _ in secret] == [("digest", "broker")]
    finally:
        store.close()
        copy.close()


def test_a_restore_that_was_interrupted_is_no_cluster(backed_up, monkeypatch):
    _, _, backup = backed_up
    data = (backup / "zookeeper.json").read_bytes()
    store = store_of(chroot())
    create, calls = store.create_with_acl, 0

    def interrupted(*arguments):
        nonlocal calls
        calls += 1
        if calls == 20:
            raise KeyboardInterrupt
        create(*arguments)

    monkeypatch.setattr(store, "create_with_acl", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            restore_tree(store, data, "zookeeper.json")
        assert store.exists(znodes.CLUSTER_ID) is None
        with pytest.raises(BackupError, match="the nodes of an interrupted restore"):
            restore_tree(store, data, "zookeeper.json")
    finally:
        store.close()


def test_a_wrong_chroot_is_named(backed_up):
    connect = chroot()
    store = store_of(connect.partition("/")[0])
    try:
        with pytest.raises(BackupError, match="no node /nowhere/cluster/id"):
            dump_tree(store, "/nowhere")
    finally:
        store.close()
