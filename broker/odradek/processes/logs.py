"""Formats the log messages of all processes: one message per line on the standard error stream, as text or as JSON.

Every process of the broker has one handler. The supervisor creates it before the first fork; a child only sets its name. If
systemd reads the stream, lines begin with the journal's priority, and the journal adds the time; with `log.format=journal`,
messages then go to the journal with named fields (`journal.py`). `odradek.shm.log_levels` sets the levels. A log call about a
client passes those that it knows of `extra={"connection_id": ..., "client_id": ..., "client_address": ...}`; they become
fields of JSON and of the journal. docs/operate/logs.md describes the messages for their readers.
"""

import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from odradek._ext.storage.file_calls import take_failures
from odradek.config.broker_config import BrokerConfig
from odradek.printable import LONGEST, cut, one_line, several_lines
from odradek.processes.journal import Field, JournalHandler
from odradek.processes.line_limits import LineLimits
from odradek.shm.log_levels import TRACE, apply_levels, word_of

log = logging.getLogger("odradek.storage")
_supervisor_log = logging.getLogger("odradek.supervisor")

TEXT, JSON, JOURNAL = "text", "json", "journal"
IDENTIFIER = "odradek"
"""SYSLOG_IDENTIFIER of all processes: `journalctl -t odradek`."""
FIELDS = ("connection_id", "client_id", "client_address")
"""The names that a log call may pass in `extra`: a number and two texts; None for an unknown value."""

_PRIORITY = {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7}
LONGEST_MESSAGE = 8000
"""Characters of a message."""
LONGEST_ARGUMENT = 1000
"""Characters of a text in a message; `LONGEST` in a message about a client, which may send ids of 32 KiB."""
LONGEST_TRACEBACK = 20_000
"""Characters of a traceback."""


def _message(record: logging.LogRecord) -> str:
    """The message of a log call; a call whose arguments do not fit its text is a bug, but its message must not be lost."""
    try:
        message = str(record.msg) % _cut_arguments(record) if record.args else str(record.msg)
    except Exception:
        arguments = record.args if isinstance(record.args, tuple) else (record.args,)
        message = f"{record.msg!r} cannot be formatted with {', '.join(map(_shown, arguments))}"
    return cut(message, LONGEST_MESSAGE)


def _cut_arguments(record: logging.LogRecord) -> Any:
    """The arguments of a log call, with shorter texts. A message that is nothing but one argument has only its own limit."""
    if not isinstance(record.args, tuple) or record.msg == "%s":
        return record.args
    most = LONGEST if getattr(record, "client_address", None) else LONGEST_ARGUMENT
    return tuple(
        argument
        if isinstance(argument, int | float)
        else _Cut(argument, most if isinstance(argument, str) else LONGEST_ARGUMENT)
        for argument in record.args
    )


class _Cut:
    """An argument of a log call whose text is not longer than `most`."""

    def __init__(self, argument: object, most: int) -> None:
        self._argument = argument
        self._most = most

    def __str__(self) -> str:
        return cut(str(self._argument), self._most)

    def __repr__(self) -> str:
        if isinstance(self._argument, str):
            return repr(cut(self._argument, self._most))
        return cut(repr(self._argument), self._most)


def _shown(argument: object) -> str:
    try:
        return repr(argument)
    except Exception:  # perhaps the reason why the message cannot be formatted
        return f"a {type(argument).__name__}"


def _priority(record: logging.LogRecord) -> int:
    """The priority of syslog and of the journal."""
    return _PRIORITY.get(record.levelno, 7 if record.levelno < logging.DEBUG else 6)


