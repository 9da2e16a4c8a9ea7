"""Formats the log messages of all processes: one message per line on the standard error stream, as text or as JSON.

Every process of the broker has one handler. The supervisor creates it before the first fork; a child only sets its name. If
systemd reads the stream, lines begin with the journal's priority, and the journal adds the time. `odradek.shm.log_levels` sets
the levels. A log call about a client passes those that it knows of `extra={"connection_id": ..., "client_id": ...,
"client_address": ...}`; with JSON they become fields. docs/logs.md describes the messages for their readers.
"""

import json
import logging
import os
import re
import sys
from datetime import datetime
from typing import Any

from odradek._ext.storage.file_calls import take_failures
from odradek.config.broker_config import BrokerConfig
from odradek.shm.log_levels import TRACE, apply_levels, word_of

log = logging.getLogger("odradek.storage")

TEXT, JSON = "text", "json"
FIELDS = ("connection_id", "client_id", "client_address")
"""The names that a log call may pass in `extra`: a number and two texts; None for an unknown value."""

_PRIORITY = {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7}
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def _printable(message: str) -> str:
    """The message on one line: control characters, also those that change the direction of the text, are escaped. A client may
    have sent them."""
    return _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode(), message)


def _time_of(record: logging.LogRecord) -> str:
    """ISO 8601 in local time, with ms and the offset from UTC."""
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


class Formatter(logging.Formatter):
    """The broker's log formatter; each process has a copy with its own name.

    :param shape: TEXT or JSON. :param journal: whether systemd's journal reads the stream.
    """

    def __init__(self, shape: str, journal: bool) -> None:
        super().__init__()
        self._shape = shape
        self._journal = journal
        self._process = ""

    def name(self, process: str) -> None:
        """Set the name of this process, for example "worker-0"."""
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The line of a message; as text, a traceback follows on separate lines."""
        text = self._as_json(record) if self._shape == JSON else self._as_text(record)
        if not self._journal:
            return text
        prefix = f"<{_PRIORITY.get(record.levelno, 7 if record.levelno < logging.DEBUG else 6)}>"
        return "\n".join(prefix + line for line in text.splitlines())

    def _as_text(self, record: logging.LogRecord) -> str:
        message = _printable(record.getMessage())
        if self._journal:
            line = f"{self._process}: {message}"
        else:
            origin = f"{self._process}[{os.getpid()}]"
            line = f"{_time_of(record)} {word_of(record.levelno)} {origin} {record.name}: {message}"
        traceback = self._traceback(record)
        return f"{line}\n{traceback}" if traceback else line

    def _as_json(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _time_of(record),
            "level": word_of(record.levelno),
            "logger": record.name,
            "process": self._process,
            "pid": os.getpid(),
            "message": record.getMessage(),
        }
        for name in FIELDS:
            value = getattr(record, name, None)
            if value is not None:
                fields[name] = value if isinstance(value, int) else str(value)
        if traceback := self._traceback(record):
            fields["exception"] = traceback
        return json.dumps(fields)

    def _traceback(self, record: logging.LogRecord) -> str:
        parts = []
        if record.exc_info:
            parts.append(self.formatException(record.exc_info))
        if record.stack_info:
            parts.append(self.formatStack(record.stack_info))
        return "\n".join(parts)


def _is_journal() -> bool:
    """Whether stderr is the stream to the journal that systemd announced. The variable alone proves nothing: a process may
    have inherited it with another stderr."""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def report_failures() -> None:
    """Log the file calls that failed in this process since the last report, each with its file."""
    for line in take_failures():
        log.error("%s", line)


def set_up(process: str, config: BrokerConfig) -> None:
    """Configure logging to stderr from the configuration. Called once, in the supervisor, before its first fork."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter(config.text("log.format"), _is_journal()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    logging.addLevelName(TRACE, "TRACE")
    logging.captureWarnings(True)
    apply_levels(config, {})
    enter(process)


def enter(process: str) -> None:
    """Set the process name that log lines contain. Each child calls it after its fork.

    It writes as little memory as possible, because a child gets a copy of every page that it writes to.
    """
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, Formatter):
            handler.formatter.name(process)
