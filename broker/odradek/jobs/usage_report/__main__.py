"""``python -m odradek.jobs.usage_report`` and ``spark-submit .../usage_report/__main__.py``: arguments, then `job.run`.

Errors that the user can correct are one line on stderr with exit code 1; a wrong command line has exit code 2.
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from odradek.jobs.usage_report.errors import ReportError
from odradek.jobs.usage_report.options import Job, Options, check_out, check_source
from odradek.jobs.usage_report.times import parse_range

_TIMES = ("--from", "--to")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line; `odradek report usage` has the same options."""
    result = argparse.ArgumentParser(
        "usage_report", description="Write the usage and capacity report of a period.", allow_abbrev=False
    )
    result.add_argument(
        "--spool", metavar="DIR", action="append", default=[],
        help="read a broker's usage spool in this directory, or from its metrics.listener (http://HOST:PORT); repeat it for "
        "each broker of a cluster",
    )  # fmt: skip
    result.add_argument(
        "--prometheus", metavar="URL", help="read the metrics from this Prometheus, which scrapes the broker"
    )
    result.add_argument(
        "--match",
        default="",
        help='with --prometheus: PromQL matchers that select the series of the broker, for example job="odradek"',
    )
    result.add_argument(
        "--step", type=int, default=60, help="with --prometheus: seconds between samples, 1 to 3600 (default 60)"
    )
    result.add_argument(
        "--from", dest="from_", metavar="T",
        help="start of the period in UTC: an ISO date or time, yesterday (the default), today, -7d, -12h, ...",
    )  # fmt: skip
    result.add_argument(
        "--to", metavar="T", help="end of the period, exclusive; forms as for --from (default: the last midnight)"
    )
    result.add_argument(
        "--out", metavar="DIR", required=True, help="directory of the page, the JSON summary and the tables"
    )
    result.add_argument("--master", help="Spark master (default local[*])")
    result.add_argument("--memory", default="1g", help="heap size of Spark's driver (default 1g)")
    result.add_argument("--prices", metavar="FILE", help="TOML file with the prices per GB")
    result.add_argument("--owners", metavar="FILE", help="CSV file that maps clients, principals and topics to teams")
    result.add_argument(
        "--what-if", action="append", default=[], metavar="KEY=VALUE,...",
        help="add a scenario to the forecast, for example retention.ms=7d,topic=orders.*; may be repeated",
    )  # fmt: skip
    result.add_argument("--png", action="store_true", help="also write the charts as PNG files")
    result.add_argument("--pdf", action="store_true", help="also write the charts as a PDF file")
    return result


def job_of(arguments: Any, now: datetime) -> Job:
    """Return the job that the options describe.

    :param arguments: has the options as attributes, under the names of `parser`
    :raises ReportError: an option has an invalid value
    """
    source = check_source(arguments.spool, arguments.prometheus, arguments.match, arguments.step)
    if not 1 <= arguments.step <= 3600:
        raise ReportError(f"--step {arguments.step}: expected 1 to 3600 seconds")
    from_ms, to_ms = parse_range(arguments.from_, arguments.to, now)
    files = {
        name: None if value is None else Path(value)
        for name, value in (("prices", arguments.prices), ("owners", arguments.owners))
    }
    options = Options(
        prices=files["prices"], owners=files["owners"], what_if=tuple(arguments.what_if), png=arguments.png, pdf=arguments.pdf,
        source=str(source),
    )  # fmt: skip
    default = arguments.from_ is None and arguments.to is None
    return Job(source, from_ms, to_ms, check_out(arguments.out), options, arguments.master, arguments.memory, default)


def main(arguments: Sequence[str]) -> int:
    """Run the job and return the exit code."""
    from odradek.jobs.usage_report.job import now, run

    joined: list[str] = []
    for argument in arguments:  # argparse would read -7d as an option
        if joined and joined[-1] in _TIMES:
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    parsed = parser().parse_args(joined)
    try:
        run(job_of(parsed, now()), lambda line: print(line, flush=True))
    except ReportError as error:
        print(f"usage_report: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
