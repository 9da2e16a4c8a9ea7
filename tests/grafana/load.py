"""Clients that keep a broker busy until SIGTERM: `python -m tests.grafana.load ROLE BOOTSTRAP_SERVERS [CA_FILE]`.

`writers`: three producers, one whose batches are refused, requests for a topic that there is not, connections with garbage.
`transactions`: a producer whose transactions commit, abort, or are fenced by a second one with its transactional id.
`security`: over SASL_SSL, a producer of alice who is throttled; renewals, and handshakes and logins that fail.
`group`: two members of the group billing. `reader`: reads orders and never commits, as Spark and Flink do.
"""

import contextlib
import itertools
import signal
import socket
import ssl
import sys
import threading

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from tests.cli.transaction.transaction_talk import TransactionTalk
from tests.sasl import BAD, SaslWire

TOPICS = {"orders": 3, "audit": 1, "tight": {"partitions": "1", "max.message.bytes": "1000"}}
PARTITIONS = 3
PAUSE_S = 0.05
BETWEEN_LOGINS_S = 3.0
ADDS_PARTITIONS = 12
"""A version of Produce."""

over = threading.Event()


def _write(bootstrap: str, client: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": client, "linger.ms": 5})
    while not over.wait(PAUSE_S):
        for _ in range(5):
            producer.produce(topic, b"x" * 500)
        producer.poll(0)


def _fail(bootstrap: str) -> None:
    """Cause errors of several kinds repeatedly."""
    settings = {"bootstrap.servers": bootstrap, "client.id": "clumsy", "message.timeout.ms": 5000}
    producer = Producer(settings)
    host, _, port = bootstrap.rpartition(":")
    while not over.wait(1):
        producer.produce("tight", b"x" * 5000)
        with contextlib.suppress(KafkaException):
            producer.list_topics("there-is-no-such-topic", timeout=5)
        producer.poll(0)
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")


def _transact(bootstrap: str, client: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "client.id": client, "transactional.id": client, "log_level": 0}
    for number in itertools.count():
        if over.is_set():
            return
        with contextlib.suppress(KafkaException):
            producers = [Producer(settings) for _ in range(1 + (number % 5 == 4))]
            for producer in producers:  # the second one fences the first one
                producer.init_transactions(5)
            for producer in producers:
                producer.begin_transaction()
                producer.produce("orders", b"x" * 500)
                (producer.abort_transaction if number % 5 == 3 else producer.commit_transaction)(5)


def _add_by_writing(bootstrap: str) -> None:
    """Abort transactions whose first batch adds the partition (KIP-890), so that the broker asks the coordinator about it."""
    host, _, port = bootstrap.rpartition(":")
    while not over.wait(1):
        with contextlib.suppress(AssertionError, OSError, EOFError), TransactionTalk(host, int(port)) as wire:
            producer = wire.init("ledger")
            wire.write("ledger", producer, "orders", 0, version=ADDS_PARTITIONS)
            wire.end("ledger", producer, commits=False)


def _consume(bootstrap: str, client: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "client.id": client, "group.id": "billing", "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500, "session.timeout.ms": 6000, "heartbeat.interval.ms": 1000,
        }
    )  # fmt: skip
    consumer.subscribe(["orders"])
    while not over.is_set():
        consumer.consume(1000, 0.5)
    consumer.close()


def _read(bootstrap: str, client: str) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "client.id": client, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("orders", partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    while not over.is_set():
        consumer.consume(1000, 0.5)
    consumer.close()


def _read_again(bootstrap: str, client: str) -> None:
    """Read the first records of each partition again and again, as a scheduled export without a group does."""
    while not over.is_set():
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "client.id": client, "group.id": "unused", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition("orders", partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
        consumer.consume(1000, 1)
        consumer.consume(1000, 1)  # requests what follows the first records
        consumer.close()


def _write_securely(bootstrap: str, client: str, ca: str) -> None:
    settings = {
        "bootstrap.servers": bootstrap, "client.id": client, "security.protocol": "SASL_SSL", "ssl.ca.location": ca,
        "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "alice-secret", "log_level": 0,
        "queue.buffering.max.messages": 1000,
    }  # fmt: skip
    producer = Producer(settings)
    while not over.wait(PAUSE_S):
        with contextlib.suppress(BufferError):  # because it is throttled
            for _ in range(10):
                producer.produce("orders", b"x" * 200)
        producer.poll(0)


def _log_in(bootstrap: str, ca: str) -> None:
    """Log in, renew the login, fail a login and a handshake, with each TLS version. Rarely, since handshakes are bytes of no
    client."""
    host, _, port = bootstrap.rpartition(":")
    trusting, distrusting = ssl.create_default_context(cafile=ca), ssl.create_default_context()
    versions = itertools.cycle((ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3))

    def connection(context: ssl.SSLContext) -> ssl.SSLSocket:
        return context.wrap_socket(socket.create_connection((host, int(port))), server_hostname=host)

    while not over.wait(BETWEEN_LOGINS_S):
        trusting.minimum_version = trusting.maximum_version = next(versions)
        with contextlib.suppress(OSError, EOFError), SaslWire.over(connection(trusting)) as wire:
            wire.log_in()
            wire.log_in()
        with contextlib.suppress(OSError, EOFError), SaslWire.over(connection(trusting)) as wire:
            wire.handshake()
            wire.authenticate(BAD)
        with contextlib.suppress(ssl.SSLError), connection(distrusting):
            pass


def main(role: str, bootstrap: str, *more: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    started = {
        "writers": [
            (_write, "shop", "orders"), (_write, "crm", "orders"), (_write, "auditor", "audit"), (_fail,),
        ],
        "group": [(_consume, "billing-0"), (_consume, "billing-1")],
        "reader": [(_read, "spark"), (_read_again, "export")],
        "transactions": [(_transact, "payments"), (_add_by_writing,)],
        "security": [(_write_securely, "secure", *more), (_log_in, *more)],
    }[role]  # fmt: skip
    threads = [threading.Thread(target=run, args=(bootstrap, *arguments)) for run, *arguments in started]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)  # signals are taken between


if __name__ == "__main__":
    main(*sys.argv[1:])
