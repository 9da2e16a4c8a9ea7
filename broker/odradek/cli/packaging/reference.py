"""Generates ``docs/reference/commands.md`` from the click tree: ``python -m odradek.cli.packaging.reference FILE``, or
``make tables``.

Developers run it, and the test that checks that the committed file is up to date. The command itself never imports this module.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import click

from odradek.cli.framework.command import PROGRAM, examples_of, option_sections
from odradek.cli.main import main as root_command
from odradek.cli.packaging.man import root_context, walk
from odradek.cli.packaging.man_texts import ENVIRONMENT, EXIT_STATUS, OPTIONS_NOTE
from odradek.config.reference import put

Option = tuple[str, str]
"""The names of an option with its metavariable, and its text."""

COMMON = 8
"""An option that this many commands have, with the same text, is described once, at the top of the page."""

_HEAD = """\
# Commands

Generated from the commands in `broker/odradek/cli/` by `make tables`. Do not edit this page. [cli.md](../operate/cli.md) has
recipes; `odradek COMMAND --help` and the man pages have these texts, too.
"""


def render() -> str:
    """The document as Markdown."""
    contexts = [context for context in walk(root_context()) if context.parent is not None]
    counts = Counter(option for context in contexts for option in _options(context))
    common = {option for option, count in counts.items() if count >= COMMON}
    sections = root_command.sections(root_context())
    lines = [_HEAD]
    for heading, names in sections.items():
        lines.append(f"- {heading}: {', '.join(f'[{name}](#{PROGRAM}-{name})' for name in names)}")
    lines += ["", "## Options of many commands", "", _text(OPTIONS_NOTE), ""]
    lines += _option_table(option for option in counts if option in common)
    lines += [
        "## Exit status",
        "",
        *_table("status", EXIT_STATUS),
        "## Environment",
        "",
        *_table("variable", ENVIRONMENT),
    ]
    for name in (name for names in sections.values() for name in names):
        for context in contexts:
            if context.command_path.split()[1] == name:
                lines += _command(context, common)
    return "\n".join(lines).rstrip("\n") + "\n"


def _options(context: click.Context) -> Iterator[Option]:
    for _, rows in option_sections(context):
        yield from rows


def _command(context: click.Context, common: set[Option]) -> list[str]:
    """The chapter of a command; a group has only its text, because its commands have their own chapters."""
    path = context.command_path
    lines = ["#" * (path.count(" ") + 1) + f" {path}", ""]
    if not isinstance(context.command, click.Group):
        lines += ["```", " ".join([path, *context.command.collect_usage_pieces(context)]), "```", ""]
    lines += _paragraphs(context.command.help or "")
    if isinstance(context.command, click.Group):
        return lines
    lines += _option_table(option for option in _options(context) if option not in common)
    shared = [f"`{names.split(',')[0].split()[0]}`" for names, text in _options(context) if (names, text) in common]
    if shared:
        lines += [f"Also: {', '.join(shared)}.", ""]
    for text, *commands in examples_of(context):
        lines += [_text(text), "", "```", *commands, "```", ""]
    return lines


def _paragraphs(help_text: str) -> list[str]:
    """The text of a command. A paragraph after a line with \\b keeps its line breaks, as in click."""
    lines: list[str] = []
    for paragraph in help_text.replace("\f", "").split("\n\n"):
        rows = [row.rstrip() for row in paragraph.strip("\n").split("\n")]
        if rows[0].strip() == "\b":
            lines += ["```", *rows[1:], "```", ""]
        elif paragraph.strip():
            lines += [_text(" ".join(" ".join(rows).split())), ""]
    return lines


def _option_table(options: Iterable[Option]) -> list[str]:
    return _table("option", dict(options))


def _table(title: str, rows: Mapping[str, str]) -> list[str]:
    """A table of names and their meaning; nothing if there are no rows."""
    if not rows:
        return []
    lines = [f"| {title} | meaning |", "| --- | --- |"]
    for name, text in rows.items():
        name = name.replace("|", r"\|")
        lines.append(f"| `{name}` | {_text(' '.join(text.split()))} |")
    return [*lines, ""]


def _text(text: str) -> str:
    """A help text as Markdown, in which only text between backquotes has a meaning."""
    parts = text.replace("|", r"\|").split("`")
    for outside in range(0, len(parts), 2):
        for character in "*<":
            parts[outside] = parts[outside].replace(character, f"\\{character}")
    return "`".join(parts)


def main(arguments: list[str]) -> int:
    """Write the document to the file in `arguments`, or to standard output; return the exit code."""
    return put(render(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
