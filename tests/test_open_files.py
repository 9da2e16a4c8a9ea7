"""The plugin that closes the files that tests left to the garbage collector."""

import gc
import os
import socket
from contextlib import ExitStack

from tests.open_files import MANY_FILES, OpenFiles, open_files


class Holder:
    """A socket that only the garbage collector closes."""

    def __init__(self) -> None:
        self.socket = socket.socket()
        self.own = self


def collections() -> int:
    return gc.get_stats()[2]["collections"]


def test_many_files_in_circles_are_closed():
    plugin = OpenFiles()
    plugin.pytest_runtest_logfinish()
    before = open_files()
    gc.disable()
    try:
        for _ in range(MANY_FILES + 1):
            Holder()
        assert open_files() == before + MANY_FILES + 1
        plugin.pytest_runtest_logfinish()
        assert open_files() <= before
    finally:
        gc.enable()


def test_files_that_stay_open_cause_one_collection():
    plugin = OpenFiles()
    with ExitStack() as files:
        for _ in range(MANY_FILES + 1):
            files.enter_context(open(os.devnull))
        plugin.pytest_runtest_logfinish()
        gc.disable()
        try:
            before = collections()
            for _ in range(10):
                plugin.pytest_runtest_logfinish()
            assert collections() == before
            for _ in range(MANY_FILES + 1):
                files.enter_context(open(os.devnull))
            plugin.pytest_runtest_logfinish()
            assert collections() == before + 1
        finally:
            gc.enable()
