"""The units of deploy/systemd: systemd accepts them, they are sandboxed, and the installer installs them."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.config.broker_config import load
from tests import toolchains

UNITS = toolchains.REPOSITORY / "deploy" / "systemd"
SERVICES = ("odradek.service", "odradek-report.service", "odradek-mirror@.service", "odradek-load@.service")
TIMERS = ("odradek-report.timer", "odradek-load@.timer")
MOST_EXPOSED = 20
"""Maximum exposure level of systemd in tenths: 2.0 of 10."""


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = toolchains.require_command("systemd-analyze", "systemd")
    return subprocess.run([command, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Install everything except the virtual environment."""
    directory = tmp_path_factory.mktemp("root")
    yield install(directory, "--units-only", "--with-report")


def install(root: Path, *options: str) -> Path:
    subprocess.run([UNITS / "install", *options], env=os.environ | {"DESTDIR": str(root)}, check=True, timeout=60)
    return root


def test_a_stop_of_a_unit_with_spark_is_no_failure() -> None:
    """If Java also got SIGTERM, it could end before the command, for which that is a failure of Spark."""
    texts = {unit: (UNITS / unit).read_text() for unit in SERVICES}
    with_spark = [
        unit for unit, text in texts.items() if re.search(r"^ExecStart=.* (report usage|load run) ", text, re.M)
    ]
    assert with_spark == ["odradek-report.service", "odradek-load@.service"]
    for unit in with_spark:
        assert {"KillMode=mixed", "SuccessExitStatus=143 SIGTERM"} <= {*texts[unit].splitlines()}, unit


@pytest.mark.parametrize("unit", [*SERVICES, *TIMERS])
def test_systemd_accepts_a_unit(unit: str, tmp_path: Path) -> None:
    """Replace the command of a unit, which need not be installed here; everything else is unchanged."""
    for path in (*UNITS.glob("*.service"), *UNITS.glob("*.timer")):
        text = path.read_text().replace("/opt/odradek/venv/bin/odradek", shutil.which("true") or "")
        (tmp_path / path.name).write_text(re.sub("(?m)^Documentation=.*\n", "", text))
    found = analyze("verify", "--man=no", "--recursive-errors=no", tmp_path / unit)
    assert (found.stderr, found.returncode) == ("", 0)  # it reports unknown keys on stderr, with exit code 0


def test_a_unit_with_an_unknown_key_would_be_found(tmp_path: Path) -> None:
    unit = tmp_path / "wrong.service"
    unit.write_text("[Service]\nExecStart=/bin/true\nWatchDogSeconds=3\n")
    assert "WatchDogSeconds" in analyze("verify", "--man=no", "--recursive-errors=no", unit).stderr


@pytest.mark.parametrize("unit", SERVICES)
def test_a_service_is_shut_in(unit: str) -> None:
    found = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", UNITS / unit)
    assert found.returncode == 0, found.stdout


def test_the_installer_puts_everything_where_the_units_look_for_it(root: Path) -> None:
    units = root / "usr/lib/systemd/system"
    assert {path.name for path in units.iterdir()} == {*SERVICES, *TIMERS}
    (start,) = re.findall("(?m)^ExecStart=(.*)", (units / "odradek.service").read_text())
    executable, configuration = start.split()[0], start.split()[-1]
    assert executable == "/opt/odradek/venv/bin/odradek"
    assert (root / configuration.lstrip("/")).is_file()
    for place in re.findall("(?m)^Documentation=file://(.*)", (units / "odradek.service").read_text()):
        assert (root / place.lstrip("/")).is_file()
    (report,) = re.findall("(?m)^EnvironmentFile=-(.*)", (units / "odradek-report.service").read_text())
    assert (root / report.lstrip("/")).is_file()
    assert (root / "usr/lib/sysusers.d/odradek.conf").is_file()


def test_the_installed_configuration_is_valid_and_uses_the_services_directory(root: Path) -> None:
    config = load(str(root / "etc/odradek/server.properties"), ())
    assert config.warnings == []
    assert [str(path) for path in config.log_dirs] == ["/var/lib/odradek/data"]


def test_an_existing_configuration_is_kept(tmp_path: Path) -> None:
    mine = tmp_path / "etc/odradek/server.properties"
    mine.parent.mkdir(parents=True)
    mine.write_text("log.dirs=/mine\n")
    install(tmp_path, "--units-only")
    assert mine.read_text() == "log.dirs=/mine\n"
    for timer in TIMERS:
        assert not (tmp_path / "usr/lib/systemd/system" / timer).exists()


def test_errors_of_the_installer_are_one_line(tmp_path: Path) -> None:
    for options, expected in (
        (["--what"], "unknown option --what"),
        (["--enable"], "--enable cannot be combined with DESTDIR"),
    ):
        found = subprocess.run(
            [UNITS / "install", *options],
            env=os.environ | {"DESTDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert found.returncode == 2
        assert expected in found.stderr
        assert len(found.stderr.splitlines()) == 1


def test_an_installed_broker_listens_on_this_machine_only_until_it_is_configured() -> None:
    """Its listener has no logins. The image is the exception: a published port does not reach the 127.0.0.1 of a container."""
    config = load(UNITS / "server.properties")
    assert {listener.host for listener in config.listeners} == {"127.0.0.1"}
    assert config.metrics_listener is not None and config.metrics_listener.host == "127.0.0.1"
    text = (toolchains.REPOSITORY / "deploy/image/server.properties").read_text()
    assert "listeners=PLAINTEXT://:9092" in text and "-p 127.0.0.1:9092:9092" in text
