"""For all tests: hypothesis' settings, and the count of rounds and faults, printed at the end of a test session whatever
process ran them (pytest-xdist too).
"""

import gc
import os
import re
import textwrap
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

from tests.open_files import OpenFiles
from tests.threads import EndedThreads
from tests.tiers import MARKS, TESTS, TIERS, TOOLS, WITHOUT_PACKAGES, marks_of, marks_of_name, needs_packages
from tests.units_of_work import UnitsOfWork

# numpy's other threads only wait in loops for the little matrices of the forecasts, which took most of the CPU time of their
# tests. numpy reads this variable when it is imported, in this process and in those that tests start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# How long an example takes is the machine's affair; and which examples are tried is that of the test, not of chance, so that
# what passes here passes elsewhere. `--hypothesis-profile=explore` looks for others.
settings.register_profile(
    "explore", settings.default, deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("any machine", settings.get_profile("explore"), derandomize=True, database=None)
settings.register_profile("quick", settings.get_profile("any machine"), max_examples=25)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "any machine"))
pytest.register_assert_rewrite("tests.shm.crash_rounds")
PREFIX = "fault count: "
KINDS = ("rounds", "checks")


def pytest_addoption(parser):
    parser.addoption("--tier", choices=TIERS, help="run the tests of this tier only (tests/tiers.py)")


def pytest_configure(config):
    config.pluginmanager.register(EndedThreads())
    config.pluginmanager.register(OpenFiles())
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(UnitsOfWork())
    for mark, meaning in MARKS.items():
        config.addinivalue_line("markers", f"{mark}: {meaning}")
    if tier := config.getoption("tier"):
        given = config.option.markexpr
        config.option.markexpr = f"({given}) and {TIERS[tier].expression}" if given else TIERS[tier].expression


def pytest_ignore_collect(collection_path, config):
    """Leave out the files with the mark `packages` in the tier that has to do without these packages."""
    if config.getoption("tier") != WITHOUT_PACKAGES:
        return None
    file = collection_path / "conftest.py" if collection_path.is_dir() else collection_path
    return True if file.suffix == ".py" and file.exists() and needs_packages(file) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep the garbage collector away from what is collected: it lives as long as the process, and each full collection would
    look at all of it again, half a second of CPU time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(config, items):
    """Give each test the marks of its tier; see tiers.py.

    To search the code of a test for what it starts, and its files for what they import, takes longer than to collect it. This
    runs in each process of pytest-xdist, so only marks that something needs are searched for.
    """
    wanted = MARKS.keys() & set(re.findall(r"\w+", config.option.markexpr))
    distributed = hasattr(config, "workerinput") and config.getoption("tier") != WITHOUT_PACKAGES
    started = distributed or not wanted.isdisjoint({"broker", "peer", "spark"})
    for item in items:
        marks = marks_of_name(item.nodeid)
        if started:
            fixtures = (d.func for found in item._fixtureinfo.name2fixturedefs.values() for d in found)
            marks |= marks_of(item.function, fixtures)
            marks |= {mark for tool, mark in TOOLS.items() if item.get_closest_marker(tool)}
        if "packages" in wanted and needs_packages(item.path):
            marks.add("packages")
        for mark in sorted(marks):
            item.add_marker(mark)


@pytest.fixture
def count_faults(record_property):
    """A function that takes a Counter of what was done to the broker or its files; the sums are printed at the end."""

    def count(faults):
        for name, number in faults.items():
            record_property(PREFIX + name, int(number))

    return count


def pytest_terminal_summary(terminalreporter):
    if terminalreporter.config.getoption("tier") == WITHOUT_PACKAGES:
        files = sum(needs_packages(path) for path in TESTS.rglob("test_*.py"))
        terminalreporter.write_line(
            f"{files} files of tests with the mark packages are not in this tier; `make test` runs them"
        )
    total: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) != "teardown":
                continue  # each report of a test carries its properties; its last one has them all
            for name, number in report.user_properties:
                if name.startswith(PREFIX):
                    total[name.removeprefix(PREFIX)] += number
    if total:
        terminalreporter.section("faults")
        for kind in ("rounds", "checks", "faults"):
            counts = {
                name.removeprefix(f"{kind} "): number
                for name, number in sorted(total.items())
                if name.partition(" ")[0] == kind or (kind == "faults" and name.partition(" ")[0] not in KINDS)
            }
            if not counts:
                continue
            listed = ", ".join(f"{name} {number}" for name, number in counts.items())
            terminalreporter.write_line(
                textwrap.fill(f"{sum(counts.values())} {kind}: {listed}", 118, subsequent_indent="  ")
            )
