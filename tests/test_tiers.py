"""The tiers of tests: the marks that tests get, the lists of what takes long, and that all tests are importable."""

import ast
import tomllib
from pathlib import Path

import pytest

from odradek.testing import Broker
from tests import tiers
from tests.toolchains import REPOSITORY, kafka_jars
from tests.waiting import until

LISTED = [*tiers.LONG, *tiers.NIGHTLY]


def start_a_broker():
    return Broker()


def start_a_broker_in_a_function_of_a_function():
    return [start_a_broker() for _ in range(2)]


def start_kafka():
    return kafka_jars()


def wait():
    return until(lambda: True, "nothing")


# not followed from the tests' own code, so that these tests are in `make quick`
EXAMPLES = [
    (start_a_broker, {"broker"}),
    (start_a_broker_in_a_function_of_a_function, {"broker"}),
    (start_kafka, {"peer"}),
    (wait, set()),
]


@pytest.mark.parametrize(("function", "marks"), EXAMPLES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_test_has_the_marks_of_what_it_or_a_fixture_of_it_starts(function, marks):
    assert tiers.marks_of(function, iter(())) == marks
    assert tiers.marks_of(test_every_listed_test_exists, iter((function,))) == marks


@pytest.mark.parametrize("suffix", ["", "[parameter-1]", "@group", "[parameter]@group"])
@pytest.mark.parametrize(("mark", "names"), [("long", tiers.LONG), ("nightly", tiers.NIGHTLY)])
def test_a_listed_test_has_its_mark_whatever_its_parameters(mark, names, suffix):
    for name in names:
        assert tiers.marks_of_name(name + suffix if "::" in name else f"{name}::test_any{suffix}") == {mark}
    assert tiers.marks_of_name(f"tests/test_tiers.py::test_any{suffix}") == set()


@pytest.mark.parametrize("name", LISTED)
def test_every_listed_test_exists(name):
    path, _, function = name.partition("::")
    if (REPOSITORY / path).is_dir():
        assert list((REPOSITORY / path).glob("test_*.py"))
        return
    module = ast.parse((REPOSITORY / path).read_text())
    functions = {node.name for node in module.body if isinstance(node, ast.FunctionDef)}
    assert function in functions if function else any(name.startswith("test_") for name in functions)


def test_every_mark_of_a_tier_is_registered():
    options = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    registered = {line.partition(":")[0] for line in options["markers"]}
    assert {*tiers.STARTERS.values(), *tiers.LIBRARIES.values(), *tiers.TOOLS, "long", "nightly"} - registered == set()
    assert "--strict-markers" in options["addopts"].split()


def test_every_directory_with_python_files_is_a_package():
    directories = {path.parent for path in Path(tiers.TESTS).rglob("*.py")}
    assert [str(directory) for directory in directories if not (directory / "__init__.py").exists()] == []


def test_what_make_test_leaves_out_is_printed(capsys):
    tiers.main()
    output = capsys.readouterr().out
    assert "NOT RUN by `make test`; `make test-all` runs it:" in output
    assert [name for name in (*tiers.NIGHTLY, "make test-sanitized") if name not in output] == []
