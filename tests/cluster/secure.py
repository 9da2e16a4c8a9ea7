"""Clusters of Odradek brokers whose inter-broker listener uses TLS or SASL. Clients use the first listener: PLAINTEXT."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from odradek.cli.security.stopped_users import users_in_zookeeper
from odradek.metadata.zookeeper_connection import ZookeeperOptions
from odradek.security.sasl.scram_credential import BY_NAME
from odradek.testing.broker_process import Broker
from tests import certificates
from tests.cluster import shown
from tests.waiting import until

LISTENER = "BROKERS"
PASSWORD = "secret-of-brokers"


def write_stores(directory: Path, name: str = "broker", ca: str = "ca", identity: str | None = None) -> Path:
    """Write broker.pem and ca.pem of the brokers. :param identity: the only host in the certificate; None: 127.0.0.1."""
    directory.mkdir(parents=True, exist_ok=True)
    made = certificates.of_broker(name, ca)
    if identity is not None:
        made = certificates.authority(ca).issue_cert(identity, common_name=name)
    replace(directory / "broker.pem", "".join(certificates.pem(made)))
    replace(directory / "ca.pem", certificates.ca_pem(ca))
    return directory


def replace(path: Path, text: str) -> None:
    """Replace a file by a rename."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def jaas(mechanism: str, password: str = PASSWORD, users: str = "") -> str:
    """The login module of a broker."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return f'org.apache.kafka.common.security.{module} required username="broker" password="{password}" {users};'


def settings(protocol: str, stores: Path | None, mechanism: str = "SCRAM-SHA-512") -> dict[str, object]:
    """The settings of a broker with this protocol between brokers."""
    found: dict[str, object] = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,{LISTENER}://127.0.0.1:0",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{LISTENER}:{protocol}",
        "inter.broker.listener.name": LISTENER,
    }
    if protocol.endswith("SSL"):
        found |= {
            "ssl.keystore.location": f"{stores}/broker.pem",
            "ssl.truststore.location": f"{stores}/ca.pem",
            "listener.name.brokers.ssl.client.auth": "required" if protocol == "SSL" else "none",
        }
    if protocol.startswith("SASL"):
        users = f'user_broker="{PASSWORD}"' if mechanism == "PLAIN" else ""
        found |= {
            "sasl.enabled.mechanisms": mechanism,
            "sasl.mechanism.inter.broker.protocol": mechanism,
            f"listener.name.brokers.{mechanism.lower()}.sasl.jaas.config": jaas(mechanism, users=users),
        }
    return found


def add_user(connect: str, password: str = PASSWORD, mechanism: str = "SCRAM-SHA-512", name: str = "broker") -> None:
    """Add a SCRAM user to the tree of a cluster, which need not exist."""
    with users_in_zookeeper(ZookeeperOptions(connect), create=True) as users:
        users.set_password(name, password, [BY_NAME[mechanism]], 4096)


def config_of(broker_id: int, connect: str, further: Mapping[str, object]) -> dict[str, object]:
    return {
        "broker.id": broker_id,
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": 6000,
        "controlled.shutdown.retry.backoff.ms": 100,
        "replica.fetch.backoff.ms": 100,
        "num.network.threads": 1,
        "default.replication.factor": 2,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
    } | dict(further)


@contextmanager
def started(
    directory: Path,
    connect: str,
    of_broker: Callable[[int], Mapping[str, object]],
    ids: tuple[int, ...] = (1, 2),
    joined: bool = True,
) -> Iterator[dict[int, Broker]]:
    """Start brokers. :param joined: wait until each shows all."""
    with ExitStack() as stack:
        brokers = {
            number: stack.enter_context(
                Broker(config_of(number, connect, of_broker(number)), directory=directory / str(number))
            )
            for number in ids
        }
        if joined:
            until_joined(brokers)
        yield brokers


def until_joined(brokers: Mapping[int, Broker]) -> None:
    for broker in brokers.values():
        until(
            lambda broker=broker: shown.brokers(broker.bootstrap_servers)[1] == set(brokers),
            lambda broker=broker: f"broker {broker.config['broker.id']} shows all: {broker.log_tail()}",
        )


def servers(brokers: Mapping[int, Broker]) -> list[str]:
    return [broker.bootstrap_servers for broker in brokers.values()]


def whole_log(broker: Broker) -> str:
    return broker.log_file.read_text(errors="replace")
