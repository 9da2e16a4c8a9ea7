"""Maintainer scripts of the Debian package and the installer of the report's packages, below another root."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from deploy.debian.package import PACKAGED_UNITS, maintainer_script
from tests import toolchains

DEPLOY = toolchains.REPOSITORY / "deploy"
MAINTAINER = DEPLOY / "debian/maintainer"
STATE = "run/odradek-units.before-upgrade"
PATTERNS = [unit.replace("@", "@*") for unit in PACKAGED_UNITS]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("opt/odradek", "var/lib/odradek", "etc/odradek", "run/systemd/system", "bin"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def run(root: Path, script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of the script in which the directories of the system are those below `root`."""
    text = maintainer_script(script.name) if script.parent == MAINTAINER else script.read_text()
    text = re.sub(r"(?<![\w/}])/(opt|var/lib|etc|run)\b", rf"{root}/\1", text)
    paths = {path for path in re.findall(r"(?<![\w./*^])/[\w./-]+", text) if not path.startswith(str(root))}
    assert paths <= {"/bin/sh", "/dev/null"}, "these would be changed on this machine"
    environment = {"PATH": f"{root}/bin:{os.environ['PATH']}"}
    command = ["sh", "-s", "--", *arguments]
    return subprocess.run(command, input=text, env=environment, capture_output=True, text=True, check=False)


def fake_systemd(root: Path, running: Mapping[str, str] | None = None, policy: int = 0) -> None:
    """A systemctl that knows which units run, with their states, and writes its calls to a file.

    A call that is the file `fails` fails, and the one with the number in `dies` kills the script. `hook` has a pattern: after
    its stop, the unit of the other line runs.
    :param policy: the exit code of policy-rc.d
    """
    write_running(root, running or {})
    (root / "count").write_text("0\n")
    program(  # without other programs: tests call it often
        root / "bin/systemctl",
        f"""cd {root}
echo "$*" >>calls
read -r count <count
count=$((count + 1))
echo $count >count
if [ -e dies ]; then
  read -r dies <dies
  if [ "$dies" = $count ]; then kill -9 $PPID; exit 1; fi
fi
if [ -e fails ]; then
  read -r fails <fails
  [ "$fails" != "$*" ] || exit 1
fi
for last; do :; done
left=
found=no
while read -r unit state; do
  case "$unit" in
    $last)
      found=yes
      case "$*" in *list-units*[=,]$state[,' ']*) echo "$unit loaded $state running a unit" ;; esac ;;
    *) left="$left$unit $state\n" ;;
  esac
done <running
case "$*" in
  *"stop "*)
    printf "$left" >running
    if [ -e hook ]; then
      {{ read -r pattern; read -r unit; }} <hook
      [ "$last" != "$pattern" ] || echo "$unit activating" >>running
    fi ;;
  *"start "*) [ $found = yes ] || echo "$last active" >>running ;;
esac""",
    )
    program(root / "bin/deb-systemd-invoke", f'[ {policy} = 101 ] || exec systemctl "$@"')
    for name in ("systemd-sysusers", "deb-systemd-helper"):
        program(root / f"bin/{name}", "exit 0")


def write_running(root: Path, units: Mapping[str, str]) -> None:
    (root / "running").write_text("".join(f"{unit} {state}\n" for unit, state in units.items()))


def which_run(root: Path) -> set[str]:
    return {line.split()[0] for line in (root / "running").read_text().splitlines()}


def stopped(root: Path) -> list[str]:
    """The units and patterns that were stopped, in this order; forgets the calls."""
    calls = (root / "calls").read_text().splitlines()
    (root / "calls").unlink()
    return [call.rpartition(" ")[2] for call in calls if "stop " in call]


