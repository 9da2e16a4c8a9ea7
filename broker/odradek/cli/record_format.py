"""The forms in which `odradek consume` writes records: names of forms, and templates. Pure functions."""

import string

import click

from odradek._ext.records.record_printing import RecordPrinter
from odradek.cli.output import when

FIELDS = ("topic", "partition", "offset", "timestamp", "time", "key", "value", "headers")
Steps = list[bytes | str]
_BY_NAME: dict[str, Steps] = {
    "value": ["value", b"\n"],
    "key-value": ["key", b"\t", "value", b"\n"],
    "json": ["json", b"\n"],
    "raw": ["value"],
}


def printer(form: str) -> RecordPrinter:
    """What writes records as `--format` says. Raises UsageError for a template with a field that does not exist."""
    return RecordPrinter(_BY_NAME.get(form) or _steps(form), when)


def _steps(form: str) -> Steps:
    template = form.encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "replace")
    try:
        parts = [(text, name) for text, name, _, _ in string.Formatter().parse(template)]
    except ValueError as error:
        raise click.UsageError(f"--format '{form}' cannot be read: {error}") from None
    names = [name for _, name in parts if name is not None]
    strange = [name for name in names if name not in FIELDS]
    if strange or not names:
        wrong = f"has no field {{{strange[0]}}}" if strange else "is none and names no field"
        raise click.UsageError(
            f"--format '{form}' {wrong}: write {', '.join(_BY_NAME)}, or fields {', '.join(f'{{{one}}}' for one in FIELDS)}"
        )
    steps: Steps = []
    for text, name in parts:
        steps += [text.encode()] if text else []
        steps += [name] if name is not None else []
    return steps
