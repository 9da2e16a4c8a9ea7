"""Parses the times of the command line: ISO, ``yesterday``, ``today``, ``tomorrow``, ``now``, ``-7d``, ``-12h``, ``-30m``; in
UTC.

Pure functions; the current time is an argument.
"""

import re
from datetime import UTC, datetime, timedelta

from odradek.jobs.usage_report.errors import ReportError

HOUR_MS = 3_600_000
DAY_MS = 86_400_000

_AGO = re.compile(r"-(\d{1,6})([dhm])")
_EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
_LATEST = datetime(2200, 1, 1, tzinfo=UTC)
_FORMS = (
    "a date (2026-11-20), a time (2026-11-20T06:00Z), 'yesterday', 'today', 'tomorrow', 'now', "
    "or '-7d', '-12h', '-30m' ago"
)


def milliseconds(moment: datetime) -> int:
    """Return milliseconds of the Unix epoch; exact, unlike `datetime.timestamp`."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def moment(at_ms: int) -> datetime:
    """The inverse of `milliseconds`."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)


def iso(at_ms: int) -> str:
    """Return the time as in messages: 2026-11-20T06:00:00Z."""
    return moment(at_ms).strftime("%Y-%m-%dT%H:%M:%SZ")


def day_name(at_ms: int) -> str:
    """Return the name of the tables' partition for the day of `at_ms`."""
    return moment(at_ms).strftime("%Y-%m-%d")


def parse_time(option: str, text: str, now: datetime) -> datetime:
    """Parse `text`. A time without zone is UTC; dates and days ago are midnights.

    :param option: the option for the error message, for example ``--from``
    :raises ReportError: `text` has none of the forms, or is outside of the years 2000 to 2199
    """
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    named = {
        "now": now.astimezone(UTC),
        "today": midnight,
        "yesterday": midnight - timedelta(days=1),
        "tomorrow": midnight + timedelta(days=1),
    }
    if text in named:
        return named[text]
    if (ago := _AGO.fullmatch(text)) is not None:
        count = int(ago[1])
        if ago[2] == "d":
            return _checked(option, text, midnight, timedelta(days=count))
        return _checked(option, text, now.astimezone(UTC), timedelta(**{{"h": "hours", "m": "minutes"}[ago[2]]: count}))
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise ReportError(f"{option} {text!r}: expected {_FORMS}") from None
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=UTC)
    return _checked(option, text, parsed, timedelta())


def parse_range(from_text: str | None, to_text: str | None, now: datetime) -> tuple[int, int]:
    """Return the period of the report in milliseconds, its end exclusive; the default is yesterday.

    Without ``--to`` it ends with the last midnight, or now if it begins later than that.

    :raises ReportError: a time has an unknown form, the end is not after the beginning, or the beginning is in the future
    """
    start = parse_time("--from", from_text or "yesterday", now)
    today = parse_time("--to", "today", now)
    if to_text is not None:
        end = parse_time("--to", to_text, now)
    elif from_text is None or start < today:
        end = today
    else:
        end = now.astimezone(UTC)
    if start > now:
        raise ReportError(f"--from {from_text}: is in the future; now it is {iso(milliseconds(now))}")
    if end <= start:
        shown = to_text if to_text is not None else iso(milliseconds(end))
        raise ReportError(f"--to {shown}: must be after --from {iso(milliseconds(start))}; the end is exclusive")
    return milliseconds(start), milliseconds(end)


def _checked(option: str, text: str, start: datetime, ago: timedelta) -> datetime:
    try:
        result = start.astimezone(UTC) - ago
    except OverflowError:
        result = _LATEST
    if not _EARLIEST <= result < _LATEST:
        raise ReportError(f"{option} {text!r}: expected a time from {_EARLIEST.year} to {_LATEST.year - 1}")
    return result
