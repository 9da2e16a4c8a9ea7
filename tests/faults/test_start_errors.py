"""Failing starts, besides those of tests/cli and tests/processes: one line names the error, without traceback."""

import re
import subprocess
import sys

import pytest

from odradek.metadata.sqlite import FILE_NAME
from odradek.testing import Broker


def start(*settings):
    """A start that must fail: the line for the operator, and the log lines before it."""
    options = [part for setting in ("metrics.listener=", *settings) for part in ("--set", setting)]
    result = subprocess.run(
        [sys.executable, "-m", "odradek.cli.main", "start", *options],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 1 and "Traceback" not in result.stderr, result
    *log, line = result.stderr.strip().splitlines()
    assert line.startswith("odradek: ") and not [one for one in log if one.startswith("odradek: ")], result
    return line, "\n".join(log)


def test_a_host_that_is_unknown_or_elsewhere(tmp_path):
    for host in ("no.such.host.invalid", "203.0.113.7"):
        line, log = start(f"listeners=PLAINTEXT://{host}:0", f"log.dirs={tmp_path}")
        assert host in line and log == ""


def test_a_log_directory_below_a_file(tmp_path):
    (tmp_path / "file").touch()
    line, log = start("listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path}/file/deeper")
    assert f"{tmp_path}/file/deeper cannot be created" in line and log == ""


@pytest.mark.parametrize("content", [b"version=7\n", b"version=1\nnode.id=many\n", b"version=1\n", b"\xff\xfe\n"])
def test_damaged_meta_properties(tmp_path, content):
    path = tmp_path / "meta.properties"
    path.write_bytes(content)
    line, log = start("listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path}")
    assert str(path) in line and log == "" and path.read_bytes() == content


@pytest.fixture
def stopped(tmp_path):
    """The data directory of a broker that was stopped in order."""
    with Broker({}, {"t": 1}, directory=tmp_path) as broker:
        pass
    return broker.data_dir


def test_a_metadata_store_of_another_cluster(stopped):
    meta = stopped / "meta.properties"
    other = "AAAAAAAAAAAAAAAAAAAAAA"
    meta.write_text(re.sub("cluster.id=.*", f"cluster.id={other}", meta.read_text()))
    line, log = start("listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={stopped}")
    assert "loader-0 cannot start" in line and f"belong to cluster {other}" in log
    assert log.count(other) == 1  # trying again cannot help


def test_a_metadata_store_that_is_none(stopped):
    (stopped / FILE_NAME).write_bytes(b"no database at all" * 500)
    line, log = start("listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={stopped}")
    assert "loader-0 cannot start" in line and f"{stopped / FILE_NAME}: file is not a database" in log
    assert (stopped / "t-0").is_dir()
