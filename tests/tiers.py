"""Which tier a test belongs to, found from what its code and its fixtures use, so that nobody has to mark tests by hand.

`marks_of` follows the names that a test function and its fixtures use, through the functions and classes of this test
suite, until it meets what starts something: a broker, Apache Kafka or another foreign program, Spark. ``make quick``
runs the tests that have none of these marks.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

TESTS = Path(__file__).parent
MARKS = {
    "broker": "starts a broker, or the command in a process of its own",
    "peer": "starts a foreign program: Apache Kafka or its tools, Java, Go, Node.js, Prometheus, Grafana",
    "spark": "starts Spark",
}

# What starts something, as module and name. A module alone stands for everything in it.
STARTERS = {
    "odradek.testing.broker_process": "broker",
    "odradek.jobs.usage_report.session": "spark",
    "tests.toolchains": "peer",
    "tests.oracles": "peer",
}
COMMANDS = ("odradek.cli.main", "odradek.cli", "odradek.jobs.usage_report", "tests.processes.fake_broker")
"""Texts in code that starts the command by its name."""
LIBRARIES = {"pyspark": "spark"}


def marks_of(function: Callable[..., Any], fixtures: Iterator[Callable[..., Any]]) -> set[str]:
    """The marks of a test.

    :param function: the test's function.
    :param fixtures: the functions of all fixtures that the test uses, directly or through other fixtures.
    """
    marks: set[str] = set()
    for used in (function, *fixtures):
        marks |= _marks_of_function(inspect.unwrap(used))
    return marks


@cache
def _marks_of_function(function: FunctionType) -> frozenset[str]:
    return frozenset(_search(function, set()))


def _search(value: Any, seen: set[int]) -> set[str]:
    """The marks of whatever a name stands for: a function, a class, a bound method, a module."""
    if id(value) in seen:
        return set()
    seen.add(id(value))
    if isinstance(value, list | tuple) and any(isinstance(part, str) and part in COMMANDS for part in value):
        return {"broker"}
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    if not isinstance(module, str):
        return set()
    if module in STARTERS and not isinstance(value, ModuleType):
        return {STARTERS[module]}
    if module.partition(".")[0] in LIBRARIES:
        return {LIBRARIES[module.partition(".")[0]]}
    if not _is_of_tests(module):
        return set()
    marks: set[str] = set()
    if isinstance(value, FunctionType):
        marks |= _search_code(value.__code__, value.__globals__, seen)
    elif isinstance(value, type):
        for parent in value.__mro__[1:]:
            marks |= _search(parent, seen)
        for member in vars(value).values():
            function = (
                getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__func__", member)
            )
            if isinstance(function, FunctionType):
                marks |= _search(inspect.unwrap(function), seen)
    elif callable(value) and isinstance(getattr(value, "__wrapped__", None), FunctionType):
        marks |= _search(value.__wrapped__, seen)
    return marks


@cache
def _is_of_tests(module: str) -> bool:
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and TESTS in Path(file).parents


def _search_code(code: CodeType, names: dict[str, Any], seen: set[int]) -> set[str]:
    """The marks of what a piece of code names, and of the functions defined in it."""
    marks: set[str] = set()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            marks |= _search_code(constant, names, seen)
        elif constant in COMMANDS or (isinstance(constant, tuple) and any(part in COMMANDS for part in constant)):
            marks.add("broker")
    for name in code.co_names:
        value = names.get(name)
        marks |= _search(inspect.unwrap(value) if callable(value) else value, seen)
        if isinstance(value, ModuleType):  # `module.function`: the names of attributes follow in the same tuple
            for attribute in code.co_names:
                marks |= _search(getattr(value, attribute, None), seen)
        if name in LIBRARIES:
            marks.add(LIBRARIES[name])
    return marks
