"""What a task writes, without Spark: errors of the file system that a repetition of the task would meet again."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from odradek.jobs.load.files import write_batches


def batches(count: int) -> Iterator[pa.RecordBatch]:
    """Batches of ten records of 100 kB."""
    for number in range(count):
        values = [os.urandom(100_000) for _ in range(10)]
        offsets = range(number * 10, number * 10 + 10)
        yield pa.RecordBatch.from_pydict({
            "topic": ["t"] * 10, "partition": pa.array([0] * 10, pa.int32()), "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([0] * 10, pa.timestamp("us", "UTC")), "value": pa.array(values, pa.binary()),
            "hash": pa.array([0] * 10, pa.int64()),
        })  # fmt: skip


def test_a_directory_that_does_not_exist_is_a_row_and_no_failed_task(tmp_path: Path) -> None:
    (written,) = write_batches(str(tmp_path / "none"), batches(3))
    (row,) = written.to_pylist()
    assert row["error"].startswith(f"{tmp_path}/none/") and row["error"].endswith(": No such file or directory")
    assert row["topic"] is None and row["records"] is None


def test_a_full_disk_is_a_row_and_no_failed_task(tmp_path: Path) -> None:
    """The disk is full in the middle of a file: the limit of the size of files, which Python tells as an error."""
    code = """
import resource, sys
from odradek.jobs.load.files import write_batches
from tests.jobs.test_load_files import batches
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
(written,) = write_batches(sys.argv[1], batches(5))
print(written.to_pylist()[0]["error"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"{tmp_path}: File too large\n"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
def test_errors_that_last_are_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fsync(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    (written,) = write_batches(str(tmp_path), batches(1))
    assert written.to_pylist()[0]["error"] == f"{tmp_path}: {os.strerror(number)}"


def test_other_errors_fail_the_task_which_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output error"):
        list(write_batches(str(tmp_path), batches(1)))
