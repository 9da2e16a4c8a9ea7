"""The image of the nightly report, built by the steps of its Containerfile and run as by Kubernetes: read-only, as its user."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import toolchains
from tests.jobs.spools import HOUR_MS, Boot, at
from tests.packaging import images

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(2400)]

MOST_BYTES = 1_500_000_000
HOURS = 47
"""The last one ends at 23:00 of the second day: what is counted until midnight belongs to the next day."""


@pytest.fixture(scope="module")
def image(repaired: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image. Takes about two minutes and the network."""
    file = toolchains.REPOSITORY / "deploy/image/Containerfile.report"
    with images.built(repaired, tmp_path_factory.mktemp("report-image") / "image", "--file", file) as directory:
        (directory / "rootfs/etc/hosts").touch()  # a place for the file that every container runtime puts there
        yield directory


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """The volume of a broker that ran for two days."""
    volume = tmp_path / "volume"
    (volume / "data").mkdir(parents=True)
    boot = Boot(volume / "data", "0badcafe", at("2026-11-01T00:00"))
    for hour in range(HOURS):
        boot.count((0, "User:shop", "checkout", "orders", "Produce"), [10**6 + hour, 0, 1000, 0, 50, 0, 0, 0])
        boot.set(kind="log_dir", path="/data", free=60 * 10**9, total=10**11, online=True)
        boot.tick(HOUR_MS)
    return volume


def test_its_job_makes_a_report_of_a_spool(image: Path, spool: Path, tmp_path: Path) -> None:
    config = images.settings(image)
    user = int(config["User"].split(":")[0])
    reports, hosts, name = tmp_path / "reports", tmp_path / "hosts", f"report{os.getpid()}"
    reports.mkdir()
    os.chown(reports, user, user)
    hosts.write_text(f"127.0.0.1 localhost {name}\n")
    tmp_path.chmod(0o755)
    mounts = ["--tmpfs=/tmp:mode=1777", f"--bind-ro={hosts}:/etc/hosts",
              f"--bind-ro={spool}:/var/lib/odradek", f"--bind={reports}:{config['Volumes'][0]}"]  # fmt: skip
    job = [*config["Entrypoint"], "--spool", "/var/lib/odradek/data", "--out", "/var/lib/odradek-report"]
    period = ["--from", "2026-11-01", "--to", "2026-11-03"]
    done = subprocess.run(
        images.command_of(image, name, [*job, *period], mounts),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        errors="replace",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((reports / "report.json").read_text())
    assert summary["traffic"]["bytes_in"] == sum(10**6 + hour for hour in range(HOURS))
    assert (reports / "report.html").stat().st_uid == user


def test_it_has_the_size_that_the_documents_say(image: Path) -> None:
    size = images.size_of(image)
    print(f"{size:,} bytes")
    assert size <= MOST_BYTES
