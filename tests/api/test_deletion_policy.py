"""A deletion policy on a real broker: it deletes segments, hangs, raises; a class that cannot be loaded fails the start."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing import Broker
from tests.waiting import until
from tests.wire import Wire, batch

pytestmark = pytest.mark.xdist_group("deletion-policy")

CODE = """
import threading

class Newest:
    def configure(self, configs):
        self.keep = int(configs["node.id"])

    def deletable(self, log):
        if log.topic == "hangs":
            threading.Event().wait()
        if log.topic == "raises":
            raise KeyError("policy")
        return max(0, len(log.segments) - self.keep)

class NoPolicy:
    pass
"""
KEY = "odradek.segment.deletion.policy.class.name"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("deletion-policy")
    (directory / "deletion_policy_of_a_test.py").write_text(CODE)
    config = {
        "node.id": 3,
        KEY: "deletion_policy_of_a_test:Newest",
        "log.retention.check.interval.ms": 50,
        "log.segment.delete.delay.ms": 0,
    }
    topics = {name: {"partitions": "1", "segment.bytes": "1500"} for name in ("raises", "fine")}
    with Broker(config, topics, directory=directory / "b", environment={"PYTHONPATH": str(directory)}) as made:
        yield made


def fill(wire: Wire, topic: str, segments: int) -> None:
    for _ in range(segments):
        assert wire.produce(topic, batch(b"v" * 1000)).error_code == 0


def bases(broker: Broker, topic: str) -> list[int]:
    return sorted(int(path.stem) for path in (broker.data_dir / f"{topic}-0").glob("*.log"))


def test_the_class_deletes_segments_and_its_errors_affect_no_other_log(broker: Broker) -> None:
    with Wire(broker.host, broker.port) as wire:
        fill(wire, "fine", 8)
        until(lambda: bases(broker, "fine") == [5, 6, 7], lambda: f"{bases(broker, 'fine')}")
        assert wire.offset_at("fine", -2).offset == 5
        fill(wire, "raises", 8)
        until(lambda: "KeyError" in broker.log_file.read_text(), "no line says that the class failed")
        assert "deletion_policy_of_a_test:Newest failed for raises-0" in broker.log_file.read_text()
        assert len(bases(broker, "raises")) == 8
        wire.create("hangs", segment_bytes=1500)
        fill(wire, "hangs", 8)
        (cleaner,) = [one["pid"] for one in broker.processes() if one["kind"] == "cleaner"]
        wire.create("old", retention_ms=1)
        assert wire.produce("old", batch(b"v", timestamp=int(time.time() * 1000) - 3_600_000)).error_code == 0
        until(lambda: bases(broker, "old") == [1], "retention by time does not go on while the class hangs")
        assert [one["pid"] for one in broker.processes() if one["kind"] == "cleaner"] == [cleaner]
        assert len(bases(broker, "hangs")) == 8


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("com.example.Policy", "contains no class name (Java classes cannot be loaded)"),
        ("no_such_module:Policy", "ModuleNotFoundError"),
        ("deletion_policy_of_a_test:NoPolicy", "has no method deletable(log)"),
    ],
)
def test_a_class_that_cannot_be_loaded_stops_the_start_with_one_line(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(broker.directory.parent), prepend=":")
    settings = {KEY: text, "log.dirs": tmp_path / "data", "metrics.listener": ""}
    arguments = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "odradek.cli.main", "start", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and reason in done.stderr and KEY in done.stderr, done.stderr
    assert not (tmp_path / "data").exists()
