"""A group of commands whose modules are imported when one of them is used, so that the command answers at once."""

import errno
import os
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

import click

from odradek.cli import interrupt
from odradek.cli.failure import fail

WRONG_USAGE = 2


class LazyGroup(click.Group):
    """:param lazy: by name of the command where it is, "module:attribute", and its line in the list of commands."""

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]] | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._lazy = dict(lazy or {})

    def list_commands(self, context: click.Context) -> list[str]:
        """Those of both kinds."""
        return sorted({*super().list_commands(context), *self._lazy})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Imports what is needed for it."""
        if name not in self._lazy:
            return super().get_command(context, name)
        module, _, attribute = self._lazy[name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Says what is there instead of a command that is not."""
        name = arguments[0]
        if self.get_command(context, name) is None and not name.startswith("-"):
            known = self.list_commands(context)
            close = get_close_matches(name, known, 1)
            hint = f"did you mean '{close[0]}'?" if close else f"there is {', '.join(known)}"
            raise click.UsageError(f"no such command '{name}'; {hint}", context)
        return super().resolve_command(context, arguments)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        rows = []
        for name in self.list_commands(context):
            if name in self._lazy:
                rows.append((name, self._lazy[name][1]))
            elif (command := super().get_command(context, name)) is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(200)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, context: click.Context) -> Any:
        """A signal ends the command here, before click prints an empty line for it."""
        try:
            return super().invoke(context)
        except KeyboardInterrupt as error:
            if context.parent is not None:
                raise
            _stopped(error)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command and end the process. Errors are one line; closed pipes and signals end it without a traceback."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        try:
            with interrupt.raising():
                code = super().main(args, prog_name, complete_var, False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(WRONG_USAGE)
        except click.UsageError as error:
            fail(_in_one_line(error), WRONG_USAGE)
        except click.ClickException as error:
            fail(error.format_message(), error.exit_code)
        except click.Abort as error:
            _stopped(error.__cause__ or error.__context__)
        except KeyboardInterrupt as error:  # arrived after the command's end
            _stopped(error)
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        sys.exit(code if isinstance(code, int) else 0)


def _stopped(error: BaseException | None) -> NoReturn:
    """What a signal ended."""
    interrupt.end_typed_line()
    fail(interrupt.last_words(error), interrupt.exit_status(error))


def _in_one_line(error: click.UsageError) -> str:
    text = " ".join(error.format_message().split()).rstrip(".")
    text = text[:1].lower() + text[1:]
    return f"{text}; see '{error.ctx.command_path} --help'" if error.ctx is not None else text
