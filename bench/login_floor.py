"""``python -m bench.login_floor``: what a login with SCRAM costs the kernel alone: the figures of `login_floor.c`.

The load is that of the row `scram-logins`. The server computes nothing, so its CPU is the least that any server needs for these
logins on this machine, with one process, and with a hand-over to two processes as in the broker.
"""

import json
import statistics
import subprocess
from pathlib import Path

from bench.__main__ import build_generator
from bench.brokers import GENERATOR, ROOT, cpu_ns, free_port
from bench.security import PASSWORD, USER
from odradek.testing.process_tree import descendants

SERVER = ROOT / ".build" / "login_floor"
ROUNDS = 5


def compiled() -> Path:
    """Compile the server."""
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-o", SERVER, source], check=True)
    return SERVER


def measure(processes: int) -> dict[str, float]:
    """CPU in us per login of the server and of the generator, and logins per second."""
    port = free_port()
    server = subprocess.Popen([compiled(), str(port), str(processes)], stdout=subprocess.PIPE)
    assert server.stdout is not None
    try:
        server.stdout.readline()
        pids = descendants(server.pid)
        command: list[str | Path] = [
            GENERATOR,
            "logins",
            "--port",
            str(port),
            "--user",
            f"{USER}:{PASSWORD}",
            "--conns",
            "8",
        ]
        before = cpu_ns(pids)
        result = json.loads(
            subprocess.run([*command, "--seconds", "2", "--warmup", "0"], check=True, capture_output=True).stdout
        )
        cpu = cpu_ns(pids) - before
        logins = result["logins"]
        return {
            "server": cpu / 1e3 / logins,
            "generator": result["generator_cpu_seconds"] * 1e6 / logins,
            "rate": logins / result["seconds"],
        }
    finally:
        server.kill()
        server.wait()


def main() -> None:
    build_generator()
    for processes, name in ((0, "one process"), (2, "a hand-over to two processes")):
        rounds = [measure(processes) for _ in range(ROUNDS)]
        cpu = min(figures["server"] for figures in rounds)
        generator = min(figures["generator"] for figures in rounds)
        rate = statistics.median(figures["rate"] for figures in rounds)
        print(
            f"{name}: {cpu:.0f} us CPU per login of the server, {generator:.0f} of the generator, {rate:,.0f} a second"
        )


if __name__ == "__main__":
    main()
