"""``python -m bench.beside_handshakes``: what delays a producer beside TLS handshakes, for the row `beside-handshakes`.

The p99 of the same producer at the same broker, in turn: alone; beside processes that only compute, as often and as long as the
clients of the handshakes; beside the handshakes of a second broker; beside its own. No change of the broker can avoid what the
second and third loads cost, because they share only the CPUs with it.
"""

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from bench.__main__ import build_generator
from bench.brokers import Held, Ours, Server
from bench.rows import measured
from bench.security import RATE_BESIDE, secure, tls

CLIENTS = 8
CLIENTS_CPU_S = 0.0002
"""CPU that the generator's client uses for a handshake (`light_tls.c`), without that of the kernel."""
TOPIC = "beside"
HANDSHAKES_S = "6"


def compute_repeatedly() -> None:
    """Compute for `CLIENTS_CPU_S` of CPU time as often as one of the clients makes a handshake."""
    due = time.monotonic()
    while True:
        due += CLIENTS / RATE_BESIDE
        time.sleep(max(0.0, due - time.monotonic()))
        until = time.thread_time() + CLIENTS_CPU_S
        while time.thread_time() < until:
            pass


@contextmanager
def computing() -> Iterator[None]:
    """Processes that compute as much as the clients of the handshakes."""
    processes = [multiprocessing.Process(target=compute_repeatedly, daemon=True) for _ in range(CLIENTS)]
    for process in processes:
        process.start()
    yield
    for process in processes:
        process.kill()
        process.join()


@contextmanager
def handshakes(server: Server) -> Iterator[None]:
    """Handshakes of clients of this broker, as in the row."""
    held = Held(
        "logins", server, "--conns", str(CLIENTS), "--login-rate", str(RATE_BESIDE), "--seconds", HANDSHAKES_S, "--warmup", "1",
        *tls(server),
    )  # fmt: skip
    held.go()
    yield
    held.expect("done")
    held.go()
    held.finish()


@contextmanager
def nothing() -> Iterator[None]:
    """No load."""
    yield


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.beside_handshakes", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds (default 5)")
    rounds = parser.parse_args().rounds
    build_generator()
    with ExitStack() as ends:
        servers = [Ours(Path(tempfile.mkdtemp(prefix="odradek-bench-"))) for _ in range(2)]
        for server in servers:
            ends.callback(server.end)
            secure(server)
            server.start()
            server.wait()
        ours, other = servers
        ours.create_topic(TOPIC)
        ours.wait(TOPIC)
        kinds: dict[str, Callable[[], AbstractContextManager[None]]] = {
            "alone": nothing,
            "beside the clients' computing": computing,
            "beside the handshakes of another broker": lambda: handshakes(other),
            "beside its own handshakes": lambda: handshakes(ours),
        }
        figures: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(rounds):
            for kind, load in kinds.items():
                with load():
                    result = measured("produce", ours, "--topic", TOPIC, "--seconds", "4", "--warmup", "0.5")
                figures[kind].append(result["p99_us"])
        for kind, p99s in figures.items():
            print(
                f"{kind}: p99 {statistics.median(p99s):.0f} us (rounds: {', '.join(f'{p99:.0f}' for p99 in sorted(p99s))})"
            )
        for server in servers:
            server.stop()


if __name__ == "__main__":
    main()
