"""``python -m odradek.jobs.usage_report`` and ``spark-submit .../usage_report/__main__.py``: arguments, then `job.run`.

Errors that a person can act upon are one line on stderr and exit code 1; 2 for a wrong command line.
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
    """Of the command line; `odradek report usage` has the same options."""
    result = argparse.ArgumentParser(
        "usage_report", description="The nightly usage and capacity report.", allow_abbrev=False
    )
    result.add_argument("--spool", metavar="DIR", help="the broker's spool directory")
    result.add_argument("--prometheus", metavar="URL", help="a Prometheus that scrapes the broker")
    result.add_argument(
        "--match", default="", help='only its series that meet these matchers, for example job="odradek"'
    )
    result.add_argument("--step", type=int, default=60, help="seconds between samples (default 60)")
    result.add_argument("--from", dest="from_", metavar="T", help="ISO time, yesterday (the default), -7d, ...")
    result.add_argument("--to", metavar="T", help="end of the period, not included (default: the last midnight)")
    result.add_argument("--out", metavar="DIR", required=True, help="where tables and page go")
    result.add_argument("--master", help="a Spark master (default local[*])")
    result.add_argument("--memory", default="1g", help="heap of Spark's driver (default 1g)")
    result.add_argument("--prices", metavar="FILE")
    result.add_argument("--owners", metavar="FILE")
    result.add_argument("--what-if", action="append", default=[], metavar="KEY=VALUE,...")
    result.add_argument("--png", action="store_true", help="also pictures")
    result.add_argument("--pdf", action="store_true", help="also a PDF")
    return result


def job_of(given: Any, now: datetime) -> Job:
    """What the options ask for.

    :param given: holds them as attributes, under the names of `parser`
    :raises ReportError: one of them cannot be
    """
    source = check_source(given.spool, given.prometheus, given.match, given.step)
    if not 1 <= given.step <= 3600:
        raise ReportError(f"--step {given.step}: expected 1 to 3600 seconds")
    from_ms, to_ms = parse_range(given.from_, given.to, now)
    files = {
        name: None if value is None else Path(value)
        for name, value in (("prices", given.prices), ("owners", given.owners))
    }
    options = Options(
        prices=files["prices"], owners=files["owners"], what_if=tuple(given.what_if), png=given.png, pdf=given.pdf,
        source=str(source),
    )  # fmt: skip
    default = given.from_ is None and given.to is None
    return Job(source, from_ms, to_ms, check_out(given.out), options, given.master, given.memory, default)


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    from odradek.jobs.usage_report.job import now, run

    joined: list[str] = []
    for argument in arguments:  # argparse takes -7d for an option
        if joined and joined[-1] in _TIMES:
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    given = parser().parse_args(joined)
    try:
        run(job_of(given, now()), lambda line: print(line, flush=True))
    except ReportError as error:
        print(f"usage_report: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
