"""What all commands have in common: the form of their help, and descriptions of numbers in plain words.

A command's help has its own options first, then those of many commands, then examples. The man pages have the same parts.
"""

import math
from collections.abc import Iterator
from typing import Any

import click

from odradek.cli.framework.other_names import own_names

PROGRAM = "odradek"


class GeneralOption(click.Option):
    """An option of many commands: how to connect, --json, --timeout. The help lists it after the command's own options."""


class WholeNumber(click.IntRange):
    """A whole number; errors name the values that are allowed."""

    name = "number"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int:
        """Raises BadParameter."""
        try:
            return super().convert(value, parameter, context)
        except click.BadParameter:
            self.fail(f"'{value}' is not a whole number{_limits(self)}", parameter, context)

    def _describe_range(self) -> str:
        return _limits(self).removeprefix(" of ").strip()


class Number(click.FloatRange):
    """A finite number, such as 0.5; errors name the values that are allowed."""

    name = "number"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        """Raises BadParameter."""
        try:
            number = super().convert(value, parameter, context)
        except click.BadParameter:
            number = math.nan
        if not math.isfinite(number):
            self.fail(f"'{value}' is not a number{_limits(self)}", parameter, context)
        return number

    def _describe_range(self) -> str:
        return _limits(self).removeprefix(" of ").strip()


def _limits(numbers: click.IntRange | click.FloatRange) -> str:
    """The allowed values in words; empty if all are allowed."""
    if numbers.min is None:
        return "" if numbers.max is None else f" of at most {numbers.max}"
    return f" of at least {numbers.min}" if numbers.max is None else f" from {numbers.min} to {numbers.max}"


def _in_plain_words(kind: click.ParamType[Any]) -> click.ParamType[Any]:
    """Our type for a numeric type of click; other types are returned unchanged."""
    if isinstance(kind, click.IntRange):
        return WholeNumber(kind.min, kind.max)
    if isinstance(kind, click.FloatRange):
        return Number(kind.min, kind.max)
    return WholeNumber() if kind is click.INT else Number() if kind is click.FLOAT else kind


HELP_NAMES = ["-h", "--help"]


class HelpfulCommand(click.Command):
    """A command whose help is in the form that the module describes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for parameter in self.params:
            parameter.type = _in_plain_words(parameter.type)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Like click's; replaces options of other tools by those of this command."""
        return super().parse_args(ctx, args if isinstance(self, click.Group) else own_names(self, args))

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """The names of the help option, whatever command is above: click keeps the option that it makes first, which would lack
        `-h` if the command was called alone."""
        used = {name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts)}
        return [name for name in HELP_NAMES if name not in used]

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in sections."""
        for heading, rows in option_sections(context):
            with formatter.section(heading):
                formatter.write_dl(rows)

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples. Their commands are not wrapped, so that they can be copied."""
        with formatter.section("Examples"):
            for text, *commands in examples_of(context):
                formatter.write_text(text)
                for command in commands:
                    formatter.write(f"{'':{formatter.current_indent + 2}}{command}\n")


def option_sections(context: click.Context) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The headings of a command's options, each with the names and the text of its options."""
    own: list[tuple[str, str]] = []
    general: list[tuple[str, str]] = []
    for parameter in context.command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            is_general = isinstance(parameter, GeneralOption) or parameter is context.command.get_help_option(context)
            (general if is_general else own).append(record)
    if own:
        yield "Options", own
    if general:
        yield "General options" if own else "Options", general


def examples_of(context: click.Context) -> list[tuple[str, ...]]:
    """The examples of a command, each with its text and its commands; of a group, the first one of each command below it."""
    from odradek.cli.framework.examples import EXAMPLES

    path = path_of(context)
    if path in EXAMPLES or not isinstance(context.command, click.Group):
        return list(EXAMPLES[path])
    return [found[0] for name, found in EXAMPLES.items() if name.startswith(f"{path} ")]


def path_of(context: click.Context) -> str:
    """The name of a command and of those above it, such as "odradek topic create", however the program was called."""
    names: list[str] = []
    place: click.Context | None = context
    while place is not None and place.parent is not None:
        names.insert(0, place.info_name or "")
        place = place.parent
    return " ".join([PROGRAM, *names])
