"""Closes the files that tests leave to the garbage collector, if they are many: a pytest plugin, which conftest.py registers.

A broker in the test's process keeps the files of many segments open. Its objects refer to each other, so without this a session
could have thousands of open files for some minutes.
"""

import gc
from pathlib import Path

MANY_FILES = 200


class OpenFiles:
    """The plugin. Files that stay open after a collection do not count again.

    Otherwise a process with more than `MANY_FILES` of them would collect after each test, which takes longer than most tests.
    """

    def __init__(self) -> None:
        self._kept = 0

    def pytest_runtest_logfinish(self) -> None:
        if open_files() > self._kept + MANY_FILES:
            gc.collect()
            self._kept = open_files()


def open_files() -> int:
    """The number of open descriptors of this process."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
