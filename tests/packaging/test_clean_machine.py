"""A new user on a clean Debian, with nothing but Python: from the wheel to the first record that is read back, in seconds.

The dependencies come from a directory, not from an index, so that the figures do not contain the network.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import toolchains
from tests.deploy.machines import Machine, machine, require_machines
from tests.packaging.conftest import FRIGHTENING, run

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(900)]

WHEELS_AT = "/mnt/wheels"
ENVIRONMENT = "/srv/odradek"
MOST_CPU_S = 12.0
"""For both steps, twice what they need. It is compared because it grows little on a busy machine, other than the time."""


def measured(what: str, action: Callable[[], Any]) -> float:
    """Print how long `action` takes; returns the CPU time of the processes that have ended in it."""
    clock, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    action()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{what}: {time.monotonic() - clock:.1f} s, CPU time {cpu_s:.1f} s")
    return cpu_s


def output(clean: Machine, *command: str, text: str | None = None) -> str:
    """What a command on the machine prints. Fails the test if it fails or prints what frightens."""
    done = clean.run(*command, text=text, timeout_s=600)
    assert FRIGHTENING.findall(done.stdout + done.stderr) == [], done.stdout + done.stderr
    return done.stdout


def test_from_the_wheel_to_the_first_record_in_seconds(repaired: Path, tmp_path: Path) -> None:
    require_machines()
    if sys.version_info[:2] != (3, 11):
        toolchains.unavailable("the machine has Python 3.11, and the wheel is for the Python of the tests")
    wheels = tmp_path / "wheels"
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest", wheels, repaired]
    run(*download, cwd=tmp_path)
    with machine("clean", tmp_path / "machine", read_only_binds={WHEELS_AT: wheels}) as clean:
        clean.put(f"127.0.0.1 localhost {clean.output('hostname')}\n", "/etc/hosts")
        for name in ("cc", "gcc", "clang", "c++", "cython"):
            assert clean.run("which", name, check=False).returncode == 1, name
        assert clean.run("test", "-e", "/usr/include/python3.11/Python.h", check=False).returncode == 1
        from_directory = ["--no-index", "--find-links", WHEELS_AT]

        def install() -> None:
            output(clean, "python3", "-m", "venv", ENVIRONMENT)
            output(clean, f"{ENVIRONMENT}/bin/pip", "install", *from_directory, "odradek")

        cpu_s = measured("an environment, and pip install", install)
        cpu_s += measured(
            "the broker's start, the first record written and read, the stop", lambda: first_record(clean)
        )
        assert cpu_s < MOST_CPU_S


def first_record(clean: Machine) -> None:
    """What README.md names, with the settings that a new user has: none."""
    command = f"{ENVIRONMENT}/bin/odradek"
    start = clean.command(command, "start")
    broker = subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        output(clean, command, "cluster", "wait", "--timeout", "2m")
        output(clean, command, "produce", "orders", "--create", text="first\n")
        assert output(clean, command, "consume", "orders", "--from", "beginning", "--exit") == "first\n"
    finally:
        stopped = clean.run(command, "stop", check=False)
        log, _ = broker.communicate(timeout=60)
    assert (stopped.returncode, broker.returncode) == (0, 0), stopped.stderr + log
    assert FRIGHTENING.findall(stopped.stdout + stopped.stderr + log) == [], log
