"""Which tests pytest-xdist gives to a process together, and which it gives first: a pytest plugin, which conftest.py registers.

A unit of work is a group (the mark ``xdist_group``) or, of the tests without one, a file or a part of a large file. So one
process sets up the fixtures of a module. By itself, pytest-xdist makes a unit of each test without a group: each process sets
up these fixtures, and after each test the distributing process goes through all units.

Units that start brokers or other programs come first, because some of them take minutes. The units after them are short, and
keep all processes busy until the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

MAY_BE_LONG = {"broker", "peer", "spark", "long"}
"""The marks of tests that can take long."""
MOST_TESTS = 100
"""Of a unit that is no group."""


class UnitsOfWork:
    """The plugin, in the process that distributes the tests and in those that run them."""

    @pytest.hookimpl
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
        if config.getoption("dist") != "loadgroup":
            return None
        config.option.loadscopereorder = False  # it would begin with the units that have the most tests
        return _Scheduling(config, log)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        result = yield
        if hasattr(config, "workerinput"):
            in_order(items)
        return result


class _Scheduling(LoadScopeScheduling):
    _units: dict[str, str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self._units is None:
            self._units = units(self.collection)
        return self._units[nodeid]


def units(node_ids: Iterable[str]) -> dict[str, str]:
    """The unit of each test, by the names of all tests, to which pytest-xdist has appended their groups."""
    tests: Counter[str] = Counter()
    found = {}
    for node_id in node_ids:
        if node_id.rfind("@") > node_id.rfind("]"):
            found[node_id] = node_id.rpartition("@")[2]
        else:
            file = node_id.partition("::")[0]
            found[node_id] = f"{file} {tests[file] // MOST_TESTS}"
            tests[file] += 1
    return found


def in_order(items: list[pytest.Item]) -> None:
    """Sort the tests by units: those with long tests first, and among these and the others, those with many tests first."""
    unit_of = units(item.nodeid for item in items)
    sizes = Counter(unit_of.values())
    long = {unit_of[item.nodeid] for item in items if any(mark.name in MAY_BE_LONG for mark in item.iter_markers())}

    def place(item: pytest.Item) -> tuple[bool, int, str]:
        unit = unit_of[item.nodeid]
        return unit not in long, -sizes[unit], unit

    items.sort(key=place)
