"""``odradek mirror run``: the process of a worker (odradek.mirror.worker)."""

import sys

import click

from odradek.cli.framework.command import HelpfulCommand
from odradek.cli.framework.failure import fail
from odradek.cli.mirror.mirror import flow_options, load_flows


@click.command(cls=HelpfulCommand)
@flow_options
@click.option(
    "--log-level",
    type=click.Choice(["ERROR", "WARN", "INFO", "DEBUG"], case_sensitive=False),
    default="INFO",
    show_default=True,
    help="Least severe level to log.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json", "journal"]),
    default="text",
    show_default=True,
    help="Format of the log on standard error; journal: named fields for systemd's journal.",
)
def run(
    file: str,
    targets: tuple[str, ...],
    sources: tuple[str, ...],
    overrides: tuple[str, ...],
    log_level: str,
    log_format: str,
) -> None:
    """Mirror the topics of FILE's flows until SIGTERM or Ctrl-C.

    Start it on as many machines as needed: the workers of a flow share its partitions. If a worker is killed, the others take
    its partitions over within 10 seconds. Exit code 1 if a flow cannot run because of a mistake in FILE or in a cluster, or if
    no flow can reach its clusters.
    """
    from odradek.cli.mirror.log import set_up
    from odradek.mirror import worker

    settings, edges = load_flows(file, targets, sources, overrides)
    set_up(log_level.upper(), log_format)
    try:
        code = worker.run(settings, edges)
    except worker.WorkerError as error:
        fail(error)
    sys.exit(code)
