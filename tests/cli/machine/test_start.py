"""start, status, stop and demo with the real processes."""

import json
import re
import signal
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from odradek.cli.framework import options
from odradek.cli.inspection import local_broker
from odradek.cli.main import main
from odradek.config.pid_file import start_ticks
from odradek.testing import Broker
from tests.wire import Wire

COMMAND = [sys.executable, "-m", "odradek.cli.main"]


def odradek(*arguments, timeout=120):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.fixture
def running(tmp_path):
    with Broker(directory=tmp_path, topics={"t": 2}) as broker:
        yield broker


def test_status_shows_the_processes(running):
    by_directory = odradek("status", "--data-dir", running.data_dir, "--json")
    report = json.loads(by_directory.stdout)
    assert by_directory.returncode == 0
    assert report["pid"] == running.pid and report["partitions"] == 2
    assert report["listeners"][0]["port"] == running.port
    assert {"supervisor", "coordinator", "worker", "cleaner"} <= {process["kind"] for process in report["processes"]}
    assert report["pss_bytes"] > 1_000_000
    for_people = odradek("status", "--pid", running.pid)
    assert for_people.returncode == 0 and f"PLAINTEXT://127.0.0.1:{running.port}" in for_people.stdout
    titles, *rows = [line.split() for line in for_people.stdout.splitlines() if not line.startswith(" ")][1:]
    assert titles == ["PROCESS", "PID", "STATE", "RESTARTS", "CONNS", "UPTIME", "MEMORY"], (
        "whole, as columns, in a pipe"
    )
    assert {row[0] for row in rows} >= {"supervisor", "coordinator", "worker", "cleaner"}


def test_status_counts_existing_partitions(running):
    def partitions():
        return json.loads(odradek("status", "--pid", running.pid, "--json").stdout)["partitions"]

    with Wire(running.host, running.port) as wire:
        wire.create("made", 3)
        assert partitions() == 5
        wire.delete("made")
        assert partitions() == 2
        wire.create("made", 1)
        assert partitions() == 3


def test_an_error_without_a_selected_broker_names_the_options(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        local_broker, "load", lambda *_: SimpleNamespace(log_dirs=[str(tmp_path)], unknown_key_warnings=[])
    )
    with pytest.raises(local_broker.NotRunningError, match=r"--config FILE.*--data-dir DIR"):
        local_broker.find(None, (), None, None)
    with pytest.raises(local_broker.NotRunningError) as named:
        local_broker.find(None, (), str(tmp_path), None)
    assert "--config" not in str(named.value)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
    for default, hinted in ((nobody, True), ("localhost:9092", False)):
        monkeypatch.setattr(options, "DEFAULT_SERVERS", default)
        with pytest.raises(SystemExit):
            main(["topic", "list", "-b", nobody])
        assert ("-b HOST:PORT" in capsys.readouterr().err) is hinted


def test_stop_shuts_the_broker_down_cleanly(running):
    pids = running.process_ids()
    result = odradek("stop", "--set", f"log.dirs={running.data_dir}")
    assert result.returncode == 0 and f"stopped broker {running.pid}" in result.stdout
    assert not running.running and running._reap() == 0
    assert not [pid for pid in pids if start_ticks(pid) is not None]
    assert odradek("status", "--data-dir", running.data_dir).returncode == 3
    assert odradek("stop", "--data-dir", running.data_dir).returncode == 1


def test_an_interrupt_shuts_the_broker_down_cleanly(running):
    running.signal(signal.SIGINT)
    assert running._reap() == 0
    assert "Traceback" not in running.log_file.read_text()


def test_warnings_go_to_stderr_and_the_broker_starts(tmp_path):
    settings = {
        "no.such.key": "1", "log.retnetion.hours": "1", "num.io.threads": "4", "sasl.jaas.config": "x",
        "metric.reporters": "a.Reporter", "queued.max.request.bytes": "1",
    }  # fmt: skip
    with Broker(settings, directory=tmp_path) as broker:
        text = broker.log_file.read_text()
    assert re.search(
        r" WARN supervisor\[\d+\] odradek.config: ignoring unknown key no.such.key \(--set\); docs/\S+ lists all keys\n",
        text,
    )
    assert "ignoring unknown key log.retnetion.hours (--set); did you mean 'log.retention.hours'? " in text
    assert re.search(
        r" INFO supervisor\[\d+\] odradek.config: ignoring settings of Kafka's [^:]*: num.io.threads\n", text
    )
    assert "these settings have no effect: metric.reporters, queued.max.request.bytes\n" in text
    assert "security settings have no effect" not in text


