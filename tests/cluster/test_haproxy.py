"""Two brokers behind haproxy, with the configurations of docs/operate/cluster.md: a port for each broker, and a name for each.

The tests replace the names and ports of the document by addresses of this machine.
"""

import asyncio
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.testing.broker_process import Broker
from tests import toolchains
from tests.certificates import authority, ca_pem, pem
from tests.cli.command import Command
from tests.clients.killed_programs import running
from tests.ports import reserved
from tests.waiting import until
from tests.zookeeper import chroot

pytestmark = [pytest.mark.xdist_group("haproxy"), pytest.mark.timeout(900), pytest.mark.java]

DOCUMENT = (toolchains.REPOSITORY / "docs/operate/cluster.md").read_text()
PORTS_CONFIG, NAMES_CONFIG = re.findall(r"^```haproxy\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
DEFAULTS = PORTS_CONFIG.partition("\n\n")[0]
IDS = (1, 2)
DOMAIN = "kafka.example.net"
COUNT = 50


@contextmanager
def brokers(
    directory: Path, ports: dict[int, int], listeners: dict[int, dict[str, object]]
) -> Iterator[dict[int, Broker]]:
    """Two brokers of a cluster. :param ports: of their metrics."""
    connect = chroot()
    with ExitStack() as stack:
        started = {}
        for broker_id in IDS:
            config = {
                "zookeeper.connect": connect,
                "broker.id": broker_id,
                "num.network.threads": 1,
                "inter.broker.listener.name": "BROKERS",
                "offsets.topic.num.partitions": 1,
                "metrics.listener": f"127.0.0.1:{ports[broker_id]}",
                **listeners[broker_id],
            }
            started[broker_id] = stack.enter_context(Broker(config, directory=directory / str(broker_id)))
        yield started


@contextmanager
def haproxy(config: str, directory: Path) -> Iterator[Path]:
    """haproxy with this configuration; returns the file of what it prints."""
    command = toolchains.require_command("haproxy", "haproxy")
    file, log = directory / "haproxy.cfg", directory / "haproxy.log"
    file.write_text(config)
    checked = subprocess.run([command, "-c", "-V", "-f", str(file)], capture_output=True, text=True)
    output = checked.stdout + checked.stderr
    assert checked.returncode == 0 and "WARNING" not in output, output
    with running([command, "-db", "-f", str(file)], log):
        yield log


def replaced(config: str, texts: dict[str, str]) -> str:
    """A configuration of the document with addresses of this machine; each text must occur."""
    for text, other in texts.items():
        assert text in config, text
        config = config.replace(text, other)
    return config


def create_topic(address: str) -> None:
    """Create the topic `orders` as soon as both brokers are registered; each leads one of its partitions."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    until(lambda: set(admin.list_topics(timeout=90).brokers) == set(IDS), "both brokers are registered")
    Command(address)("topic", "create", "orders", "--assignment", "1,2")


async def written_and_read(bootstrap: str, first: int, **settings: Any) -> dict[int, list[int]]:
    """Write numbers to both partitions, and read all from the beginning: the numbers by partition."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", **settings) as producer:
        for number in range(first, first + COUNT):
            await producer.send_and_wait("orders", b"%d" % number, partition=number % 2)
    found: dict[int, list[int]] = {0: [], 1: []}
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", **settings)
    async with consumer:
        consumer.assign([TopicPartition("orders", number) for number in found])
        while sum(map(len, found.values())) < first + COUNT:
            record = await asyncio.wait_for(consumer.getone(), 180)
            found[record.partition].append(int(record.value))
    return found


def expected(count: int) -> dict[int, list[int]]:
    return {number: list(range(number, count, 2)) for number in (0, 1)}


def advertised(bootstrap: str) -> dict[int, str]:
    """The addresses of all brokers, as a client receives them."""
    cluster = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=90)
    return {broker.id: f"{broker.host}:{broker.port}" for broker in cluster.brokers.values()}


