"""Fails a test that leaves a thread behind: a pytest plugin, which conftest.py registers.

Such a thread holds descriptors open that the test has closed, and what it reads or accepts later can belong to another test,
because the system gives the same numbers to new descriptors. A thread that a fixture of a class, module, package or session
starts, and those that it starts in turn, may live as long as the fixture.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Generator
from typing import Any
from weakref import WeakSet

import pytest

PARENT = "started_by"
PATIENCE_S = 30
"""How long a test waits on a busy machine for threads that were told to end."""


class EndedThreads:
    """The plugin."""

    def __init__(self) -> None:
        _note_parents()
        self._kept: WeakSet[threading.Thread] = WeakSet()
        self._before: set[threading.Thread] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        before = set(threading.enumerate())
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self._kept.update(set(threading.enumerate()) - before)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        self._before = set(threading.enumerate())
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        result = yield
        if left := self._left():
            gc.collect()  # the threads of an executor end when the executor is collected
            deadline = time.monotonic() + PATIENCE_S
            for thread in left:
                thread.join(max(0.0, deadline - time.monotonic()))
            left = self._left()
            self._kept.update(left)  # reported once
            if left:
                pytest.fail(f"threads of this test have not ended: {sorted(map(repr, left))}", pytrace=False)
        return result

    def _left(self) -> set[threading.Thread]:
        started = set(threading.enumerate()) - self._before - set(self._kept)
        return {thread for thread in started if not self._may_stay(thread)}

    def _may_stay(self, thread: threading.Thread | None) -> bool:
        if isinstance(thread, threading._DummyThread):
            return True
        while thread is not None and thread not in self._kept:
            thread = getattr(thread, PARENT, None)
        return thread is not None


def _note_parents() -> None:
    start = threading.Thread.start

    def noting(thread: threading.Thread) -> None:
        setattr(thread, PARENT, threading.current_thread())
        start(thread)

    threading.Thread.start = noting  # type: ignore[method-assign]
