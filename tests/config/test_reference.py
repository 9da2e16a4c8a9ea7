"""The key table and the document generated from it."""

import re
from pathlib import Path

import pytest

from odradek.config.broker_config import load
from odradek.config.describe import describe_broker
from odradek.config.errors import ConfigError
from odradek.config.key import INT, show
from odradek.config.reference import main, render
from odradek.config.table import BROKER_KEYS, ROWS

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
    keys = [key for key in ROWS if not key.no_effect]
    defaults = {synonym.name for key in keys if key.scope == "topic" for synonym in key.synonyms}
    unused = {key.name for key in keys if f'"{key.name}"' not in code} - defaults - COMPOSED
    assert unused == set()


NOT_REACHED = {"transaction.two.phase.commit.enable"}
"""Keys without effect that the code reads for an API version that is not served."""


def test_the_code_reads_no_key_without_effect():
    code = "".join(path.read_text() for path in (ROOT / "broker").rglob("*.py"))
    read = set(re.findall(r'config(?:\.(?!get\b)\w+)?[\[(]"([\w.]+)"', code))
    assert len(read) > 100
    assert read & {key.name for key in ROWS if key.no_effect} == NOT_REACHED


def test_every_key_is_in_the_table_once():
    rows = [(key.scope, key.name) for key in ROWS]
    assert len(set(rows)) == len(rows)


def test_every_default_is_a_value_that_the_key_allows():
    for key in ROWS:
        if key.default is not None and key.default != ():
            assert key.parse(str(show(key.default))) == key.default, key.name


def test_every_synonym_is_a_broker_key_of_the_same_type():
    for key in ROWS:
        for synonym in key.synonyms:
            assert synonym.factor > 1 or BROKER_KEYS[synonym.name].type in (key.type, 7), key.name


def test_every_row_of_the_reference_has_seven_cells():
    rows = [line.replace("\\|", "") for line in render().splitlines() if line.startswith("| `")]
    assert len(rows) == sum(not key.no_effect for key in ROWS)
    assert {row.count("|") for row in rows} == {8}


def test_the_reference_names_every_key_without_effect_once_at_its_end():
    _, end = render().split("## Keys without effect")
    names = re.findall(r"`([^`]+)`", end)
    assert sorted(names) == sorted(key.name for key in ROWS if key.no_effect)


def test_a_broker_describes_a_key_without_effect_with_its_reason():
    (entry,) = describe_broker(load(None, ["num.io.threads=3"]), {"num.io.threads"})
    assert (entry.value, entry.type, entry.read_only) == ("3", INT, False)
    assert entry.documentation.startswith("Accepted without effect: processes, ")


def test_the_type_and_range_of_a_key_without_effect_are_checked():
    for setting in ("num.io.threads=many", "num.io.threads=0", "remote.log.storage.system.enable=true"):
        with pytest.raises(ConfigError, match=setting.replace("=", ".*")):
            load(None, [setting])
