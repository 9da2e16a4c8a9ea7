"""Levels of loggers that change while the broker runs, in every process and its successor; JSON; an ordered stop."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.schemas import describe_configs, incremental_alter_configs
from odradek.testing import Broker
from tests.clients.kafka_tools import KafkaTools
from tests.waiting import until
from tests.wire import Wire, batch

pytestmark = [pytest.mark.xdist_group("log-levels"), pytest.mark.timeout(300)]

LOGGER = 8
SET, DELETE = 0, 1
NODE = 4
CONFIG = {
    "node.id": NODE,
    "log.format": "json",
    "log.levels": "odradek.groups=ERROR",
    "log.retention.check.interval.ms": 50,
    "num.network.threads": 2,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(CONFIG, directory=tmp_path_factory.mktemp("levels")) as made:
        yield made


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.host, broker.port) as made:
        yield made


def alter(wire: Wire, *edits: tuple[str, int, str | None]) -> None:
    make = incremental_alter_configs.Request
    configs = [make.AlterableConfig(name=name, config_operation=how, value=level) for name, how, level in edits]
    resource = make.AlterConfigsResource(resource_type=LOGGER, resource_name=str(NODE), configs=configs)
    (answer,) = wire.ask(make(resources=[resource]), incremental_alter_configs.API_KEY, 1).responses
    assert answer.error_code == 0, answer


def levels(wire: Wire) -> dict[str, str]:
    make = describe_configs.Request
    resource = make.DescribeConfigsResource(resource_type=LOGGER, resource_name=str(NODE), configuration_keys=None)
    (result,) = wire.ask(make(resources=[resource]), describe_configs.API_KEY, 4).results
    assert result.error_code == 0
    return {one.name: one.value for one in result.configs}


def lines(broker: Broker) -> list[dict[str, Any]]:
    """Every line that was written whole."""
    text = broker.log_file.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def said(broker: Broker, process: str, words: str) -> int:
    return sum(1 for line in lines(broker) if line["process"].startswith(process) and words in line["message"])


def expire(wire: Wire, topic: str) -> None:
    wire.create(topic, retention_ms=1)
    assert wire.produce(topic, batch(b"v", timestamp=int(time.time() * 1000) - 3_600_000)).error_code == 0


def test_levels_come_from_the_configuration_and_change_in_every_process(broker: Broker, wire: Wire) -> None:
    before = levels(wire)
    assert (before["root"], before["odradek.cleaner"], before["odradek.groups"]) == ("INFO", "INFO", "ERROR")
    expire(wire, "loud")
    until(lambda: said(broker, "cleaner", "loud-0: deleting"), "the cleaner does not log what it removes")
    assert said(broker, "coordinator", "to topic loud") == 1
    alter(wire, ("odradek", SET, "ERROR"), ("odradek.groups", SET, "DEBUG"))
    after = levels(wire)
    assert (after["root"], after["odradek.cleaner.retention"], after["odradek.groups"]) == ("INFO", "ERROR", "DEBUG")
    expire(wire, "quiet")
    until(lambda: wire.offset_at("quiet", -2).offset == 1, "nothing is removed")
    assert said(broker, "cleaner", "quiet") == said(broker, "coordinator", "quiet") == 0
    alter(wire, ("odradek", DELETE, None), ("odradek.groups", DELETE, None))
    assert levels(wire) == before
    expire(wire, "again")
    until(lambda: said(broker, "cleaner", "again-0: deleting"), "the level was not reset")


def test_a_restarted_process_keeps_the_levels_and_the_supervisor_has_them(broker: Broker, wire: Wire) -> None:
    alter(wire, ("odradek.connections", SET, "DEBUG"))
    pids = {one["kind"]: one["pid"] for one in broker.processes()}
    for kind in ("worker", "coordinator"):
        os.kill(pids[kind], signal.SIGKILL)
        until(
            lambda kind=kind: [
                one for one in broker.processes()
                if one["kind"] == kind and one["state"] == "serving" and one["restarts"]
            ],
            f"no new {kind}",
        )  # fmt: skip
    with Wire(broker.host, broker.port) as fresh:
        assert levels(fresh)["odradek.connections"] == "DEBUG"
    for _ in range(4):  # to both workers
        Wire(broker.host, broker.port).socket.close()
    restarted = {
        f"worker-{one['ordinal']}" for one in broker.processes() if one["kind"] == "worker" and one["restarts"]
    }
    assert restarted

    def closes() -> bool:
        return any(
            line["process"] in restarted and line["level"] == "DEBUG" and line["logger"] == "odradek.connections"
            for line in lines(broker)
        )

    until(closes, "the successor does not log at DEBUG")
    with Wire(broker.host, broker.port) as fresh:
        alter(fresh, ("odradek.supervisor", SET, "FATAL"))
        killed = next(one["pid"] for one in broker.processes() if one["kind"] == "cleaner")
        os.kill(killed, signal.SIGKILL)
        until(lambda: all(one["pid"] not in (killed, None) for one in broker.processes()), "no new cleaner")
        assert said(broker, "supervisor", f"cleaner-0 (pid {killed})") == 0
        alter(fresh, ("odradek.supervisor", DELETE, None), ("odradek.connections", DELETE, None))


@pytest.mark.java
def test_kafkas_tool_describes_and_changes_levels(broker: Broker, tmp_path: Path) -> None:
    of = ("--entity-type", "broker-loggers", "--entity-name", str(NODE))
    with KafkaTools(broker.bootstrap_servers, tmp_path / "errors") as tools:
        told = tools.run("configs", *of, "--describe")
        assert told.code == 0, told
        assert "odradek.groups=ERROR" in told.out and "root=INFO" in told.out
        told = tools.run("configs", *of, "--alter", "--add-config", "odradek.cleaner=WARN,odradek.groups=TRACE")
        assert told.code == 0, told
        with Wire(broker.host, broker.port) as wire:
            found = levels(wire)
            assert (found["odradek.cleaner.retention"], found["odradek.groups"]) == ("WARN", "TRACE")
        told = tools.run("configs", *of, "--alter", "--delete-config", "odradek.cleaner,odradek.groups")
        assert told.code == 0, told
        with Wire(broker.host, broker.port) as wire:
            assert levels(wire)["odradek.cleaner.retention"] == "INFO"
        told = tools.run("configs", *of, "--alter", "--add-config", "no.such.logger=INFO")
        assert "Invalid broker logger(s): no.such.logger" in told.out + told.err
        told = tools.run("configs", *of, "--alter", "--add-config", "odradek.cleaner=LOUD")
        assert "not a supported log level" in told.out + told.err


def test_an_ordered_stop_logs_nothing_above_info_and_every_line_is_json(tmp_path: Path) -> None:
    config = {
        "log.format": "json",
        "metrics.listener": "127.0.0.1:0",
        "usage.spool.max.bytes": 1 << 20,
        "no.such.key": 1,
    }
    with Broker(config, {"t": 2}, directory=tmp_path) as broker, Wire(broker.host, broker.port) as wire:
        assert wire.produce("t", batch(b"v")).error_code == 0
        assert wire.fetch("t", 0).records
        until(lambda: all(one["state"] == "serving" for one in broker.processes()), lambda: f"{broker.processes()}")
        before = len(lines(broker))
        broker.stop()
        found = lines(broker)
    assert found[0]["level"] == "WARN" and "no.such.key" in found[0]["message"]
    assert {line["process"] for line in found} >= {"supervisor", "loader-0", "coordinator-0"}
    # The service manager of the harness has gone: its socket is in a directory of the start alone.
    loud = [line for line in found[before:] if line["level"] != "INFO" and "service manager" not in line["message"]]
    assert loud == []
    assert [line["message"] for line in found[before:]][-1] == "stopped"
