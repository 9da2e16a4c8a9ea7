"""Errors that prevent a start, notifications of a start, and the status in every state."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from odradek.testing.status import read_status
from tests.processes.supervisor.fake_broker import PATIENCE_S, ROOT, FakeBroker


@pytest.fixture
def second(tmp_path):
    fake = FakeBroker(tmp_path / "second")
    fake.data_dir = tmp_path / "data"
    fake.log_file.parent.mkdir()
    yield fake
    fake.close()


def test_a_second_broker_on_the_directory_is_refused_with_the_pid_of_the_first(broker, second):
    broker.start()
    second.launch()
    line = second.error_line()
    assert str(broker.data_dir) in line and f"process {broker.process.pid}" in line
    assert broker.connect().ask("echo") == "echo" and broker.status()["state"] == "serving"


def test_a_start_that_fails_keeps_the_clean_shutdown_marker(broker, second):
    broker.start().stop()
    broker.start("log.dirs=" + str(broker.data_dir.parent / "elsewhere"))
    port = read_status(str(broker.data_dir.parent / "elsewhere"), PATIENCE_S)["listeners"][0]["port"]
    second.launch(f"listeners=PLAINTEXT://127.0.0.1:{port}")
    assert "the port is in use" in second.error_line()
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()


def test_a_file_in_place_of_a_directory(broker):
    broker.data_dir.parent.mkdir(exist_ok=True)
    broker.data_dir.write_text("")
    broker.launch()
    assert f"{broker.data_dir} is not a directory" in broker.error_line()


AS_NOBODY = """
import os, sys
from odradek.config.broker_config import load
from odradek.processes.supervisor.log_dirs import LogDirectories, StartError
config = load(None, ["log.dirs=" + sys.argv[1]])
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    with LogDirectories(config):
        print("opened")
except StartError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("closed", "is not readable and writable"),
        ("closed/deeper", "cannot be reached: this user may not enter"),
        ("read-only/deeper", "cannot be created: Permission denied"),
    ],
)
def test_a_directory_of_another_user(place, words):
    with tempfile.TemporaryDirectory(prefix="odradek-dirs-") as directory:
        Path(directory).chmod(0o755)
        (Path(directory) / "closed").mkdir(mode=0)
        (Path(directory) / "read-only").mkdir(mode=0o555)
        command = [sys.executable, "-c", AS_NOBODY, str(Path(directory) / place)]
        result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240, check=True)
        assert words in result.stdout and place in result.stdout and result.stdout.count("\n") == 1


def test_a_directory_of_another_node_or_cluster(broker, second):
    broker.start("node.id=5").stop()
    broker.launch("node.id=6")
    line = broker.error_line()
    assert "belongs to node 5" in line and "node.id is 6" in line
    other = broker.data_dir.parent / "other"
    second.start(f"log.dirs={other}", "node.id=5").stop()
    second.launch(f"log.dirs={broker.data_dir},{other}", "node.id=5")
    assert "different clusters" in second.error_line()


def test_a_start_without_node_id_takes_that_of_the_directory(broker):
    broker.start("node.id=5").stop()
    broker.start()
    assert broker.status()["node_id"] == 5


def test_the_cluster_keeps_its_id(broker):
    broker.start()
    first = broker.status()["cluster_id"]
    assert len(first) == 22
    broker.stop()
    assert broker.start().status()["cluster_id"] == first


def test_more_processes_than_there_are_places(broker):
    broker.launch("num.network.threads=100")
    assert "num.network.threads" in broker.error_line()


def test_systemd_is_notified_of_start_watchdog_and_stop(broker):
    ready = broker.start(environment={"WATCHDOG_USEC": "100000"})
    assert ready is broker
    lines = broker.messages[-1].split("\n")
    assert "READY=1" in lines and f"MAINPID={broker.process.pid}" in lines
    assert f"STATUS=serving on PLAINTEXT://127.0.0.1:{broker.port}" in lines
    broker.messages.clear()
    for _ in range(3):
        broker.wait_for("WATCHDOG=1")
    broker.process.send_signal(signal.SIGTERM)
    assert "STATUS=stopping" in broker.wait_for("STOPPING=1")
    assert broker.end() == 0


