"""``odradek report usage``: checks what it is given and runs the Spark job, in this process."""

from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import click

from odradek.cli.failure import fail


@click.group()
def report() -> None:
    """Reports over days, made by Spark jobs."""


@report.command("usage")
@click.option("--spool", metavar="DIR", help="The broker's spool: usage.spool.dir, or else its first log directory.")
@click.option("--prometheus", metavar="URL", help="Or a Prometheus that scraped the broker.")
@click.option("--match", metavar="MATCHERS", default="", help='Only series of it that meet these, as job="odradek".')
@click.option(
    "--step", metavar="SECONDS", type=int, default=60, show_default=True, help="Between the samples read from it."
)
@click.option("--from", "from_", metavar="TIME", help="ISO time, yesterday, -7d, -12h; UTC.  [default: yesterday]")
@click.option("--to", metavar="TIME", help="The end, not included.  [default: the last midnight]")
@click.option("--out", metavar="DIR", required=True, help="Where tables and page go.")
@click.option("--master", metavar="URL", help="A Spark master.  [default: local[*]]")
@click.option("--memory", metavar="SIZE", default="1g", show_default=True, help="Heap of Spark's driver.")
@click.option("--prices", metavar="FILE", help="What a GB in, out and stored costs.")
@click.option("--owners", metavar="FILE", help="Which team owns which clients and topics.")
@click.option(
    "--what-if", metavar="KEY=VALUE,...", multiple=True, help="Forecast again, as if: retention.ms, topic, growth."
)
@click.option("--png", is_flag=True, help="Pictures as files, too.")
@click.option("--pdf", is_flag=True, help="A PDF, too.")
def usage(**given: Any) -> None:
    """Who used what and when the disks will be full, as Parquet tables and one page.

    Days are read whole. A day that was written before is written anew, with the same result if nothing was added to it.
    """
    if find_spec("pyspark") is None:
        from odradek.jobs.usage_report.errors import INSTALL

        fail(f"PySpark is missing: {INSTALL}")
    from odradek.jobs.usage_report.__main__ import job_of
    from odradek.jobs.usage_report.errors import ReportError
    from odradek.jobs.usage_report.job import now, run

    try:
        run(job_of(SimpleNamespace(**given), now()), click.echo)
    except ReportError as error:
        fail(error)
