"""Runs a broker in the process of the command.

A command line that consists of ``odradek start`` and its options is read here, without click. The process becomes the
supervisor, so with click all its children would inherit 1.5 MB more, and the start would take 30 ms longer.
"""

import gc
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from odradek.cli.framework import interrupt
from odradek.cli.start_errors import fail_start, log_uncaught

if TYPE_CHECKING:
    from odradek.config.broker_config import Environment


class StartOptions(NamedTuple):
    """The options of ``odradek start``, as click passes them."""

    config_file: str | None
    overrides: tuple[str, ...]
    log_level: str | None


def plain_start(arguments: Sequence[str]) -> StartOptions | None:
    """The options of a command line; None if click must read it, because it is another command, asks for help, or is wrong."""
    if arguments[:1] != ["start"]:
        return None
    given: dict[str, list[str]] = {"--config": [], "--set": [], "--log-level": []}
    words = iter(arguments[1:])
    for word in words:
        name, equals, value = word.partition("=")
        following = value if equals else next(words, None)
        if name not in given or following is None:
            return None
        given[name].append(following)
    return StartOptions(
        next(reversed(given["--config"]), None), tuple(given["--set"]), next(reversed(given["--log-level"]), None)
    )


def start_without_click(arguments: Sequence[str], environment: "Environment | None" = None) -> None:
    """Run the broker if the command line is a plain start, and end the process; return if click must read it.

    :param environment: see `run_start`.
    """
    options = plain_start(arguments)
    if options is None:
        return
    try:
        with interrupt.signals_as_exceptions():
            run_start(options, environment)
    except KeyboardInterrupt as error:
        from odradek.cli.framework.lazy import end_stopped

        end_stopped(error)


def run_start(options: StartOptions, environment: "Environment | None" = None) -> NoReturn:
    """Run the broker until it stops, and end the process.

    :param environment: the settings that the image takes from its environment variables.
    """
    gc.disable()  # until the broker serves: otherwise a tenth of the imports' time is spent on collections that find nothing
    from odradek.config.broker_config import NO_ENVIRONMENT, load
    from odradek.config.errors import ConfigError

    config_file, overrides, log_level = options
    settings = overrides if log_level is None else (*overrides, f"log.level={log_level}")
    log_uncaught(config_file, settings)
    try:
        config = load(config_file, settings, to_start=True, environment=environment or NO_ENVIRONMENT)
    except ConfigError as error:
        fail_start(error, config_file, settings)
    launch = import_module("odradek.processes.supervisor.launch")
    try:
        code = launch.run(config)
    except (ConfigError, launch.StartError) as error:
        fail_start(error, config_file, settings)
    sys.exit(code)
