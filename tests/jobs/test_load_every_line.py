"""Loads and merges that die before each of their lines; `make test` tries some of the lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs import test_load_commits, test_load_merges
from tests.jobs.test_load_merges import of_text as of_text  # a fixture


def test_a_run_that_dies_before_any_line_is_repeated_and_leaves_each_record_once(tmp_path: Path) -> None:
    assert test_load_commits.deaths_before_lines(tmp_path, 1) > 200


@pytest.mark.usefixtures("of_text")
def test_a_merge_that_dies_before_any_line_leaves_each_record_once(tmp_path: Path) -> None:
    assert test_load_merges.deaths_before_lines(tmp_path, 1) > 100
