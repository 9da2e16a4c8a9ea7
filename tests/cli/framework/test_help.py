"""The help of each command: own options first, then general ones, then examples that the command accepts; and plain words."""

import re
import shlex
import subprocess
import sys

import click
import pytest

from odradek.cli.framework.command import GeneralOption, HelpfulCommand, Number, WholeNumber, examples_of
from odradek.cli.framework.examples import EXAMPLES
from odradek.cli.main import SECTIONS, main
from odradek.cli.packaging import man

CONTEXTS = {context.command_path: context for context in man.walk(man.root_context())}
OF_CLICK = ("RANGE", "INTEGER", "FLOAT", "FILENAME", "x>=", "<=x")
"""What click's own help has where nobody has written a word."""


def helped(path):
    return CONTEXTS[path].command.get_help(CONTEXTS[path])


@pytest.mark.parametrize("path", CONTEXTS)
def test_help_has_examples_and_no_words_of_click(path):
    command = CONTEXTS[path].command
    assert isinstance(command, HelpfulCommand)
    examples = examples_of(CONTEXTS[path])
    text = helped(path)
    assert examples and "\nExamples:\n" in text
    assert all(f"\n    {line}\n" in f"{text}\n" for _, *lines in examples for line in lines)
    assert not [word for word in OF_CLICK if word in text]
    assert all(line == line.rstrip() for line in text.splitlines())


def test_every_command_has_an_example_and_every_example_a_command():
    leaves = {path for path, context in CONTEXTS.items() if not isinstance(context.command, click.Group)}
    assert set(EXAMPLES) - {"odradek"} == leaves


@pytest.mark.parametrize("path", EXAMPLES)
def test_examples_are_commands_that_the_program_accepts(path, tmp_path, monkeypatch):
    (tmp_path / "lines.txt").touch()
    monkeypatch.chdir(tmp_path)
    for text, *lines in EXAMPLES[path]:
        assert text.endswith(":") and lines
        assert path == "odradek" or path in [parsed(line) for line in lines]


def parsed(line):
    """The path of the command that a line calls. Raises UsageError if the command does not accept the line."""
    inner = re.fullmatch(r'eval "\$\((.*)\)"', line)
    words = shlex.split(inner.group(1) if inner else line)
    assert words[0] == "odradek"
    context = man.root_context()
    command, arguments = main, words[1:]
    while isinstance(command, click.Group):
        child = command.get_command(context, arguments[0])
        assert child is not None, line
        context = click.Context(child, info_name=arguments[0], parent=context)
        command, arguments = child, arguments[1:]
    command.make_context(context.info_name, arguments, parent=context.parent)
    return context.command_path


def test_the_first_example_lines_can_be_read_in_a_wrong_example():
    with pytest.raises(click.UsageError):
        parsed("odradek topic list --no-such-option")


def test_own_options_come_before_general_ones():
    text = helped("odradek topic create")
    order = [
        text.index(words) for words in ("Options:", "--partitions", "General options:", "-b, ", "-h, ", "Examples:")
    ]
    assert order == sorted(order)
    both = [path for path in CONTEXTS if "General options:" in helped(path)]
    assert len(both) > 50
    for path in both:
        own = helped(path).partition("\nOptions:\n")[2].partition("General options:")[0]
        for parameter in CONTEXTS[path].command.params:
            if isinstance(parameter, GeneralOption):
                assert f" {parameter.opts[-1]} " not in own, (path, parameter.opts)


def test_each_command_is_in_one_section():
    names = [name for section in SECTIONS.values() for name in section]
    assert sorted(names) == main.list_commands(man.root_context())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["topic", "creat"], "no such command 'creat'; did you mean 'create'? See 'odradek topic --help'"),
        (
            ["topic", "list", "--size"],
            "no such option '--size'; did you mean '--sizes'? See 'odradek topic list --help'",
        ),
        (["topic", "list", "--xyz"], "no such option '--xyz'; see 'odradek topic list --help'"),
        (
            ["demo", "--partitions", "x"],
            "invalid value for '--partitions': 'x' is not a whole number from 1 to 1000; see",
        ),
        (
            ["demo", "--partitions", "0"],
            "invalid value for '--partitions': '0' is not a whole number from 1 to 1000; see",
        ),
        (["demo", "--megabytes", "0"], "'0' is not a whole number of at least 1; see"),
        (["topic", "list", "--timeout", "nan"], "'nan' is not a number of at least 0.01; see"),
        (["config", "get", "--broker", "one"], "'one' is not a whole number; see"),
    ],
)
def test_errors_of_the_command_line_are_in_plain_words(arguments, message):
    done = subprocess.run(
        [sys.executable, "-m", "odradek.cli", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert message in done.stderr and ";;" not in done.stderr and "?;" not in done.stderr


def test_numbers_keep_their_limits():
    assert (WholeNumber(1, 3)("3"), Number(0.5)("0.5"), WholeNumber()("-7")) == (3, 0.5, -7)
    for kind, text in ((WholeNumber(1, 3), "4"), (WholeNumber(max=3), "4"), (Number(0), "-1"), (Number(), "inf")):
        with pytest.raises(click.BadParameter):
            kind(text)