def test_a_port_for_each_broker(tmp_path: Path) -> None:
    toolchains.require_command("haproxy", "haproxy")
    with ExitStack() as stack:
        bootstrap, *rest = [stack.enter_context(reserved()) for _ in range(9)]
        balanced, clients, inner, metrics = (dict(zip(IDS, rest[n : n + 2], strict=True)) for n in range(0, 8, 2))
        listeners: dict[int, dict[str, object]] = {
            number: {
                "listeners": f"CLIENTS://127.0.0.1:{clients[number]},BROKERS://127.0.0.1:{inner[number]}",
                "advertised.listeners": f"CLIENTS://127.0.0.1:{balanced[number]},BROKERS://127.0.0.1:{inner[number]}",
                "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
            }
            for number in IDS
        }
        texts = {"bind :9092": f"bind 127.0.0.1:{bootstrap}"}
        for number in IDS:
            texts |= {
                f"broker{number}.internal:9092 check port 9404": f"127.0.0.1:{clients[number]} check port {metrics[number]}",
                f"broker{number}.internal:9092": f"127.0.0.1:{clients[number]}",
                f"bind :910{number}": f"bind 127.0.0.1:{balanced[number]}",
            }
        started = stack.enter_context(brokers(tmp_path, metrics, listeners))
        log = stack.enter_context(haproxy(replaced(PORTS_CONFIG, texts), tmp_path))
        address = f"127.0.0.1:{bootstrap}"
        create_topic(address)
        assert advertised(address) == {number: f"127.0.0.1:{balanced[number]}" for number in IDS}
        assert asyncio.run(written_and_read(address, 0)) == expected(COUNT)
        started[1].stop()
        until(lambda: "Server ready/broker1 is DOWN" in log.read_text(), log.read_text)
        assert set(advertised(address)) == {2}  # only the other one is asked
        started[1].start()
        until(lambda: "Server ready/broker1 is UP" in log.read_text(), log.read_text)
        Command(address)("partition", "elect")
        assert asyncio.run(written_and_read(address, COUNT)) == expected(2 * COUNT)


def test_a_name_for_each_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toolchains.require_command("haproxy", "haproxy")
    resolve = socket.getaddrinfo

    def resolved(host: Any, *arguments: Any, **options: Any) -> Any:
        """The name server of this test: all names of the domain lead to the balancer."""
        ours = isinstance(host, str) and host.endswith(DOMAIN)
        return resolve("127.0.0.1" if ours else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    with ExitStack() as stack:
        port, *rest = [stack.enter_context(reserved()) for _ in range(7)]
        clients, inner, metrics = (dict(zip(IDS, rest[n : n + 2], strict=True)) for n in range(0, 6, 2))
        listeners: dict[int, dict[str, object]] = {}
        for number in IDS:
            # each has a certificate for its own name only, beside that for the bootstrap server
            store = tmp_path / f"broker{number}.pem"
            store.write_text("".join(pem(authority().issue_cert(f"broker{number}.{DOMAIN}", DOMAIN))))
            listeners[number] = {
                "listeners": f"CLIENTS://127.0.0.1:{clients[number]},BROKERS://127.0.0.1:{inner[number]}",
                "advertised.listeners": f"CLIENTS://broker{number}.{DOMAIN}:{port},BROKERS://127.0.0.1:{inner[number]}",
                "listener.security.protocol.map": "CLIENTS:SSL,BROKERS:PLAINTEXT",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": store,
            }
        texts = {"bind :9093": f"bind 127.0.0.1:{port}"}
        for number in IDS:
            texts |= {
                f"broker{number}.internal:9093 check port 9404": f"127.0.0.1:{clients[number]} check port {metrics[number]}",
                f"broker{number}.internal:9093": f"127.0.0.1:{clients[number]}",
            }
        started = stack.enter_context(brokers(tmp_path, metrics, listeners))
        stack.enter_context(haproxy(f"{DEFAULTS}\n\n{replaced(NAMES_CONFIG, texts)}", tmp_path))
        create_topic(f"127.0.0.1:{inner[1]}")
        context = ssl.create_default_context(cadata=ca_pem())
        settings = {"security_protocol": "SSL", "ssl_context": context}
        assert asyncio.run(written_and_read(f"{DOMAIN}:{port}", 0, **settings)) == expected(COUNT)
        started[1].restart()
        Command(f"127.0.0.1:{inner[2]}")("cluster", "wait", "--brokers", "2", "--in-sync")
        Command(f"127.0.0.1:{inner[2]}")("partition", "elect")
        assert asyncio.run(written_and_read(f"{DOMAIN}:{port}", COUNT, **settings)) == expected(2 * COUNT)
