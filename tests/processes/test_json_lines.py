"""log.format=json: every line that a broker writes is one JSON object, also when its start fails or something breaks."""

import json
import os
import signal
import socket
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from odradek.testing import Broker
from odradek.testing.process_tree import descendants
from tests.waiting import until

COMMAND = [sys.executable, "-m", "odradek.cli", "start"]
REQUIRED = {"time", "level", "logger", "process", "pid", "message"}
LEVELS = {"FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"}


def parsed(text: str) -> list[dict[str, object]]:
    """All lines of a stream; fails if one is not a JSON object with the fields that docs/operate/logs.md lists."""
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        assert set(line) >= REQUIRED, line
        assert line["level"] in LEVELS and isinstance(line["pid"], int)
        assert datetime.fromisoformat(line["time"]).utcoffset() is not None
    return lines


def failed_start(*arguments: object) -> tuple[list[dict[str, object]], int]:
    """What `odradek start` with these arguments writes, and its exit code."""
    done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == ""
    return parsed(done.stderr), done.returncode


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--set", "log.format=json", "--bogus"], 2, "no such option '--bogus'; see 'odradek start --help'"),
        (["--set=log.format=json", "extra"], 2, "extra"),
        (["--set", "log.format=json", "--set", "node.id=x"], 1, "node.id=x: must be an integer"),
        (["--set", "log.format=json", "--set", "log.dirs=/proc/none"], 1, "log directory /proc/none"),
        (["--set", "log.format=json", "--set", "create.topic.policy.class.name=no.Such"], 1, "no.Such"),
    ],
)
def test_a_failed_start_is_one_line_of_json(arguments: list[str], code: int, words: str) -> None:
    lines, ended = failed_start(*arguments)
    assert ended == code
    assert [line["level"] for line in lines if words in str(line["message"])] == ["FATAL"], lines
    assert {line["process"] for line in lines} == {"supervisor"}


def test_the_format_is_read_from_a_file_that_has_errors(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.format = text\nlog.format = json\nnode.id = x\nnode.id.typo = 3\n")
    for arguments, code in (([], 1), (["--bogus"], 2)):
        lines, ended = failed_start("--config", file, *arguments)
        assert ended == code and lines[-1]["level"] == "FATAL"
    text = subprocess.run(
        [*COMMAND, f"--config={file}", "--set", "log.format=text"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert text.stderr.splitlines()[-1].startswith("odradek: node.id=x: must be an integer")


@pytest.mark.parametrize("shape", ["json", "text"])
def test_an_exception_before_the_log_is_set_up_has_the_format_of_the_log(shape: str) -> None:
    code = f"""
from odradek.config import broker_config
def load(*arguments, **options):
    raise RuntimeError("a defect")
broker_config.load = load
from odradek.cli.main import main
main(["start", "--set", "log.format={shape}"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    if shape == "json":
        (line,) = parsed(done.stderr)
        assert line["level"] == "FATAL" and str(line["exception"]).endswith("RuntimeError: a defect")
    else:
        assert done.stderr.startswith("Traceback") and done.stderr.endswith("RuntimeError: a defect\n")


def test_what_python_would_print_by_itself_is_json(tmp_path: Path) -> None:
    code = """
import logging, threading, warnings
from odradek.config.broker_config import load
from odradek.processes import logs
logs.set_up("supervisor", load(None, ["log.format=json"]))
logs.log_uncaught()
warnings.warn("a warning of Python")
thread = threading.Thread(target=lambda: 1 / 0, name="divider")
thread.start()
thread.join()
class Finalized:
    def __del__(self):
        raise ValueError("in a finalizer")
Finalized()
logging.getLogger("odradek.cleaner").error("%d files", "three")
raise RuntimeError("nothing catches this")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    lines = parsed(done.stderr)
    assert (done.stdout, done.returncode, len(lines)) == ("", 1, 5)
    texts = [f"{line['level']} {line['message']} {line.get('exception', '')}" for line in lines]
    for text, words in zip(
        texts,
        (["WARN", "a warning of Python"], ["ERROR", "divider", "ZeroDivisionError"], ["ERROR", "in a finalizer"],
         ["ERROR", "'%d files' cannot be formatted with 'three'"], ["FATAL", "RuntimeError: nothing catches this"]),
        strict=True,
    ):  # fmt: skip
        assert all(word in text for word in words), text


def test_every_line_of_a_broker_in_trouble_is_json(tmp_path: Path) -> None:
    """A client sends garbage, a worker is killed, another one dies of a memory fault, and the broker stops."""
    with Broker({"log.format": "json", "log.level": "DEBUG", "num.network.threads": 2}, directory=tmp_path) as broker:

        def logged(process: str, words: str) -> bool:
            text = broker.log_file.read_text()
            lines = parsed(text[: text.rfind("\n") + 1])
            return any(str(line["process"]).startswith(process) and words in str(line["message"]) for line in lines)

        with socket.create_connection((broker.host, broker.port), timeout=60) as client:
            client.sendall(b"\x7f\xff\xff\xffGET / HTTP/1.1\r\n\r\n")
            assert client.recv(1) == b""
        until(lambda: logged("worker", "from 127.0.0.1"), "no worker logs the bad client")
        workers = [
            pid for pid in descendants(broker.pid) if Path(f"/proc/{pid}/comm").read_text() == "odradek-worker\n"
        ]
        os.kill(workers[0], signal.SIGKILL)
        until(lambda: logged("supervisor", "SIGKILL"), "the supervisor does not log the kill")
        os.kill(workers[1], signal.SIGSEGV)
        until(lambda: logged("supervisor", "the shared memory cannot be trusted"), "no memory fault is logged")
        until(lambda: broker.log_file.read_text().count("ready after") == 2, "the broker does not serve again")
    lines = parsed((tmp_path / "broker.log").read_text())
    assert {"FATAL", "ERROR", "INFO"} <= {line["level"] for line in lines}
    assert {str(line["process"]).partition("-")[0] for line in lines} >= {"supervisor", "worker", "coordinator"}
    assert lines[-1]["message"] == "stopped"
