"""The options of `odradek produce` about the records: for its own producer, and for that of confluent-kafka."""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import click

from odradek import codecs
from odradek.cli.framework.options import key_values

Command = Callable[..., Any]
ACKS = {"all": -1, "1": 1, "0": 0}


class ProduceOptions(NamedTuple):
    """The options about the records. :param acks: as on the command line."""

    form: str
    key: bytes | None
    separator: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None
    compression: str
    acks: str
    empty_is_null: bool


RECORD_OPTIONS = (
    click.option(
        "-f",
        "--format",
        "form",
        type=click.Choice(("lines", "json", "whole")),
        default="lines",
        show_default=True,
        help="lines: each line is a record. json: each line is a JSON object, as `odradek consume --json` writes it."
        " whole: the input is one record.",
    ),
    click.option("-k", "--key", help="Key of all records."),
    click.option(
        "-K",
        "--key-separator",
        metavar="TEXT",
        help="With -f lines: text between key and value in each line, e.g. ':' or '\\t'.",
    ),
    click.option(
        "-H",
        "--header",
        "headers",
        metavar="NAME=VALUE",
        multiple=True,
        callback=key_values,
        help="Add this header to all records; repeatable.",
    ),
    click.option(
        "-p",
        "--partition",
        type=click.IntRange(0),
        help="Send all records to this partition (default: chosen by the key).",
    ),
    click.option(
        "-z",
        "--compression",
        type=click.Choice(codecs.NAMES),
        default="none",
        show_default=True,
        help="Compression codec of the batches.",
    ),
    click.option(
        "--acks",
        type=click.Choice(tuple(ACKS)),
        default="all",
        show_default=True,
        help="Replicas that must acknowledge a record: all (in-sync replicas), 1 (the leader), or 0 (none).",
    ),
    click.option("--null", "empty_is_null", is_flag=True, help="Send empty values as null (tombstones)."),
)
"""The options that make up `ProduceOptions`, in the order of the help."""


def record_options(function: Command) -> Command:
    """Add `RECORD_OPTIONS`; the function receives them as `options`, a `ProduceOptions`."""

    @wraps(function)
    def run(
        form: str,
        key: str | None,
        key_separator: str | None,
        headers: dict[str, str],
        partition: int | None,
        compression: str,
        acks: str,
        empty_is_null: bool,
        **others: Any,
    ) -> Any:
        options = ProduceOptions(
            form,
            None if key is None else key.encode(),
            key_separator.encode().decode("unicode_escape").encode("latin-1") if key_separator else None,
            [(name, value.encode()) for name, value in headers.items()],
            partition,
            compression,
            acks,
            empty_is_null,
        )
        return function(options=options, **others)

    command: Command = run
    for option in reversed(RECORD_OPTIONS):
        command = option(command)
    return command
