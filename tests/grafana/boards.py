"""The contents of the committed dashboards as plain data, and their queries with Grafana's variables replaced."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "grafana/dashboards").glob("*.json"))}


class PanelQuery(NamedTuple):
    """A query of the JSON, with its dashboard and panel."""

    board: str
    panel: str
    ref: str
    expr: str
    legend: str
    instant: bool

    @property
    def name(self) -> str:
        return f"{self.board}/{self.panel}/{self.ref}"


def panels(board: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all panels except the headings of rows."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def panel_queries() -> Iterator[PanelQuery]:
    for uid, board in DASHBOARDS.items():
        for panel in panels(board):
            for target in panel["targets"]:
                instant = bool(target.get("instant"))
                yield PanelQuery(uid, panel["title"], target["refId"], target["expr"], target["legendFormat"], instant)


def other_queries() -> Iterator[tuple[str, str]]:
    """Yield (name, query) of annotations and of variables."""
    for uid, board in DASHBOARDS.items():
        for annotation in board["annotations"]["list"]:
            yield f"{uid}/annotation {annotation['name']}", annotation["expr"]
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                yield f"{uid}/variable {variable['name']}", label_values(variable["query"]["query"])[0]


def label_values(query: str) -> tuple[str, str]:
    """Return selector and label of Grafana's ``label_values(selector, label)``."""
    match = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
    assert match, query
    return match[1], match[2]


def replaced(query: str, values: Mapping[str, str]) -> str:
    """Replace ``$name`` and ``${name}``. Raises KeyError for a variable without a value."""
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda match: values[match[1] or match[2]], query)


def everything(window: str) -> dict[str, str]:
    """Return the values of the variables if All is selected; ``window`` for all durations."""
    chosen = {
        variable["name"]: variable.get("allValue", ".+")
        for board in DASHBOARDS.values()
        for variable in board["templating"]["list"]
        if variable["type"] == "query"
    }
    return chosen | dict.fromkeys(("__rate_interval", "__range", "__interval", "history"), window)
