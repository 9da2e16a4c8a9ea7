"""``odradek report usage`` from a spool to the page: usage, damaged files, errors of one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import toolchains
from tests.jobs.spools import HOUR_MS, Boot, at, traffic

pytestmark = pytest.mark.xdist_group("usage_report_command")

DAYS = 15
BEGIN, END = at("2026-11-01T00:00"), at("2026-11-16T00:00")
GB = 10**9


@pytest.fixture(scope="module")
def spool(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Boot]:
    """A broker's life of fifteen days in intervals of an hour; one file of the last day ends in the middle of a line."""
    directory = tmp_path_factory.mktemp("spool")
    boot = Boot(directory, "0badcafe", BEGIN)
    for hour in range(DAYS * 24):
        boot.count((0, "User:shop", "checkout", "orders", "Produce"), [10**6 + hour, 0, 1000, 0, 50, 0, 0, 0])
        boot.count((1, "User:bi", "report", "orders", "Fetch"), [0, 3 * 10**6, 0, 3000, 40, 0, 0, 0])
        boot.count((1, "User:bi", "report", None, "Fetch"), [4000, 2000, 0, 0, 40, 1, 250, 3_600_000])
        used = 40 * GB + hour * GB // 24
        boot.set(kind="log_dir", path="/data", free=100 * GB - used, total=100 * GB, online=True)
        boot.set(
            kind="topic", topic="orders", id="0" * 32, partitions=2, bytes=used - GB, largest=used // 2,
            end=(used - GB) // 1000,
            start=0, retention_ms=-1, retention_bytes=-1,
        )  # fmt: skip
        boot.set(
            kind="worker",
            worker=0,
            connections=5,
            busy_us=10**9 * hour,
            **{"in": 10**6 * hour, "out": 3 * 10**6 * hour},
        )
        boot.tick(HOUR_MS)
    cut = boot.files[-4]
    cut.write_bytes(cut.read_bytes()[:-30])
    return directory, boot


def run(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "odradek.cli.main", "report", "usage", *map(str, arguments)]
    environment = os.environ | {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}  # runs are short
    return subprocess.run(command, capture_output=True, text=True, timeout=1100, check=False, env=environment, cwd=cwd)


@pytest.mark.timeout(1200)
def test_from_the_spool_to_the_page(spool: tuple[Path, Boot], tmp_path: Path) -> None:
    toolchains.require_command("java", "default-jdk-headless")
    directory, boot = spool
    out = tmp_path / "out"
    (tmp_path / "owners.csv").write_text("kind,pattern,team\nprincipal,User:bi,Analysts\n")
    arguments = (
        "--spool", directory, "--from", "2026-11-01", "--to", "2026-11-16", "--out", out, "--owners", tmp_path / "owners.csv",
        "--what-if", "growth=2",
    )  # fmt: skip
    here = tmp_path / "here"
    here.mkdir()
    done = run(*arguments, cwd=here)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(here.iterdir()) == [], "Spark leaves nothing where the command was given"
    made = json.loads((out / "report.json").read_text())
    # an interval belongs to the hour in which it ended: the last one to the hour after the period
    wanted = {key: values for key, values in traffic(boot).items() if key[0] < END}
    # the damaged file's hour is missing as a gap; cumulative counters bring what was counted in it with the next hour
    assert made["traffic"]["bytes_in"] == sum(values[0] for values in wanted.values())
    assert made["traffic"]["bytes_out"] == sum(values[1] for values in wanted.values())
    assert made["missing"]["damaged_files"] == [boot.files[-4].name]
    assert boot.files[-4].name in done.stdout
    (disk,) = made["disks"]
    assert disk["measured_days"] == DAYS and disk["growth_bytes_a_day"] == pytest.approx(GB, rel=0.02)
    assert disk["days_until_full"]["median"] == pytest.approx(44.7, abs=1)
    assert disk["what_if"][0]["days_until_full"]["median"] == pytest.approx(22.4, abs=1)
    owners = {one["owner"]: one["bytes_out"] for one in made["costs"]["owners"]}
    assert owners["Analysts"] == made["traffic"]["bytes_out"]
    html = (out / "report.html").read_bytes()
    assert f'data-value="{made["traffic"]["bytes_in"]}"'.encode() in html
    assert boot.files[-4].name.encode() in html
    assert "/data of broker 1 will be full in" in done.stdout and str(out / "report.html") in done.stdout


@pytest.mark.parametrize(
    ("option", "content", "said"),
    [
        ("--prices", "[per_gb]\nin = -1\n", "FILE:2: in = -1: expected a number of at least 0"),
        ("--owners", "kind,pattern,team\nuser,a,b\n", "FILE:2: kind 'user': expected client, principal or topic"),
        ("--what-if", None, "--what-if growth: 'growth': expected KEY=VALUE,..."),
    ],
)
def test_bad_files_are_one_line_and_exit_code_1(
    spool: tuple[Path, Boot], tmp_path: Path, option: str, content: str | None, said: str
) -> None:
    file = tmp_path / "given"
    if content is not None:
        file.write_text(content)
    done = run("--spool", spool[0], "--out", tmp_path / "out", option, "growth" if content is None else file)
    assert done.returncode == 1
    assert said.replace("FILE", str(file)) in done.stderr
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
