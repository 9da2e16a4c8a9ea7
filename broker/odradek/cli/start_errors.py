"""Reports why ``odradek start`` fails, in the format of the broker's log messages (`log.format`).

Runs in the process of the command, before the broker logs or after its start has failed. The configuration may be what is
wrong, so the format is taken from the command line and the file as far as these can be read. This module does not import click
(see ``odradek.cli.start``).
"""

import logging
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import NoReturn

FORMAT = "log.format"


def fail_start(error: object, config_file: str | None, overrides: Sequence[str], code: int = 1) -> NoReturn:
    """End the command with an error: as plain text, or as log messages of level FATAL if the log is JSON or the journal's.

    :param error: a text, or an exception that may have several `errors` and `warnings`.
    """
    log = _log_of(_wanted_format(config_file, overrides))
    if log is None:
        from odradek.cli.framework.failure import fail  # here: it imports click

        fail(error, code)
    for warning in getattr(error, "warnings", ()):
        log.warning("%s", warning)
    for line in getattr(error, "errors", (error,)):
        log.critical("%s", line)
    sys.exit(code)


def log_uncaught(config_file: str | None, overrides: Sequence[str]) -> None:
    """Log an exception that nothing catches before the broker has set up its log, instead of printing it."""

    def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        log = _log_of(_wanted_format(config_file, overrides))
        if log is None:
            sys.__excepthook__(kind, error, trace)
        else:
            log.critical("terminated by an unhandled exception", exc_info=(kind, error, trace))

    sys.excepthook = uncaught


def _log_of(shape: str) -> logging.Logger | None:
    """A logger that writes in a format of `log.format`; None if that is plain text, and not for the journal."""
    from odradek.processes import logs

    if shape != logs.JSON and not logs.is_journal():
        return None
    logging.getLogger().handlers[:] = [logs.make_handler(shape)]
    logs.enter("supervisor")
    return logging.getLogger("odradek.supervisor")


def _wanted_format(config_file: str | None, overrides: Sequence[str]) -> str:
    """The last value of `log.format`; "text" if there is none that can be read."""
    for word in reversed(overrides):
        key, _, value = word.partition("=")
        if key.strip() == FORMAT:
            return value.strip()
    if config_file is None:
        return "text"
    from odradek.config.errors import ConfigError
    from odradek.config.properties import decode, parse

    try:
        with open(config_file, "rb") as file:
            found = [setting.value for setting in parse(decode(file.read()), config_file) if setting.name == FORMAT]
    except (OSError, ConfigError):
        return "text"  # the error of this file is what the command reports
    return found[-1].strip() if found else "text"
