"""What the processes of a broker import when they start: a slow import delays the first answer."""

import subprocess
import sys

SLOW = (
    "argparse",
    "crc32c",
    "http.server",
    "importlib.metadata",
    "kazoo",
    "odradek.processes.cluster_service",
    "odradek.security.contexts",
    "prometheus_client",
)
"""Modules whose import takes milliseconds, and that no process of a single broker needs before it serves."""


def test_the_start_of_a_broker_imports_no_slow_module_that_it_does_not_need() -> None:
    mains = ("supervisor", "worker", "loader", "coordinator", "cleaner")
    code = f"import sys; from odradek.processes import {', '.join(mains)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    imported = set(done.stdout.split())
    assert "odradek.processes.worker" in imported
    assert imported.isdisjoint(SLOW)
