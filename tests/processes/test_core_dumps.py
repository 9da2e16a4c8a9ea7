"""A broker that has secrets in its memory prevents core dumps of all its processes."""

import os
import resource
import signal
from pathlib import Path

import pytest

from odradek.processes.core_dumps import NO_DUMP_BYTES, holds_secrets, limit_core_dumps
from odradek.testing import Broker
from tests.config.test_load import load
from tests.sasl import settings

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
    pid = os.fork()
    if not pid:
        os.chdir("/")
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
        limit_core_dumps(load(None, [*overrides]))
        soft = resource.getrlimit(resource.RLIMIT_CORE)[0]
        os.write(write, str(soft).encode())
        if soft > NO_DUMP_BYTES or soft < 0:
            os._exit(0)  # a dump of the test is of no use
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # dumps core, and pytest prints no traceback for it
        os.kill(os.getpid(), signal.SIGQUIT)
    os.close(write)
    with os.fdopen(read) as pipe:
        soft = int(pipe.read())
    _, status = os.waitpid(pid, 0)
    if 0 <= soft <= NO_DUMP_BYTES:
        assert os.WTERMSIG(status) == signal.SIGQUIT and not os.WCOREDUMP(status)
    return soft


def test_a_process_with_secrets_leaves_no_core_dump() -> None:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    assert crashed(*SASL) == (NO_DUMP_BYTES if hard < 0 else min(hard, NO_DUMP_BYTES))
    assert crashed() == hard and crashed(*SASL, "odradek.core.dumps=true") == hard


def test_all_processes_of_a_broker_with_secrets_have_the_limit(tmp_path: Path) -> None:
    with Broker(settings(), directory=tmp_path) as broker:
        limits = {core_limit(pid) for pid in broker.process_ids()}
        assert len(broker.process_ids()) > 2 and limits <= {0, NO_DUMP_BYTES}
