"""The key table and the document generated from it."""

from pathlib import Path

from odradek.config.key import NOW, show
from odradek.config.reference import main, render
from odradek.config.table import AREAS, BROKER_KEYS, TOPIC_KEYS

ROOT = Path(__file__).parents[2]


def test_the_committed_reference_is_up_to_date(tmp_path):
    assert main([str(tmp_path / "out.md")]) == 0
    assert (tmp_path / "out.md").read_text() == (ROOT / "docs/reference/configuration.md").read_text(), (
        "run: make tables"
    )


COMPOSED = {
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "offsets.topic.segment.bytes",
    "transaction.state.log.min.isr",
    "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor",
    "transaction.state.log.segment.bytes",
    "group.consumer.min.assignment.interval.ms",
    "group.consumer.max.assignment.interval.ms",
}
"""Keys whose names the code composes."""


def test_the_code_uses_every_key_with_an_effect():
    files = [path for path in (ROOT / "broker").rglob("*.py") if "config" not in path.relative_to(ROOT).parent.parts]
    files += [
        ROOT / f"broker/odradek/config/{name}.py"
        for name in ("broker_config", "dynamic", "features", "loggers", "providers", "zookeeper_client")
    ]
    code = "".join(path.read_text() for path in files)
    keys = [key for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values()) if key.effect == NOW]
    defaults = {synonym.name for key in TOPIC_KEYS.values() if key.effect == NOW for synonym in key.synonyms}
    unused = {key.name for key in keys if f'"{key.name}"' not in code} - defaults - COMPOSED
    assert unused == set()


def test_every_key_is_in_the_table_once():
    rows = [(key.scope, key.name) for area in AREAS for key in area.KEYS]
    assert len(set(rows)) == len(rows)


def test_every_default_is_a_value_that_the_key_allows():
    for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values()):
        if key.default is not None and key.default != ():
            assert key.parse(str(show(key.default))) == key.default, key.name


def test_every_synonym_is_a_broker_key_of_the_same_type():
    for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values()):
        for synonym in key.synonyms:
            assert synonym.factor > 1 or BROKER_KEYS[synonym.name].type in (key.type, 7), key.name


def test_every_row_of_the_reference_has_eight_cells():
    rows = [line.replace("\\|", "") for line in render().splitlines() if line.startswith("| `")]
    assert len(rows) == len(BROKER_KEYS) + len(TOPIC_KEYS)
    assert {row.count("|") for row in rows} == {9}
