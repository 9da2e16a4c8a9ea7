"""The summary page of a load: figures, findings, and names that are escaped."""

from __future__ import annotations

import re
from pathlib import Path

from odradek.jobs.load import job
from odradek.jobs.load.commit_log import Head, VersionDirectory
from odradek.jobs.load.offsets import NamedPartition
from odradek.jobs.load.page import write_page
from odradek.jobs.load.summary import TITLES, summary_of
from tests.jobs.test_load_commits import run, state


def test_the_page_has_the_figures_of_the_commits(tmp_path: Path) -> None:
    run(tmp_path, state({0: 5, 1: 9}))
    run(tmp_path, state({0: 20, 1: 9}, earliest=12))
    version = VersionDirectory(tmp_path, "main")
    path = write_page(version)
    text = path.read_text()
    values = dict(re.findall(r'<dd data-key="(\w+)" data-value="(\d+)"', text))
    assert values == {"records": "22", "bytes": "6", "partitions": "2", "undecoded": "0", "commits": "4"}
    assert 'data-finding="gone"' in text and "offsets 5 to 11 were deleted before they were loaded" in text
    assert "complete" not in re.findall(r'data-finding="(\w+)"', text)
    assert f"{summary_of(version).partitions[NamedPartition('orders', 0)].checksum:016x}" in text
    assert "http" not in text.replace("http://www.w3.org", ""), "the page loads nothing"
    assert write_page(version).read_text() == text, "the same commits, the same bytes"


def test_a_version_without_commits_has_a_page(tmp_path: Path) -> None:
    version = job.open_version(tmp_path, "main", Head("main", "<cluster>", "now", decoding="json a string"))
    text = write_page(version).read_text()
    assert "&lt;cluster&gt;" in text and "<cluster>" not in text and 'data-finding="complete"' in text
    assert len(summary_of(version).row()) == len(TITLES)
