"""Command lines that are executed without click: what they mean, and that click would read them alike."""

import subprocess
import sys

import click
import pytest

from odradek.cli.main import main, start
from odradek.cli.start import StartOptions, plain_start
from odradek.cli.version import version_text


def as_click_reads(arguments: list[str]) -> StartOptions | None:
    """The options that click passes to ``start``; None if it reports an error or prints the help."""
    try:
        context = start.make_context("start", list(arguments), resilient_parsing=False)
    except (click.exceptions.Exit, SystemExit):
        return None
    return StartOptions(**context.params)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--config", "a.properties"],
        ["--config=a.properties", "--set", "node.id=2", "--set=log.dirs=/a,/b", "--log-level", "DEBUG"],
        ["--config", "a", "--config", "b", "--log-level=INFO", "--log-level=WARN"],
        ["--set", "--config", "--config", "--set"],
        ["--set", "", "--set="],
        ["--config", "--"],
    ],
    ids=" ".join,
)
def test_a_plain_start_has_the_options_that_click_would_read(arguments: list[str]) -> None:
    assert plain_start(["start", *arguments]) == as_click_reads(arguments) is not None


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["-h"],
        ["--config"],
        ["--set", "a=b", "more"],
        ["--", "--set", "a=b"],
        ["--sett", "a=b"],
        ["--set", "a", "-"],
    ],
    ids=" ".join,
)
def test_click_reads_help_and_wrong_command_lines(arguments: list[str]) -> None:
    assert plain_start(["start", *arguments]) is None
    assert as_click_reads(arguments) is None


@pytest.mark.parametrize("arguments", [[], ["stop"], ["--set", "a=b"], ["-b", "localhost:9092", "start"]])
def test_other_commands_are_not_a_start(arguments: list[str]) -> None:
    assert plain_start(arguments) is None


def modules_of(*arguments: str) -> tuple[str, set[str]]:
    """The output of a command line, and the modules that it imported."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "odradek.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.stdout, {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}


def test_the_version_and_a_start_do_without_click() -> None:
    version, imported = modules_of("--version")
    assert version.rstrip("\n") == version_text()
    assert imported.isdisjoint({"click", "odradek.cli.main"})
    _, imported = modules_of("start", "--set", "no.such=1", "--set", "node.id=x", "--set", "log.format=json")
    assert "odradek.config.broker_config" in imported
    assert imported.isdisjoint({"click", "odradek.cli.main"})


def test_the_group_prints_the_same_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"{version_text()}\n"
