"""`odradek report usage` with wrong options: one line and exit code 1, before Spark is started if possible."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.backoff import Backoff
from odradek.cli.main import main
from odradek.jobs.usage_report import prometheus_http, session
from odradek.jobs.usage_report.__main__ import main as job_main
from odradek.jobs.usage_report.errors import ReportError
from odradek.jobs.usage_report.times import day_name, milliseconds, parse_range
from tests.jobs import spools
from tests.jobs.spools import at

NOW = datetime(2025, 11, 21, 15, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("from_", "to", "expected"),
    [
        (None, None, ("2025-11-20", "2025-11-21")),
        ("-7d", None, ("2025-11-14", "2025-11-21")),
        ("-12h", None, ("2025-11-21T03:30:12", "2025-11-21T15:30:12")),
        ("2025-11-21T00:30", "now", ("2025-11-21T00:30", "2025-11-21T15:30:12")),
        ("2025-11-19", "2025-11-20", ("2025-11-19", "2025-11-20")),
        ("2025-11-19T02:00+02:00", "-90m", ("2025-11-19", "2025-11-21T14:00:12")),
        ("today", None, ("2025-11-21", "2025-11-21T15:30:12")),
        ("2025-11-20T12:00Z", "2025-12-01", ("2025-11-20T12:00", "2025-12-01")),
    ],
)
def test_a_period_has_many_forms(from_: str | None, to: str | None, expected: tuple[str, str]) -> None:
    assert parse_range(from_, to, NOW) == tuple(map(at, expected))


@pytest.mark.parametrize(
    ("from_", "to", "message"),
    [
        ("2025-13-01", None, r"--from '2025-13-01': expected a date \(2026-11-20\), a time"),
        ("gestern", None, "--from 'gestern': expected a date"),
        ("-7w", None, "--from '-7w': expected a date"),
        ("2025-11-20", "2025-11-20x", "--to '2025-11-20x': expected a date"),
        (
            "yesterday",
            "yesterday",
            "--to yesterday: must be after --from 2025-11-20T00:00:00Z; the end is exclusive",
        ),
        ("2025-11-20", "2025-11-19", "--to 2025-11-19: must be after --from 2025-11-20T00:00:00Z"),
        ("2025-11-22", "2025-11-23", "--from 2025-11-22: is in the future; now it is 2025-11-21T15:30:12Z"),
        ("0001-01-01", None, "--from '0001-01-01': expected a time from 2000 to 2199"),
        ("-999999d", None, "--from '-999999d': expected a time from 2000 to 2199"),
    ],
)
def test_an_invalid_period_is_refused(from_: str, to: str | None, message: str) -> None:
    with pytest.raises(ReportError, match=message):
        parse_range(from_, to, NOW)


def said(*arguments: str) -> tuple[int, str]:
    """Return the exit code and stderr."""
    result = CliRunner().invoke(main, ["report", "usage", *arguments], prog_name="odradek")
    assert "Traceback" not in result.output
    return result.exit_code, result.stderr


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """A spool of yesterday and today, because today is yesterday for a command that runs after midnight."""
    directory = tmp_path / "spool"
    directory.mkdir()
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for boot, day in (("aa01", today - timedelta(days=1)), ("bb02", today)):
        spools.live(spools.Boot(directory, boot, milliseconds(day) + 30_000), 3, seed=1)
    return directory


def test_wrong_options_are_one_line(tmp_path: Path, spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = str(tmp_path / "out")
    free = ["--out", out]
    prices = tmp_path / "prices.toml"
    prices.write_text("in = 'dear'\n")
    (tmp_path / "file").write_text("")
    for arguments, message in (
        (free, "expected one of --spool DIR and --prometheus URL; neither is given"),
        ([*free, "--spool", str(spool), "--prometheus", "http://x"], "--spool DIR and --prometheus URL; both are given"),
        ([*free, "--spool", str(tmp_path / "gone")], f"--spool {tmp_path / 'gone'}: does not exist"),
        ([*free, "--spool", str(tmp_path / "file")], f"--spool {tmp_path / 'file'}: is not a directory"),
        ([*free, "--prometheus", "localhost:9090"], "--prometheus 'localhost:9090': expected a URL, for example http://localhost:9090"),
        ([*free, "--prometheus", "http://h:99999"], "--prometheus 'http://h:99999': expected a URL"),
        ([*free, "--prometheus", "http://h", "--step", "0"], "--step 0: expected 1 to 3600 seconds"),
        ([*free, "--spool", str(spool), "--from", "soon"], "--from 'soon': expected a date"),
        (["--out", str(tmp_path / "file" / "x"), "--spool", str(spool)], "cannot write to this directory: Not a directory"),
        (["--out", "/proc/nowhere", "--spool", str(spool)], "--out /proc/nowhere: cannot write to this directory"),
        ([*free, "--spool", str(spool), "--from", "2025-01-01", "--to", "2025-01-02"], "has no data from 2025-01-01T00"),
        ([*free, "--spool", str(spool), "--prices", str(prices)], "prices.toml"),
        ([*free, "--spool", str(spool), "--what-if", "retention=never"], "retention=never"),
    ):  # fmt: skip
        code, error = said(*arguments)
        assert code == 1 and message in error and error.count("\n") == 1 and error.startswith("odradek: "), (
            arguments,
            error,
        )
    code, error = said("--spool", str(spool))
    assert (code, error) == (2, "odradek: missing option '--out'; see 'odradek report usage --help'\n")
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        monkeypatch.setattr(prometheus_http, "_BACKOFF", Backoff(0, 0))
        code, error = said(*free, "--prometheus", f"http://127.0.0.1:{bound.getsockname()[1]}")
    assert code == 1 and "cannot be reached: Connection refused; tried 5 times" in error and error.count("\n") == 1


def fake_java(directory: Path, script: str) -> Path:
    (directory / "bin").mkdir(parents=True)
    java = directory / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return directory


def test_a_missing_or_old_java_is_reported_with_how_to_install_it(
    tmp_path: Path, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = "install one (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
    given = ("--spool", str(spool), "--out", str(tmp_path / "out"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert said(*given) == (1, f"odradek: Spark needs Java 17 or newer, but there is no java on the PATH: {how}\n")
    homes = {
        "nothing": (tmp_path / "nothing", f"but JAVA_HOME is {tmp_path / 'nothing'}, where bin/java is missing: {how}"),
        "old": (fake_java(tmp_path / "old", "echo 'openjdk version \"1.8.0_422\"' >&2"), f"is version 8: {how}"),
        "broken": (fake_java(tmp_path / "broken", "exit 3"), f"java -version fails: {how}"),
    }
    for home, message in homes.values():
        monkeypatch.setenv("JAVA_HOME", str(home))
        code, error = said(*given)
        assert code == 1 and message in error and error.count("\n") == 1, error
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "new", "echo 'openjdk version \"21.0.1\"' >&2")))
    session.check_java()


def test_a_package_that_cannot_be_loaded_is_not_called_missing(tmp_path: Path, spool: Path) -> None:
    """numpy, for one, raises a page of advice because of the error that says what is wrong."""
    (tmp_path / "numpy.py").write_text(
        "try:\n    raise OSError('libx.so: not page-aligned')\n"
        "except OSError as error:\n    raise ImportError('read\\nthis') from error\n"
    )
    command = [sys.executable, "-m", "odradek.cli.main", "report", "usage", "--spool", spool, "--out", tmp_path / "out"]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert ended.stderr == "odradek: the Python packages of the report cannot be loaded: libx.so: not page-aligned\n"
    assert ended.returncode == 1


@pytest.mark.java
@pytest.mark.timeout(1200)
@pytest.mark.xdist_group("spark")
def test_a_spark_that_cannot_start_is_reported(tmp_path: Path, spool: Path) -> None:
    """In a separate process, which starts Java."""
    command = [
        sys.executable,
        "-m",
        "odradek.cli.main",
        "report",
        "usage",
        "--spool",
        str(spool),
        "--out",
        str(tmp_path / "out"),
    ]
    ended = subprocess.run(
        [*command, "--master", "nonsense"], capture_output=True, text=True, timeout=1100, check=False
    )
    log = tmp_path / "out" / "spark.log"
    assert ended.returncode == 1 and ended.stdout == f"starting Spark; its messages are in {log}\n"
    assert (
        ended.stderr.startswith("odradek: Spark does not start with --master nonsense: ")
        and ended.stderr.count("\n") == 1
    )
    assert "Spark" in log.read_text()
    assert not list((tmp_path / "out").glob(".scratch-*")), "scratch files are removed"


@pytest.mark.java
@pytest.mark.timeout(1200)
@pytest.mark.xdist_group("spark")
def test_the_command_makes_tables_and_page_and_keeps_sparks_noise_to_itself(tmp_path: Path, spool: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "odradek.cli.main", "report", "usage", "--spool", str(spool), "--out", str(out)]

    def yesterday() -> str:
        return day_name(milliseconds(datetime.now(UTC)) - 86_400_000)

    days = {yesterday()}
    ended = subprocess.run(
        [*command, "--master", "local[2]"], capture_output=True, text=True, timeout=1100, check=False
    )
    days.add(yesterday())
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    assert f"tables: {out / 'tables'}" in ended.stdout
    made = {path.parent.name for path in (out / "tables" / "traffic_hourly").glob("day=*/*.parquet")}
    assert made and made <= {f"day={day}" for day in days}
    assert "<html" in (out / "report.html").read_text()[:500]
    assert (out / "spark.log").exists() and not list(out.glob(".scratch-*"))


def test_a_second_run_into_the_same_directory_waits_for_nobody(tmp_path: Path, spool: Path) -> None:
    import fcntl

    out = tmp_path / "out"
    out.mkdir()
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, error = said("--spool", str(spool), "--out", str(out))
    assert (code, error) == (1, f"odradek: --out {out}: another run is writing to this directory; wait until it ends\n")


def test_spark_submit_takes_the_same_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--spool", str(tmp_path / "gone"), "--out", str(tmp_path / "out"), "--from", "-7d", "--to", "-1d"]
    assert job_main(arguments) == 1
    assert (
        capsys.readouterr().err
        == f"usage_report: --spool {tmp_path / 'gone'}: does not exist; expected the broker's first log directory, "
        "or its usage.spool.dir\n"
    )
    assert not (tmp_path / "out").exists()
