"""Generates ``docs/reference/configuration.md`` from the table: ``python -m odradek.config.reference FILE`` (``make tables``).

Developers run it, and the test that checks that the committed file is up to date. No process of the broker imports it.
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

Generated from the table in `broker/odradek/config/` by `make tables`. Do not edit this page.

Odradek reads Kafka's `server.properties` (`odradek start --config FILE`) and single keys from the command line
(`--set key=value`), which take precedence over the file. Names, types, defaults and ranges are those of Kafka 4.3, or of
3.9 for keys that Kafka 4.0 removed. The broker ignores a key that is not in this list, and logs a warning. It refuses to
start with values that are not allowed, and prints one line for each of them. `listener.name.NAME.KEY` sets KEY for one
listener.

The column *effect*: **yes**: the broker uses the key. **none yet**: the broker parses and checks the key, but its feature
is not implemented yet. **none**: the broker parses and checks the key, but does not have its feature (such as a JVM or a
KRaft quorum).

The column *changes*: **read-only**: a change requires a restart. **per-broker**: the key can be changed at run time for one
broker. **cluster-wide**: it can be changed at run time for one broker or for all. The values are Kafka's, with two
exceptions: `listeners`, `listener.security.protocol.map` and `num.network.threads` require a restart here, and secrets
cannot be changed at run time, because the metadata store does not keep them. `odradek config set` changes a key at run
time, and so does a reload after a change of the file ([install.md](../operate/install.md#reload)).
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
        key.effect,
        doc,
    )
    return "| " + " | ".join(cells) + " |"


def render() -> str:
    """The document as Markdown."""
    keys = [*BROKER_KEYS.values(), *TOPIC_KEYS.values()]
    acted_upon = sum(key.effect == NOW for key in keys)
    foreign = sum(key.effect == NONE for key in keys)
    lines = [
        _HEAD,
        f"{len(keys)} keys: {acted_upon} with effect, {len(keys) - acted_upon - foreign} without effect yet, "
        f"{foreign} without effect.",
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
