"""The report by ``spark-submit`` on a standalone cluster: a master and a worker in separate processes."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from odradek.jobs.usage_report import __main__ as program
from tests import toolchains
from tests.jobs.spools import HOUR_MS, Boot, at, traffic
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("usage_report_cluster")

SPARK = Path(pyspark.__file__).parent
BEGIN, END = "2026-11-01", "2026-11-03"
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # runs are short


def environment(directory: Path) -> dict[str, str]:
    return os.environ | {
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(directory / "scratch"),
        "SPARK_WORKER_DIR": str(directory / "work"),
        "PYSPARK_PYTHON": sys.executable,
        "JDK_JAVA_OPTIONS": JVM,
    }


@contextmanager
def daemon(directory: Path, name: str, *arguments: str) -> Iterator[tuple[Path, "subprocess.Popen[bytes]"]]:
    """A process of Spark, and its log."""
    log = directory / f"{name}.log"
    command: list[str | Path] = [
        SPARK / "bin" / "spark-class",
        f"org.apache.spark.deploy.{name}",
        "--host",
        "127.0.0.1",
        *arguments,
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment(directory), cwd=directory)
    try:
        yield log, process
    finally:
        process.terminate()
        process.wait(300)


def told(daemon: tuple[Path, "subprocess.Popen[bytes]"], pattern: str) -> str:
    """Wait for `pattern` in the daemon's log; return its first group."""
    log, process = daemon

    def found() -> str | None:
        whole_lines, _, _ = log.read_text().rpartition("\n")
        match = re.search(pattern, whole_lines)
        assert match or process.poll() is None, log.read_text()
        return match and match[1]

    return until(found, lambda: f"{pattern} in {log.read_text()}", 300) or ""


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """Yield the URL of the master of a cluster with one worker."""
    toolchains.require_command("java", "default-jdk-headless")
    with ExitStack() as ends:
        first = ends.enter_context(daemon(tmp_path, "master.Master", "--port", "0", "--webui-port", "0"))
        url = told(first, r"Starting Spark master at (spark://\S+)")
        second = ends.enter_context(
            daemon(tmp_path, "worker.Worker", "--webui-port", "0", "--cores", "2", "--memory", "1g", url)
        )
        told(second, r"(Successfully registered) with master")
        yield url


@pytest.mark.timeout(1200)
def test_a_cluster_makes_the_report_by_spark_submit(master: str, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    boot = Boot(spool, "0badcafe", at(f"{BEGIN}T00:00"))
    for hour in range(48):
        boot.count((0, "User:shop", "checkout", "orders", "Produce"), [10**6 + hour, 0, 1000, 0, 50, 0, 0, 0])
        boot.count((1, "User:bi", "report", "orders", "Fetch"), [0, 3 * 10**6, 0, 3000, 40, 0, 0, 0])
        boot.tick(HOUR_MS)
    done = subprocess.run(
        [
            SPARK / "bin" / "spark-submit", "--master", master, "--driver-memory", "512m", "--executor-memory", "512m",
            "--conf", "spark.ui.enabled=false", "--conf", "spark.python.authenticate.socketTimeout=300s", program.__file__,
            "--spool", spool, "--from", BEGIN, "--to", END, "--out", tmp_path / "out",
        ],
        capture_output=True, text=True, timeout=1100, check=False, env=environment(tmp_path), cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    made = json.loads((tmp_path / "out" / "report.json").read_text())
    wanted = {key: values for key, values in traffic(boot).items() if key[0] < at(f"{END}T00:00")}
    assert made["traffic"]["bytes_in"] == sum(values[0] for values in wanted.values())
    assert made["traffic"]["bytes_out"] == sum(values[1] for values in wanted.values())
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    # It was the cluster's work: the worker started an executor, which has a directory of its own.
    assert list((tmp_path / "work").glob("app-*/*/stderr"))
