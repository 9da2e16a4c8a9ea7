"""What the report is asked for: from the command line, checked before Spark is started.

Pure but for `check_out`, which makes the directory.
"""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from odradek.jobs.usage_report.errors import ReportError


@dataclass(frozen=True)
class Source:
    """Where the numbers come from: exactly one of the two.

    :ivar spool: the broker's spool directory
    :ivar prometheus: URL of a Prometheus, without /api/v1
    :ivar match: matchers that its series must meet, ``job="odradek"``; a broker that several jobs scrape would count for each
    :ivar step_s: seconds between the samples that are read from it
    """

    spool: Path | None = None
    prometheus: str | None = None
    match: str = ""
    step_s: int = 60

    def __str__(self) -> str:
        return f"spool {self.spool}" if self.spool is not None else f"Prometheus {self.prometheus}"


@dataclass(frozen=True)
class Options:
    """What the page is to hold and how it is to be written.

    :ivar prices: file of prices, or None
    :ivar owners: file of owners, or None
    :ivar what_if: as given, each ``key=value,key=value``
    :ivar png: also pictures
    :ivar pdf: also a PDF
    :ivar source: in words, for the page
    """

    prices: Path | None = None
    owners: Path | None = None
    what_if: tuple[str, ...] = ()
    png: bool = False
    pdf: bool = False
    source: str = ""


@dataclass(frozen=True)
class Job:
    """A run: a period in milliseconds of the epoch without its end, and all the rest.

    :ivar default_period: the period is yesterday because no other was asked for
    """

    source: Source
    from_ms: int
    to_ms: int
    out: Path
    options: Options = Options()
    master: str | None = None
    memory: str = "1g"
    default_period: bool = False


def check_source(spool: str | None, prometheus: str | None, match: str = "", step_s: int = 60) -> Source:
    """:raises ReportError: none or both are given, or one that cannot be"""
    if (spool is None) == (prometheus is None):
        given = "both are given" if spool is not None else "neither is given"
        raise ReportError(f"expected one of --spool DIR and --prometheus URL; {given}")
    if prometheus is not None:
        try:
            url = urlsplit(prometheus)
            right = url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
        except ValueError:
            right = False
        if not right:
            raise ReportError(f"--prometheus {prometheus!r}: expected a URL, for example http://localhost:9090")
        return Source(prometheus=prometheus.rstrip("/"), match=match, step_s=step_s)
    assert spool is not None
    if not Path(spool).is_dir():
        what = "is no directory" if Path(spool).exists() else "does not exist"
        raise ReportError(f"--spool {spool}: {what}; expected the broker's first log directory, or its usage.spool.dir")
    if not os.access(spool, os.R_OK | os.X_OK):
        raise ReportError(f"--spool {spool}: may not be read by this user")
    return Source(spool=Path(spool).absolute())


def check_out(out: str) -> Path:
    """The directory of the report, made if it is missing.

    :raises ReportError: it cannot be made or written
    """
    path = Path(out).absolute()
    try:
        (path / "tables").mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path), tempfile.TemporaryFile(dir=path / "tables"):
            pass
    except OSError as error:
        raise ReportError(f"--out {out}: cannot be written: {error.strerror}") from None
    return path
