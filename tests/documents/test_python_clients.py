"""Tests run each program of docs/develop/python-clients.md; docs/operate/ecosystem.md has the versions that tests install."""

import re

import pytest

from tests.ecosystem.python_clients import RECIPES, REQUIREMENTS, Recipe, programs
from tests.toolchains import REPOSITORY

INSTALLED = [recipe for recipe in RECIPES if recipe.packages is not None]


def test_each_program_is_run_by_a_test() -> None:
    assert {heading: len(texts) for heading, texts in programs().items()} == {recipe.heading: 1 for recipe in RECIPES}


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_a_program_compiles_and_connects_to_the_address_that_the_test_replaces(recipe: Recipe) -> None:
    (text,) = programs()[recipe.heading]
    compile(text, recipe.heading, "exec")
    assert text.count("localhost:9092") == 1


@pytest.mark.parametrize("recipe", INSTALLED, ids=str)
def test_the_versions_of_all_packages_are_fixed_and_documented(recipe: Recipe) -> None:
    versions = {}
    for line in (REQUIREMENTS / f"{recipe.packages}.txt").read_text().splitlines():
        found = re.fullmatch(r"([\w.-]+)==([\w.]+)", line)
        assert found, f"{recipe.packages}.txt: {line}"
        versions[found[1]] = found[2]
    row = f"| {recipe.packages} | {versions[str(recipe.packages)]} |"
    assert row in (REPOSITORY / "docs/operate/ecosystem.md").read_text(), row


def test_each_file_of_requirements_belongs_to_a_program() -> None:
    assert {path.stem for path in REQUIREMENTS.glob("*.txt")} == {recipe.packages for recipe in INSTALLED}
