"""A broker that has secrets in its memory prevents core dumps of all its processes."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.processes.supervisor.core_dumps import NO_DUMP_BYTES, holds_secrets, limit_core_dumps
from odradek.testing import Broker
from tests.children import fork
from tests.config.test_load import load
from tests.sasl import settings
from tests.shm.one_broker import OneBroker

SASL = tuple(f"{key}={value}" for key, value in settings().items())


def core_limit(pid: int) -> int:
    """The soft limit of a process for core files, in bytes."""
    (line,) = [line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if "core file" in line]
    text = line.split()[4]
    return -1 if text == "unlimited" else int(text)


@pytest.mark.parametrize(
    ("overrides", "secret"),
    [
        ((), False),
        (("listeners=SASL_PLAINTEXT://:9092", "sasl.enabled.mechanisms=PLAIN"), True),
        (("delegation.token.secret.key=x",), True),
        (("listener.name.x.plain.sasl.jaas.config=x",), True),
        (("metrics.listener.token.file=/etc/tokens",), True),
        (("super.users=User:a",), False),
    ],
)
def test_which_configurations_hold_secrets(overrides: tuple[str, ...], secret: bool) -> None:
    assert holds_secrets(load(None, [*overrides])) == secret


def crashed(*overrides: str) -> int:
    """The core limit of a child that starts with this configuration and has no limit before; it ends by SIGQUIT."""
    read, write = os.pipe()

    def crash() -> None:
        os.chdir("/")
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
        limit_core_dumps(load(None, [*overrides]))
        soft = resource.getrlimit(resource.RLIMIT_CORE)[0]
        os.write(write, str(soft).encode())
        if soft > NO_DUMP_BYTES or soft < 0:
            return  # a dump of the test is of no use
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # dumps core, and pytest prints no traceback for it
        os.kill(os.getpid(), signal.SIGQUIT)

    pid = fork(crash)
    os.close(write)
    with os.fdopen(read) as pipe:
        soft = int(pipe.read())
    _, status = os.waitpid(pid, 0)
    if 0 <= soft <= NO_DUMP_BYTES:
        assert os.WTERMSIG(status) == signal.SIGQUIT and not os.WCOREDUMP(status)
    return soft


def test_a_process_with_secrets_leaves_no_core_dump() -> None:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    assert crashed(*SASL) in ({NO_DUMP_BYTES} if hard else {0, NO_DUMP_BYTES})
    assert crashed() == hard and crashed(*SASL, "odradek.core.dumps=true") == hard


def test_all_processes_of_a_broker_with_secrets_have_the_limit(tmp_path: Path) -> None:
    with Broker(settings(), directory=tmp_path) as broker:
        limits = {core_limit(pid) for pid in broker.process_ids()}
        filters = {Path(f"/proc/{pid}/coredump_filter").read_text().strip("0\n") for pid in broker.process_ids()}
        assert len(broker.process_ids()) > 2 and limits <= {0, NO_DUMP_BYTES} and filters == {""}


PATTERN = Path("/proc/sys/kernel/core_pattern").read_text().strip()
DUMPED = """
import os, signal, sys
from odradek.processes.supervisor.core_dumps import exclude_memory
if sys.argv[1] == "excluded":
    exclude_memory()
secret = "".join(reversed("drowssap-eht"))
os.kill(os.getpid(), signal.SIGABRT)
"""


@pytest.mark.skipif(
    PATTERN[0] in "|/@" or resource.getrlimit(resource.RLIMIT_CORE)[1] >= 0,
    reason="this system writes no core files to the working directory",
)
@pytest.mark.parametrize("memory", ["included", "excluded"])
def test_a_dump_that_no_limit_prevents_contains_no_memory(memory: str, tmp_path: Path) -> None:
    """A program of kernel.core_pattern receives what a core file without a limit contains."""

    def unlimited() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    command = [sys.executable, "-c", DUMPED, memory]
    done = subprocess.run(command, cwd=tmp_path, check=False, preexec_fn=unlimited)
    (dump,) = tmp_path.iterdir()
    assert done.returncode == -signal.SIGABRT and (b"the-password" in dump.read_bytes()) == (memory == "included")


def test_a_hard_limit_of_zero_that_cannot_be_raised_is_accepted_and_memory_is_excluded(monkeypatch) -> None:
    limits, excluded = [], []

    def setrlimit(_: int, pair: tuple[int, int]) -> None:
        if pair != (0, 0):
            raise ValueError("not allowed to raise maximum limit")
        limits.append(pair)

    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    monkeypatch.setattr("odradek.processes.supervisor.core_dumps.exclude_memory", lambda: excluded.append(True))
    limit_core_dumps(load(None, [*SASL]))
    assert limits == [(0, 0)] and excluded == [True]


def test_the_shared_memory_is_in_no_core_dump(tmp_path: Path) -> None:
    """It has more than a GiB, and nobody is served while the kernel writes a dump."""
    with OneBroker(tmp_path):
        read, write = os.pipe()
        pid = fork(lambda: os.write(write, flags().encode()))
        os.close(write)
        with os.fdopen(read) as pipe:
            assert "dd" in pipe.read().split()  # MADV_DONTDUMP, which children inherit
        assert os.waitpid(pid, 0)[1] == 0


def flags() -> str:
    """The flags of the shared mapping in this process."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if "/memfd:odradek " in line)
    return next(line for line in lines[start:] if line.startswith("VmFlags:"))
