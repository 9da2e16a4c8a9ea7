"""The odradek command in a process of its own: start, stop, status, and wrong command lines."""

import errno
import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from odradek.cli.inspection import local_broker
from odradek.cli.main import main
from odradek.cli.security import certificate
from odradek.config.listeners import Listener
from odradek.config.pid_file import STATUS_SOCKET, read_pid_file, start_ticks, write_pid_file

LISTENER = Listener("PLAINTEXT", "127.0.0.1", 9, "PLAINTEXT")


def odradek(*arguments, **options):
    command = [sys.executable, "-m", "odradek.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


def assert_one_line(result, code, *words):
    assert result.returncode == code, result
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("odradek: "), result.stderr
    for word in words:
        assert word in result.stderr


@pytest.mark.parametrize(
    "arguments", [["--help"], ["start", "--help"], ["stop", "-h"], ["status", "--help"], ["demo", "-h"]]
)
def test_every_command_has_help(arguments):
    result = odradek(*arguments)
    assert result.returncode == 0 and result.stdout.startswith("Usage: odradek") and not result.stderr


def test_help_and_errors_import_nothing_heavy():
    code = "import sys, odradek.cli.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = ("rich", "confluent_kafka", "kafka", "asyncio", "uvloop", "odradek.processes", "odradek.testing", "kazoo")
    assert not [name for name in loaded if name.startswith(heavy)]


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "list"],
        ["topic", "describe", "t"],
        ["cluster", "wait", "--timeout", "0.1"],
        ["partition", "moves"],
        ["partition", "move", "--off", "1"],
        ["partition", "elect"],
        ["group", "list"],
        ["transaction", "list"],
        ["transaction", "hanging"],
        ["config", "get", "-t", "t"],
        ["config", "explain", "retention.ms"],
        ["offsets", "migrate", "g"],
        ["doctor", "--data-dir", "/"],
        ["status", "--data-dir", "/"],
    ],
)
def test_commands_import_nothing_that_makes_them_slow(arguments):
    """All of them run within 0.3 s (docs/decisions/0014-explain.md), which these imports would prevent."""
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr));"
        "sys.argv[0] = 'odradek'; from odradek.cli.main import main; main()"
    )
    environment = os.environ | {"ODRADEK_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment)
    loaded = done.stderr.splitlines()[-1].split()
    assert "odradek.cli.framework.lazy" in loaded
    heavy = ("confluent_kafka", "kafka", "asyncio", "uvloop", "kazoo", "numpy", "rich", "sqlite3", "odradek.processes")
    heavy += ("subprocess", "tempfile", "odradek.testing.broker_process")
    assert not [name for name in loaded if name.startswith(heavy)]


def test_the_version_is_printed():
    result = odradek("--version")
    assert result.returncode == 0 and result.stdout.startswith("odradek ")


def test_a_bad_value_stops_the_start_with_one_line():
    assert_one_line(odradek("start", "--set", "num.partitions=x"), 1, "num.partitions=x", "an integer from 1", "--set")


def test_an_unknown_key_is_reported_with_the_error_that_it_may_cause(tmp_path):
    """Else a start or a stop complains about the default that a misspelled key did not replace."""
    misspelled = ["--set", f"log.drs={tmp_path}"]
    cases = {
        "num.partitions=x": ["start", *misspelled, "--set", "num.partitions=x"],
        "no broker runs on": ["stop", *misspelled, "--set", f"log.dir={tmp_path}"],
        "does not exist": ["adopt", "--check", *misspelled, "--set", f"log.dir={tmp_path}/none"],
    }
    for words, arguments in cases.items():
        warning, error = odradek(*arguments).stderr.splitlines()
        assert warning == (
            "odradek: warning: ignoring unknown key log.drs (--set); did you mean 'log.dirs'?"
            " docs/reference/configuration.md lists all keys"
        )
        assert error.startswith("odradek: ") and words in error


def test_a_bad_file_stops_the_start_with_file_and_line(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text("broker.id=1\nlog.cleanup.policy=shred\n")
    assert_one_line(odradek("start", "--config", path), 1, "log.cleanup.policy=shred", f"{path}:2")
    assert_one_line(odradek("start", "--config", tmp_path / "none"), 1, "none", "No such file")


@pytest.mark.parametrize("command", ["stop", "status"])
def test_a_bad_configuration_is_one_line_for_the_other_commands_too(command):
    assert_one_line(odradek(command, "--set", "log.dirs=,"), 1, "log.dirs")


@pytest.mark.parametrize(("command", "code"), [("stop", 1), ("status", 3)])
def test_a_directory_without_a_broker_is_an_error(command, code, tmp_path):
    advice = "first directory of its log.dirs"
    assert_one_line(odradek(command, "--data-dir", tmp_path), code, "no broker runs", str(tmp_path), advice)
    assert_one_line(odradek(command, "--set", f"log.dirs={tmp_path}/a,{tmp_path}/b"), code, f"{tmp_path}/a")


@pytest.mark.parametrize(("command", "code"), [("stop", 1), ("status", 3)])
def test_a_reused_process_id_is_not_the_broker(command, code, tmp_path):
    (tmp_path / "odradek.pid").write_text(f"{os.getpid()}\n{start_ticks(os.getpid()) - 1}\n[]\n")
    assert_one_line(odradek(command, "--data-dir", tmp_path), code, "has ended")


@pytest.mark.parametrize("content", ["", "abc\n", "1\n2\nnull\n", "1\n2\n{}x\n", '1\n2\n[{"host": 1}]\n'])
def test_an_invalid_pid_file_is_an_error(content, tmp_path):
    (tmp_path / "odradek.pid").write_text(content)
    assert_one_line(odradek("status", "--data-dir", tmp_path), 1, "odradek.pid")


@pytest.mark.parametrize("command", ["stop", "status"])
def test_a_process_that_the_files_of_a_directory_name_is_believed_only_with_its_lock(command, tmp_path):
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        (tmp_path / "odradek.pid").write_text(f"{other.pid}\n{start_ticks(other.pid)}\n[]\n")
        (tmp_path / ".lock").touch()
        words = f"process {other.pid}", "does not hold its .lock; nothing was done"
        assert_one_line(odradek(command, "--data-dir", tmp_path), 1, *words)
        assert other.poll() is None


def test_a_process_that_is_no_broker_is_not_signalled():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        assert_one_line(odradek("stop", "--pid", other.pid), 1, f"process {other.pid} is not an Odradek broker")
        assert other.poll() is None
        other.stdin.close()
    assert_one_line(odradek("status", "--pid", other.pid), 3, f"process {other.pid} does not exist")


def test_a_file_of_another_user_is_one_line_with_the_remedy(monkeypatch, capsys):
    """The tests run as root, who may read all files."""

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied", "/data/x")

    monkeypatch.setattr(local_broker, "read_pid_file", refuse)
    monkeypatch.setattr(certificate, "_of_listener", refuse)
    for arguments, where, whose in (
        (["status", "--data-dir", "/data"], "cannot read /data/odradek.pid", "the broker's user"),
        (["stop", "--data-dir", "/data"], "cannot read /data/odradek.pid", "the broker's user"),
        (["certificate", "a:1"], "/data/x", "the owner of the file"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        expected = f"odradek: {where}: Permission denied; run this command as root or as {whose}\n"
        assert (ended.value.code, capsys.readouterr().err) == (1, expected)


def test_a_name_that_does_not_resolve_is_not_called_a_broker_that_does_not_run():
    result = odradek("topic", "list", "-b", "no-such-host.invalid")
    assert_one_line(result, 1, "cannot connect to no-such-host.invalid:9092", "check the name", "-b HOST:PORT")
    assert "start a broker" not in result.stderr and "must name a listener" not in result.stderr


def test_only_one_option_may_select_the_broker(tmp_path):
    assert_one_line(odradek("stop", "--pid", 1, "--data-dir", tmp_path), 1, "only one of")


STAND_IN = """
import fcntl, os, signal, sys
from odradek.config.pid_file import write_pid_file
from odradek.cli.inspection import local_broker
from odradek.cli.security import certificate
from odradek.cli.main import main
from odradek.config.listeners import Listener
os.chdir(sys.argv[1])
lock = open(os.path.join(sys.argv[1], ".lock"), "w")
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
write_pid_file(sys.argv[1], [Listener("PLAINTEXT", "127.0.0.1", 9, "PLAINTEXT")])
print("ready", flush=True)
if sys.argv[2] == "polite":
    signal.sigwait({signal.SIGTERM})
else:
    sys.stdin.read()
"""


@pytest.fixture
def stand_in(tmp_path):
    """Starts a process that has a broker's files; it ends on SIGTERM if it is "polite", and ignores it otherwise."""
    started = []

    def start(manners):
        command = [sys.executable, "-c", STAND_IN, str(tmp_path), manners]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in started:
        process.stdin.close()
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("way", ["pid", "data-dir", "set"])
def test_stop_waits_until_the_broker_has_exited(stand_in, tmp_path, way):
    process = stand_in("polite")
    options = {
        "pid": ["--pid", process.pid],
        "data-dir": ["--data-dir", tmp_path],
        "set": ["--set", f"log.dirs={tmp_path}"],
    }
    result = odradek("stop", *options[way])
    assert result.returncode == 0 and f"stopped broker {process.pid} of {tmp_path}" in result.stdout
    assert process.wait(60) == 0


def test_stop_fails_after_its_timeout(stand_in, tmp_path):
    process = stand_in("stubborn")
    began = time.monotonic()
    result = odradek("stop", "--data-dir", tmp_path, "--timeout", "0.2")
    assert_one_line(result, 1, f"broker {process.pid}", "still runs 0.2 s after SIGTERM")
    assert time.monotonic() - began < 60  # the default of --timeout
    assert process.poll() is None


def answer(directory, data):
    """Serve one connection on the status socket of the directory, in a thread."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(f"{directory}/{STATUS_SOCKET}")
    server.listen(1)

    def serve():
        with server:
            connection, _ = server.accept()
            with connection:
                connection.sendall(data)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


@pytest.fixture
def short_directory(tmp_path_factory):
    """A directory whose PID file names this process, which holds its lock."""
    directory = tmp_path_factory.mktemp("s")
    write_pid_file(str(directory), [LISTENER])
    with (directory / ".lock").open("w"):
        yield directory


REPORT = {
    "node_id": 4,
    "pid": 77,
    "state": "running",
    "cluster_id": "MkU3OEVBNTcwNTJENDM2Qk",
    "uptime_s": 90061.0,
    "partitions": 12,
    "listeners": [LISTENER._asdict()],
    "metrics": {"host": "127.0.0.1", "port": 40404},
    "metrics_instead_of": "127.0.0.1:9404",
    "loading": {
        "done": 3,
        "total": 9,
        "directories": [
            {
                "path": "/data/a",
                "done": 3,
                "total": 9,
                "bytes_recovered": 1_000_000,
                "bytes_to_recover": 3_000_000,
                "truncated_bytes": 12,
                "truncated_logs": 1,
                "elapsed_s": 2.0,
                "remaining_s": 4.0,
            }
        ],
    },
    "connections": 5,
    "connections_accepted": 1234,
    "connections_refused": 0,
    "kept_bytes": 3_400_000,
    "log_dirs": [
        {
            "path": "/data/a",
            "online": True,
            "disk": "full",
            "free_bytes": 5_000_000,
            "total_bytes": 80_000_000,
            "full_until_bytes": 10_000_000,
        },
        {"path": "/data/b", "online": False, "disk": "roomy", "free_bytes": -1, "total_bytes": -1},
    ],
    "pss_bytes": 43_210_000,
    "processes": [
        {
            "kind": "worker",
            "pid": 78,
            "state": "running",
            "restarts": 2,
            "connections": 5,
            "uptime_s": 3700.0,
            "pss_bytes": 2_000_000,
            "last_exit": "SIGKILL",
        },
        {
            "kind": "cleaner",
            "pid": 79,
            "state": "starting",
            "restarts": 0,
            "connections": 0,
            "uptime_s": 1.25,
            "pss_bytes": 0,
            "last_exit": "",
        },
    ],
}


def test_status_as_json_is_the_supervisors_response(short_directory):
    thread = answer(short_directory, json.dumps(REPORT).encode())
    result = odradek("status", "--data-dir", short_directory, "--json")
    thread.join(60)
    report = json.loads(result.stdout)
    assert result.returncode == 0 and result.stdout.count("\n") == 1
    assert report.items() >= REPORT.items()
    assert report["data_dir"] == str(short_directory)


def test_status_as_text_shows_everything(short_directory):
    thread = answer(short_directory, json.dumps(REPORT).encode())
    result = odradek("status", "--data-dir", short_directory, env=os.environ | {"COLUMNS": "160"})
    thread.join(60)
    assert result.returncode == 0, result
    words = [
        "Broker 4",
        "PLAINTEXT://127.0.0.1:9",
        "worker",
        "78",
        "1 h 1 min",
        "1 d 1 h",
        "1.2 s",
        "3 of 9 logs",
        "1.0 of 3.0 MB recovered, 12 bytes cut off in 1 logs, about 4 s left",
        "12",
    ]
    words += [
        "/data/a (full: producers are refused until 10.0 MB are free; 5.0 MB of 80.0 MB free)",
        "/data/b (offline)",
        "http://127.0.0.1:40404/metrics (not 127.0.0.1:9404, which was in use at the start)",
    ]
    words += [
        "1234 accepted",
        "idle ones hold 3.4 MB",
        "43.2 MB",
        "2.0 MB",
        "SIGKILL",
        "MkU3OEVBNTcwNTJENDM2Qk",
        "-",
    ]
    for word in words:
        assert word in result.stdout


def test_a_broker_that_does_not_respond_is_not_reported_as_stopped(short_directory):
    assert_one_line(odradek("status", "--data-dir", short_directory), 1, "does not respond")
    thread = answer(short_directory, b"HTTP/1.1 200")
    assert_one_line(odradek("status", "--data-dir", short_directory), 1, "returned an invalid status")
    thread.join(60)


def test_the_pid_file_identifies_the_broker(tmp_path):
    assert read_pid_file(str(tmp_path)) is None
    write_pid_file(str(tmp_path), [LISTENER, LISTENER._replace(name="B", host="::1", port=10)])
    running = read_pid_file(str(tmp_path))
    assert running.pid == os.getpid() and running.is_alive()
    assert [str(listener) for listener in running.listeners] == ["PLAINTEXT://127.0.0.1:9", "B://[::1]:10"]
    assert [path.name for path in tmp_path.iterdir()] == ["odradek.pid"]
