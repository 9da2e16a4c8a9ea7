"""``odradek log dump``: prints the contents of log files, as text or as lines of JSON. Runs in the process of the command."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from odradek.cli.framework.output import json_line
from odradek.cli.machine.internal_records import DECODERS
from odradek.printable import one_line
from odradek.storage.dump import Decoder, Entry, dump_file, files_of


def decoder_of(path: Path, topic: str | None) -> Decoder | None:
    """The decoder for the file's records: that of `topic`, or of the topic of the file's directory if `topic` is None."""
    name = topic if topic is not None else path.absolute().parent.name.rpartition("-")[0]
    return DECODERS.get("__cluster_metadata" if path.suffix == ".checkpoint" else name)


def run_dump(
    paths: Sequence[str], *, as_json: bool, deep: bool, topic: str | None, from_offset: int, to_offset: int
) -> int:
    """Run the command; return its exit code: 1 if part of a file could not be read. Raises UnknownFileError, OSError."""
    console = Console(highlight=False, soft_wrap=True)
    damaged = False
    for name in paths:
        Path(name).stat()  # raises before anything is printed
    for path in (file for name in paths for file in files_of(name)):
        if not as_json:
            console.print(Text(one_line(str(path)), style="bold"))
        entries = dump_file(
            path, deep=deep, from_offset=from_offset, to_offset=to_offset, decode=decoder_of(path, topic)
        )
        for entry in entries:
            damaged |= entry["type"] == "damage"
            if as_json:
                sys.stdout.write(json_line({"file": str(path)} | entry) + "\n")
            else:
                console.print(line_of(entry))
    return 1 if damaged else 0


def line_of(entry: Entry) -> Text:
    """An entry as one line; records start with "|", as in Kafka's DumpLogSegments."""
    rest = {name: value for name, value in entry.items() if name != "type"}
    words = " ".join(f"{name}: {_shown(value)}" for name, value in rest.items())
    if entry["type"] == "damage":
        return Text(f"DAMAGE {words}", style="red")
    return Text(f"| {words}" if entry["type"] == "record" else words)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value if value.isprintable() else repr(value)
    return json_line(value)
