"""The units of work in which pytest-xdist distributes the tests."""

import random
from collections import defaultdict
from types import SimpleNamespace

from tests.units_of_work import MOST_TESTS, in_order, units


def item(name, *marks):
    return SimpleNamespace(nodeid=name, iter_markers=lambda: [SimpleNamespace(name=mark) for mark in marks])


def together(unit_of):
    """The names of the tests of each unit."""
    names = defaultdict(set)
    for name, unit in unit_of.items():
        names[unit].add(name)
    return map(frozenset, names.values())


def test_a_unit_is_a_group_or_a_file():
    names = ["tests/a.py::test_x[1@2]", "tests/a.py::test_y", "tests/b.py::test_x@group", "tests/c.py::test_x[1]@group"]
    assert [*units(names).values()] == ["tests/a.py 0", "tests/a.py 0", "group", "group"]


def test_a_large_file_is_several_units_and_a_large_group_is_one():
    names = [f"tests/a.py::test_x[{number}]{group}" for group in ("", "@group") for number in range(2 * MOST_TESTS + 1)]
    found = units(names)
    assert [*found] == names
    assert len({found[name] for name in names if name.endswith("]")}) == 3
    assert {found[name] for name in names if name.endswith("@group")} == {"group"}


def test_units_with_long_tests_come_first_and_the_tests_of_a_unit_keep_their_order():
    items = [item(f"tests/many.py::test_x[{number}]") for number in range(20)]
    items += [item("tests/one.py::test_x", "broker")]
    items += [item(f"tests/two.py::test_x[{number}]@group", *(["spark"] if number else [])) for number in range(2)]
    expected = [*items[21:], items[20], *items[:20]]
    shuffled = sorted(items, key=lambda item: random.Random(item.nodeid.partition("::")[0]).random())
    in_order(shuffled)
    assert [item.nodeid for item in shuffled] == [item.nodeid for item in expected]


def test_each_process_finds_the_units_again_after_it_has_sorted_the_tests():
    items = [item(f"tests/{file}.py::test_x[{number}]") for file in range(3) for number in range(1250 * (file + 1))]
    before = units(item.nodeid for item in items)
    in_order(items)
    after = units(item.nodeid for item in items)
    assert {*together(before)} == {*together(after)}
