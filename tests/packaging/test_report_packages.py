"""The nightly report and a load with the Debian package: `install-report-packages`, one command for the timer, then figures."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import toolchains
from tests.deploy import reports
from tests.deploy.machines import JAVA_PACKAGES, Machine, debian_root, machine
from tests.packaging.debian import PACKAGES_AT, SETTINGS, install
from tests.waiting import until

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(3000)]

RECORDS = 500
INDEX = "/mnt/pypi"
SCRIPT = "/opt/odradek/share/deploy/systemd/install-report-packages"
LOAD, OUT = "odradek-load@orders.service", "/var/lib/odradek-load"


def index() -> Path:
    """A directory with all files that the release pins for the report, from PyPI (0.6 GB); kept in `.build/`."""
    release = toolchains.REPOSITORY / "deploy/release"
    build, packages = release / "requirements-build.txt", release / "requirements-report.txt"

    def download(directory: Path) -> None:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--require-hashes",
               "--no-deps", f"--dest={directory}"]  # fmt: skip
        toolchains.fetch([*pip, "-r", str(build)], timeout_s=1800)
        toolchains.fetch([*pip, "-r", str(packages)], timeout_s=1800)

    return toolchains.make_product("report-packages", [build, packages], download, texts=[sys.version])


@pytest.fixture
def debian(first: Path, tmp_path: Path) -> Iterator[Machine]:
    """A machine with the package, Java and a topic of `RECORDS` records. Its pip finds only the files of `index`."""
    binds = {PACKAGES_AT: first.parent, INDEX: index()}
    with machine("reports", tmp_path / "machine", debian_root(*JAVA_PACKAGES), read_only_binds=binds) as booted:
        booted.put(f"127.0.0.1 localhost {booted.output('hostname')}\n", "/etc/hosts")
        booted.put(f"[global]\nno-index = true\nfind-links = {INDEX}\n", "/etc/pip.conf")
        install(booted, first)
        booted.run("sed", "-i", "$ a usage.spool.interval.ms=1000", SETTINGS)
        booted.run("systemctl", "restart", "odradek")
        booted.run("odradek", "produce", "orders", "--create", text="".join(f"{number}\n" for number in range(RECORDS)))
        yield booted


def test_the_packages_are_installed_and_the_timers_make_a_report_and_a_load(debian: Machine) -> None:
    done = debian.run(SCRIPT, timeout_s=1800)
    assert done.stderr == ""
    assert (
        done.stdout
        == "install-report-packages: done; to start the timer: systemctl enable --now odradek-report.timer\n"
    )
    reports.hurry(debian)
    summary = reports.by_timer(debian, "/var/lib/odradek-report")
    assert summary["traffic"]["records_in"] == RECORDS
    assert reports.records(reports.directory(debian, "/var/lib/odradek-report")) == {
        ("orders", "odradek"): (RECORDS, 0)
    }

    debian.run("systemctl", "start", "--no-block", reports.UNIT)
    until(lambda: debian.run("pgrep", "--uid", "odradek", "java", check=False).stdout, "Spark runs", reports.PATIENCE_S)
    debian.run("systemctl", "stop", reports.UNIT)
    assert debian.state_of(reports.UNIT) == "inactive"  # it did not fail

    lines = ("ODRADEK_TOPICS=orders", "ODRADEK_LOAD_OPTIONS=--reader python --memory 512m --master local[1]")
    debian.put("\n".join(lines) + "\n", "/etc/odradek/load-orders.env")
    debian.put(reports.AWAKE, f"/etc/systemd/system/{LOAD}.d/test.conf")
    debian.put(reports.AT_ONCE, "/etc/systemd/system/odradek-load@orders.timer.d/test.conf")
    debian.run("systemctl", "daemon-reload")
    debian.run("systemctl", "enable", "--now", "odradek-load@orders.timer")
    until(
        lambda: debian.state_of(LOAD) != "failed" and f"{RECORDS} records in 1 commit" in debian.journal(LOAD, 400),
        lambda: debian.journal(LOAD),
        reports.PATIENCE_S,
    )