def succeeds(root: Path, script: str, *arguments: str) -> None:
    """Run a script, which must be silent: the scripts only speak of trouble."""
    done = run(root, MAINTAINER / script, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def instances() -> list[str]:
    """The units of the package, in the order in which they stop; of a template two instances."""
    return [unit.replace("@", at) for unit in PACKAGED_UNITS for at in (["@a", "@b"] if "@" in unit else ["@"])]


def test_the_package_has_all_units_of_the_installer() -> None:
    assert {*PACKAGED_UNITS} == {
        path.name for end in ("service", "timer") for path in (DEPLOY / "systemd").glob(f"*.{end}")
    }
    assert PACKAGED_UNITS[-1] == "odradek.service"


@pytest.mark.parametrize("state", ["active", "activating", "reloading", "deactivating"])
@pytest.mark.parametrize("running", [[], ["odradek.service"], ["odradek-mirror@a.service"], instances()])
def test_what_runs_is_stopped_before_its_program_is_replaced_and_started_afterwards(
    root: Path, running: list[str], state: str
) -> None:
    fake_systemd(root, dict.fromkeys(running, state))
    succeeds(root, "prerm", "upgrade", "0.2.0-1")
    assert which_run(root) == set()
    assert stopped(root) == PATTERNS  # also what does not run: a start may be queued
    assert (root / STATE).read_text().splitlines() == running
    # an upgrade that is tried again finds nothing that runs, and leaves what the first attempt has found
    succeeds(root, "prerm", "upgrade", "0.2.0-1")
    assert (root / STATE).read_text().splitlines() == running
    succeeds(root, "postinst", "configure", "0.1.0-1")
    assert which_run(root) == {*running}
    assert not (root / STATE).exists()


def test_after_a_failed_upgrade_the_next_one_knows_what_runs_again(root: Path) -> None:
    fake_systemd(root, dict.fromkeys(instances(), "active"))
    succeeds(root, "prerm", "upgrade", "0.2.0-1")
    (root / "fails").write_text("start odradek.service\n")
    failed = run(root, MAINTAINER / "postinst", "configure", "0.1.0-1")
    assert failed.returncode == 1 and "the broker does not start" in failed.stderr
    assert which_run(root) == {*instances()} - {"odradek.service"}
    (root / "fails").unlink()
    succeeds(root, "prerm", "upgrade", "0.3.0-1")
    assert which_run(root) == set()
    succeeds(root, "postinst", "configure", "0.1.0-1")
    assert which_run(root) == {*instances()}


@pytest.mark.parametrize(("action", "then"), [("upgrade", "configure"), ("remove", "abort-remove")])
def test_what_ran_runs_again_wherever_dpkg_dies(root: Path, action: str, then: str) -> None:
    """At each call of systemctl the script is killed, and then dpkg tries the upgrade again, or takes the removal back."""
    some = ("odradek-report.timer", "odradek-load@a.service", "odradek-mirror@a.service", "odradek.service")
    for at in itertools.count(1):
        fake_systemd(root, dict.fromkeys(some, "active"))
        (root / "dies").write_text(f"{at}\n")
        killed = run(root, MAINTAINER / "prerm", action).returncode
        if killed and action == "upgrade":
            succeeds(root, "prerm", action)
        if run(root, MAINTAINER / "postinst", then, "0.1.0-1").returncode:
            succeeds(root, "postinst", then, "0.1.0-1")
        assert which_run(root) == {*some}, f"killed at call {at}"
        if int((root / "count").read_text()) < at:
            break
    assert at > 2 * len(PACKAGED_UNITS)


def test_a_systemctl_that_fails_ends_the_upgrade_before_anything_stops(root: Path) -> None:
    fake_systemd(root, dict.fromkeys(instances(), "active"))
    listing = "list-units --plain --no-legend --state=active,activating,deactivating,reloading"
    (root / "fails").write_text(f"{listing} {PATTERNS[0]}\n")
    (root / STATE).write_text("odradek.service\n")
    for attempt in (
        "upgrade",
        "failed-upgrade",
        "remove",
    ):  # failed-upgrade: of the new package, if the old one's prerm fails
        assert run(root, MAINTAINER / "prerm", attempt).returncode != 0
        assert stopped(root) == []
        assert (root / STATE).read_text() == "odradek.service\n"
    (root / "fails").unlink()
    succeeds(root, "prerm", "failed-upgrade", "0.1.0-1")
    assert which_run(root) == set()


def test_a_removal_that_fails_is_taken_back(root: Path) -> None:
    fake_systemd(root, dict.fromkeys(instances(), "active"))
    (root / "fails").write_text("stop odradek.service\n")
    assert run(root, MAINTAINER / "prerm", "remove").returncode != 0
    assert which_run(root) == {"odradek.service"}
    assert "disable" not in (root / "calls").read_text()
    succeeds(root, "postinst", "abort-remove")
    assert which_run(root) == {*instances()}


def test_what_a_timer_starts_just_before_its_stop_runs_after_the_upgrade(root: Path) -> None:
    fake_systemd(root, {"odradek-load@a.timer": "active"})
    (root / "hook").write_text("odradek-load@*.timer\nodradek-load@a.service\n")
    succeeds(root, "prerm", "upgrade", "0.2.0-1")
    assert which_run(root) == set()
    succeeds(root, "postinst", "configure", "0.1.0-1")
    assert which_run(root) == {"odradek-load@a.timer", "odradek-load@a.service"}


def test_policy_rc_d_keeps_the_broker_only(root: Path) -> None:
    fake_systemd(root, dict.fromkeys(instances(), "active"), policy=101)
    done = run(root, MAINTAINER / "prerm", "upgrade", "0.2.0-1")
    assert done.returncode == 0
    assert "the broker runs the old version until 'systemctl restart odradek'" in done.stderr
    assert which_run(root) == {"odradek.service"}
    succeeds(root, "postinst", "configure", "0.1.0-1")
    assert which_run(root) == {*instances()}


@pytest.mark.parametrize(
    ("before", "report", "after"),
    [("running", True, {"odradek.service", "odradek-report.service"}), ("running", False, {"odradek.service"}),
     ("stopped", False, set())],
)  # fmt: skip
def test_an_upgrade_from_an_earlier_build_reads_its_state(
    root: Path, before: str, report: bool, after: set[str]
) -> None:
    fake_systemd(root)
    (root / "run/odradek.before-upgrade").write_text(f"{before}\n")
    if report:
        (root / "run/odradek-report.before-upgrade").write_text("")
    (root / "fails").write_text("start odradek.service\n")
    failed = run(root, MAINTAINER / "postinst", "configure", "0.1.0-1").returncode
    assert failed == ("odradek.service" in after)
    (root / "fails").unlink()
    if failed:
        succeeds(root, "postinst", "configure", "0.1.0-1")
    assert which_run(root) == after
    assert [path.name for path in (root / "run").iterdir()] == ["systemd"]


def test_a_removal_stops_all_and_disables_all_but_the_broker(root: Path) -> None:
    fake_systemd(root, dict.fromkeys(instances(), "active"))
    succeeds(root, "prerm", "remove")
    disable = (root / "calls").read_text().splitlines()[-1]
    assert disable.split() == ["--quiet", "disable", *PACKAGED_UNITS[:-1]]
    assert stopped(root) == PATTERNS
    for name in ("odradek.before-upgrade", "odradek-report.before-upgrade", "odradek-units.before-upgrade.new"):
        (root / "run" / name).write_text("")
    succeeds(root, "postrm", "remove")
    assert [path.name for path in (root / "run").iterdir()] == ["systemd"]


def test_a_purge_deletes_reports_but_not_what_links_point_to(root: Path) -> None:
    fake_systemd(root)
    (root / "elsewhere/tables").mkdir(parents=True)
    (root / "elsewhere/tables/file").write_text("kept")
    for name in ("var/lib/odradek/data", "opt/odradek-report/lib"):
        (root / name).mkdir(parents=True)
        (root / name / "file").write_text("gone")
    (root / "opt/odradek-report/link").symlink_to(root / "elsewhere")
    (root / "var/lib/odradek-report").symlink_to(root / "elsewhere")
    done = run(root, MAINTAINER / "postrm", "purge")
    assert (done.returncode, done.stderr) == (0, "")
    assert (root / "elsewhere/tables/file").read_text() == "kept"
    left = [path.name for at in ("var/lib", "opt", "etc") for path in (root / at).iterdir() if path.name != "systemd"]
    assert left == ["odradek"]  # the program, which dpkg removes


def test_packages_of_the_report_are_for_the_python_of_the_program(root: Path) -> None:
    fake_systemd(root)
    script = DEPLOY / "systemd/install-report-packages"
    done = run(root, script)
    assert done.returncode == 1 and f"there is no {root}/opt/odradek/venv/bin/python; set PYTHON" in done.stderr
    installed = f'echo "$0 $*" >>{root}/calls; case "$1" in -c) echo {root} ;; esac'
    program(root / "opt/odradek-report/bin/python", installed)
    program(root / "opt/odradek/venv/bin/python", installed)
    program(root / "bin/python3", "exit 9")
    (root / "opt/odradek/requirements-report.txt").write_text("pyspark==1\n")
    done = run(root, script)
    assert done.returncode == 0, done.stderr
    venv = f"{root}/opt/odradek/venv/bin/python -m venv --clear {root}/opt/odradek-report"
    assert (root / "calls").read_text().splitlines()[0] == venv
    # an upgrade says whether the packages must be installed again
    for name, asked in (("pyspark==1", False), ("pyspark==2", True)):
        (root / "opt/odradek/requirements-report.txt").write_text(f"{name}\n")
        done = run(root, MAINTAINER / "postinst", "configure", "0.1.0-1")
        assert done.returncode == 0 and ("share/deploy/systemd/install-report-packages" in done.stderr) == asked
