"""The files that the chart writes for the program: a broker can start with them, and commands can read them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.clients.security import ClientSecurity
from odradek.config.broker_config import load
from tests.deploy.helm import chart
from tests.deploy.helm.pod_files import ENVIRONMENT, PASSWORD, unpack


def check(file: Path) -> subprocess.CompletedProcess[str]:
    """Run `odradek config check --strict FILE`."""
    command = [sys.executable, "-m", "odradek.cli.main", "config", "check", "--strict", str(file)]
    environment = os.environ | ENVIRONMENT
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


@pytest.mark.broker
@pytest.mark.parametrize("name", chart.SETS)
def test_a_broker_can_start_with_the_configuration_of_a_value_set(name: str, tmp_path: Path) -> None:
    files = sorted(unpack(name, tmp_path).glob("server-*.properties"))
    assert files
    done = check(files[-1])
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if "RLIMIT" not in line]
    if name == "monitoring":  # its passwords for the metrics are sent without TLS
        warnings = [line for line in warnings if "send their passwords and tokens unencrypted" not in line]
    assert not warnings


@pytest.mark.parametrize("name", chart.SETS)
def test_all_brokers_of_a_value_set_differ_in_what_belongs_to_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in ENVIRONMENT.items():
        monkeypatch.setenv(variable, value)
    directory = unpack(name, tmp_path)
    configs = [load(file) for file in sorted(directory.glob("server-*.properties"))]
    first = 1 if name == "cluster" else 0
    assert [config.node_id for config in configs] == list(range(first, first + len(configs)))
    for config in configs:
        assert not config.unknown
        id_in_file = f"server-{config.node_id}.properties"
        assert (directory / id_in_file).is_file()
        assert f"prod-odradek-{config.node_id}." in str(config.advertised_listeners[0])
        assert [listener.name for listener in config.listeners][:2] == ["BROKERS", "CLIENTS"]
    addresses = [str(listener) for config in configs for listener in config.advertised_listeners]
    assert len(set(addresses)) == len(addresses)


def test_what_the_value_sets_say_is_what_the_broker_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in ENVIRONMENT.items():
        monkeypatch.setenv(variable, value)
    cluster = load(unpack("cluster", tmp_path / "cluster") / "server-2.properties")
    assert cluster["broker.rack"] == "zone-b"
    assert cluster["log.retention.ms"] == 604800000
    assert cluster["log.retention.bytes"] == 9223372036854775807
    assert cluster["auto.create.topics.enable"] is False
    assert cluster["log.cleaner.min.cleanable.ratio"] == 0.25
    external = load(unpack("external", tmp_path / "external") / "server-1.properties")
    assert external["broker.rack"] == "zone-a"
    assert external["odradek.zookeeper.password"] == PASSWORD
    assert external["zookeeper.connect"] == "zk1.example.org:2181,zk2.example.org:2181/kafka/orders"
    assert str(external.advertised_listeners[2]) == "EXTERNAL://broker-1.kafka.example.org:9094"
    nodeport = load(unpack("nodeport", tmp_path / "nodeport") / "server-0.properties")
    assert str(nodeport.advertised_listeners[2]) == "EXTERNAL://192.0.2.1:31090"
    secure = load(unpack("tls-scram", tmp_path / "tls-scram") / "server-0.properties")
    assert secure["super.users"] == "User:broker;User:admin"
    mutual = load(unpack("cert-manager", tmp_path / "cert-manager") / "server-0.properties")
    assert mutual.listener_value("BROKERS", "ssl.client.auth") == "required"


def test_texts_with_backslashes_and_line_breaks_arrive_unchanged(tmp_path: Path) -> None:
    rules = "RULE:^OU=a\rnode.id=7$/b/,RULE:^CN=([^,]+)\\.example\\.org$/$1/L,\nDEFAULT"
    config = load(unpack("single", tmp_path, config={"ssl.principal.mapping.rules": rules}) / "server-0.properties")
    assert config.static["ssl.principal.mapping.rules"].text == rules


@pytest.mark.parametrize("name", chart.SETS)
def test_commands_can_read_the_file_for_clients(name: str, tmp_path: Path) -> None:
    security = ClientSecurity.from_file(unpack(name, tmp_path) / "client.properties")
    assert security.protocol == {"tls-scram": "SASL_SSL", "cert-manager": "SSL"}.get(name, "PLAINTEXT")
    assert not security.warnings
    assert bool(security.key) == (name == "cert-manager")
    if name == "tls-scram":
        assert security.librdkafka()["sasl.username"] == "broker"
        assert security.librdkafka()["sasl.password"] == PASSWORD


def test_the_job_of_the_users_reads_a_file_that_needs_no_other_secrets(tmp_path: Path) -> None:
    users = [{"name": "alice", "passwordSecret": {"name": "kafka-users", "key": "alice"}}]
    config = load(unpack("external", tmp_path, users=users) / "zookeeper.properties")
    assert config["zookeeper.connect"] == "zk1.example.org:2181,zk2.example.org:2181/kafka/orders"
    assert config["odradek.zookeeper.auth"] == "sasl"
    found = chart.rendered("external", extra={"users": users})
    (job,) = (item for item in found if item["kind"] == "Job")
    volumes = {volume["name"]: volume for volume in job["spec"]["template"]["spec"]["volumes"]}
    assert volumes["secret-zookeeper-login"]["secret"]["items"] == [{"key": "password", "path": "password"}]
