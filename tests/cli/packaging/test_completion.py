"""``odradek completion``: scripts that shells accept and with which they complete, and the files of a package."""

import os
import subprocess
import sys

import pytest

from odradek.cli.machine.completion import SHELLS, script
from odradek.cli.main import main
from odradek.cli.packaging.completion_files import PLACES
from tests import toolchains

CHECKS = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-execute"]}
COMPLETE_IN_BASH = """
source "$1"
COMP_WORDS=(odradek "${@:2}") COMP_CWORD=$(($# - 1)) COMP_LINE="odradek ${*:2}"
complete -p odradek | grep -q -- '-F _odradek_completion'
_odradek_completion odradek
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def share(tmp_path_factory):
    """A directory for /usr/share with the scripts, written by the program."""
    directory = tmp_path_factory.mktemp("share")
    done = subprocess.run(
        [sys.executable, "-m", "odradek.cli.packaging.completion_files", str(directory)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stderr, done.returncode) == ("", 0)
    return directory


@pytest.fixture
def environment(tmp_path):
    """An environment whose PATH has the command, and no broker to connect to."""
    command = tmp_path / "odradek"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m odradek.cli "$@"\n')
    command.chmod(0o755)
    return os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "ODRADEK_BOOTSTRAP_SERVERS": "127.0.0.1:1"}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_and_the_files_have_the_script(shell, share, environment):
    printed = subprocess.run(
        ["odradek", "completion", shell], env=environment, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert printed == script(shell, main) == (share / PLACES[shell]).read_text()
    assert f"_ODRADEK_COMPLETE={shell}_complete" in printed


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_accepts_the_script(shell, share):
    toolchains.require_command(shell, shell)
    done = subprocess.run(
        [*CHECKS[shell], share / PLACES[shell]], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["top"], ["topic"]),
        (["topic", "tr"], ["truncate"]),
        (["-b", "127.0.0.1:1", "topic", "tr"], ["truncate"]),
        (["topic", "create", "--replication-f"], ["--replication-factor"]),
        (["config", "explain", "log.retention.h"], ["log.retention.hours"]),
        (["completion", ""], list(SHELLS)),
    ],
)
def test_bash_completes(words, expected, share, environment):
    done = subprocess.run(
        ["bash", "--norc", "-euc", COMPLETE_IN_BASH, "bash", share / PLACES["bash"], *words],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout.split(), done.stderr) == (expected, "")


def test_fish_completes(share, environment, tmp_path):
    fish = toolchains.require_command("fish", "fish")
    line = f"source {share / PLACES['fish']}; complete --do-complete 'odradek topic trunc'"
    done = subprocess.run(
        [fish, "--no-config", "-c", line],
        env=environment | {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.split()[0] == "truncate", done.stderr


def test_the_command_starts_without_the_modules_of_pages_and_completion():
    code = "import sys, odradek.cli.main; print(*[n for n in sys.modules if n.startswith('odradek.cli.') or 'completion' in n])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "odradek.cli.main" in loaded
    assert not [name for name in loaded.split() if "completion" in name or name.startswith("odradek.cli.packaging")]


def test_an_unknown_shell_is_refused(environment):
    done = subprocess.run(
        ["odradek", "completion", "tcsh"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2 and "'tcsh' is not one of 'bash', 'zsh', 'fish'" in done.stderr
