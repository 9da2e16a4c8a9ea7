"""Runs the broker of a compose file in namespaces of its own, with the file's environment, and prints what clients receive.

    unshare --map-root-user --net --mount python -m tests.deploy.compose_stack FILE

The network has loopback only; all names of the file's services are 127.0.0.1, so that ports and names need not be changed. /tmp
and /var/lib are empty in the namespace. If the file has ZooKeeper, a real one listens at its port. Prints one JSON object.
"""

import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource

PROJECT = Path(__file__).resolve().parents[2]
BROKERS = ("broker", "kafka")
LIMIT_S = 60.0
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def environment(service: Mapping[str, Any]) -> dict[str, str]:
    """The variables of a service, whose `environment` is a mapping or a list."""
    given = service.get("environment", {})
    pairs = [item.split("=", 1) for item in given] if isinstance(given, list) else given.items()
    return {name: str(value) for name, value in pairs}


def bootstrap_servers(services: Mapping[str, Any], name: str) -> list[str]:
    """The addresses of clients on the host, from the published ports, and of those in the other services."""
    advertised = [value for key, value in environment(services[name]).items() if key.endswith("ADVERTISED_LISTENERS")]
    published = [f"localhost:{port.split(':')[0]}" for port in services[name]["ports"]]
    of_host = [server for server in published if server in advertised[0]]
    beside = {
        value
        for other, service in services.items()
        for key, value in environment(service).items()
        if other != name and ("BOOTSTRAP_SERVERS" in key or "BOOTSTRAPSERVERS" in key)
    }
    return [*of_host, *(sorted(beside) or [item.partition("://")[2] for item in advertised[0].split(",")])]


def prepare(services: Mapping[str, Any]) -> None:
    """Loopback, names and empty directories."""
    for place in ("/tmp", "/var/lib"):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
    hosts = Path("/tmp/hosts")
    hosts.write_text(f"127.0.0.1 localhost {' '.join(services)} {socket.gethostname()}\n")
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)


@contextlib.contextmanager
def zookeeper(services: Mapping[str, Any]) -> Iterator[None]:
    if "zookeeper" not in services:
        yield
        return
    import tests.zookeeper

    tests.zookeeper.reserved = lambda: contextlib.nullcontext(2181)  # nothing else listens in this namespace
    with tests.zookeeper.ZookeeperServer():
        yield


def talk(servers: str) -> dict[str, Any]:
    """What a client of these servers receives: the address of the broker, and its own record."""
    producer = Producer({"bootstrap.servers": servers, "message.timeout.ms": 20_000})
    topic = "topic-" + servers.replace(":", "-")
    failed: list[Any] = []
    producer.produce(topic, servers, on_delivery=lambda error, _: failed.append(error))
    producer.flush(30)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    deadline = time.monotonic() + 30
    message = None
    while message is None and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error():
            message = None
    consumer.close()
    brokers = producer.list_topics(timeout=10).brokers.values()
    return {
        "failed": [str(error) for error in failed if error is not None],
        "consumed": None if message is None else message.value().decode(),
        "brokers": [f"{broker.host}:{broker.port}" for broker in brokers],
    }


def main(file: Path) -> None:
    services = yaml.safe_load(file.read_text())["services"]
    name = next(name for name in services if name in BROKERS)
    prepare(services)
    log_file = Path("/tmp/log")
    servers = bootstrap_servers(services, name)
    command = [
        sys.executable,
        "-m",
        "odradek.cli.container",
        "--config",
        str(PROJECT / "deploy/image/server.properties"),
    ]
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT / "broker")} | environment(services[name])
    with zookeeper(services), log_file.open("wb") as log:
        broker = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            healthy = until_healthy(broker)
            result: dict[str, Any] = {"healthy": healthy, "servers": servers}
            if healthy is None:
                result["talks"] = {address: talk(address) for address in servers}
                admin = AdminClient({"bootstrap.servers": servers[0]})
                metadata = admin.list_topics(timeout=10)
                result["topics"] = {topic: len(row.partitions) for topic, row in metadata.topics.items()}
                result["policies"] = {topic: policy(admin, topic) for topic in metadata.topics}
        finally:
            broker.send_signal(signal.SIGTERM)
            code = broker.wait(60)
    print(json.dumps(result | {"code": code, "log": log_file.read_text(errors="replace").splitlines()}))


def policy(admin: AdminClient, topic: str) -> str:
    (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    return str(future.result()["cleanup.policy"].value)


def until_healthy(broker: "subprocess.Popen[bytes]") -> str | None:
    """Wait for the health check of the image. The last reason why the broker is not healthy; None if it is."""
    from odradek.cli.container.health import check

    deadline = time.monotonic() + LIMIT_S
    while (reason := check(Path(f"/proc/{broker.pid}"))) is not None:
        if broker.poll() is not None:
            return f"the broker ended with {broker.returncode}"
        if time.monotonic() > deadline:
            return reason
        time.sleep(0.1)
    return None


if __name__ == "__main__":
    main(Path(sys.argv[1]))
