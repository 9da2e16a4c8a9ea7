"""Executes a request in the steps in which the processes execute it, and measures each step. For a test and for a benchmark.

All places execute generators: workers, the store thread, the groups in a task, and the transactions. The broker has one topic,
`t`, with one partition, so nearly all that a request names is absent.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from odradek._ext.partition.flusher import Flusher
from odradek._ext.shm.topics import TopicDirectory
from odradek._ext.storage.segment_list import SegmentCache
from odradek.api.api import Place
from odradek.api.call import Call, WorkerView
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.groups.group_call import OffsetTree
from odradek.api.guarding import Asked, Merged, judge, merged
from odradek.api.permits import Permits
from odradek.api.pipeline import outcome_of
from odradek.api.row import ApiRow
from odradek.api.table import function_named
from odradek.api.transactions.transaction_call import NewestConnections, TransactionCall, TransactionView
from odradek.config.broker_config import BrokerConfig
from odradek.controller.topic_names import CONSUMER_OFFSETS
from odradek.net.forward_frames import ForwardContext, Kind, Status
from odradek.processes.coordinator.forwarded import AwaitedRequest
from odradek.processes.coordinator.groups.service import GroupService
from odradek.processes.coordinator.internal_topics import coordinator_log
from odradek.protocol import decode_in_steps, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.registry import by_key
from odradek.protocol.schemas.header import RequestHeader, request_header_version
from odradek.stepwise import Steps
from tests.api.coordinator_harness import Harness
from tests.api.largest_requests import LIMITS
from tests.controller.mortal_cluster import single_broker
from tests.shm.one_broker import OneBroker
from tests.transactions.by_hand import Process
from tests.waiting import until_async


class Measured(NamedTuple):
    """The cost of each step of a phase (`decode`, `guard`, `handler`, `response`), in units of the meter."""

    phase: str
    steps: list[float]


class Instructions:
    """Counts instructions of the interpreter: they do not depend on the speed of the machine."""

    def __init__(self) -> None:
        self._count = 0

    def __enter__(self) -> Instructions:
        self._count = 0
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: Any, event: str, _: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self._count += event == "opcode"
        return self._trace

    @property
    def cost(self) -> float:
        """The number of instructions."""
        return self._count


class CpuTime:
    """The processor time of the thread, in ms."""

    def __enter__(self) -> CpuTime:
        self._began = time.thread_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.cost = (time.thread_time() - self._began) * 1000


Meter = type[Instructions] | type[CpuTime]


class _Denied(Permits):
    """Denies everything: the most expensive case of a guard."""

    def __init__(self) -> None:
        super().__init__(SimpleNamespace(control=SimpleNamespace(refresh=lambda: 1)), 0)

    def allows(self, operation: int, resource_type: int, name: str, quiet: bool = False) -> bool:
        return False

    def any_topic(self, operation: int) -> bool:
        return False


class Brokers:
    """The parts of a broker that execute requests. :param meter: measures the steps."""

    def __init__(self, path: Path, meter: Meter) -> None:
        self._meter = meter
        self._path = path

    def measure(self, row: ApiRow, request: Any, version: int) -> Iterator[Measured]:
        """Execute a request, which must be admissible."""
        data = encode(request, version)
        schema = by_key(row.key).request

        def decoding() -> Steps:
            return decode_in_steps(schema, version, data, 0, LIMITS[row.key])

        message, costs = self._run(decoding())
        yield Measured("decode", costs)
        asked = Asked(self._run(decoding())[0], version, _Denied(), lambda _: "t", lambda _: True)
        verdict, judging = self._begun(lambda: judge(row.key, asked))
        if isinstance(verdict, Merged):
            response = by_key(row.key).response()
            judging += self._begun(lambda: merged(verdict.merge, response))[1]
        yield Measured("guard", judging)
        place = {Place.GROUPS: self._in_groups, Place.TRANSACTIONS: self._in_transactions}.get(row.place, self._alone)
        response, costs = place(row, message, version)
        yield Measured("handler", costs)
        if response is not None:
            yield Measured("response", self._response(row, response, version))

    def _response(self, row: ApiRow, response: Any, version: int) -> list[float]:
        return self._run(outcome_of(row, version, 1, response, True))[1]

    def _begun(self, begin: Callable[[], Any]) -> tuple[Any, list[float]]:
        """Call a function that does its work at once, or returns a generator."""
        with self._meter() as meter:
            result = begin()
        if not isinstance(result, Generator):
            return result, [meter.cost]
        result, costs = self._run(result)
        return result, [meter.cost + costs[0], *costs[1:]]

    def _run(self, steps: Steps) -> tuple[Any, list[float]]:
        costs: list[float] = []
        while True:
            try:
                with self._meter() as meter:
                    next(steps)
            except StopIteration as end:
                return end.value, [*costs, meter.cost]
            costs.append(meter.cost)

    # -- places -------------------------------------------------------------------------------------------------------

    def _alone(self, row: ApiRow, message: Any, version: int) -> tuple[Any, list[float]]:
        with self._cluster() as harness:
            if row.in_worker:
                call: Any = Call(
                    version,
                    "c",
                    0,
                    SimpleNamespace(),
                    self._worker_view(harness),
                    lambda names, then, *_: then([(name, 0, None) for name in names]),
                )
            else:
                call = CoordinatorCall(version, "tests", "127.0.0.1:1", "User:ANONYMOUS", 0, harness.view)
            response, costs = self._begun(lambda: function_named(row.handler)(message, call))
            return response, costs

    @contextmanager
    def _cluster(self) -> Iterator[Harness]:
        path = self._path / f"cluster-{time.monotonic_ns()}"
        path.mkdir()
        with single_broker(path) as make:
            yield Harness(make())

    def _worker_view(self, harness: Harness) -> WorkerView:
        topics = TopicDirectory()
        topics.refresh()
        cluster = harness.cluster
        listeners = cluster.config.listeners if hasattr(cluster.config, "listeners") else []
        return WorkerView(
            cluster.config, cluster.shm, topics, listeners, [str(one) for one in cluster.data], SegmentCache(8)
        )

    def _in_groups(self, row: ApiRow, message: Any, version: int) -> tuple[Any, list[float]]:
        """In the service of the groups, with its decoding and its response; each callback of the loop is a step."""
        header = RequestHeader(
            request_api_key=row.key, request_api_version=version, correlation_id=1, client_id="tests"
        )
        payload = encode(header, request_header_version(row.key, version)) + encode(message, version)
        costs: list[float] = []
        path = self._path / f"groups-{time.monotonic_ns()}"
        path.mkdir()
        with OneBroker(path) as broker:
            broker.create(CONSUMER_OFFSETS)
            broker.create("t")
            asyncio.run(self._served(broker, row, payload, costs))
        return None, costs

    async def _served(self, broker: Any, row: ApiRow, payload: bytes, costs: list[float]) -> None:
        async def nothing(*_: Any) -> Any:
            return {}

        turn = coordinator_log.AppendTurn(asyncio.get_running_loop())
        tree = OffsetTree(nothing, nothing, nothing, nothing)
        service = GroupService(BrokerConfig({}), [broker.path], tree, frozenset, turn, Flusher())
        service.start()
        try:
            await until_async(lambda: service.groups is not None and not service.groups.shards.loading)
            arrival: Any = SimpleNamespace(
                kind=Kind.KAFKA, api_key=row.key, payload=payload, context=ForwardContext(1, 0, "127.0.0.1:1", "tests"),
                park=lambda: None, deadline=math.inf,
            )  # fmt: skip
            with self._measured_loop(costs):
                awaited = AwaitedRequest(arrival)
                with self._meter() as meter:
                    service.refresh()
                    served = service.at_once(awaited)
                costs.append(meter.cost)
                reply = await (awaited.reply if served else asyncio.create_task(service.execute(arrival)))
            assert reply.status in (Status.OK, 0), reply.status
        finally:
            service.end()
            turn.run()
            service.close()

    @contextmanager
    def _measured_loop(self, costs: list[float]) -> Iterator[None]:
        """Measure each callback of the loop."""
        run = asyncio.Handle._run

        def measured(handle: asyncio.Handle) -> None:
            with self._meter() as meter:
                run(handle)
            costs.append(meter.cost)

        with ExitStack() as stack:
            asyncio.Handle._run = measured  # type: ignore[method-assign]
            stack.callback(lambda: setattr(asyncio.Handle, "_run", run))
            yield

    def _in_transactions(self, row: ApiRow, message: Any, version: int) -> tuple[Any, list[float]]:
        process = Process()
        process.init(name="n0", enable_2pc=False)
        config: Any = SimpleNamespace(clustered=False)
        topics: Any = {f"n{number}": SimpleNamespace(exists=lambda _: True) for number in range(1 << 17)}
        markers = SimpleNamespace(put=lambda topic, partition, marker, then: then(ErrorCode.NONE))
        nothing: Any = None
        view = TransactionView(config, process.coordinator, topics, nothing, markers, lambda: 1, NewestConnections())
        call = TransactionCall(version, "client", 1, "User:ANONYMOUS", view, lambda reason: None)
        return self._begun(lambda: function_named(row.handler)(message, call))
