"""Log messages: their format as text, for the journal and as JSON; names and levels of loggers."""

import json
import logging
import os
import re
import sys
from datetime import datetime
from pathlib import Path

import pytest

from odradek.config.broker_config import load
from odradek.config.errors import ConfigError
from odradek.config.loggers import LEVELS, LOGGERS, effective
from odradek.processes.logs import JSON, TEXT, Formatter
from odradek.shm.log_levels import NUMBERS, apply_levels

ROOT = Path(__file__).parents[2]
CLIENT_LIBRARY = "odradek.parallel_consumer"


def record(
    message: str = "a message", *arguments: object, level: int = logging.INFO, **fields: object
) -> logging.LogRecord:
    made = logging.LogRecord("odradek.cleaner", level, __file__, 1, message, arguments, None)
    vars(made).update(fields)
    return made


def failed() -> logging.LogRecord:
    made = record("it failed", level=logging.ERROR)
    try:
        raise ValueError("line one\nline two")
    except ValueError:
        made.exc_info = sys.exc_info()
    return made


def formatter(shape: str, journal: bool = False) -> Formatter:
    made = Formatter(shape, journal)
    made.name("worker-1")
    return made


@pytest.fixture(autouse=True)
def half_past_utc(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    import time

    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_line_of_text_has_time_with_zone_level_process_logger_and_message():
    line = formatter(TEXT).format(record("%d of %s", 3, "four", level=logging.WARNING))
    time, rest = line.split(" ", 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+05:30", time), time
    assert abs(datetime.fromisoformat(time).timestamp() - datetime.now().timestamp()) < 60
    assert rest == f"WARN worker-1[{os.getpid()}] odradek.cleaner: 3 of four"


def test_for_the_journal_each_line_has_its_priority_and_no_time():
    made = formatter(TEXT, journal=True)
    levels = {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7, 5: 7}
    for level, priority in levels.items():
        assert made.format(record(level=level)) == f"<{priority}>worker-1: a message"
    lines = made.format(failed()).splitlines()
    assert lines[0] == "<3>worker-1: it failed" and lines[-1] == "<3>line two"
    assert all(line.startswith("<3>") for line in lines)


def test_json_is_one_object_per_line_with_stable_fields():
    line = formatter(JSON).format(
        record("bytes \x00 and \n a new line", connection_id=7, client_id="app", client_address="1.2.3.4:5")
    )
    assert "\n" not in line
    fields = json.loads(line)
    assert datetime.fromisoformat(fields.pop("time")).utcoffset() is not None
    assert fields == {
        "level": "INFO",
        "logger": "odradek.cleaner",
        "process": "worker-1",
        "pid": os.getpid(),
        "message": "bytes \x00 and \n a new line",
        "connection_id": 7,
        "client_id": "app",
        "client_address": "1.2.3.4:5",
    }


def test_json_has_the_traceback_as_a_field_and_omits_unknown_fields():
    fields = json.loads(formatter(JSON).format(failed()))
    assert fields["level"] == "ERROR" and "client_id" not in fields
    assert fields["exception"].startswith("Traceback") and fields["exception"].endswith(
        "ValueError: line one\nline two"
    )
    assert "exception" not in json.loads(formatter(JSON).format(record()))
    journal = formatter(JSON, journal=True).format(failed())
    assert journal.startswith("<3>{") and json.loads(journal[3:])["message"] == "it failed"


def test_a_client_cannot_forge_a_line_or_send_codes_to_a_terminal():
    line = formatter(TEXT).format(
        record("client %s", "x\n2026-01-01 ERROR forged\x1b[31m\r\x85\u2028\x7f\u202e\u2066\ttab")
    )
    assert line.endswith(r"client x\n2026-01-01 ERROR forged\x1b[31m\r\x85\u2028\x7f\u202e\u2066" + "\ttab")
    assert len(formatter(TEXT, journal=True).format(record("a\nb")).splitlines()) == 1


def test_bytes_that_are_no_text_can_be_written_in_any_encoding():
    broken = b"\xff".decode(errors="surrogateescape")
    assert formatter(JSON).format(record(broken, client_id=broken)).encode("ascii")


# -- names and levels -------------------------------------------------------------------------------------------------


MIRROR = ("broker", "odradek", "mirror")
"""Its workers are no processes of the broker, and have no levels that a broker changes."""


def test_every_logger_has_a_name_of_the_table_and_every_name_is_used():
    used = set()
    for path in [*ROOT.glob("broker/**/*.py"), *ROOT.glob("_ext/*/*.pyx")]:
        if path.relative_to(ROOT).parts[:3] in (("broker", "odradek", "_ext"), MIRROR):
            continue
        used |= set(re.findall(r'getLogger\("([^"]+)"\)', path.read_text()))
        assert "getLogger(__name__)" not in path.read_text(), path
    assert used - {CLIENT_LIBRARY} <= set(LOGGERS)
    assert set(LOGGERS) - used == {"root", "odradek"}


def test_the_documentation_lists_the_loggers_and_the_fields():
    text = (ROOT / "docs/operate/logs.md").read_text()
    for name, doc in LOGGERS.items():
        assert f"| `{name}` | {doc} |" in text
    for field in ("time", "level", "logger", "process", "pid", "message", "connection_id", "client_id", "client_address",
                  "exception"):  # fmt: skip
        assert f"| `{field}` |" in text
    for name, _ in formatter(TEXT, True).journal_fields(failed()):
        assert f"`{name}`" in text


def test_a_logger_without_a_level_has_that_of_its_parent():
    levels = effective({"root": "WARN", "odradek.cleaner": "DEBUG", "odradek.cleaner.compaction": "ERROR"})
    assert set(levels) == set(LOGGERS)
    assert (levels["root"], levels["odradek"], levels["odradek.groups"]) == ("WARN", "WARN", "WARN")
    assert (levels["odradek.cleaner"], levels["odradek.cleaner.retention"]) == ("DEBUG", "DEBUG")
    assert levels["odradek.cleaner.compaction"] == "ERROR"


def test_levels_of_the_configuration_and_those_changed_since():
    config = load(None, ["log.level=warn", "log.levels=odradek=INFO,odradek.groups=trace"])
    assert config.logger_levels({}) == {"root": "WARN", "odradek": "INFO", "odradek.groups": "TRACE"}
    assert config.logger_levels({"root": "ERROR", "odradek.groups": "INFO"}) == {
        "root": "ERROR", "odradek": "INFO", "odradek.groups": "INFO"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("log.level=LOUD", "one of FATAL, ERROR, WARN, INFO, DEBUG, TRACE"),
        ("log.levels=odradek.no=INFO", "docs/operate/logs.md"),
        ("log.levels=odradek.groups=LOUD", "FATAL, ERROR"),
        ("log.format=xml", "text, json, journal"),
    ],
)
def test_invalid_levels_are_refused_at_the_start(setting, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        load(None, [setting])


def test_levels_are_set_and_reset_in_this_process():
    config = load(None, [])
    before = {name: logging.getLogger(None if name == "root" else name).level for name in LOGGERS}
    try:
        apply_levels(config.logger_levels({"odradek.groups": "TRACE"}))
        assert logging.getLogger("odradek.groups").isEnabledFor(NUMBERS["TRACE"])
        assert not logging.getLogger("odradek").isEnabledFor(logging.DEBUG)
        apply_levels(config.logger_levels({}))
        assert logging.getLogger("odradek.groups").getEffectiveLevel() == logging.INFO
    finally:
        for name, level in before.items():
            logging.getLogger(None if name == "root" else name).setLevel(level)
    assert set(NUMBERS) == set(LEVELS)
