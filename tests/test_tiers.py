"""The tiers of tests: the marks that tests get, the lists of what takes long, and that all tests are importable."""

import ast
import re
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


def test_every_mark_of_a_tier_has_a_meaning():
    used = {*tiers.STARTERS.values(), *tiers.LIBRARIES.values(), *tiers.TOOLS, *tiers.TOOLS.values(), "long", "nightly"}
    words = {word for tier in tiers.TIERS.values() for word in re.findall(r"\w+", tier.expression)}
    assert (used | words | {"packages"}) - tiers.MARKS.keys() - {"not", "or"} == set()


def test_the_makefile_names_every_tier_and_has_no_other_expression():
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = re.split(r"^(?=[a-z-]+:)", makefile, flags=re.M)
    for name, tier in tiers.TIERS.items():
        (target,) = (text for text in targets if text.startswith(f"{tier.command.removeprefix('make ')}:"))
        assert f"--tier {name} " in target
    assert re.findall(r"pytest.* -m ", makefile) == []


def test_the_document_describes_every_tier():
    document = (REPOSITORY / "CONTRIBUTING.md").read_text()
    assert [tier.command for tier in tiers.TIERS.values() if f"| `{tier.command}` |" not in document] == []


def test_the_tier_without_packages_has_none_of_their_extra():
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {re.split(r"[\[<>=!~]", requirement)[0].replace("-", "_") for requirement in extras["test"]}
    assert names & tiers.PACKAGES == set()
    assert "odradek[test]" in extras["dev"]


def test_a_file_that_imports_a_package_of_dev_has_the_mark():
    assert tiers.needs_packages(tiers.TESTS / "clients/test_spark.py")  # it imports pyspark
    assert tiers.needs_packages(tiers.TESTS / "jobs/test_report_what_if.py")  # what it tests imports numpy
    assert not tiers.needs_packages(tiers.TESTS / "config/test_table_against_kafka.py")


def test_every_directory_with_python_files_is_a_package():
    directories = {path.parent for path in Path(tiers.TESTS).rglob("*.py")}
    assert [str(directory) for directory in directories if not (directory / "__init__.py").exists()] == []


def test_what_make_test_leaves_out_is_printed(capsys):
    tiers.main()
    output = capsys.readouterr().out
    assert "NOT RUN by `make test`; `make test-all` runs it:" in output
    assert [name for name in (*tiers.NIGHTLY, "make test-sanitized") if name not in output] == []
