"""SCRAM users of a cluster: what one broker changes in ZooKeeper, all brokers accept."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from odradek.clients import users
from odradek.clients.cluster import Cluster
from odradek.clients.errors import RefusedError
from odradek.controller import scram
from odradek.metadata.zookeeper import ZookeeperOptions, ZookeeperStore
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import alter_user_scram_credentials
from odradek.security.sasl.client import Credentials, LoginError
from odradek.security.sasl.scram_credential import SHA_256
from odradek.testing.broker_process import Broker
from tests.sasl import SaslWire, settings
from tests.waiting import until
from tests.zookeeper import chroot

pytestmark = pytest.mark.xdist_group("scram-users-of-a-cluster")


@pytest.fixture(scope="module")
def servers() -> str:
    return chroot()


@pytest.fixture(scope="module")
def brokers(servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Broker]]:
    directory: Path = tmp_path_factory.mktemp("scram")
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                Broker(
                    settings()
                    | {
                        "broker.id": broker_id,
                        "zookeeper.connect": servers,
                        "zookeeper.session.timeout.ms": 60_000,
                        "inter.broker.listener.name": "PLAINTEXT",
                        "num.network.threads": 1,
                    },
                    directory=directory / str(broker_id),
                )
            )
            for broker_id in (1, 2)
        ]


def outcome(broker: Broker, password: str) -> str:
    with SaslWire.on(broker) as wire:
        try:
            wire.log_in(Credentials("SCRAM-SHA-256", "alice", password))
        except LoginError:
            return "refused"
        return "logged in"


def test_a_change_at_one_broker_reaches_the_other(brokers: list[Broker], servers: str) -> None:
    with Cluster(brokers[0].bootstrap_servers) as cluster:
        for number in range(3):
            users.set_password(cluster, "alice", f"password {number}", [SHA_256], 4096)
            for broker in brokers:
                until(lambda at=broker, n=number: outcome(at, f"password {n}") == "logged in", "the new password")
                assert outcome(broker, f"password {number - 1}") == "refused"
        users.remove(cluster, "alice", [SHA_256])
        for broker in brokers:
            until(lambda at=broker: outcome(at, "password 2") == "refused", "the user is removed")
    with closing(ZookeeperStore(ZookeeperOptions(servers))) as store:
        assert len(scram.login_secret(store)) == scram.SECRET_BYTES


def test_only_the_controller_changes_credentials(brokers: list[Broker]) -> None:
    with Cluster(brokers[0].bootstrap_servers) as cluster:
        other = next(node for node in (1, 2) if node != cluster.view().controller_id)
        make = alter_user_scram_credentials.Request
        request = make(deletions=[make.ScramCredentialDeletion(name="x", mechanism=1)], upsertions=[])
        response = cluster.broker(other).ask(alter_user_scram_credentials.SCHEMA, request)
        assert [(result.user, result.error_code) for result in response.results] == [("x", ErrorCode.NOT_CONTROLLER)]
        with pytest.raises(RefusedError, match="does not exist"):
            users.remove(cluster, "x", [SHA_256])
