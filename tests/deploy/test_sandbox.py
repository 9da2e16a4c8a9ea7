"""The broker in the sandbox of its unit: it does not need the parts of /proc that ProcSubset=pid hides."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import reserved
from tests.waiting import until

SHUT_IN = [
    "unshare",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    *(() if os.geteuid() == 0 else ("--map-root-user",)),
]
ONLY_PROCESSES = 'mount -t proc -o subset=pid proc /proc && exec "$@"'


def shut_in(*command: object) -> list[str]:
    return [*SHUT_IN, "sh", "-c", ONLY_PROCESSES, "sh", *map(str, command)]


@pytest.fixture
def metrics_url(tmp_path: Path) -> Iterator[str]:
    tried = (
        subprocess.run(shut_in("true"), capture_output=True, text=True, timeout=60, check=False)
        if shutil.which("unshare")
        else None
    )
    if tried is None or tried.returncode:
        pytest.skip(f"no namespaces can be made here: {tried.stderr.strip() if tried else 'there is no unshare'}")
    with reserved() as port:
        url = f"127.0.0.1:{port}"
        settings = {"log.dirs": tmp_path / "data", "listeners": "PLAINTEXT://127.0.0.1:0", "metrics.listener": url}
        arguments = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        command = shut_in(sys.executable, "-m", "odradek.cli.main", "start", *arguments)
        with open(tmp_path / "log", "w") as log, subprocess.Popen(command, stdout=log, stderr=log) as running:
            yield f"http://{url}"
            running.kill()


def answer(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=30) as found:
            return str(found.read().decode())
    except OSError:
        return None


def test_metrics_and_usage_work_if_proc_shows_only_processes(metrics_url: str, tmp_path: Path) -> None:
    def answered(path: str) -> str:
        return str(until(lambda: answer(f"{metrics_url}{path}"), lambda: (tmp_path / "log").read_text()))

    answered("/readyz")
    metrics = answered("/metrics")
    started = [line for line in metrics.splitlines() if line.startswith("process_start_time_seconds{")]
    assert any('process="worker"' in line for line in started)
    assert json.loads(answered("/usage"))
