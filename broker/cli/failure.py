"""How a command ends when something is wrong: one line on stderr, and an exit code."""

import sys
from typing import NoReturn

import click


def fail(message: object, code: int = 1) -> NoReturn:
    """One line on stderr and the end of the command."""
    click.echo(f"odradek: {message}", err=True)
    sys.exit(code)
