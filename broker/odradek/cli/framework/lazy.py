"""A group of commands whose modules are imported on use, so that the command starts fast; it also prints their errors."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from odradek.cli.framework import interrupt
from odradek.cli.framework.command import HELP_NAMES, HelpfulCommand, path_of
from odradek.cli.framework.failure import fail
from odradek.cli.framework.other_names import INSTEAD, command_of_words, own_command
from odradek.spelling import did_you_mean

WRONG_USAGE = 2
CLOSED_PIPE = 128 + signal.SIGPIPE
"""The exit code if the reader of the output ended before the command, as a shell shows it for other programs."""


class LazyGroup(HelpfulCommand, click.Group):
    """A command group that imports a command when it is used.

    A bootstrap server (`-b`) may be given before the command or after it.

    :param lazy: for each command name its location, "module:attribute", and its line in the list of commands.
    :param sections: headings of the list of commands, each with the names of its commands; None: the list has one heading.
    """

    command_class = HelpfulCommand

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, tuple[str, str]] | None = None,
        sections: Mapping[str, Sequence[str]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._lazy = dict(lazy or {})
        self._sections = sections

    def sections(self, context: click.Context) -> Mapping[str, Sequence[str]]:
        """The names of the commands by the headings of their list."""
        return self._sections or {"Commands": self.list_commands(context)}

    def list_commands(self, context: click.Context) -> list[str]:
        """The names of all commands, lazy and not, in order."""
        return sorted({*super().list_commands(context), *self._lazy})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command of that name, importing its module if necessary; None if there is none."""
        if name not in self._lazy:
            return super().get_command(context, name)
        module, _, attribute = self._lazy[name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Like click's; a bootstrap server before the name of the command is passed to the command, and `help topic` is
        `topic --help`."""
        if args and args[0] in ("help", "version") and args[0] not in self.list_commands(context):
            args = [*args[1:], f"--{args[0]}"]
        return super().parse_args(context, _server_after_command(args))

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's; the error for an unknown command names the closest command, or all commands. `topics` without another
        command is `topic list`."""
        known = self.list_commands(context)
        name = own_command(arguments[0], known)
        if name not in known and not name.startswith("-"):
            raise click.UsageError(f"no such command '{name}'; {_hint(arguments, known)}", context)
        rest = arguments[1:]
        if arguments[0] == f"{name}s" and all(word.startswith("-") for word in rest[:1]):
            group = self.get_command(context, name)
            below = group.list_commands(context) if isinstance(group, click.Group) else []
            if "list" in below and not {*below, *HELP_NAMES}.intersection(rest):
                rest = ["list", *rest]
        return super().resolve_command(context, [name, *rest])

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing their modules."""
        texts = {name: text for name, (_, text) in self._lazy.items()}
        texts |= {
            name: command.get_short_help_str(200) for name, command in self.commands.items() if not command.hidden
        }
        longest = max(map(len, texts))
        for heading, names in self.sections(context).items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(longest), texts[name]) for name in names if name in texts])

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, and then the options."""
        self.format_commands(context, formatter)
        super().format_options(context, formatter)

    def invoke(self, context: click.Context) -> Any:
        """Like click's. A signal, or a reader of the output that has ended, ends the command here, before click prints an empty
        line for it. A file that this user may not read is an error in one line, but `start` logs its errors itself."""
        try:
            return super().invoke(context)
        except BrokenPipeError:
            if context.parent is not None:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still buffered
            sys.exit(CLOSED_PIPE)
        except KeyboardInterrupt as error:
            if context.parent is not None:
                raise
            end_stopped(error)
        except PermissionError as error:
            if context.parent is not None or context.invoked_subcommand == "start" or error.filename is None:
                raise
            fail(f"{error.filename}: {error.strerror}; run this command as root or as the owner of the file")

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command and end the process. Errors are printed as one line; closed pipes and signals cause no traceback."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        try:
            with interrupt.signals_as_exceptions():
                code = super().main(args, prog_name, complete_var, False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(WRONG_USAGE)
        except click.UsageError as error:
            fail(usage_error_text(error), WRONG_USAGE)
        except click.ClickException as error:
            fail(error.format_message(), error.exit_code)
        except click.Abort as error:
            end_stopped(error.__cause__ or error.__context__)
        except KeyboardInterrupt as error:  # arrived after the command's end
            end_stopped(error)
        sys.exit(code if isinstance(code, int) else 0)


def _hint(words: Sequence[str], known: Sequence[str]) -> str:
    """The command that was probably meant by the first words, in this group or elsewhere, or all commands of this group."""
    from odradek.cli.framework.examples import EXAMPLES

    for size in (3, 2, 1):
        elsewhere = command_of_words("-".join(words[:size]), list(EXAMPLES))
        if elsewhere is not None:
            return f"did you mean '{elsewhere}'?"
    return did_you_mean(words[0], known) or f"the commands are {', '.join(known)}"


def _server_after_command(arguments: list[str]) -> list[str]:
    """`-b HOST:PORT topic list` as `topic -b HOST:PORT list`; the group `topic` then moves the option once more."""
    size = 0
    while size < len(arguments) and arguments[size].startswith(("-b", "--bootstrap-server")):
        has_value = "=" in arguments[size] if arguments[size].startswith("--") else arguments[size] != "-b"
        size += 1 if has_value else 2
    if not 0 < size < len(arguments) or arguments[size].startswith("-"):
        return arguments
    return [arguments[size], *arguments[:size], *arguments[size + 1 :]]


def end_stopped(error: BaseException | None) -> NoReturn:
    """End a command that a signal interrupted, with one line and the signal's exit status."""
    interrupt.discard_blocked_output()  # an `Interruption` may have stopped the alarms
    interrupt.end_typed_line()
    fail(interrupt.stop_message(error), interrupt.exit_status(error))


def _option_hint(error: click.NoSuchOption) -> str:
    """What to write instead of an unknown option; empty if nobody knows."""
    if error.ctx is None:
        return ""
    if (instead := INSTEAD.get((path_of(error.ctx), error.option_name))) is not None:
        return f"write {instead}"
    options = [name for parameter in error.ctx.command.params for name in parameter.opts]
    if isinstance(error.ctx.command, click.Group):  # which has few options: only a similar name may be meant
        close = did_you_mean(error.option_name, options, 0.8)
        return close or "options of a command follow its name, as in 'odradek topic list --json'"
    return did_you_mean(error.option_name, options)


def usage_error_text(error: click.UsageError) -> str:
    """The text of a usage error as one line that names the help of its command."""
    message = error.format_message()
    if isinstance(error, click.NoSuchOption):  # click's message ends with "(Possible options: ...)"
        message = "; ".join(filter(None, (error.message.rstrip("."), _option_hint(error))))
    elif error.ctx is not None and "unexpected extra argument" in message:
        instead = INSTEAD.get((path_of(error.ctx), ""))
        message = f"{message}; write {instead}" if instead else message
    text = " ".join(message.split()).rstrip(".")
    text = text[:1].lower() + text[1:]
    if error.ctx is None:
        return text
    see = f"see '{error.ctx.command_path} --help'"
    return f"{text} {see.capitalize()}" if text.endswith("?") else f"{text}; {see}"
