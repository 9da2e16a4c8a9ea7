"""``odradek mirror``: runs a worker of a mirror between clusters, checks its file, and shows the state of its flows.

Runs in the process of the command; ``run`` stays in it until a signal. The other commands of the group are in ``mirror_*.py``.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from odradek.cli.framework.failure import fail, warn
from odradek.cli.framework.lazy import LazyGroup
from odradek.cli.framework.options import complete_paths

if TYPE_CHECKING:
    from odradek.mirror.names import Edge
    from odradek.mirror.settings import MirrorSettings

Command = TypeVar("Command", bound=Callable[..., Any])

LAZY = {
    "run": ("odradek.cli.mirror.run:run", "Run a worker that mirrors topics between clusters."),
    "check": (
        "odradek.cli.mirror.check:check",
        "Check a mirror's file and its clusters, and show what would be mirrored.",
    ),
    "switch": ("odradek.cli.mirror.switch:switch", "Move a consumer group to another cluster of a mirror."),
    "groups": (
        "odradek.cli.mirror.lost:groups",
        "List the consumer groups that have checkpoints, without their source.",
    ),
    "status": ("odradek.cli.mirror.status:status", "Show the workers, positions and lags of a mirror."),
}


@click.group(cls=LazyGroup, lazy=LAZY)
def mirror() -> None:
    """Mirror topics from any Kafka-compatible cluster to another.

    FILE has the keys of MirrorMaker 2's properties file; docs/operate/mirror.md describes them.
    """


def flow_options(command: Command) -> Command:
    """FILE, and the options that select some of its flows."""
    for option in (
        click.option(
            "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Set one key; overrides FILE. Repeatable."
        ),
        click.option(
            "--source",
            "sources",
            metavar="ALIAS",
            multiple=True,
            help="Use only the flows from this cluster. Repeatable.",
        ),
        click.option(
            "--target",
            "targets",
            metavar="ALIAS",
            multiple=True,
            help="Use only the flows to this cluster. Repeatable.",
        ),
        click.argument("file", shell_complete=complete_paths),
    ):
        command = option(command)
    return command


def load_flows(
    file: str, targets: tuple[str, ...], sources: tuple[str, ...], overrides: tuple[str, ...], notes: bool = True
) -> "tuple[MirrorSettings, list[Edge]]":
    """The settings with the selected flows, and all flows of the file; ends the command if the file cannot be used."""
    from odradek.config.errors import ConfigError
    from odradek.mirror.settings import load

    try:
        settings = load(file, overrides)
        edges = [flow.edge for flow in settings.flows]
        chosen = settings.of(targets, sources) if targets or sources else settings
    except ConfigError as error:
        fail(error)
    if notes:
        for line in settings.notes:
            warn(line)
    return chosen, edges
