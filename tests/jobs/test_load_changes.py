"""Topics that change while a load reads them: what was read of another topic is not committed. Without Spark."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.cli.jobs import load_source
from odradek.clients.errors import ClientError
from odradek.jobs.load import commit_log, job, offsets
from odradek.jobs.load.commit_log import VersionDirectory, versions
from odradek.jobs.load.errors import LoadError
from odradek.jobs.load.offsets import Bounds, ClusterState, Plan, TopicState
from tests.jobs.test_load_commits import CLUSTER, HEAD, run, state, visible, wanted, write, writer


def changing(*states: ClusterState) -> Callable[[], ClusterState]:
    """A cluster that is in the next state each time that it is asked, and stays in the last one."""
    left = list(states)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def run_in(out: Path, look: Callable[[], ClusterState], most: int = 100) -> tuple[job.Outcome, list[str]]:
    said: list[str] = []
    version = job.open_version(out, "main", HEAD)
    return job.run(version, look, most, writer, said.append), said


def with_pay(orders: ClusterState, end: int) -> ClusterState:
    """The cluster with one more topic."""
    return ClusterState(CLUSTER, {**orders.topics, "pay": TopicState("c" * 32, {9: Bounds(0, end)})})


@pytest.mark.parametrize(
    ("after", "kind"),
    [
        (state({0: 10}, topic_id="b" * 32), offsets.RECREATED),
        (state({0: 9}), offsets.CUT),
        (state({1: 10}), offsets.DELETED),
        (ClusterState(CLUSTER, {}, ("orders",)), offsets.DELETED),
    ],
)
def test_a_topic_that_changes_while_it_is_read_is_not_committed(tmp_path: Path, after: ClusterState, kind: str) -> None:
    run(tmp_path, with_pay(state({0: 5}), 2))
    before = VersionDirectory(tmp_path, "main").commit(1).positions["orders"]
    outcome, said = run_in(tmp_path, changing(with_pay(state({0: 10}), 4), with_pay(after, 4)))
    assert (outcome.records, outcome.commits, outcome.exit_status) == (2, 1, 3)
    assert [finding.kind for finding in outcome.findings] == [kind] and any("orders" in line for line in said)
    assert visible(tmp_path) == wanted({0: 5}) + wanted({9: 4})
    version = VersionDirectory(tmp_path, "main")
    newest = version.commit(2)
    assert (
        newest.findings == outcome.findings and newest.positions["orders"] == before and "orders" not in newest.ranges
    )
    assert json.loads((version.log / "runs.jsonl").read_text().splitlines()[-1])["findings"][0]["kind"] == kind
    assert not list(version.staging.iterdir())


def test_a_topic_that_changes_in_the_first_step_is_loaded_by_the_next_run(tmp_path: Path) -> None:
    new = state({0: 4}, topic_id="b" * 32)
    outcome, _ = run_in(tmp_path, changing(state({0: 10}), new), most=3)
    assert (outcome.records, outcome.commits, outcome.exit_status) == (0, 0, 3), "no further step is read"
    assert run_in(tmp_path, changing(new))[0] == job.Outcome(4, 1, (), outcome_files(tmp_path))
    assert visible(tmp_path) == wanted({0: 4})


def outcome_files(out: Path) -> tuple[commit_log.DataFile, ...]:
    return VersionDirectory(out, "main").commit(1).files


def test_a_topic_that_changes_between_two_steps_keeps_what_was_committed(tmp_path: Path) -> None:
    old, new = state({0: 10}), state({0: 10}, topic_id="b" * 32)
    outcome, _ = run_in(tmp_path, changing(old, old, new), most=5)
    assert (outcome.records, outcome.commits, outcome.exit_status) == (5, 1, 3)
    assert visible(tmp_path) == wanted({0: 5})
    assert run_in(tmp_path, changing(new))[0].findings[0].kind == offsets.RECREATED


def test_offsets_that_are_deleted_while_a_step_is_read(tmp_path: Path) -> None:
    whole = changing(state({0: 10}), state({0: 10}, earliest=7))
    assert run_in(tmp_path, whole)[0].findings == (), "they had been read"

    @contextmanager
    def late(_: Plan) -> Iterator[Any]:
        yield lambda ranges, staging: write([part._replace(start=part.start + 3) for part in ranges], staging)

    version = job.open_version(tmp_path, "main", HEAD)
    outcome = job.run(version, changing(state({0: 20}), state({0: 20}, earliest=12)), 100, late, [].append)
    assert outcome.exit_status == 3 and outcome.records == 7
    assert "orders-0: offsets 10 to 11 were deleted during the load" in outcome.findings[0].text


def test_brokers_of_another_cluster_behind_the_same_address_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="to cluster cluster-1 when the run began, and now belong to cluster other"):
        run_in(tmp_path, changing(state({0: 5}), state({0: 5}, cluster="other")))
    version = VersionDirectory(tmp_path, "main")
    assert version.numbers() == [] and not list(version.staging.iterdir())


def test_a_broker_that_is_away_is_asked_again_until_the_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_source, "_FIRST_PAUSE_S", 0.001)
    left = [ClientError("away"), ClientError("away"), None]

    def look() -> ClusterState:
        error = left.pop(0)
        if error is not None:
            raise error
        return state({0: 5})

    assert load_source.patiently(look)() == state({0: 5}) and left == []
    monkeypatch.setattr(load_source, "PATIENCE_S", 0.0)
    left = [ClientError("away"), None]
    with pytest.raises(ClientError, match="away"):
        load_source.patiently(look)()


@pytest.mark.parametrize("name", ["_odradek_load", "_odradek_load/staging"])
def test_a_log_that_is_a_symbolic_link_is_refused_and_nothing_behind_it_is_removed(tmp_path: Path, name: str) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    out.mkdir()
    run(out, state({0: 5}))
    directory = out / "version=main" / name
    directory.rename(other)
    directory.symlink_to(other)
    mine = (other if name.endswith("staging") else other / "staging") / "mine"
    mine.mkdir()
    (mine / "file").write_text("stays")
    with pytest.raises(LoadError, match="is a symbolic link; expected a directory"):
        run(out, state({0: 9}))
    assert (mine / "file").read_text() == "stays" and visible(out) == wanted({0: 5})


def test_a_missing_head_is_not_made_again(tmp_path: Path) -> None:
    """A new head could say another format, period or cluster than the commits have."""
    run(tmp_path, state({0: 5}))
    (tmp_path / "version=main/_odradek_load/version.json").unlink()
    with pytest.raises(LoadError, match=r"version\.json is missing, and .*/commits has commits: restore the file"):
        run(tmp_path, state({0: 9}))
    with pytest.raises(LoadError, match=r"version\.json is missing"):
        versions(tmp_path)
    assert visible(tmp_path) == wanted({0: 5})


def test_two_runs_that_create_a_version_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one finds the head of the first where there was none when it looked; process ids need not differ."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    first, second = VersionDirectory(tmp_path, "main"), VersionDirectory(tmp_path, "main")
    first.create(HEAD)
    with pytest.raises(
        LoadError, match=r"version\.json was created by another run at the same time: repeat the command"
    ):
        second.create(HEAD)
    left = first.log / ".version.json.1.new"  # of a run that died in a container, where process ids are the same
    left.write_text("{}")
    first.replace_head(HEAD)
    for temporary in (".00000000000000000001.json.1", ".version.json.1"):
        (first.commits if "0001" in temporary else first.log).joinpath(temporary).write_text("of another process 1")
    assert run(tmp_path, state({0: 5})).records == 5
