"""The process of `odradek mirror run`: all flows of a file, the HTTP server of its metrics, and its signals.

The main thread waits for the end; each flow has threads (`flow_worker.py`), each lane too. SIGTERM and SIGINT let the
lanes commit what is acknowledged and leave the groups, so that other workers take over at once; the exit code is 0.
An error that a retry cannot change ends the process with exit code 1. A killed process leaves nothing behind: the
target aborts its open transactions when another worker takes the lane.
"""

import logging
import os
import queue
import signal
import socket
from collections.abc import Sequence
from types import FrameType

from odradek import __version__
from odradek.clients.errors import ClientError
from odradek.hang_up import on_hang_up
from odradek.metrics.http import HttpServer, Pages
from odradek.metrics.names.mirror import MIRROR_METRICS
from odradek.metrics.registry import Exposition
from odradek.mirror.flow_worker import FlowWorker, MakeLane
from odradek.mirror.following import FlowError, Following
from odradek.mirror.metrics import MirrorMetrics
from odradek.mirror.names import Edge
from odradek.mirror.settings import MirrorSettings
from odradek.net.notify import Notifier

log = logging.getLogger("odradek.mirror")

STOP_S = 20.0
"""How long an ordered stop may take."""
_STOP, _HUNG_UP = "", "SIGHUP"


class WorkerError(Exception):
    """The worker cannot run; `errors` has one sentence for each reason."""

    def __init__(self, errors: Sequence[str]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(errors))


class Worker:
    """A worker. :param make_lane: and `fenced`: see `FlowWorker`."""

    def __init__(
        self, settings: MirrorSettings, edges: Sequence[Edge], make_lane: MakeLane, fenced: type[Exception]
    ) -> None:
        self._settings = settings
        self._ends: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.name = settings.worker or f"{socket.gethostname()}-{os.getpid()}"
        self.metrics = MirrorMetrics(__version__, self.name)
        self.flows = [
            FlowWorker(
                flow,
                edges,
                self.name,
                self.metrics.flow(flow.source.alias, flow.target.alias),
                make_lane,
                fenced,
                self._ends.put,
            )
            for flow in settings.flows
        ]

    def stop(self) -> None:
        """Let `run` end. May be called in a signal handler and in any thread."""
        self._ends.put(_STOP)

    def note_hang_up(self) -> None:
        """Let `run` log that SIGHUP arrived. May be called in a signal handler."""
        self._ends.put(_HUNG_UP)

    def run(self) -> None:
        """Mirror until `stop`. Raises WorkerError."""
        server = self._served_metrics()
        for flow in self.flows:
            flow.start()
        notifier = Notifier()
        notifier.send(READY=1, STATUS=f"{len(self.flows)} flows of {self._settings.file}")
        while (reason := self._ends.get()) == _HUNG_UP:
            log.warning("received SIGHUP and ignored it: a change of %s needs a restart", self._settings.file)
        notifier.send(STOPPING=1)
        for flow in self.flows:
            flow.stop()
        late = [flow.flow.name for flow in self.flows if not flow.join(STOP_S)]
        if server is not None:
            server.stop()
            server.socket.close()
        if late:
            log.warning(
                "%s did not stop within %.0f s; the process ends, and the target aborts the open transactions",
                ", ".join(late),
                STOP_S,
            )
        if reason != _STOP:
            raise WorkerError([reason])

    def _served_metrics(self) -> HttpServer | None:
        listening = self._listen()
        if listening is None:
            return None
        exposition = Exposition(MIRROR_METRICS.values(), self.metrics.families)
        server = HttpServer(listening, Pages(exposition.render, self._not_ready))
        server.start()
        log.info("metrics: http://%s:%d/metrics", *listening.getsockname()[:2])
        return server

    def _listen(self) -> socket.socket | None:
        if self._settings.metrics is None:
            return None
        host, port = self._settings.metrics
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            return socket.create_server((host, port), family=family)
        except OSError as error:
            raise WorkerError(
                [
                    f"odradek.mirror.metrics.listener={host}:{port}: cannot listen: {error.strerror or error}; each worker "
                    "of a machine needs another port, or an empty value"
                ]
            ) from None

    def _not_ready(self) -> str | None:
        return next((reason for flow in self.flows if (reason := flow.not_ready) is not None), None)


def check_start(settings: MirrorSettings, edges: Sequence[Edge]) -> None:
    """Look at every flow before any data moves.

    A cluster that cannot be reached ends the start only if no flow can run: the others must not wait for it, and the
    flow retries. Raises WorkerError.
    """
    unreachable: list[str] = []
    wrong: list[str] = []
    for flow in settings.flows:
        try:
            with flow.source.connect() as source, flow.target.connect() as target:
                following = Following(flow, edges, source, target)
                following.plan()
                following.check_rights()
        except FlowError as error:
            wrong.append(f"{flow.name}: {error}")
        except ClientError as error:
            unreachable.append(f"{flow.name}: {error}")
    if wrong or len(unreachable) == len(settings.flows):
        raise WorkerError([*wrong, *unreachable])


def run(settings: MirrorSettings, edges: Sequence[Edge]) -> int:
    """Run a worker until a signal; the exit code. Raises WorkerError."""
    from odradek.mirror.lane import Lane, LaneFencedError

    check_start(settings, edges)
    worker = Worker(
        settings,
        edges,
        lambda flow, lane, observer: Lane(
            lane,
            flow.transactional_id(lane),
            flow.group_id,
            flow.source.connect,
            flow.target.connect,
            flow.lane_options,
            observer,
        ),
        LaneFencedError,
    )

    def ended(number: int, _: FrameType | None) -> None:
        worker.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ended)
    on_hang_up(worker.stop, worker.note_hang_up)
    log.info("worker %s starts the flows %s", worker.name, ", ".join(flow.name for flow in settings.flows))
    worker.run()
    log.info("worker %s stopped", worker.name)
    return 0