def test_the_oom_killer_prefers_children_to_the_supervisor(broker):
    broker.start()

    def score(pid):
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())

    own = score(broker.process.pid)
    children = [process["pid"] for process in broker.processes() if process["kind"] != "supervisor"]
    assert len(children) > 2
    assert {score(pid) for pid in children} == {own + 100}


def test_systemd_is_asked_for_the_time_that_each_step_of_a_stop_may_take(broker):
    broker.start("odradek.stop.timeout.ms=7000")
    broker.process.send_signal(signal.SIGTERM)
    broker.wait_for("STOPPING=1")
    for _ in range(2):
        assert broker.wait_for("EXTEND_TIMEOUT_USEC=") == "EXTEND_TIMEOUT_USEC=17000000"
    assert broker.end() == 0


def test_the_watchdog_of_another_process_is_not_notified(broker):
    broker.start(environment={"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"})
    broker.stop()
    broker.wait_for("STOPPING=1")
    assert not [message for message in broker.messages if "WATCHDOG" in message]


def test_status_lists_every_process(broker):
    broker.start("num.network.threads=3")
    broker.connect()
    status = broker.status()
    assert status["state"] == "serving" and status["pid"] == broker.process.pid
    assert status["listeners"] == [
        {"name": "PLAINTEXT", "host": "127.0.0.1", "port": broker.port, "protocol": "PLAINTEXT"}
    ]
    assert (status["connections"], status["connections_accepted"], status["connections_refused"]) == (1, 1, 0)
    (log_dir,) = status["log_dirs"]
    assert (log_dir["path"], log_dir["online"], log_dir["disk"]) == (str(broker.data_dir), True, "roomy")
    names = [f"{process['kind']}-{process['ordinal']}" for process in status["processes"]]
    assert sorted(names) == ["cleaner-0", "coordinator-0", "supervisor-0", "worker-0", "worker-1", "worker-2"]
    for process in status["processes"]:
        assert process["state"] == "serving" and process["restarts"] == 0 and process["pss_bytes"] > 100_000
        comm = Path(f"/proc/{process['pid']}/comm").read_text().strip()
        assert process["kind"] == "supervisor" or comm == f"odradek-{process['kind'][:7]}"
    assert status["pss_bytes"] == sum(process["pss_bytes"] for process in status["processes"])
    assert stat.S_IMODE((broker.data_dir / "odradek.sock").stat().st_mode) == 0o600


def test_status_while_logs_are_loaded(broker, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    broker.launch("num.recovery.threads.per.data.dir=1", environment={"GATE": str(gate)})
    broker.wait_for("loader-0")
    status = broker.status()
    assert status["state"] == "starting" and not (broker.data_dir / "odradek.pid").exists()
    assert "loader" in {process["kind"] for process in status["processes"]}
    command = [sys.executable, "-m", "odradek.cli.main", "status", "--data-dir", str(broker.data_dir)]
    shown = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert f"starting, process {broker.process.pid}" in shown
    gate.write_bytes(b"open")
    broker.wait_for("READY=1")
    assert broker.status()["state"] == "serving"


def test_status_does_not_wait_for_a_client_that_does_not_read(broker):
    broker.start()
    silent = []
    for _ in range(5):
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        fd = os.open(broker.data_dir, os.O_PATH)
        client.connect(f"/proc/self/fd/{fd}/odradek.sock")
        os.close(fd)
        silent.append(client)
    assert broker.status()["state"] == "serving"
    assert json.loads(silent[0].makefile().read())["pid"] == broker.process.pid
    for client in silent:
        client.close()


def test_a_long_path_of_the_data_directory_works(broker):
    broker.data_dir = broker.data_dir.parent / ("long" * 30) / "data"
    broker.start()
    assert broker.status()["state"] == "serving" and broker.connect().ask("echo") == "echo"
