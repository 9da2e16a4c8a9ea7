"""Log lines of all processes: one event a line on stderr, with the journal's priorities where systemd reads them."""

import logging
import os
import sys

from broker._ext.file_calls import take_failures

log = logging.getLogger(__name__)

_PRIORITY = {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7}


class _Formatter(logging.Formatter):
    def __init__(self, process: str, journal: bool) -> None:
        plain = f"%(asctime)s %(levelname)s {process}[{os.getpid()}] %(message)s"
        super().__init__(f"{process}: %(message)s" if journal else plain)
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
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
    """Send this process's log to stderr under its name; called again after each fork."""
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(logging.StreamHandler(sys.stderr))
    root.handlers[0].setFormatter(_Formatter(process, _is_journal()))
    if root.level != level:  # it forgets what each logger has found: in a child pages would be copied for that
        root.setLevel(level)
