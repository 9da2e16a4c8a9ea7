"""The listening sockets that a start binds, and what it logs about settings."""

import os
import socket
import struct
from pathlib import Path

import pytest

from odradek.config.broker_config import load
from odradek.config.listeners import Listener
from odradek.processes.supervisor import launch
from odradek.processes.supervisor.launch import StartError, _bind, _bind_metrics
from odradek.processes.supervisor.status import taken_default

LIMIT = int(Path("/proc/sys/net/core/somaxconn").read_text())
"""The operating system's limit of a backlog."""


def backlog_of(listening):
    """The backlog of a listening socket, as the kernel reports it: the field `tcpi_sacked` of `struct tcp_info`."""
    return struct.unpack_from("=8B6I", listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104))[-1]


@pytest.mark.parametrize("settings", [[], ["socket.listen.backlog.size=7"]])
def test_a_listener_has_the_backlog_that_the_configuration_shows(tmp_path, settings):
    config = load(None, [f"log.dirs={tmp_path}", "listeners=PLAINTEXT://127.0.0.1:0", *settings])
    with _bind(config, config.listeners[0]) as listening:
        assert backlog_of(listening) == min(LIMIT, config.integer("socket.listen.backlog.size"))


FILES_OF_KAFKA = {
    "4.3, KRaft": """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
""",
    "3.9, ZooKeeper": """\
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
""",
}


@pytest.mark.parametrize("text", FILES_OF_KAFKA.values(), ids=FILES_OF_KAFKA)
def test_a_start_with_kafkas_own_file_logs_one_line_about_its_settings_and_no_warning(tmp_path, caplog, text):
    file = tmp_path / "server.properties"
    file.write_text(text)
    caplog.set_level("INFO")
    launch.check(load(file, to_start=True))
    (line,) = [record for record in caplog.records if record.name == "odradek.config"]
    assert line.levelname == "INFO" and "num.io.threads" in line.message
    for name in ("process.roles", "controller.listener.names", "share.coordinator.state.topic.min.isr"):
        assert (name in line.message) == (name in text)


def test_settings_that_an_operator_may_rely_on_are_warnings(caplog):
    caplog.set_level("INFO")
    settings = [
        "metric.reporters=a.B",
        "log.dir.failure.timeout.ms=1",
        "sasl.kerberos.service.name=k",
        "num.io.threads=4",
    ]
    launch.check(load(None, settings))
    lines = [(record.levelname, record.message.rpartition(": ")[2]) for record in caplog.records]
    assert lines == [
        ("WARNING", "sasl.kerberos.service.name (--set)"),
        ("WARNING", "metric.reporters, log.dir.failure.timeout.ms"),
        ("INFO", "num.io.threads"),
    ]


@pytest.mark.parametrize(
    ("settings", "logged"),
    [
        (["odradek.published.address=host:19092"], True),
        ([], False),
        (["odradek.published.address=host", "advertised.listeners=PLAINTEXT://a:1"], False),
        (["odradek.published.address=host", "zookeeper.connect=127.0.0.1:1", "broker.id=1"], False),
        (["odradek.published.address=host", "listeners=PLAINTEXT://127.0.0.1:9092"], False),
    ],
)
def test_the_published_address_is_logged_if_clients_receive_it(caplog, settings, logged):
    caplog.set_level("INFO")
    launch.check(load(None, settings))
    lines = [record.message for record in caplog.records if "(odradek.published.address)" in record.message]
    assert len(lines) == logged
    assert all("a published port receive host:19092 (" in line for line in lines)


def test_a_default_metrics_port_that_another_process_has_is_replaced_by_a_free_one(tmp_path, caplog):
    config = load(None, [f"log.dirs={tmp_path}"])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with _bind_metrics(config, Listener("METRICS", "127.0.0.1", port, "HTTP")) as free:
            found = free.getsockname()[1]
            assert found != port and config["metrics.listener"] == f"127.0.0.1:{found}"
            assert config.changed({}, {})["metrics.listener"] == f"127.0.0.1:{found}", "also after a change at run time"
            default = taken_default(config, free)
            assert default == "127.0.0.1:9404", "the status names it as long as the broker runs"
            assert taken_default(load(None, [f"metrics.listener=127.0.0.1:{found}"]), free) is None
            assert taken_default(config, None) is None
    (line,) = [record.message for record in caplog.records]
    assert f"127.0.0.1:{port} cannot be opened: the port is in use by process {os.getpid()} (" in line
    assert f"using 127.0.0.1:{found}, which has a free port" in line


def test_a_configured_metrics_port_must_be_free(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config = load(None, [f"log.dirs={tmp_path}", f"metrics.listener={address}"])
        with pytest.raises(
            StartError, match=rf"metrics.listener={address} cannot be opened: the port is in use by process"
        ):
            _bind_metrics(config, config.metrics_listener)