def _extra_fields(record: logging.LogRecord) -> Iterator[tuple[str, int | str]]:
    """What the log call passed in `extra`, without unknown values."""
    for name in FIELDS:
        value = getattr(record, name, None)
        if value is not None:
            yield name, value if isinstance(value, int) else cut(str(value))


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
        prefix = f"<{_priority(record)}>"
        return "\n".join(prefix + line for line in text.splitlines())

    def journal_fields(self, record: logging.LogRecord) -> Iterator[Field]:
        """The fields of a message for the journal, which adds the time and the process id."""
        message = f"{self._process}: {one_line(_message(record))}"
        traceback = self._traceback(record)
        yield "MESSAGE", f"{message}\n{traceback}" if traceback else message
        yield "PRIORITY", _priority(record)
        yield "SYSLOG_IDENTIFIER", IDENTIFIER
        yield "ODRADEK_PROCESS", self._process
        yield "ODRADEK_COMPONENT", record.name
        yield "ODRADEK_LEVEL", word_of(record.levelno)
        yield "CODE_FILE", record.pathname
        yield "CODE_LINE", record.lineno
        yield "CODE_FUNC", record.funcName or ""
        for name, value in _extra_fields(record):
            yield f"ODRADEK_{name.upper()}", value
        if traceback:
            yield "ODRADEK_EXCEPTION", traceback

    def _as_text(self, record: logging.LogRecord) -> str:
        message = one_line(_message(record))
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
            "message": _message(record),
        }
        fields.update(_extra_fields(record))
        if traceback := self._traceback(record):
            fields["exception"] = traceback
        return json.dumps(fields)

    def _traceback(self, record: logging.LogRecord) -> str:
        parts = []
        if record.exc_info:
            parts.append(self.formatException(record.exc_info))
        if record.stack_info:
            parts.append(self.formatStack(record.stack_info))
        text = several_lines("\n".join(parts))  # the text of an error may contain what a client has sent
        if len(text) <= LONGEST_TRACEBACK:
            return text
        half = LONGEST_TRACEBACK // 2  # the end names the error
        return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def is_journal() -> bool:
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


def make_handler(shape: str) -> logging.Handler:
    """The handler for a value of `log.format`. JOURNAL is TEXT if the journal does not read the standard error stream."""
    journal = is_journal()
    formatter = Formatter(JSON if shape == JSON else TEXT, journal)
    handler: logging.Handler = (
        JournalHandler(sys.stderr, formatter.journal_fields)
        if shape == JOURNAL and journal
        else logging.StreamHandler(sys.stderr)
    )
    handler.setFormatter(formatter)
    handler.addFilter(LineLimits())
    return handler


def set_up(process: str, config: BrokerConfig) -> None:
    """Configure logging from the configuration. Called once, in the supervisor, before its first fork."""
    root = logging.getLogger()
    root.handlers[:] = [make_handler(config.text("log.format"))]
    logging.addLevelName(TRACE, "TRACE")
    logging.captureWarnings(True)
    apply_levels(config.logger_levels({}))
    enter(process)


def log_uncaught() -> None:
    """Log what Python would print by itself: exceptions that nothing caught, in any thread and in finalizers."""

    def uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        _supervisor_log.critical("terminated by an unhandled exception", exc_info=(kind, error, trace))

    def of_thread(end: threading.ExceptHookArgs) -> None:
        if end.exc_value is not None and end.exc_type is not SystemExit:
            name = end.thread.name if end.thread is not None else "unknown"
            trace = (end.exc_type, end.exc_value, end.exc_traceback)
            _supervisor_log.error("the thread %s was terminated by an unhandled exception", name, exc_info=trace)

    def unraisable(end: Any) -> None:
        trace = (end.exc_type, end.exc_value, end.exc_traceback)
        _supervisor_log.error("%s: %r", end.err_msg or "exception ignored in", end.object, exc_info=trace)

    sys.excepthook, threading.excepthook, sys.unraisablehook = uncaught, of_thread, unraisable


def enter(process: str) -> None:
    """Set the process name that log lines contain. Each child calls it after its fork.

    It writes as little memory as possible, because a child gets a copy of every page that it writes to.
    """
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, Formatter):
            handler.formatter.name(process)
        if isinstance(handler, JournalHandler):
            handler.lost = 0  # those of the parent
