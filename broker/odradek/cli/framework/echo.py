"""Prints the lines of a command. All commands use `echo` instead of click's, which writes control characters as they are.

Names in the lines (groups, clients, topics of a hostile cluster, files) are chosen by others than the reader. Their control
characters would move the cursor of a terminal, hide lines, or set its title or clipboard.
"""

import os
from typing import IO, Any

import click

from odradek.printable import several_lines


def echo(
    message: object = "", err: bool = False, nl: bool = True, file: IO[Any] | None = None, style: str = ""
) -> None:
    """Print a message; control characters are escaped, but line feeds and tabs stay.

    :param err: on the standard error stream. :param style: a colour for the message on a terminal, unless NO_COLOR is set.
    """
    text = several_lines(str(message))
    coloured = style and not os.environ.get("NO_COLOR")
    click.echo(click.style(text, fg=style) if coloured else text, file=file, nl=nl, err=err)
