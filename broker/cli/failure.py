"""What a command says when something is wrong: a line on stderr; and, if that ends it, an exit code."""

import sys
from typing import NoReturn

import click


def warn(message: object) -> None:
    """One line on stderr; the command goes on."""
    click.echo(f"odradek: warning: {message}", err=True)


def fail(message: object, code: int = 1) -> NoReturn:
    """One line on stderr and the end of the command."""
    click.echo(f"odradek: {message}", err=True)
    sys.exit(code)
