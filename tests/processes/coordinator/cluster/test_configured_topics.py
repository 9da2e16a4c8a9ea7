"""After a change of the brokers' settings, the coordinator applies the settings of all topics with a log, until it succeeds."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.metadata.store import StoreUnavailable
from odradek.processes.coordinator.cluster import service as cluster_service
from odradek.processes.coordinator.cluster.service import ClusterService
from tests.waiting import until_async


class Service(ClusterService):
    """The part of the service that configures topics. ``failures``: how many of the next reads of settings fail."""

    def __init__(self, failures: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._configuring, self._configure_again = None, False
        self.failures = failures
        self.gate = asyncio.Event()
        self.gate.set()
        self.reads = 0
        self.configured: list[Any] = []
        self.replicas = SimpleNamespace(hosted_topics=lambda: ["a"], configure=self.configured.append)  # type: ignore[assignment]
        self.membership = SimpleNamespace(topic_settings=self.topic_settings)  # type: ignore[assignment]

    def topic_settings(self, topics: list[str]) -> dict[str, dict[str, str]]:
        self.reads += 1
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("ZooKeeper is away")
        return {name: {"read": str(self.reads)} for name in topics}

    async def _in_replicas(self, work: Any, *arguments: Any) -> Any:
        return work(*arguments)

    async def _in_store(self, work: Any, *arguments: Any) -> Any:
        await self.gate.wait()
        return work(*arguments)


@pytest.fixture(autouse=True)
def short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_service, "RETRY_S", 0.001)


def test_a_failure_of_the_store_is_repeated() -> None:
    async def use() -> None:
        service = Service(failures=3)
        service._apply_all()
        await until_async(lambda: service.configured == [{"a": {"read": "4"}}], "the settings are applied")

    asyncio.run(use())


def test_a_change_while_the_settings_are_read_lets_them_be_read_again() -> None:
    async def use() -> None:
        service = Service(failures=0)
        service.gate.clear()
        service._apply_all()
        await until_async(lambda: service._configuring is not None, "it has begun")
        service._apply_all()
        await until_async(lambda: service._configure_again, "the second change is noted")
        service.gate.set()
        await until_async(
            lambda: service.configured == [{"a": {"read": "1"}}, {"a": {"read": "2"}}], "they are applied twice"
        )
        await until_async(lambda: service._configuring.done(), "nothing more is read")

    asyncio.run(use())
