"""What a command says when something is wrong: a line on stderr, and an exit code if the error ends the command."""

import sys
from typing import NoReturn

import click


def warn(message: object) -> None:
    """One line on stderr; the command goes on."""
    click.echo(f"odradek: warning: {message}", err=True)


def fail(message: object, code: int = 1) -> NoReturn:
    """One line on stderr and the end of the command; an error that consists of several (`ConfigErrors`) is a line for each."""
    for line in getattr(message, "errors", (message,)):
        click.echo(f"odradek: {line}", err=True)
    sys.exit(code)
