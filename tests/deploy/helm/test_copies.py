"""What the chart copies from elsewhere is up to date, and its values, schema and comments agree."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from odradek import __version__
from tests import toolchains
from tests.deploy.helm import chart

CHARTS = (chart.CHART, chart.CHART / "charts" / "zookeeper")


def chart_files() -> ModuleType:
    path = toolchains.REPOSITORY / "tools" / "chart_files.py"
    spec = importlib.util.spec_from_file_location("chart_files", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_copies_of_rules_dashboards_and_keys_equal_their_sources() -> None:
    files = chart_files()
    present, wanted = files.present(), files.contents()
    different = [str(path) for path in present.keys() | wanted.keys() if present.get(path) != wanted.get(path)]
    assert not different, "`make tables` writes them again"


def test_the_rules_and_dashboards_arrive_whole_in_the_objects() -> None:
    found = chart.objects(chart.manifest("monitoring"))
    groups = chart.only(found, "PrometheusRule")["spec"]["groups"]
    rules = toolchains.REPOSITORY / "deploy" / "prometheus" / "rules"
    sources = [(rules / f"{name}.yml").read_text() for name in ("recording", "alerts")]
    moved = [
        text.replace("file:///opt/odradek/share/docs", "https://wiki.example.org/odradek/docs") for text in sources
    ]
    assert groups == [group for text in moved for group in yaml.safe_load(text)["groups"]]
    names = {path.name for path in (toolchains.REPOSITORY / "grafana" / "dashboards").glob("*.json")}
    boards = [item for item in found if item["kind"] == "ConfigMap" and "-dashboard-" in item["metadata"]["name"]]
    assert {file for item in boards for file in item["data"]} == names
    for item in boards:
        assert item["metadata"]["labels"]["grafana_dashboard"] == "1"
        ((file, text),) = item["data"].items()
        assert json.loads(text) == json.loads((toolchains.REPOSITORY / "grafana" / "dashboards" / file).read_text())


def test_the_version_of_the_program_is_that_of_the_chart() -> None:
    assert yaml.safe_load((chart.CHART / "Chart.yaml").read_text())["appVersion"] == __version__


def test_the_version_of_the_sub_chart_is_the_one_that_the_chart_names() -> None:
    parent, sub = (yaml.safe_load((directory / "Chart.yaml").read_text()) for directory in CHARTS)
    (dependency,) = parent["dependencies"]
    assert dependency["version"] == sub["version"]


def _paths(values: Any, schema: Any, prefix: str = "") -> Iterator[tuple[str, bool]]:
    """The path of each value, and whether the schema and the values both have it."""
    names = schema.get("properties", {})
    if schema.get("additionalProperties") is not False:
        return
    for name in sorted(values.keys() | names.keys()):
        yield f"{prefix}{name}", name in values and name in names
        if isinstance(values.get(name), dict) and name in names:
            yield from _paths(values[name], names[name], f"{prefix}{name}.")


@pytest.mark.parametrize("directory", CHARTS, ids=lambda path: path.name)
def test_the_schema_knows_each_value_and_no_other(directory: Path) -> None:
    values = yaml.safe_load((directory / "values.yaml").read_text())
    schema = json.loads((directory / "values.schema.json").read_text())
    claims = {f"{group}resources.claims" for group in ("", "load.", "report.")}
    allowed = {"global", "affinity.nodeAffinity", "affinity.podAffinity", *claims}
    sub = {f"zookeeper.{name}" for name in yaml.safe_load((CHARTS[1] / "values.yaml").read_text())} | {
        "zookeeper.global"
    }
    missing = {path for path, in_both in _paths(values, schema) if not in_both}
    assert not missing - allowed - (sub if directory == chart.CHART else set())


def test_the_schema_of_the_chart_describes_the_values_of_the_sub_chart_as_the_sub_chart_does() -> None:
    parent, sub = (json.loads((directory / "values.schema.json").read_text()) for directory in CHARTS)
    assert parent["properties"]["zookeeper"]["properties"] == sub["properties"]


@pytest.mark.parametrize("directory", CHARTS, ids=lambda path: path.name)
def test_each_value_has_a_comment_or_stands_in_a_group_that_has_one(directory: Path) -> None:
    lines = (directory / "values.yaml").read_text().splitlines()
    top = [index for index, line in enumerate(lines) if re.match(r"[A-Za-z]", line)]
    for index in top:
        before = lines[index - 1]
        assert before.startswith("#") or re.match(r"[A-Za-z ]", before), f"{lines[index]} has no comment"
