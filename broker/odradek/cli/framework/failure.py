"""Prints warnings and errors of a command on stderr, one line each without control characters; `fail` also ends the command."""

import sys
from typing import NoReturn

from odradek.cli.framework.echo import echo
from odradek.printable import one_line


def warn(message: object) -> None:
    """Print a warning as one line on stderr. The command continues."""
    echo(f"odradek: warning: {one_line(str(message))}", err=True)


def complain(message: object) -> None:
    """Print an error as one line on stderr. The command continues."""
    echo(f"odradek: {one_line(str(message))}", err=True)


AS_OTHER_USER = "run this command as root or as the broker's user"


def reason_of(error: OSError) -> str:
    """Why a file of a broker cannot be used; for a file of another user also the remedy."""
    reason = error.strerror or str(error)
    return f"{reason}; {AS_OTHER_USER}" if isinstance(error, PermissionError) else reason


def fail(message: object, code: int = 1) -> NoReturn:
    """Print an error on stderr and end the command with the exit code.

    An error with several parts (`ConfigErrors`) is printed as one line for each part, after its `warnings`, which may name
    the cause: a misspelled key that the command ignored.
    """
    for warning in getattr(message, "warnings", ()):
        warn(warning)
    for line in getattr(message, "errors", (message,)):
        complain(line)
    sys.exit(code)
