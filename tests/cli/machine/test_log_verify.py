"""`odradek log verify`, as people and scripts call it."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from odradek.storage.batch import Record, build_batch
from tests.storage.log_writer import LogWriter


def odradek(*arguments):
    command = [sys.executable, "-m", "odradek.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def log_dir(tmp_path):
    for number in range(3):
        writer = LogWriter(tmp_path / f"t-{number}")
        for _ in range(9):
            writer.append(build_batch([Record(b"k", b"v" * 90, 7)], base_offset=writer.end, partition_leader_epoch=0))
        writer.close()
    (tmp_path / ".kafka_cleanshutdown").touch()
    return tmp_path


def test_a_sound_directory_ends_with_exit_code_0(log_dir):
    done = odradek("log", "verify", log_dir)
    assert done.returncode == 0 and "3 partitions, 3 segments, 27 batches, 27 records" in done.stdout
    assert "No errors found" in done.stdout and not done.stderr


def test_files_with_the_same_finding_are_one_line(log_dir):
    """A restored backup has no indexes: two missing files for each partition."""
    for path in log_dir.glob("t-*/*index"):
        path.unlink()
    done = odradek("log", "verify", log_dir)
    notes = [line for line in done.stdout.splitlines() if line.startswith("note")]
    index = "00000000000000000000.index"
    assert notes == [
        f"note  6 files, such as {log_dir}/t-0/{index}: missing: a starting broker rebuilds it; --json names all of them"
    ]
    assert done.returncode == 0 and "No errors found." in done.stdout
    found = [json.loads(line) for line in odradek("log", "verify", "--json", log_dir).stdout.splitlines()]
    assert len([row for row in found if row["type"] == "finding"]) == 6
    for path in log_dir.glob("t-[12]"):
        shutil.rmtree(path)
    few = odradek("log", "verify", log_dir).stdout
    assert few.count("missing: a starting broker rebuilds it") == 2 and "such as" not in few


def test_damage_ends_with_exit_code_1_and_names_file_offset_and_position(log_dir):
    log = log_dir / "t-1" / "00000000000000000000.log"
    size = log.stat().st_size // 9
    with open(log, "r+b") as file:
        file.seek(4 * size + 70)
        file.write(b"\xff")
    done = odradek("log", "verify", "--json", "--processes", 2, log_dir)
    assert done.returncode == 1
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    (finding,) = [line for line in lines if line["type"] == "finding"]
    assert (finding["file"], finding["offset"], finding["position"], finding["error"]) == (str(log), 4, 4 * size, True)
    (directory,) = [line for line in lines if line["type"] == "directory"]
    assert (directory["errors"], directory["bytes"], directory["clean"]) == (1, 27 * size, True)
    shown = odradek("log", "verify", log_dir)
    assert (
        shown.returncode == 1
        and "1 error." in shown.stdout
        and f"{log}, offset 4, position {4 * size}: " in shown.stdout
    )


def test_a_directory_that_was_not_cleanly_shut_down_is_reported(log_dir):
    (log_dir / ".kafka_cleanshutdown").unlink()
    log = log_dir / "t-1" / "00000000000000000000.log"
    os.truncate(log, log.stat().st_size - 3)
    done = odradek("log", "verify", log_dir)
    assert done.returncode == 0 and "not cleanly shut down" in done.stdout and "note" in done.stdout


@pytest.mark.parametrize(("name", "problem"), [("nothing", "does not exist"), ("file", "is not a directory")])
def test_a_path_that_is_no_log_directory_is_an_error_of_one_line(tmp_path, name, problem):
    (tmp_path / "file").touch()
    done = odradek("log", "verify", tmp_path / name)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"odradek: {tmp_path / name} {problem}; name a directory of the broker's log.dirs\n"


def test_a_directory_without_logs_is_not_reported_as_healthy(tmp_path):
    done = odradek("log", "verify", tmp_path)
    assert done.returncode == 1 and f"{tmp_path} contains no logs" in done.stderr and not done.stdout
    (tmp_path / "meta.properties").write_text("version=1\n")
    done = odradek("log", "verify", tmp_path)
    assert done.returncode == 0 and "The directory contains no logs: nothing was checked." in done.stdout


def test_sizes_have_a_fitting_unit(log_dir):
    assert " kB in " in odradek("log", "verify", log_dir).stdout
