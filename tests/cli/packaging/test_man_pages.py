"""The man pages: complete, without warnings of groff and mandoc, and with examples that the command accepts."""

import re
import shutil
import subprocess
import sys

import click
import pytest

from odradek.cli.framework.examples import EXAMPLES
from odradek.cli.packaging import man, roff
from odradek.cli.packaging.man_texts import ENVIRONMENT
from tests import toolchains

PLACES = [context.command_path for context in man.walk(man.root_context())]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The pages as files, written by the program."""
    directory = tmp_path_factory.mktemp("man") / "man1"
    done = subprocess.run(
        [sys.executable, "-m", "odradek.cli.packaging.man", str(directory)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    return sorted(directory.glob("*.1"))


def plain(text):
    """What a reader sees of a page, with single spaces."""
    text = re.sub(r"\\f[BIP]|\\:|\\&", "", text)
    for shown, written in {
        "\\": r"\e",
        "-": r"\-",
        "'": r"\(aq",
        "`": r"\(ga",
        "^": r"\(ha",
        "~": r"\(ti",
        '"': r"\(dq",
    }.items():
        text = text.replace(written, shown)
    return " ".join(text.split())


def test_every_command_and_every_option_is_in_a_page():
    pages = {name: plain(text) for name, text in man.pages().items()}
    assert len(pages) == 1 + len({path.split()[1] for path in PLACES if " " in path})
    checked = 0
    for context in man.walk(man.root_context()):
        words = context.command_path.split()
        page = pages["-".join(words[:2]) + ".1"]
        assert context.command_path in page
        for parameter in context.command.get_params(context):
            if isinstance(parameter, click.Option) and not parameter.hidden:
                names, text = parameter.get_help_record(context)
                assert f".TP {names} {' '.join(text.split())}" in page, (context.command_path, names)
                checked += 1
    assert checked > 300


def test_the_pages_have_the_examples_of_the_help():
    pages = {name: plain(text) for name, text in man.pages().items()}
    for path, examples in EXAMPLES.items():
        page = pages["-".join(path.split()[:2]) + ".1"]
        for text, *commands in examples:
            assert text in page
            for command in commands:
                assert command in page


def test_the_first_page_names_each_command_of_the_help():
    """The test above reads the tree as the pages do; this one reads what the program prints."""
    text = plain(man.pages()["odradek.1"])
    done = subprocess.run(
        [sys.executable, "-m", "odradek.cli", "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    names = re.findall(r"(?m)^  ([a-z]+)  ", done.stdout.partition("Options:")[0])
    assert len(names) == len(set(names)) == len(man.pages()) - 1
    for name in names:
        assert f"odradek-{name}(1)" in text


@pytest.mark.parametrize("formatter", [["groff", "-ww", "-man", "-Tutf8", "-z"], ["mandoc", "-T", "lint"]])
def test_formatters_have_no_warning(pages, formatter):
    toolchains.require_command(formatter[0], formatter[0])
    done = subprocess.run([*formatter, *pages], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_a_warning_would_be_found(tmp_path):
    page = tmp_path / "wrong.1"
    page.write_text(".TH WRONG 1 2026-01-01 x\n.SH NAME\nwrong \\- a page\n.NOTAMACRO\n")
    if shutil.which("groff") is None:
        toolchains.unavailable("groff is not installed")
    done = subprocess.run(
        ["groff", "-ww", "-man", "-Tutf8", "-z", page], capture_output=True, text=True, timeout=60, check=False
    )
    assert "NOTAMACRO" in done.stderr


def test_every_variable_of_an_option_has_a_text():
    used = {
        parameter.envvar
        for context in man.walk(man.root_context())
        for parameter in context.command.params
        if parameter.envvar
    }
    assert used and used <= set(ENVIRONMENT)


def test_text_cannot_become_a_request_of_roff():
    assert roff.filled(".TH it 's") == ["\\&.TH it \\(aqs"]
    assert roff.filled("a\\b") == ["a\\eb"]
    assert roff.unfilled([".x", " y"]) == [".nf", "\\&.x", "\\& y", ".fi"]
    assert roff.escaped("µ") == "\\[u00B5]"
    lines = roff.filled("word " * 200)
    assert max(map(len, lines)) < roff.WIDTH and " ".join(lines).split() == ["word"] * 200


def test_the_date_is_that_of_the_build(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert " 1 1970-01-02 " in man.pages()["odradek.1"].splitlines()[0]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["a", "b"]])
def test_a_wrong_command_line_is_refused(arguments):
    done = subprocess.run(
        [sys.executable, "-m", "odradek.cli.packaging.man", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("odradek: usage: python -m odradek.cli.packaging.man DIR\n", 2)
