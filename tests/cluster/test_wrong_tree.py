"""The tree in ZooKeeper is deleted or replaced while a broker runs: it says so, serves its partitions, and writes nothing."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, NotEmptyError

from odradek.api.answer_errors import errors_of
from odradek.clients.wire import Connection
from odradek.metadata import znodes
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import alter_client_quotas, create_topics, describe_client_quotas
from odradek.testing.broker_process import Broker
from tests.cli.command import Command
from tests.cluster import shown
from tests.cluster.test_membership import ID, broker, create_topic, kill_child, produce_and_consume
from tests.waiting import until
from tests.zookeeper import ZookeeperServer, chroot

pytestmark = [pytest.mark.xdist_group("wrong-tree"), pytest.mark.timeout(300)]

TOPIC = "orders"
NO_ID = "the tree in ZooKeeper has no cluster id"
FOREIGN = "AAAAAAAAAAAAAAAAAAAAAA"


@pytest.fixture
def servers() -> str:
    return chroot()


@pytest.fixture
def client(servers: str) -> Iterator[KazooClient]:
    with closing(KazooClient(servers, timeout=60)) as client:
        client.start(60)
        try:
            yield client
        finally:
            client.stop()


class Node(NamedTuple):
    data: bytes
    ephemeral: bool
    version: int


Tree = dict[str, Node]


def read_tree(client: KazooClient, path: str = "/") -> Tree:
    """All nodes at and below a path."""
    data, stat = client.get(path)
    found = {path: Node(data or b"", stat.ephemeralOwner != 0, stat.version)}
    for name in client.get_children(path):
        found |= read_tree(client, f"{path.rstrip('/')}/{name}")
    return found


def delete_below(client: KazooClient, path: str, kept: str | None = None) -> None:
    """Delete all nodes below a path, also those that brokers create meanwhile, but not ``kept``."""
    for name in client.get_children(path):
        child = f"{path.rstrip('/')}/{name}"
        if child not in (kept, "/zookeeper"):
            delete_below(client, child)
            try:
                client.delete(child)
            except NoNodeError:
                pass
            except NotEmptyError:
                delete_below(client, path, kept)


def delete_all(client: KazooClient, first: str | None, last: str | None) -> None:
    """Delete the tree; ``first`` or ``last``: a node that is deleted before or after all others."""
    if first is not None:
        client.delete(first, recursive=True)
    until(lambda: delete_below(client, "/", last) or client.get_children("/") == ([] if last is None else [last[1:]]),
          "the tree is empty")  # fmt: skip
    if last is not None:
        client.delete(last, recursive=True)
        delete_below(client, "/")


def put_back(client: KazooClient, tree: Tree) -> None:
    """Create the persistent nodes of a tree; the cluster id last."""
    paths = sorted(path for path, node in tree.items() if path != "/" and not node.ephemeral)
    for path in sorted(paths, key=lambda path: path.startswith("/cluster")):
        if client.exists(path) is None:
            client.create(path, tree[path].data)


def requests_fail(ours: Broker, servers: str) -> None:
    """Requests that need the tree fail, and say why."""
    topic = create_topics.Request.CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    make = alter_client_quotas.Request
    entity = [make.EntityData(entity_type="user", entity_name="alice")]
    quota = make(entries=[make.EntryData(entity=entity, ops=[make.OpData(key="producer_byte_rate", value=1.0)])])
    requests = (
        (create_topics.API_KEY, create_topics.SCHEMA, create_topics.Request(topics=[topic])),
        (alter_client_quotas.API_KEY, alter_client_quotas.SCHEMA, quota),
        (describe_client_quotas.API_KEY, describe_client_quotas.SCHEMA, describe_client_quotas.Request(components=[])),
    )
    for key, api, request in requests:
        with closing(Connection("127.0.0.1", ours.port, 60)) as connection:
            response = connection.ask(api, request)
        assert errors_of(key, response) == [ErrorCode.REQUEST_TIMED_OUT], response
        assert f"{servers}: {znodes.CLUSTER_ID}" in repr(response)


def log_of(ours: Broker, topic: str) -> bytes:
    return (ours.data_dir / f"{topic}-0" / f"{0:020}.log").read_bytes()


def says(ours: Broker, text: str) -> None:
    until(lambda: text in ours.log_file.read_text(), lambda: f"the broker says {text!r}: {ours.log_tail()}")


def membership(ours: Broker) -> tuple[str, bool]:
    """The state of the session, and whether the broker is registered, by its status."""
    report = ours.status()
    assert report["cluster_id"]
    return report["cluster"]["zookeeper"]["state"], report["cluster"]["registered"]


def goes_on(ours: Broker, servers: str, before: bytes) -> None:
    """The broker serves what it has, refuses the rest, and keeps its logs. Its status and `odradek doctor` say so."""
    until(lambda: membership(ours) == ("wrong tree", False), lambda: f"the status shows it: {membership(ours)}")
    doctor = Command(ours.bootstrap_servers).run("doctor", "--data-dir", ours.data_dir, "--json")
    assert doctor.returncode == 1
    found = {finding["subject"] for finding in json.loads(doctor.stdout)["findings"]}
    assert {"ZooKeeper", "settings"} <= found and "cluster" not in found
    assert shown.leaders(ours.bootstrap_servers, TOPIC) == {0: ID}
    produce_and_consume(ours, TOPIC, ["without the tree"])
    requests_fail(ours, servers)
    assert log_of(ours, TOPIC).startswith(before)


def works_again(ours: Broker, client: KazooClient) -> None:
    """The broker is registered, and the controller; topics can be created, and those of before are complete."""
    until(lambda: client.exists(znodes.broker_path(ID)) is not None, lambda: f"registered: {ours.log_tail()}")
    until(lambda: membership(ours) == ("connected", True), lambda: f"the status shows it: {membership(ours)}")
    create_topic(ours, "after")
    produce_and_consume(ours, "after", ["a"])
    produce_and_consume(ours, TOPIC, ["again"])


def begun(ours: Broker) -> bytes:
    """The log of a topic with records."""
    create_topic(ours, TOPIC)
    produce_and_consume(ours, TOPIC, ["before"])
    return log_of(ours, TOPIC)


@pytest.mark.parametrize(
    ("first", "last"), [("/cluster", None), (None, "/cluster"), ("/brokers", None), ("/controller", "/brokers")]
)
def test_a_deleted_tree_is_left_alone_until_it_is_restored(
    servers: str, client: KazooClient, tmp_path: Path, first: str | None, last: str | None
) -> None:
    with broker(servers, tmp_path) as ours:
        before = begun(ours)
        tree = read_tree(client)
        delete_all(client, first, last)
        says(ours, NO_ID)
        delete_below(client, "/")  # what the broker wrote before it noticed
        goes_on(ours, servers, before)
        assert client.get_children("/") == []
        put_back(client, tree)
        works_again(ours, client)
        assert log_of(ours, TOPIC).startswith(before)


@pytest.mark.parametrize("data", [znodes.encode_cluster_id(FOREIGN), b"?"])
def test_the_tree_of_another_cluster_is_not_used(
    servers: str, client: KazooClient, tmp_path: Path, data: bytes
) -> None:
    with broker(servers, tmp_path) as ours:
        before = begun(ours)
        cluster_id = json.loads(client.get(znodes.CLUSTER_ID)[0])["id"]
        client.set(znodes.CLUSTER_ID, data)
        says(
            ours, f"{servers}: {znodes.CLUSTER_ID}) is that of cluster {FOREIGN}" if len(data) > 1 else "cannot be used"
        )
        written = read_tree(client)
        assert shown.leaders(ours.bootstrap_servers, TOPIC) == {0: ID}
        produce_and_consume(ours, TOPIC, ["without the tree"])
        assert read_tree(client) == written
        client.set(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id))
        works_again(ours, client)
        assert log_of(ours, TOPIC).startswith(before)


def test_an_empty_zookeeper_is_left_alone_until_the_old_one_is_back(tmp_path: Path) -> None:
    with ZookeeperServer() as server, broker(f"{server.hosts}/odradek", tmp_path, timeout_ms=3000) as ours:
        before = begun(ours)
        data = server.directory / "data"
        server.kill()
        shutil.move(data, server.directory / "kept")
        server.start()
        says(ours, NO_ID)
        goes_on(ours, f"{server.hosts}/odradek", before)
        with closing(KazooClient(server.hosts, timeout=60)) as client:
            client.start(60)
            assert client.get_children("/") == ["zookeeper"]
            client.stop()
        server.kill()
        shutil.rmtree(data)
        shutil.move(server.directory / "kept", data)
        server.start()
        with closing(KazooClient(f"{server.hosts}/odradek", timeout=60)) as client:
            client.start(60)
            works_again(ours, client)
            client.stop()


def test_a_coordinator_that_restarts_without_its_tree_does_not_disturb_clients(
    servers: str, client: KazooClient, tmp_path: Path
) -> None:
    with broker(servers, tmp_path) as ours:
        before = begun(ours)
        tree = read_tree(client)
        delete_all(client, "/cluster", None)
        says(ours, NO_ID)
        delete_below(client, "/")
        kill_child(ours, "coordinator")
        says(ours, "but zookeeper.connect leads to an empty tree")
        produce_and_consume(ours, TOPIC, ["without the tree"])
        assert client.get_children("/") == []
        put_back(client, tree)
        works_again(ours, client)
        assert log_of(ours, TOPIC).startswith(before)
