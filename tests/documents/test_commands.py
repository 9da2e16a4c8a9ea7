"""docs/reference/commands.md is made from the commands, and has all of them with all of their options."""

import re
from pathlib import Path

import click

from odradek.cli.packaging import man, reference

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/commands.md").read_text()


def test_the_committed_document_is_up_to_date(tmp_path):
    assert reference.main([str(tmp_path / "out.md")]) == 0
    assert (tmp_path / "out.md").read_text() == PAGE, "run: make tables"


def test_every_command_has_a_chapter_with_its_options():
    chapters = {part.partition("\n")[0]: part for part in re.split(r"^#+ (?=odradek )", PAGE, flags=re.M)[1:]}
    contexts = [context for context in man.walk(man.root_context()) if context.parent is not None]
    assert list(chapters) != [] and set(chapters) == {context.command_path for context in contexts}
    for context in contexts:
        if isinstance(context.command, click.Group):
            continue
        options = [
            parameter for parameter in context.command.get_params(context) if isinstance(parameter, click.Option)
        ]
        for option in options:
            if not option.hidden:
                words = re.findall(r"`(-[^` ,]*)", chapters[context.command_path])
                assert set(option.opts) & set(words), (context.command_path, option.opts)


def test_a_command_that_was_called_alone_keeps_its_help_options():
    """As tests do: click keeps the help option of the first call."""
    context = next(context for context in man.walk(man.root_context()) if context.command_path == "odradek topic list")
    alone = click.Context(type(context.command)(name="alone"), info_name="alone")
    assert alone.command.get_help_option(alone).opts == ["-h", "--help"]


def test_texts_keep_their_characters():
    assert reference._text("a|b <X> 'ord*' `ord*|x`") == r"a\|b \<X> 'ord\*' `ord*\|x`"
