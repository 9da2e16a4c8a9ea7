"""Prints warnings and errors of a command, one line each, on stderr; `fail` also ends the command."""

import sys
from typing import NoReturn

import click


def warn(message: object) -> None:
    """Print a warning as one line on stderr. The command continues."""
    click.echo(f"odradek: warning: {message}", err=True)


def fail(message: object, code: int = 1) -> NoReturn:
    """Print an error on stderr and end the command with the exit code.

    An error with several parts (`ConfigErrors`) is printed as one line for each part, after its `warnings`, which may name
    the cause: a misspelled key that the command ignored.
    """
    for warning in getattr(message, "warnings", ()):
        warn(warning)
    for line in getattr(message, "errors", (message,)):
        click.echo(f"odradek: {line}", err=True)
    sys.exit(code)
