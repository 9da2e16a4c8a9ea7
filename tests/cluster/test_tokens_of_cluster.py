"""Delegation tokens of a cluster of a Kafka 3.9.1 broker and an Odradek broker: what one creates, renews or removes, the other
accepts; and a broker that adopts Kafka's directory keeps them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.security.sasl.client import LoginError
from odradek.testing.broker_process import Broker
from tests.adopt.test_adoption import odradek
from tests.cluster.peer_processes import Peers
from tests.ports import reserved
from tests.tokens import PLAIN_USERS, TokenWire, login_of, user
from tests.waiting import until

pytestmark = [pytest.mark.xdist_group("tokens-of-a-cluster"), pytest.mark.java, pytest.mark.timeout(600)]

PROTOCOLS = "PLAINTEXT:PLAINTEXT,PL:SASL_PLAINTEXT,S5:SASL_PLAINTEXT"
SETTINGS = {
    "delegation.token.secret.key": "the secret of all brokers",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": PROTOCOLS,
    "listener.name.pl.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.s5.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.pl.plain.sasl.jaas.config": PLAIN_USERS,
    "listener.name.s5.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "connection.failed.authentication.delay.ms": "0",
}
BOUND = {"listeners": ",".join(f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", "PL", "S5"))}


class Side:
    """A broker: the ports of its listeners."""

    def __init__(self, ports: dict[str, int]) -> None:
        self._ports = ports

    @classmethod
    def of(cls, broker: Broker) -> "Side":
        return cls({listener["name"]: listener["port"] for listener in broker.status()["listeners"]})

    def ask(self, method: str, *arguments: Any) -> Any:
        """A request of alice."""
        with TokenWire("127.0.0.1", self._ports["PL"]) as wire:
            wire.log_in(user("alice"))
            return getattr(wire, method)(*arguments)

    def accepts(self, token: Any) -> bool:
        """Whether a login with the token succeeds."""
        with TokenWire("127.0.0.1", self._ports["S5"]) as wire:
            try:
                wire.log_in(login_of(token, "SCRAM-SHA-512"))
            except LoginError:
                return False
            return True


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    with Peers(tmp_path_factory.mktemp("peers")) as running:
        yield running


@pytest.fixture(scope="module")
def sides(peers: Peers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Side]]:
    with reserved(2) as first:
        ports = {"PL": first, "S5": first + 1}
        addresses = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ({"PLAINTEXT": "{port}"} | ports).items())
        peers.start_kafka(1, SETTINGS | {"listeners": addresses})
        ours = SETTINGS | BOUND | {"broker.id": 2, "zookeeper.connect": peers.connect, "num.network.threads": 2}
        with Broker(ours, directory=tmp_path_factory.mktemp("ours")) as broker:
            yield {"kafka": Side(ports), "ours": Side.of(broker)}


@pytest.mark.parametrize(("here", "there"), [("kafka", "ours"), ("ours", "kafka")])
def test_a_token_of_one_broker_is_one_of_the_other(sides: dict[str, Side], here: str, there: str) -> None:
    one, other = sides[here], sides[there]
    token = one.ask("create", "bob")
    assert token.error_code == 0
    until(lambda: other.accepts(token), "the token is accepted")
    until(lambda: token.token_id in other.ask("ids"), "the token is described")
    (described,) = [found for found in other.ask("describe").tokens if found.token_id == token.token_id]
    assert bytes(described.hmac) == bytes(token.hmac)
    assert described.expiry_timestamp == token.expiry_timestamp_ms
    assert [renewer.principal_name for renewer in described.renewers] == ["bob"]
    renewed = other.ask("renew", token.hmac, 600_000)
    assert renewed.error_code == 0

    def expiry() -> int:
        return next(t.expiry_timestamp for t in one.ask("describe").tokens if t.token_id == token.token_id)

    until(lambda: expiry() == renewed.expiry_timestamp_ms, "the renewal is known")
    assert other.ask("expire", token.hmac).error_code == 0
    assert not other.accepts(token)
    until(lambda: not one.accepts(token), "the token is refused")
    until(lambda: token.token_id not in one.ask("ids"), "the token is described no more")


def test_a_token_is_adopted_from_zookeeper(sides: dict[str, Side], peers: Peers, tmp_path: Path) -> None:
    token = sides["kafka"].ask("create")
    assert token.error_code == 0
    peers.brokers[1].stop()
    data = peers.brokers[1].directory / "data"
    done = odradek("adopt", "--yes", "--zookeeper", peers.connect, data)
    assert done.returncode == 0 and "delegation token" in done.stdout, done
    with Broker(SETTINGS | BOUND | {"log.dirs": str(data)}, directory=tmp_path) as broker:
        assert Side.of(broker).accepts(token)
    with Broker(
        SETTINGS | BOUND | {"log.dirs": str(data), "delegation.token.secret.key": "another"}, directory=tmp_path
    ) as broker:
        assert not Side.of(broker).accepts(token)
