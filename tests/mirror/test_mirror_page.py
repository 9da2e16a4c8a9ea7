"""docs/operate/mirror.md has the keys of the code."""

import re
from pathlib import Path

import pytest

from odradek.mirror.keys import KEYS
from odradek.mirror.reference import rewritten
from odradek.mirror.settings import load

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "mirror.md"


def test_the_table_of_keys_is_that_of_the_code():
    text = PAGE.read_text()
    assert rewritten(text) == text, "run: make tables"
    assert all(f"| `{name}` |" in text for name in KEYS)


def test_the_example_is_a_valid_file(tmp_path):
    (example,) = re.findall(r"```\n(clusters = .*?)```", PAGE.read_text(), re.S)
    file = tmp_path / "mirror.properties"
    file.write_text(example)
    settings = load(str(file))
    assert [flow.name for flow in settings.flows] == ["old->new"]
    assert settings.notes == ()


def test_a_page_without_a_table_is_an_error():
    with pytest.raises(ValueError, match="no table"):
        rewritten("# Mirror\n")
