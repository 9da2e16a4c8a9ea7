"""The stacks of threads have the same size everywhere; musl would give 128 KiB, which is too little for native code."""

import re
import resource
from pathlib import Path

from odradek.processes.supervisor.launch import STACK_BYTES
from odradek.testing import Broker


def test_the_stack_of_a_thread_does_not_depend_on_the_platform(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(
        resource.RLIMIT_STACK, (1 << 20, hard)
    )  # glibc's default for threads, in programs that start now
    try:
        with Broker(directory=tmp_path) as broker:
            (coordinator,) = [row["pid"] for row in broker.processes() if row["kind"] == "coordinator"]
            maps = Path(f"/proc/{coordinator}/maps").read_text()
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))
    sizes = [
        int(end, 16) - int(start, 16) for start, end in re.findall(r"(?m)^(\w+)-(\w+) rw-p 00000000 00:00 0 *$", maps)
    ]
    assert any(STACK_BYTES <= size < 2 * STACK_BYTES for size in sizes), sizes