def test_the_log_level_is_an_option_of_start(tmp_path):
    options = ["--set", f"log.dirs={tmp_path}/data", "--set", "metrics.listener=", "--log-level"]
    done = odradek("start", *options, "loud")
    assert done.returncode == 1 and "log.level=loud: must be one of FATAL, ERROR" in done.stderr
    done = odradek("start", *options, "error", "--set", "no.such.key=1", "--set", "create.topic.policy.class.name=x:Y")
    assert done.returncode == 1 and "no.such.key" not in done.stderr, "a warning is below the level"


def test_failed_starts_are_errors_of_one_line(running, tmp_path):
    file = tmp_path / "file"
    file.touch()
    free = "listeners=PLAINTEXT://127.0.0.1:0"
    taken = f"listeners=PLAINTEXT://127.0.0.1:{running.port}"
    cases = {
        f"in use by process {running.pid} (python); set another address in {taken}": [
            "--set",
            taken,
            "--set",
            f"log.dirs={tmp_path}/new",
        ],
        f"{file}/new cannot be created: Not a directory; create it": ["--set", free, "--set", f"log.dirs={file}/new"],
        f"another directory; that broker is process {running.pid}: `odradek stop --pid {running.pid}`": [
            "--set",
            "listeners=PLAINTEXT://127.0.0.1:0",
            "--set",
            f"log.dirs={running.data_dir}",
        ],
        str(file): ["--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", f"log.dirs={file}"],
    }
    for words, arguments in cases.items():
        result = odradek("start", "--set", "metrics.listener=", *arguments)
        assert result.returncode == 1, result
        lines = [line for line in result.stderr.splitlines() if line.startswith("odradek: ")]
        assert len(lines) == 1 and words in lines[0] and "Traceback" not in result.stderr, result


def test_a_directory_of_another_broker_id_is_refused(tmp_path):
    with Broker({"node.id": "5"}, directory=tmp_path) as broker:
        broker.stop()
        result = odradek(
            "start",
            "--set",
            "metrics.listener=",
            "--set",
            "node.id=6",
            "--set",
            "listeners=PLAINTEXT://127.0.0.1:0",
            "--set",
            f"log.dirs={broker.data_dir}",
        )
    assert result.returncode == 1
    assert "5" in result.stderr and "6" in result.stderr and "Traceback" not in result.stderr


def test_the_demo_compares_every_byte():
    result = odradek("demo", "--megabytes", "3", timeout=240)
    assert result.returncode == 0, result
    assert re.search(r"compared  [\d,]+ records: every byte .* are equal", result.stdout)
    assert re.search(r"consumed .* MB/s.*kafka-python .* limits this rate, not the broker", result.stdout)
    assert "MB/s" in result.stdout and "memory" in result.stdout and "stopped" in result.stdout


def test_a_file_of_a_cluster_with_kraft_controllers_does_not_start_a_broker_without_topics(tmp_path):
    data = tmp_path / "data"
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={data}\nprocess.roles=broker\n")
    refused = odradek("start", "--config", file)
    assert refused.returncode == 1 and not data.exists()
    last = refused.stderr.splitlines()[-1]
    assert last.startswith("odradek: process.roles=broker")
    assert "metadata.store=embedded" in last and "odradek adopt" in last and f"{file}:4" in last


def test_each_setting_that_a_start_refuses_is_a_line(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("listeners=OTHER://127.0.0.1:0\nauthorizer.class.name=kafka.Acl\nprocess.roles=broker\n")
    lines = odradek("start", "--config", file).stderr.splitlines()
    names = [
        "listeners=OTHER://127.0.0.1:0",
        "authorizer.class.name=kafka.Acl",
        "process.roles=broker",
    ]
    assert len(lines) == len(names)
    for number, (line, name) in enumerate(zip(lines, names, strict=True), 1):
        assert line.startswith(f"odradek: {name}: ") and line.endswith(f"({file}:{number})")
    lines = odradek("adopt", "--check", "--config", file).stderr.splitlines()
    assert [line.split(": ")[1] for line in lines] == names[:2], "adopt reads the files of such brokers"
