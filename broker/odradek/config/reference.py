"""Generates ``docs/reference/configuration.md`` from the table: ``python -m odradek.config.reference FILE`` (``make tables``).

Developers run it, and the test that checks that the committed file is up to date. No process of the broker imports it.
"""

import sys
from itertools import groupby
from pathlib import Path

from odradek.config.key import (
    CLASS,
    DOUBLE,
    LIST,
    MAX_DOUBLE,
    MAX_INT,
    MAX_LONG,
    PASSWORD,
    STRING,
    ConfigKey,
    OnlyDefault,
    show,
)
from odradek.config.table import AREAS, ROWS

_HEAD = """\
# Configuration

Generated from the table in `broker/odradek/config/` by `make tables`. Do not edit this page.

Odradek reads Kafka's `server.properties` (`odradek start --config FILE`) and single keys from the command line
(`--set key=value`), which take precedence over the file. Names, types, defaults and ranges are those of Kafka 4.3, or of
3.9 for keys that Kafka 4.0 removed. The broker ignores a key that is not in this list, and logs a warning. It refuses to
start with values that are not allowed, and prints one line for each of them. `listener.name.NAME.KEY` sets KEY for one
listener.

The broker also accepts [keys without effect](#keys-without-effect) and checks their values.

The column *changes*: **read-only**: a change requires a restart. **per-broker**: the key can be changed at run time for one
broker. **cluster-wide**: it can be changed at run time for one broker or for all. The values are Kafka's, with two
exceptions: `listeners`, `listener.security.protocol.map` and `num.network.threads` require a restart here, and secrets
cannot be changed at run time, because the metadata store does not keep them. `odradek config set` changes a key at run
time, and so does a reload after a change of the file ([install.md](../operate/install.md#reload)).
"""
_WITHOUT_EFFECT = """\
## Keys without effect

The broker accepts these keys, refuses values that Kafka refuses, and shows them like others. A start logs which of them are
set.
"""
_COMPUTED = {
    "num.network.threads": "CPU cores",
    "node.id": "see text",
    "broker.id": "see text",
    "metadata.store": "see text",
}
_NAMED = {MAX_INT: "2^31-1", MAX_LONG: "2^63-1"}


def _number(value: object) -> str:
    if value == MAX_DOUBLE:
        return "no limit"
    return _NAMED.get(value, str(value)) if isinstance(value, int) else str(value)


def _default(key: ConfigKey) -> str:
    if key.name in _COMPUTED:
        return _COMPUTED[key.name]
    if key.default is None or key.default in ((), ""):
        return ""
    if isinstance(key.default, int | float) and not isinstance(key.default, bool):
        return _number(key.default)
    return f"`{show(key.default)}`".replace(",", ", ")


def _allowed(key: ConfigKey) -> str:
    if key.allowed is None and key.type in (STRING, PASSWORD, CLASS, LIST, DOUBLE):
        return ""
    words = key.allows()
    for number, name in ((MAX_INT, "2^31-1"), (MAX_LONG, "2^63-1"), (-MAX_INT - 1, "-2^31"), (-MAX_LONG - 1, "-2^63")):
        words = words.replace(str(number), name)
    return words.removeprefix("an integer ").removeprefix("one of ").replace("|", "\\|")


def _row(key: ConfigKey) -> str:
    doc = key.doc
    if key.scope == "topic" and key.synonyms:
        doc += " Broker default: " + ", ".join(f"`{synonym.name}`" for synonym in key.synonyms) + "."
    doc = doc.replace("|", "\\|").replace("*.", "\\*.").replace("__", "\\_\\_")
    cells = (
        f"`{key.name}`",
        key.type_name,
        _default(key),
        _allowed(key),
        key.update_mode,
        key.importance,
        doc,
    )
    return "| " + " | ".join(cells) + " |"


def _known(key: ConfigKey) -> str:
    only_default = isinstance(key.allowed, OnlyDefault)
    notes = [*(["of topics"] if key.scope == "topic" else []), *([f"must be {key.allowed}"] if only_default else [])]
    return f"`{key.name}`" + (f" ({', '.join(notes)})" if notes else "")


def render() -> str:
    """The document as Markdown."""
    unused = sorted((key.no_effect.reason, key) for key in ROWS if key.no_effect)
    lines = [_HEAD, f"{len(ROWS)} keys: {len(ROWS) - len(unused)} with effect, {len(unused)} without effect.", ""]
    for area in AREAS:
        lines += [
            f"## {area.TITLE.removesuffix('.')}",
            "",
            "| key | type | default | allowed | changes | importance | meaning |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            *(_row(key) for key in area.KEYS),
            "",
        ]
    lines += [_WITHOUT_EFFECT, "| why | keys |", "| --- | --- |"]
    for reason, keys in groupby(unused, key=lambda entry: entry[0]):
        lines.append(f"| {reason} | {', '.join(_known(key) for _, key in keys)} |")
    return "\n".join([*lines, ""])


def put(document: str, arguments: list[str]) -> int:
    """Write a generated document to the file in `arguments`, or to standard output; return the exit code."""
    if arguments:
        Path(arguments[0]).write_text(document, encoding="utf-8")
    else:
        sys.stdout.write(document)
    return 0


def main(arguments: list[str]) -> int:
    """Write the document to the file in `arguments`, or to standard output; return the exit code."""
    return put(render(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
