"""``odradek config check``: what a start with this configuration would refuse. Runs in the process of the command.

Changes nothing, binds no socket and contacts no other program. Tools that deploy brokers run it before they put a new
configuration into place, and the unit before each start.
"""

import logging

import click

from odradek.cli.framework.command import HelpfulCommand
from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import complain, fail


@click.command("check", cls=HelpfulCommand)
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False))
@click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set one configuration key; overrides the configuration file. Repeatable.",
)
@click.option("--strict", is_flag=True, help="Also refuse unknown keys, which a start only warns about.")
def check(file: str, overrides: tuple[str, ...], strict: bool) -> None:
    """Check a broker's configuration file as a start does: keys, values, key stores, logins, policies.

    Exit code 0 if a broker can start with it, 1 if it refuses, with one line for each reason on standard error. Warnings are
    also printed on standard error. Ports, log directories and the metadata store are not checked.
    """
    from odradek.config.broker_config import load
    from odradek.config.errors import ConfigError
    from odradek.processes.supervisor import launch

    try:
        config = load(file, overrides, to_start=True)
    except ConfigError as error:
        fail(error)
    if strict and config.unknown_key_warnings:
        *first, last = (line.removeprefix("ignoring ") for line in config.unknown_key_warnings)
        for line in first:
            complain(line)
        fail(last)
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    try:
        launch.check(config)
    except (ConfigError, launch.StartError) as error:
        fail(error)
    echo(f"{file}: a broker can start with this configuration")
