"""The options of the report, from the command line; they are checked before Spark is started.

Pure except for `check_out`, which creates the directory.
"""

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from odradek.jobs.usage_report.errors import ReportError

LOGIN = "ODRADEK_PROMETHEUS_LOGIN"
"""The environment variable with USER:PASSWORD for the Prometheus. Other users of the machine see arguments, but not it."""
SPOOL_LOGIN = "ODRADEK_METRICS_LOGIN"
"""The environment variable with USER:PASSWORD for the metrics listeners of the brokers."""


@dataclass(frozen=True)
class Source:
    """The source of the data: exactly one of `spools` and `prometheus`.

    :ivar spools: the spool of each broker: an absolute directory, or the URL of a metrics listener
    :ivar prometheus: URL of a Prometheus, without /api/v1
    :ivar match: PromQL matchers that select the series, ``job="odradek"``. If several jobs scrape a broker, it would count once
        for each job.
    :ivar step_s: seconds between the samples that are read from Prometheus
    """

    spools: tuple[str, ...] = ()
    prometheus: str | None = None
    match: str = ""
    step_s: int = 60

    def __str__(self) -> str:
        if self.prometheus is not None:
            return f"Prometheus {without_login(self.prometheus)}"
        return f"{'spool' if len(self.spools) == 1 else 'spools'} {', '.join(self.spools)}"


@dataclass(frozen=True)
class Options:
    """The contents and the output formats of the page.

    :ivar prices: file of prices, or None
    :ivar owners: file of owners, or None
    :ivar what_if: texts of the command line, each ``key=value,key=value``
    :ivar png: also write PNG files
    :ivar pdf: also write a PDF file
    :ivar source: the source of the data in words, for the page
    """

    prices: Path | None = None
    owners: Path | None = None
    what_if: tuple[str, ...] = ()
    png: bool = False
    pdf: bool = False
    source: str = ""


@dataclass(frozen=True)
class Job:
    """A run of the report. The period is in milliseconds of the epoch; `to_ms` is exclusive.

    :ivar default_period: the period is yesterday, because the command line has neither --from nor --to
    """

    source: Source
    from_ms: int
    to_ms: int
    out: Path
    options: Options = Options()
    master: str | None = None
    memory: str = "1g"
    default_period: bool = False


def check_source(spools: Sequence[str], prometheus: str | None, match: str = "", step_s: int = 60) -> Source:
    """Return the source.

    :raises ReportError: neither or both are given, or the given one is invalid
    """
    if bool(spools) == (prometheus is not None):
        problem = "both are given" if spools else "neither is given"
        raise ReportError(f"expected one of --spool DIR and --prometheus URL; {problem}")
    if prometheus is not None:
        if not _is_valid_url(prometheus):
            raise ReportError(
                f"--prometheus {without_login(prometheus)!r}: expected a URL, for example http://localhost:9090"
            )
        return Source(prometheus=_with_login(prometheus.rstrip("/")), match=match, step_s=step_s)
    places = tuple(_checked_spool(spool) for spool in spools)
    twice = next((place for place in places if places.count(place) > 1), None)
    if twice is not None:
        raise ReportError(f"--spool {twice}: is given twice; give the spool of each broker once")
    return Source(spools=places)


def _checked_spool(spool: str) -> str:
    """Return an absolute directory, or a URL. Raises ReportError."""
    if is_url(spool):
        if not _is_valid_url(spool) or urlsplit(spool).path.strip("/") or "@" in spool:
            raise ReportError(
                f"--spool {without_login(spool)}: expected a directory, or the metrics.listener of a broker, for example "
                f"http://broker-1:9404, without a login ({SPOOL_LOGIN} in the environment contains it)"
            )
        return spool.rstrip("/")
    if not Path(spool).is_dir():
        problem = "is not a directory" if Path(spool).exists() else "does not exist"
        raise ReportError(
            f"--spool {spool}: {problem}; expected the broker's first log directory, or its usage.spool.dir"
        )
    if not os.access(spool, os.R_OK | os.X_OK):
        raise ReportError(f"--spool {spool}: this user may not read the directory; run the report as a user who may")
    return str(Path(spool).absolute())


def is_url(place: str) -> bool:
    """Whether the place of a spool is a metrics listener."""
    return place.startswith(("http://", "https://"))


def _is_valid_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        return False


def without_login(url: str) -> str:
    """The URL without user and password, for messages and pages."""
    return re.sub(r"^([a-z]+://)[^/@]*@", r"\1", url)


def _with_login(url: str) -> str:
    """The URL with the login of the environment. Raises ReportError."""
    login = os.environ.get(LOGIN)
    if not login:
        return url
    user, colon, password = login.strip().partition(":")
    if not user or not colon:
        raise ReportError(f"{LOGIN}: expected USER:PASSWORD")
    scheme, _, rest = without_login(url).partition("://")
    return f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{rest}"


def check_out(out: str) -> Path:
    """Return the output directory; create it if it does not exist.

    :raises ReportError: the directory cannot be created or written
    """
    path = Path(out).absolute()
    try:
        (path / "tables").mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path), tempfile.TemporaryFile(dir=path / "tables"):
            pass
    except OSError as error:
        raise ReportError(f"--out {out}: cannot write to this directory: {error.strerror}") from None
    return path
