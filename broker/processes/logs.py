"""Log lines of all processes: one event a line on stderr, with the journal's priorities where systemd reads them."""

import logging
import os
import sys

from broker._ext.file_calls import take_failures

log = logging.getLogger(__name__)

_PRIORITY = {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7}


class _Formatter(logging.Formatter):
    """One a broker, made before the first fork: each process only names itself.

    `origin`: the process's name, and its number where the journal does not say that.
    """

    def __init__(self, journal: bool) -> None:
        super().__init__("%(origin)s: %(message)s" if journal else "%(asctime)s %(levelname)s %(origin)s %(message)s")
        self._journal = journal
        self.origin = ""

    def name(self, process: str) -> None:
        self.origin = process if self._journal else f"{process}[{os.getpid()}]"

    def format(self, record: logging.LogRecord) -> str:
        record.origin = self.origin
        line = super().format(record)
        if not self._journal:
            return line
        prefix = f"<{_PRIORITY.get(record.levelno, 6)}>"
        return "\n".join(prefix + part for part in line.splitlines())


def _is_journal() -> bool:
    """Whether stderr is the very stream to the journal that systemd announced; the variable alone may be inherited."""
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def report_failures() -> None:
    """Log the file calls that failed in this process since the last call, each with its file."""
    for line in take_failures():
        log.error("%s", line)


def set_up(process: str, level: int = logging.INFO) -> None:
    """Send this process's log to stderr under its name; called again after each fork, where it does as little as it can:
    a child has copies of all pages that it touches."""
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(logging.StreamHandler(sys.stderr))
    formatter = root.handlers[0].formatter
    if not isinstance(formatter, _Formatter):
        formatter = _Formatter(_is_journal())
        root.handlers[0].setFormatter(formatter)
    formatter.name(process)
    if root.level != level:
        root.setLevel(level)
