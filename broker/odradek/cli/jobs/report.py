"""``odradek report usage``: checks the options and runs the Spark job, in the process of the command."""

import os
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import click

from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import fail
from odradek.cli.framework.lazy import LazyGroup


@click.group(cls=LazyGroup)
def report() -> None:
    """Create reports about whole days, with Spark."""


@report.command("usage")
@click.option(
    "--spool",
    metavar="DIR",
    multiple=True,
    help="Directory of a broker's spool (usage.spool.dir, or else its first log directory), or the URL of its metrics.listener,"
    " http://HOST:PORT; repeat it for each broker of a cluster.",
)
@click.option(
    "--prometheus", metavar="URL", help="Read from a Prometheus that scraped the brokers, instead of --spool."
)
@click.option(
    "--match", metavar="MATCHERS", default="", help='With --prometheus: only series that match, e.g. job="odradek".'
)
@click.option(
    "--step",
    metavar="SECONDS",
    type=int,
    default=60,
    show_default=True,
    help="With --prometheus: seconds between samples.",
)
@click.option(
    "--from", "from_", metavar="TIME", help="Start (UTC): an ISO time, yesterday, -7d or -12h.  [default: yesterday]"
)
@click.option("--to", metavar="TIME", help="End (UTC), exclusive.  [default: the last midnight]")
@click.option("--out", metavar="DIR", required=True, help="Directory to which the tables and the page are written.")
@click.option("--master", metavar="URL", help="URL of the Spark master.  [default: local[*]]")
@click.option("--memory", metavar="SIZE", default="1g", show_default=True, help="Heap size of Spark's driver.")
@click.option("--prices", metavar="FILE", help="File with the prices of a GB written, read and stored.")
@click.option("--owners", metavar="FILE", help="File that names the team that owns each client and topic.")
@click.option(
    "--what-if",
    metavar="KEY=VALUE,...",
    multiple=True,
    help="Add a disk forecast with another retention.ms or growth, for all topics or those that match topic; repeatable;"
    " e.g. retention.ms=7d,topic=orders.*",
)
@click.option("--png", is_flag=True, help="Also write the charts as PNG files.")
@click.option("--pdf", is_flag=True, help="Also write the page as a PDF.")
def usage(**options: Any) -> None:
    """Report who used the broker or cluster, what it cost, and when its disks will be full: Parquet tables and one HTML page.

    Days are read whole. A day that an earlier run has written is replaced; the result is equal unless data was added.
    """
    if find_spec("pyspark") is None:
        from odradek.jobs.usage_report.errors import INSTALL

        fail(f"PySpark is missing: {INSTALL}")
    former = os.environ.get("ODRADEK_SPOOL")
    if former and not options["prometheus"] and former not in options["spool"]:
        fail(
            f"ODRADEK_SPOOL={former} in the environment is not used any more: in /etc/odradek/report.env, write"
            f" ODRADEK_REPORT_SOURCE=--spool {former} instead"
        )
    from odradek.jobs.usage_report.__main__ import job_of
    from odradek.jobs.usage_report.errors import ReportError
    from odradek.jobs.usage_report.job import now, run

    try:
        run(job_of(SimpleNamespace(**options), now()), echo)
    except ReportError as error:
        fail(error)
