"""Replication between Odradek brokers whose inter-broker listener uses TLS or SASL: failures, and how they are mended."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from odradek.cli.health.security import judge_security
from odradek.testing.broker_process import Broker
from tests import certificates
from tests.cli.command import Command
from tests.cluster import shown
from tests.cluster.secure import (
    LISTENER,
    add_user,
    jaas,
    replace,
    servers,
    settings,
    started,
    until_joined,
    whole_log,
    write_stores,
)
from tests.cluster.test_odradek_cluster import RECORDS, consume, produce
from tests.metrics.scraping import scrape
from tests.waiting import until
from tests.zookeeper import chroot

pytestmark = pytest.mark.timeout(300)
CASES = {
    "ssl": ("SSL", ""),
    "sasl-plain": ("SASL_PLAINTEXT", "PLAIN"),
    "sasl-ssl-scram": ("SASL_SSL", "SCRAM-SHA-512"),
}
SCRAM = "SCRAM-SHA-512"
SCRAM_LINE = "listener.name.brokers.scram-sha-512.sasl.jaas.config"
FAILED = "odradek_failed_broker_logins_total"
LOGINS = "kafka_server_socket_server_metrics_successful_authentication_total"


def create(brokers: Mapping[int, Broker], topic: str, assignment: dict[int, list[int]], min_in_sync: int = 2) -> None:
    """Create a topic; does not wait for in-sync replicas."""
    configs = {"min.insync.replicas": str(min_in_sync)}
    with closing(KafkaAdminClient(bootstrap_servers=servers(brokers))) as admin:
        admin.create_topics([NewTopic(topic, replica_assignments=assignment, topic_configs=configs)])


def until_in_sync(brokers: Mapping[int, Broker], topic: str, leaders: dict[int, int] | None = None) -> None:
    """Wait until each broker shows that all replicas are in sync, and these leaders."""
    everybody = frozenset(brokers)

    def reached(broker: Broker) -> bool:
        found = shown.partitions(broker.bootstrap_servers, topic)
        wanted = leaders or {number: row.leader for number, row in found.items()}
        return bool(found) and found == {number: (leader, everybody) for number, leader in wanted.items()}

    for broker in brokers.values():
        until(
            lambda broker=broker: reached(broker),
            lambda broker=broker: f"{shown.partitions(broker.bootstrap_servers, topic)}: {broker.log_tail()}",
        )


class Load:
    """Produces numbers to partition 0 with acks=all in a thread; `acknowledged` are those that the brokers have taken."""

    def __init__(self, brokers: Mapping[int, Broker], topic: str) -> None:
        self.acknowledged: list[int] = []
        self.error: BaseException | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": ",".join(servers(brokers)),
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        try:
            while not self._stopping.is_set():
                for _ in range(20):
                    self._producer.produce(self._topic, b"%d" % number, partition=0, on_delivery=self._delivered)
                    number += 1
                self._producer.flush()
                self._stopping.wait(0.02)  # a moderate load, which the consumer reads in a short time
        except BaseException as error:
            self.error = error

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        self.acknowledged.append(int(message.value() or b""))

    def until_more(self, count: int = 200) -> None:
        """Wait until so many further records are acknowledged."""
        wanted = len(self.acknowledged) + count
        until(lambda: self.error or len(self.acknowledged) >= wanted, lambda: f"{len(self.acknowledged)} of {wanted}")
        assert self.error is None, self.error

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


@contextmanager
def load(brokers: Mapping[int, Broker], topic: str) -> Iterator[Load]:
    """A load; at its end, all acknowledged records must be in the topic."""
    running = Load(brokers, topic)
    try:
        yield running
    finally:
        running.stop()
    assert running.error is None, running.error
    wanted = set(running.acknowledged)
    with closing(KafkaConsumer(bootstrap_servers=servers(brokers), auto_offset_reset="earliest")) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        read: set[int] = set()

        def poll() -> bool:
            for batch in consumer.poll(timeout_ms=500).values():
                read.update(int(record.value) for record in batch)
            return wanted <= read

        until(poll, lambda: f"all acknowledged records: {sorted(wanted - read)[:10]} of {len(wanted)} are missing")


def metric(broker: Broker, name: str, **labels: str) -> float:
    """The sum of the samples of a metric with these labels."""
    return float(scrape(broker).sum(name, **labels))


@pytest.mark.parametrize("case", CASES)
def test_brokers_replicate_in_both_directions_and_replace_each_other(case: str, tmp_path: Path) -> None:
    protocol, mechanism = CASES[case]
    connect = chroot()
    stores = write_stores(tmp_path / "stores")
    if mechanism.startswith("SCRAM"):  # before the first start of the cluster
        added = Command("")(
            "user", "add", "broker", "--mechanism", mechanism, "--zookeeper", connect, "--password-file", "-",
            stdin="secret-of-brokers\n",
        )  # fmt: skip
        assert "set the password of user 'broker'" in added
    with started(tmp_path, connect, lambda _: settings(protocol, stores, mechanism)) as brokers:
        create(brokers, "t", {0: [1, 2], 1: [2, 1]})
        until_in_sync(brokers, "t", {0: 1, 1: 2})
        for partition in (0, 1):
            produce(servers(brokers), "t", partition)
            assert consume(servers(brokers), "t", partition, RECORDS) == list(range(RECORDS))
        if mechanism != SCRAM:
            return
        wrong = "listener.name.brokers.ssl.endpoint.identification.algorithm=dns"
        admin = Command(brokers[1].bootstrap_servers)
        admin.refused("config", "set", "--broker", "1", wrong, words=["must be https, or empty"])
        create(brokers, "moved", {0: [1, 2]}, min_in_sync=1)
        until_in_sync(brokers, "moved")
        with load(brokers, "moved") as running:
            running.until_more()
            brokers[1].kill_group()
            running.until_more()
            brokers[1].start()
            until_in_sync(brokers, "moved", {0: 2})
            brokers[2].stop()
            running.until_more()
            brokers[2].start()
            running.until_more()
        assert "the leaderships of this broker were moved to other brokers" in whole_log(brokers[2])
        for broker in brokers.values():
            assert " ERROR " not in whole_log(broker)
            assert "secret-of-brokers" not in whole_log(broker)


@pytest.mark.parametrize("fault", ["authority", "host", "expired"])
def test_a_wrong_certificate_is_reported_and_replaced(fault: str, tmp_path: Path) -> None:
    good, bad = write_stores(tmp_path / "good"), write_stores(tmp_path / "bad")
    if fault == "authority":
        replace(bad / "broker.pem", "".join(certificates.pem(certificates.of_broker("broker", "strange"))))
        replace(bad / "ca.pem", certificates.ca_pem() + certificates.ca_pem("strange"))
        reason = "no authority in ssl.truststore.location of this broker has signed the certificate"
    elif fault == "host":
        write_stores(bad, identity="elsewhere.example.org")
        reason = "does not contain the host 127.0.0.1"
    else:
        replace(bad / "broker.pem", "".join(certificates.pem(certificates.expired_broker())))
        reason = "the certificate of the other broker has expired"
    further = {
        "odradek.ssl.reload.ms": 100,
        "ssl.allow.san.changes": "true",
        "ssl.allow.dn.changes": "true",
        "replica.lag.time.max.ms": 3000,
    }

    def of_broker(number: int) -> dict[str, object]:
        return settings("SSL", good if number == 1 else bad) | further

    with started(tmp_path, chroot(), of_broker, joined=False) as brokers:
        said = f"to broker 2 at 127.0.0.1:{port_of(brokers[2])} (listener {LISTENER}, SSL): "
        until(lambda: reason in whole_log(brokers[1]), lambda: brokers[1].log_tail())
        assert said in whole_log(brokers[1])
        replace(bad / "broker.pem", (good / "broker.pem").read_text())
        until_joined(brokers)
        create(brokers, "t", {0: [1, 2], 1: [2, 1]})
        until_in_sync(brokers, "t", {0: 1, 1: 2})
        for partition in (0, 1):
            produce(servers(brokers), "t", partition)
        for broker in brokers.values():
            lines = [line for line in whole_log(broker).splitlines() if "cannot authenticate a connection" in line]
            addresses = [line.partition(" at 127.0.0.1:")[2].split()[0] for line in lines]
            processes = 2  # the coordinator and the replicator each log it
            assert all(addresses.count(address) <= processes for address in addresses), lines


def test_a_wrong_password_is_reported_once_and_counted_and_replication_goes_on_when_it_is_right(tmp_path: Path) -> None:
    connect = chroot()
    add_user(connect)

    def of_broker(number: int) -> dict[str, object]:
        found = settings("SASL_PLAINTEXT", None) | {"metrics.listener": "127.0.0.1:0"}
        if number == 2:  # this user does not exist yet
            found[SCRAM_LINE] = jaas(SCRAM, "another-secret").replace('"broker"', '"second"')
        return found

    with started(tmp_path, connect, of_broker) as brokers:
        create(brokers, "t", {0: [1, 2]})
        until(lambda: metric(brokers[2], FAILED) >= 3, "failed logins are counted")
        lines = [line for line in whole_log(brokers[2]).splitlines() if "cannot authenticate a connection" in line]
        text = (
            f"to broker 1 at 127.0.0.1:{port_of(brokers[1])} (listener {LISTENER}, SASL_PLAINTEXT): the broker refused"
        )
        assert any(text in line for line in lines) and len(lines) <= 2 and all(" ERROR " in line for line in lines), (
            lines
        )
        assert "a login as 'second' from 127.0.0.1 on listener BROKERS failed" in whole_log(brokers[1])
        (fault,) = broker_faults(brokers[2])
        assert fault["broker"] == "broker 1" and fault["port"] == port_of(brokers[1])
        assert "the broker refused" in fault["reason"] and metric(brokers[2], "odradek_failing_broker_logins") == 1
        (finding,) = [one for one in judge_security(brokers[2].status()["security"]) if one.subject == "broker 1"]
        assert f"127.0.0.1:{port_of(brokers[1])}" in finding.what and finding.severity == "error"
        add_user(connect, "another-secret", name="second")
        until_in_sync(brokers, "t", {0: 1})
        until(lambda: not broker_faults(brokers[2]), lambda: f"{broker_faults(brokers[2])}")
        assert metric(brokers[2], "odradek_failing_broker_logins") == 0
        produce(servers(brokers), "t", 0)
        assert consume(servers(brokers), "t", 0, RECORDS) == list(range(RECORDS))
        assert "another-secret" not in whole_log(brokers[2])


def broker_faults(broker: Broker) -> list[dict[str, Any]]:
    """The addresses to which a broker cannot log in, from its status."""
    return list(broker.status()["security"]["failing_logins"])


def port_of(broker: Broker, listener: str = LISTENER) -> int:
    return int(next(row["port"] for row in broker.status()["listeners"] if row["name"] == listener))


def test_short_sessions_are_replaced_without_a_loss(tmp_path: Path) -> None:
    connect = chroot()
    add_user(connect)
    stores = write_stores(tmp_path / "stores")
    further = {
        "metrics.listener": "127.0.0.1:0",
        "connections.max.reauth.ms": 1500,
        "listener.name.brokers.connections.max.reauth.ms": 1500,
        "replica.lag.time.max.ms": 30_000,
    }
    with started(tmp_path, connect, lambda _: settings("SASL_SSL", stores) | further) as brokers:
        create(brokers, "t", {0: [1, 2]})
        until_in_sync(brokers, "t")
        with load(brokers, "t") as running:
            before = metric(brokers[1], LOGINS)
            until(lambda: metric(brokers[1], LOGINS) >= before + 4, "followers log in again")
            running.until_more()
        until_in_sync(brokers, "t")
        for broker in brokers.values():
            assert metric(broker, "kafka_server_replicamanager_isrshrinks_total") == 0
            assert " ERROR " not in whole_log(broker)


def test_both_ends_report_a_missing_right(tmp_path: Path) -> None:
    connect = chroot()
    add_user(connect)
    add_user(connect, name="second")

    def of_broker(number: int) -> dict[str, object]:
        found = settings("SASL_PLAINTEXT", None) | {
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:broker;User:ANONYMOUS",
        }
        if number == 2:
            found[SCRAM_LINE] = jaas(SCRAM).replace('"broker"', '"second"')
        return found

    with started(tmp_path, connect, of_broker) as brokers:
        create(brokers, "t", {0: [1, 2]}, min_in_sync=1)
        hint = "_AUTHORIZATION_FAILED (the principal of this broker must be one of super.users of the other broker"
        until(lambda: hint in whole_log(brokers[2]), lambda: brokers[2].log_tail())
        until(lambda: "User:second" in whole_log(brokers[1]), lambda: brokers[1].log_tail())
        allow = ("acl", "add", "--allow", "User:second", "--cluster", "--operation", "cluster-action")
        Command(brokers[1].bootstrap_servers)(*allow)
        until_in_sync(brokers, "t", {0: 1})


def test_a_cluster_changes_from_plaintext_to_sasl_ssl_broker_by_broker(tmp_path: Path) -> None:
    """As docs/operate/cluster.md describes: add the listener, use it, close the former one to brokers."""
    connect = chroot()
    add_user(connect)
    secure = settings("SASL_SSL", write_stores(tmp_path / "stores"))
    name, only = "inter.broker.listener.name", "odradek.inter.broker.listener.only"
    steps: list[dict[str, object]] = [
        secure | {name: "PLAINTEXT", only: "false"},
        secure | {only: "false"},
        secure | {only: "true"},
    ]
    with started(tmp_path, connect, lambda _: {}) as brokers:
        create(brokers, "t", {0: [1, 2]}, min_in_sync=1)
        until_in_sync(brokers, "t")
        with load(brokers, "t") as running:
            running.until_more()
            for step in steps:
                for broker in brokers.values():
                    broker.config |= {key: str(value) for key, value in step.items()}
                    broker.stop()
                    broker.start()
                    until_joined(brokers)
                    until_in_sync(brokers, "t")
            running.until_more()
        assert all(broker.status()["cluster"]["inter_broker_listener"] == LISTENER for broker in brokers.values())
