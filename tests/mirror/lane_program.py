"""Forks processes that run a lane, and that kill themselves at a chosen request: `lane_program SOURCE TARGET ROUTES`.

Each line of the input is "start POINT" (answer: the process id) or "wait PID" (answer: its exit status as of os.waitpid).
POINT is "-" or "before|after API NUMBER": SIGKILL before or after the process sends the NUMBER-th request of this API. Forking
saves the start of Python in each round.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from typing import Any

from odradek.clients import wire
from odradek.clients.cluster import Cluster
from odradek.mirror.lane import Lane, LaneFencedError
from odradek.mirror.routes import LaneOptions, Route
from tests.mirror.lanes import GROUP, TRANSACTIONAL_ID, Watcher

FENCED = 3


def kill_at(when: str, name: str, number: int) -> None:
    """SIGKILL this process at the `number`-th request of an API."""
    counts: Counter[str] = Counter()

    def wrap(method: Any) -> Any:
        def send(self: Any, api: Any, *rest: Any, **options: Any) -> None:
            counts[api.name] += 1
            here = (api.name, counts[api.name]) == (name, number)
            if here and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            method(self, api, *rest, **options)
            if here:
                os.kill(os.getpid(), signal.SIGKILL)

        return send

    wire.Connection.send = wrap(wire.Connection.send)  # type: ignore[method-assign]
    wire.Connection.send_parts = wrap(wire.Connection.send_parts)  # type: ignore[method-assign]


def run(source: str, target: str, routes: list[Route], point: list[str]) -> int:
    """Run a lane until it is killed or fenced."""
    if len(point) == 3:
        kill_at(point[0], point[1], int(point[2]))
    options = LaneOptions(fetch_wait_ms=100, commit_interval_ms=20, partition_fetch_bytes=2000)
    lane = Lane(0, TRANSACTIONAL_ID, GROUP, lambda: Cluster(source), lambda: Cluster(target), options, Watcher())
    lane.route(routes)
    try:
        lane.run()
    except LaneFencedError:
        return FENCED
    return 0


def main() -> None:
    """Serve the commands of the input until its end."""
    source, target, text = sys.argv[1:]
    routes = [
        Route((name, number), (f"a.{name}", number), bytes.fromhex(topic_id))
        for name, number, topic_id in json.loads(text)
    ]
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "start":
            pid = os.fork()
            if not pid:
                os._exit(run(source, target, routes, rest))
            print(pid, flush=True)
        else:
            print(os.waitpid(int(rest[0]), 0)[1], flush=True)


if __name__ == "__main__":
    main()
