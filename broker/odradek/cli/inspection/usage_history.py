"""Reads the usage of a period from a broker's spool, for `odradek usage` and `odradek acl unused`. Runs in the process of the
command."""

import json
from pathlib import Path

from odradek.cli.framework.failure import reason_of, warn
from odradek.cli.framework.values import time_ms
from odradek.cli.inspection.usage_source import Source, UsageError, UsageLocation
from odradek.clock import now_ms
from odradek.metrics.spool_files import list_files
from odradek.metrics.spool_history import History
from odradek.metrics.usage_totals import Filter

MAX_DAMAGES_SHOWN = 5


def spool_directory(option: str | None, location: UsageLocation, timeout: float) -> Path:
    """The directory of the spool: the option's, else the configured one, else the one that the broker reports.

    Raises UsageError.
    """
    if option is not None:
        directory = Path(option)
    elif location.names_a_broker and location.metrics is None:
        directory = _configured_directory(location)
    else:
        source = Source(location, timeout)
        spool = source.usage({"used": 1 << 62}).get("spool")
        if not spool:
            raise UsageError(f"the broker at {source.address} has no spool, because its usage.spool.max.bytes is 0")
        directory = Path(spool["directory"])
        if not directory.is_dir():
            raise UsageError(
                f"the spool {directory} is not on this machine; run this command on the broker's machine, or name a copy of "
                "the spool with --spool DIR"
            )
    if not directory.is_dir() or not list_files(directory):
        raise UsageError(f"there is no spool in {directory}; name the spool's directory with --spool DIR")
    return directory


def _configured_directory(location: UsageLocation) -> Path:
    """The spool's directory of a broker of this machine; the broker need not run. Raises UsageError."""
    from odradek.cli.inspection.local_broker import FindError, find
    from odradek.config.broker_config import load
    from odradek.config.errors import ConfigError

    try:
        if location.config_file or location.overrides:
            config = load(location.config_file, location.overrides)
            configured = config.text("usage.spool.dir")
            return Path(configured) if configured else Path(config.log_dirs[0])
        directory = location.data_dir or find(None, (), None, location.pid)[0]
    except (ConfigError, FindError) as error:
        raise UsageError(str(error)) from None
    return Path(directory)


def read_history(
    directory: Path, since: str | None, until: str | None, only: Filter, topic: str | None = None
) -> History:
    """Read the period from the spool. Raises UsageError.

    :param topic: if not None, lines of the spool without this topic are skipped unparsed.
    """
    now = now_ms()
    times: list[int] = []
    for option, text, default in (("--since", since, 0), ("--until", until, now)):
        try:
            times.append(default if text is None else time_ms(text, now))
        except ValueError as error:
            raise UsageError(f"{option} {error}") from None
    needle = b"" if topic is None else f'"topic":{json.dumps(topic)}'.encode()
    try:
        return History(directory, times[0], times[1], only.fits, needle)
    except OSError as error:
        raise UsageError(f"cannot read the spool {directory}: {reason_of(error)}") from None


def print_damages(history: History) -> None:
    """Print the damages and gaps of the spool as warnings on stderr, at most `MAX_DAMAGES_SHOWN`."""
    problems = [str(problem) for problem in (*history.damages, *history.gaps)]
    for problem in problems[:MAX_DAMAGES_SHOWN]:
        warn(problem)
    if len(problems) > MAX_DAMAGES_SHOWN:
        warn(f"{len(problems) - MAX_DAMAGES_SHOWN} more damaged or missing intervals in the spool; --json lists all")
