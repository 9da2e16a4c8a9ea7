"""ACLs in a cluster with ZooKeeper: a change on one broker is in force on the other; the brokers need CLUSTER_ACTION."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from odradek.metadata.zookeeper import ZookeeperOptions, ZookeeperStore
from odradek.protocol.errors import ErrorCode
from odradek.security.acl import AclFilter, Operation
from odradek.testing import Broker
from tests.security.over_wire import ACLS_OF_ADMIN, ADMIN, CONFIG, TOPIC, Client, acl
from tests.waiting import until
from tests.wire import batch
from tests.zookeeper import chroot

pytestmark = pytest.mark.timeout(300)
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def servers() -> str:
    return chroot()


@pytest.fixture(scope="module")
def brokers(servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Broker]]:
    directory: Path = tmp_path_factory.mktemp("acls")
    with ExitStack() as stack:
        found = []
        for broker_id in (1, 2):
            config = CONFIG | {
                "broker.id": broker_id,
                "zookeeper.connect": servers,
                "zookeeper.session.timeout.ms": 60_000,
                "num.network.threads": 1,
                "default.replication.factor": 2,
            }
            found.append(stack.enter_context(Broker(config, directory=directory / str(broker_id))))
        with Client(found[0], ADMIN) as admin:
            assert set(admin.create_acls(ACLS_OF_ADMIN)) == {0}
        yield found


def leader_of(brokers: list[Broker], name: str) -> Broker:
    """The broker that leads a topic, as soon as it does."""

    def found() -> Broker | None:
        for broker in brokers:
            with Client(broker, ADMIN) as admin:
                if admin.produce(name, batch(b"v")).error_code == 0:
                    return broker
        return None

    return until(found, f"a leader of {name}")


def created(brokers: list[Broker], name: str) -> None:
    def done() -> bool:
        for broker in brokers:
            with Client(broker, ADMIN) as admin:
                try:
                    admin.create(name, 1)
                except AssertionError:
                    continue
                return True
        return False

    until(done, f"{name} is created by the controller")


def test_a_rule_made_on_one_broker_is_in_force_on_the_other_and_in_kafkas_nodes(
    brokers: list[Broker], servers: str
) -> None:
    created(brokers, "shared")
    leader = leader_of(brokers, "shared")
    other = brokers[1 - brokers.index(leader)]
    rule = acl(TOPIC, "shared", Operation.WRITE)
    with Client(other, ADMIN) as admin, Client(leader) as client:
        assert client.produce("shared", batch(b"v")).error_code == DENIED
        assert admin.create_acls([rule]) == [0]
        until(lambda: client.produce("shared", batch(b"v")).error_code == 0, "the leader knows the new rule")
        admin.delete_acls(AclFilter(*rule))
        until(lambda: client.produce("shared", batch(b"v")).error_code == DENIED, "the leader knows that it is gone")
    with closing(ZookeeperStore(ZookeeperOptions(servers))) as store:
        assert "Topic" in store.children("/kafka-acl")
        assert b'"User:*"' in store.get("/kafka-acl/Topic/*")[0]


def test_replication_goes_on_under_the_rules_and_brokers_keep_them_over_a_restart(brokers: list[Broker]) -> None:
    created(brokers, "replicated")
    leader = leader_of(brokers, "replicated")
    with Client(leader, ADMIN) as admin:
        assert admin.produce("replicated", batch(b"v"), acks=-1).error_code == 0

        def in_sync() -> bool:
            (topic,) = admin.metadata("replicated").topics
            return len(topic.partitions[0].isr_nodes) == 2

        until(in_sync, "both replicas are in sync")
        rules = admin.acls()
    other = brokers[1 - brokers.index(leader)]
    other.restart()

    def same() -> bool:
        with Client(other, ADMIN) as admin:
            return admin.acls() == rules

    until(same, "the restarted broker has the rules of the store")
    with Client(other) as client:
        assert client.described_acls().error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
