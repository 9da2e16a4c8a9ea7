"""Writes the man pages of the command from its click tree: ``python -m odradek.cli.packaging.man DIR``.

odradek(1), and a page for each command of the first level, odradek-topic(1), which contains the commands below it. Runs when a
package is built; the command itself never imports this module. `man_texts` holds what the tree does not contain. The date of
the pages is that of SOURCE_DATE_EPOCH, so that a package can be built twice with equal bytes.

Own code instead of click-man 0.6: it reads only commands that are imported already (`LazyGroup` imports on use), writes a page
for each of 90 commands, has neither examples nor exit codes, variables and files, and escapes neither backslashes nor a leading
dot. Instead of pandoc or docutils: these pages are also written where `deploy/systemd/install` runs, which would then need it,
and text for them must be escaped as roff must be.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from odradek import __version__
from odradek.cli.framework.command import PROGRAM, examples_of, option_sections
from odradek.cli.framework.echo import echo
from odradek.cli.main import main as root_command
from odradek.cli.packaging import roff
from odradek.cli.packaging.file_writer import write_below
from odradek.cli.packaging.man_texts import ENVIRONMENT, EXIT_STATUS, FILES, OPTIONS_NOTE


def pages() -> dict[str, str]:
    """The text of each page by the name of its file, for example "odradek-topic.1"."""
    context = root_context()
    children = list(_children(context))
    found = {f"{PROGRAM}.1": _page(context, _commands_list(children), [_reference(child) for child in children])}
    for child in children:
        body = [line for command in _children(child) for line in _subcommand(command)]
        see = [f"{roff.bold(PROGRAM)}(1)"]
        found[f"{_page_name(child)}.1"] = _page(child, [roff.section("Commands"), *body] if body else [], see)
    return found


def write(directory: Path) -> list[Path]:
    """Write all pages into a directory, which is created if necessary. Returns the files. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in pages().items():
        path = directory / name
        path.write_text(text, encoding="ascii")
        paths.append(path)
    return paths


def root_context() -> click.Context:
    """The context of the command without a subcommand."""
    return click.Context(root_command, info_name=PROGRAM, **root_command.context_settings)


def walk(context: click.Context) -> Iterator[click.Context]:
    """The contexts of a command and of all visible commands below it."""
    yield context
    for child in _children(context):
        yield from walk(child)


def _children(context: click.Context) -> Iterator[click.Context]:
    command = context.command
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        if child is not None and not child.hidden:
            yield click.Context(child, info_name=name, parent=context)


def _page_name(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _reference(context: click.Context) -> str:
    return f"{roff.bold(_page_name(context))}(1)"


def _page(context: click.Context, commands: Sequence[str], see: Sequence[str]) -> str:
    """:param commands: the lines about the commands below this one. :param see: references to other pages."""
    name = _page_name(context)
    help_text = _help(context)
    day = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    lines = [
        f".TH {roff.escaped(name.upper())} 1 {day} {roff.escaped(f'{PROGRAM}-{__version__}')}",
        ".nh",  # neither hyphenation nor adjusted lines: options and names of keys are to be copied
        ".ad l",
        roff.section("Name"),
        *roff.joined([roff.escaped(name), "\\-", *map(roff.escaped, _first_line(help_text).split())]),
        roff.section("Synopsis"),
        *_synopsis(context),
        roff.section("Description"),
        *_body(help_text),
        *_options(context, [roff.section("Options")]),
        *commands,
    ]
    if context.parent is None:
        lines += [roff.section("Options of all commands that connect to a cluster"), *roff.filled(OPTIONS_NOTE)]
    lines += _table("Exit status", EXIT_STATUS, roff.bold)
    lines += _table("Environment", _environment(context), roff.bold)
    if context.parent is None:
        lines += _table("Files", FILES, roff.italic)
    lines += _examples(context)
    lines += [roff.section("See also"), *roff.joined(f"{name}," for name in see[:-1]), see[-1]]
    return "\n".join(lines) + "\n"


def _help(context: click.Context) -> str:
    text = context.command.help
    if not text:
        raise ValueError(f"{context.command_path} has no help text")
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _first_line(text: str) -> str:
    first = " ".join(text.split("\n\n", 1)[0].split()).rstrip(".")
    return first[:1].lower() + first[1:]


def _synopsis(context: click.Context) -> list[str]:
    pieces = context.command.collect_usage_pieces(context)
    return roff.joined([roff.bold(context.command_path), *(roff.italic(piece) for piece in pieces)])


def _body(text: str) -> list[str]:
    lines: list[str] = []
    for paragraph in roff.paragraphs(text):
        lines += [*([".PP"] if lines else []), *paragraph]
    return lines


def _options(context: click.Context, heading: Sequence[str]) -> list[str]:
    """The options of a command below a heading; nothing if it has none."""
    rows = [row for _, rows in option_sections(context) for row in rows]
    lines = [line for names, text in rows for line in roff.tagged(roff.bold(names), roff.filled(text))]
    return [*heading, *lines] if lines else []


def _commands_list(children: Sequence[click.Context]) -> list[str]:
    by_name = {child.info_name: child for child in children}
    lines = [roff.section("Commands"), *roff.filled("Each command has a page with its options.")]
    for heading, names in root_command.sections(root_context()).items():
        lines.append(roff.subsection(heading))
        for name in names:
            summary = _first_line(_help(by_name[name]))
            lines += roff.tagged(_reference(by_name[name]), roff.filled(f"{summary[:1].upper()}{summary[1:]}."))
    return lines


def _subcommand(context: click.Context) -> list[str]:
    """A command below a group, as a subsection; then the commands below it."""
    lines = [roff.subsection(context.command_path), *_synopsis(context), ".PP", *_body(_help(context))]
    lines += _options(context, [])
    for child in _children(context):
        lines += _subcommand(child)
    return lines


def _environment(context: click.Context) -> dict[str, str]:
    """The variables that the command or a command below it reads; for the page of the whole command, all of them."""
    if context.parent is None:
        return ENVIRONMENT
    used = {parameter.envvar for command in walk(context) for parameter in command.command.params if parameter.envvar}
    return {name: text for name, text in ENVIRONMENT.items() if name in used}


def _table(heading: str, rows: Mapping[str, str], style: Callable[[str], str]) -> list[str]:
    """A section with a list of names and their meaning; nothing if there are no rows."""
    lines = [line for name, text in rows.items() for line in roff.tagged(style(name), roff.filled(text))]
    return [roff.section(heading), *lines] if lines else []


def _examples(context: click.Context) -> list[str]:
    """The examples of a command; on the page of a group, those of all commands below it."""
    places = [context] if context.parent is None or not list(_children(context)) else [*walk(context)][1:]
    lines: list[str] = []
    for text, *commands in (example for place in places for example in examples_of(place)):
        lines += [".PP", *roff.filled(text)]
        lines += [line for command in commands for line in (".PP", ".RS 4", *roff.unfilled([command]), ".RE")]
    return [roff.section("Examples"), *lines[1:]]


def run(arguments: Sequence[str]) -> None:
    """The program: write the pages into the directory that the only argument names."""
    paths = write_below("odradek.cli.packaging.man", arguments, write)
    echo(f"wrote {len(paths)} pages to {arguments[0]}")


if __name__ == "__main__":
    run(sys.argv[1:])
