"""The follower of settings: when it reads them, and what it logs while it cannot."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from odradek.metadata.store import StoreUnavailable
from odradek.processes.coordinator.cluster import settings_follower
from odradek.processes.coordinator.cluster.settings_follower import SettingsFollower
from tests.waiting import until_async


@pytest.fixture(autouse=True)
def short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_follower, "RETRY_S", 0.001)


class Settings:
    """Settings that are applied. ``failures``: the exceptions of the next attempts."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.applied = 0
        self.follower = SettingsFollower(self.apply)
        self.follower.begin()

    async def apply(self) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.applied += 1


def follow(use: Callable[[], object]) -> None:
    async def run() -> None:
        await use()  # type: ignore[misc]

    asyncio.run(run())


def test_settings_are_applied_once_for_each_change() -> None:
    async def use() -> None:
        settings = Settings()
        for number in (1, 2, 3):
            settings.follower.wake()
            await until_async(lambda number=number: settings.applied == number, "they are applied")
        settings.follower.close()

    follow(use)


def test_a_failure_is_repeated_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    away, other = StoreUnavailable("ZooKeeper is away"), StoreUnavailable("no cluster id")

    async def use() -> None:
        settings = Settings(*[away] * 5, *[other] * 5, away)
        settings.follower.wake()
        await until_async(lambda: settings.applied == 1, "they are applied")
        settings.failures = [away] * 3
        settings.follower.wake()
        await until_async(lambda: settings.applied == 2, "they are applied again")
        settings.follower.close()

    with caplog.at_level(logging.WARNING, "odradek.config"):
        follow(use)
    reasons = [record.getMessage().split(": ")[1].partition(";")[0] for record in caplog.records]
    assert reasons == ["ZooKeeper is away", "no cluster id", "ZooKeeper is away", "ZooKeeper is away"]


def test_an_unexpected_exception_is_logged_and_the_settings_are_read_again(caplog: pytest.LogCaptureFixture) -> None:
    async def use() -> None:
        settings = Settings(ZeroDivisionError())
        settings.follower.wake()
        await until_async(lambda: settings.applied == 1, "they are applied")
        settings.follower.close()

    with caplog.at_level(logging.ERROR, "odradek.config"):
        follow(use)
    assert [record.exc_info is not None for record in caplog.records] == [True]
