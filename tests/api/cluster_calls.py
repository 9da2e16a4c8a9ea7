"""Requests to a worker of a broker in a cluster, executed by their handlers in the test's process, on slots and views that the
test makes by hand."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import GeneratorType
from typing import Any

import odradek._ext.shm.brokers as brokers
import odradek._ext.shm.views as views
from odradek._ext.shm.topics import TopicDirectory
from odradek._ext.storage.segment_list import SegmentCache
from odradek.api.call import Call, WorkerView
from odradek.api.cluster_brokers import ClusterBrokers
from odradek.config.broker_config import load
from odradek.config.listeners import Listener
from odradek.stepwise import Stepwise
from tests.shm.one_broker import BROKER_ID, OneBroker

CLIENTS, INTERNAL = "CLIENTS", "INTERNAL"
LISTENERS = [Listener(CLIENTS, "127.0.0.1", 9001, "PLAINTEXT"), Listener(INTERNAL, "127.0.0.1", 9101, "PLAINTEXT")]


def broker_info(broker_id: int, *, names: Sequence[str] = (CLIENTS, INTERNAL), rack: str | None = None) -> Any:
    """A live broker with an endpoint for each listener name."""
    endpoints = [brokers.Endpoint(name, f"host-{broker_id}", 9000 + broker_id) for name in names]
    return brokers.BrokerInfo(broker_id, -1, rack, tuple(endpoints))


class ClusterCalls:
    """A broker of a cluster, with id 1. ``created``: the names of topics that requests were to create."""

    def __init__(self, path: Path, settings: Mapping[str, Any] | None = None) -> None:
        self.broker = OneBroker(path)
        brokers.begin_cluster(30_000)
        self.topics = TopicDirectory()
        self.created: list[str] = []
        self.create_outcome: Callable[[str], tuple[str, int, str | None]] = lambda name: (name, 5, "no leader yet")
        config = load(
            None, [f"{key}={value}" for key, value in ({"broker.id": BROKER_ID} | dict(settings or {})).items()]
        )
        self.view = WorkerView(
            config=config,
            shm=self.broker.shm,
            topics=self.topics,
            advertised=LISTENERS,
            log_dirs=[str(path)],
            segments=SegmentCache(8),
            brokers=ClusterBrokers([listener.name for listener in LISTENERS]),
        )

    def publish_brokers(self, *infos: Any) -> None:
        """The controller publishes the live brokers."""
        brokers.publish_brokers(infos)

    def remote(self, topic: str, count: int = 1, **view: Any) -> list[int]:
        """A topic of other brokers whose partitions have one view; without a view they are not published."""
        topic_id = uuid.uuid4().bytes
        slots = [self.broker.table.create_remote(topic, topic_id, number) for number in range(count)]
        self.broker.table.announce(slots)
        self.topics.refresh()
        for slot in slots if view else ():
            self.publish(slot, **view)
        return slots

    def publish(self, slot: int, **view: Any) -> None:
        """The controller publishes a partition."""
        values: dict[str, Any] = {
            "leader_id": 2,
            "leader_epoch": 7,
            "partition_epoch": 3,
            "replicas": [2, 3],
            "in_sync": [2],
        }
        views.publish_view(slot, **(values | view))

    def ask(self, handler: Callable[[Any, Call], Any], request: Any, version: int, *, listener: int = 0) -> Any:
        """The response of a handler."""
        call = Call(
            version=version,
            client_id="test",
            listener_index=listener,
            connection=None,
            view=self.view,
            auto_create=self._auto_create,
        )
        response = handler(request, call)
        return Stepwise(response).finish() if isinstance(response, GeneratorType) else response

    def _auto_create(self, names: list[str], then: Callable[[Any], None], *_: float) -> None:
        self.created += names
        then([self.create_outcome(name) for name in names])

    def close(self) -> None:
        """End."""
        self.broker.close()
