"""Writes ``docs/configuration.md`` from the table: ``python -m odradek.config.reference [FILE]``.

Run by people and by the test that the committed file is up to date; no process of the broker imports it.
"""

import sys
from pathlib import Path

from odradek.config.key import (
    CLASS,
    DOUBLE,
    LIST,
    MAX_DOUBLE,
    MAX_INT,
    MAX_LONG,
    NONE,
    NOW,
    PASSWORD,
    STRING,
    ConfigKey,
    show,
)
from odradek.config.table import AREAS, BROKER_KEYS, TOPIC_KEYS

_HEAD = """\
# Configuration

Generated from the table in `broker/odradek/config/` by `python -m odradek.config.reference`; do not edit.

Odradek reads Kafka's own `server.properties` (`odradek start --config FILE`), and single keys from the command line
(`--set key=value`, which win). Names, types, defaults and ranges are those of Kafka 4.3, and of 3.9 for what 4.x
dropped. A key that is not in this list is ignored with a warning; values that are not allowed stop the start with one
line for each. `listener.name.NAME.KEY` sets KEY for one listener.

The column *effect* says what depends on a key today: **yes**, **none yet** (parsed and checked; what it governs is not
built yet), or **none** (it belongs to something that this broker does not have, such as a JVM or a KRaft quorum). The
column *changes* says whether a running broker can take a new value, for itself only (per-broker) or also for all
(cluster-wide); as in Kafka, but for `listeners`, `listener.security.protocol.map` and `num.network.threads`, which need a
restart here, and for secrets, which are not kept in the metadata store.
"""
_COMPUTED = {
    "num.network.threads": "the cores",
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
        doc += " From the broker's " + ", ".join(f"`{synonym.name}`" for synonym in key.synonyms) + "."
    doc = doc.replace("|", "\\|").replace("*.", "\\*.").replace("__", "\\_\\_")
    cells = (
        f"`{key.name}`",
        key.type_name,
        _default(key),
        _allowed(key),
        key.update_mode,
        key.importance,
        key.effect,
        doc,
    )
    return "| " + " | ".join(cells) + " |"


def render() -> str:
    """The whole document."""
    keys = [*BROKER_KEYS.values(), *TOPIC_KEYS.values()]
    acted_upon = sum(key.effect == NOW for key in keys)
    foreign = sum(key.effect == NONE for key in keys)
    lines = [
        _HEAD,
        f"{len(keys)} keys: {acted_upon} with effect, {len(keys) - acted_upon - foreign} not yet, {foreign} without.",
        "",
    ]
    for area in AREAS:
        lines += [
            f"## {area.TITLE.removesuffix('.')}",
            "",
            "| key | type | default | allowed | changes | importance | effect | meaning |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
            *(_row(key) for key in area.KEYS),
            "",
        ]
    return "\n".join(lines)


def put(document: str, arguments: list[str]) -> int:
    """Write a generated document to the file named, or to standard output; the exit code."""
    if arguments:
        Path(arguments[0]).write_text(document, encoding="utf-8")
    else:
        sys.stdout.write(document)
    return 0


def main(arguments: list[str]) -> int:
    """Writes the document to the file named, or to standard output."""
    return put(render(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
