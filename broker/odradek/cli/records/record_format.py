"""Parses the `--format` of `odradek consume`: the name of a format, or a template. Pure functions."""

import string

import click

from odradek._ext.records.record_printing import RecordPrinter
from odradek.cli.framework.output import when

FIELDS = ("topic", "partition", "offset", "timestamp", "time", "key", "value", "headers")
Steps = list[bytes | str]
_BY_NAME: dict[str, Steps] = {
    "value": ["value", b"\n"],
    "key-value": ["key", b"\t", "value", b"\n"],
    "topic-value": ["topic", b"\t", "value", b"\n"],
    "json": ["json", b"\n"],
    "raw": ["value"],
}


def printer(form: str) -> RecordPrinter:
    """A printer for records in a format. Raises UsageError for an invalid template, or one with an unknown field."""
    return RecordPrinter(_BY_NAME.get(form) or _steps(form), when)


def _steps(form: str) -> Steps:
    template = form.encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "replace")
    try:
        parts = [(text, name) for text, name, _, _ in string.Formatter().parse(template)]
    except ValueError as error:
        raise click.UsageError(f"--format '{form}' is not a valid template: {error}") from None
    names = [name for _, name in parts if name is not None]
    unknown = [name for name in names if name not in FIELDS]
    if unknown or not names:
        problem = (
            f"has the unknown field {{{unknown[0]}}}" if unknown else "is neither a format nor a template with fields"
        )
        fields = ", ".join(f"{{{field}}}" for field in FIELDS)
        raise click.UsageError(f"--format '{form}' {problem}: write {', '.join(_BY_NAME)}, or a template with {fields}")
    steps: Steps = []
    for text, name in parts:
        steps += [text.encode()] if text else []
        steps += [name] if name is not None else []
    return steps
