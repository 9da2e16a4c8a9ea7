"""The table itself and the document made from it."""

from pathlib import Path

from broker.config.key import show
from broker.config.reference import main, render
from broker.config.table import AREAS, BROKER_KEYS, TOPIC_KEYS

ROOT = Path(__file__).parents[2]


def test_the_committed_reference_is_up_to_date(tmp_path):
    assert main([str(tmp_path / "out.md")]) == 0
    assert (tmp_path / "out.md").read_text() == (ROOT / "docs/configuration.md").read_text(), (
        "run: python -m broker.config.reference docs/configuration.md"
    )


def test_no_key_stands_twice_in_the_table():
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
