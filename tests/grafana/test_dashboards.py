"""The committed dashboards are what the code makes, whole, and laid out so that nothing covers anything."""

import itertools
import re
import subprocess
import sys

import pytest
import yaml

from tests.grafana.boards import DASHBOARDS, ROOT, panels

BOARDS = pytest.mark.parametrize("board", DASHBOARDS.values(), ids=DASHBOARDS.keys())
BUILT_IN = {"__rate_interval", "__range", "__interval"}


def _run(*arguments):
    return subprocess.run([sys.executable, "-m", "grafana", *arguments], cwd=ROOT, capture_output=True, text=True)


def _texts(value):
    """All texts in a piece of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def test_the_committed_json_is_what_the_code_makes():
    checked = _run("--check")
    assert (checked.returncode, checked.stderr) == (0, "")


def test_what_differs_from_the_code_is_named(tmp_path):
    assert _run(str(tmp_path)).returncode == 0
    (tmp_path / "odradek-topics.json").write_text("{}\n")
    (tmp_path / "odradek-groups.json").unlink()
    (tmp_path / "mine.json").write_text("{}\n")
    checked = _run("--check", str(tmp_path))
    assert checked.returncode == 1
    assert sorted(line.removeprefix(f"{tmp_path}/") for line in checked.stderr.splitlines()) == [
        "mine.json: not made by the code",
        "odradek-groups.json: missing",
        "odradek-topics.json: out of date",
    ]


def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    failed = _run(str(tmp_path / "file" / "boards"))
    assert failed.returncode == 1
    assert failed.stderr.count("\n") == 1 and str(tmp_path / "file") in failed.stderr


def test_there_is_a_dashboard_for_each_question():
    assert set(DASHBOARDS) == {
        "odradek-overview", "odradek-topics", "odradek-groups", "odradek-clients", "odradek-workers", "odradek-storage"
    }  # fmt: skip


@BOARDS
def test_panels_have_numbers_of_their_own_and_do_not_cover_each_other(board):
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    places = [(panel["title"], panel["gridPos"]) for panel in board["panels"]]
    for title, place in places:
        assert place["x"] >= 0 and place["y"] >= 0 and place["w"] > 0 and place["h"] > 0, title
        assert place["x"] + place["w"] <= 24, title
    for (title, a), (other, b) in itertools.combinations(places, 2):
        apart = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert apart or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"], f"{title} and {other}"


@BOARDS
def test_rows_come_before_their_panels(board):
    order = [(panel["gridPos"]["y"], panel["gridPos"]["x"]) for panel in board["panels"]]
    assert order == sorted(order)
    assert board["panels"][0]["type"] == "row"
    kinds = [panel["type"] for panel in board["panels"]] + ["row"]
    assert not any(a == b == "row" for a, b in itertools.pairwise(kinds)), "a row without panels"


@BOARDS
def test_every_panel_says_what_it_shows_and_in_which_unit(board):
    titles = [panel["title"] for panel in panels(board)]
    assert all(titles)
    for panel in panels(board):
        title = panel["title"]
        assert panel["description"].endswith("."), title
        assert panel["fieldConfig"]["defaults"]["unit"], title
        assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"][0]["value"] is None, title
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, title
        assert panel["targets"], title
        for target in panel["targets"]:
            assert target["legendFormat"], title
            assert target["datasource"] == panel["datasource"], title
        references = [target["refId"] for target in panel["targets"]]
        assert len(references) == len(set(references)), title


@BOARDS
def test_thresholds_rise(board):
    for panel in panels(board):
        values = [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"][1:]]
        assert values == sorted(set(values)), panel["title"]


@BOARDS
def test_every_variable_used_is_defined_and_every_one_defined_is_used(board):
    defined = {variable["name"] for variable in board["templating"]["list"]}
    queries = [target["expr"] for panel in panels(board) for target in panel["targets"]]
    used = {name for query in queries for name in re.findall(r"\$(\w+)", query)} - BUILT_IN
    assert used <= defined
    assert defined - used <= {"datasource"}
    assert {"datasource", "job", "instance"} <= defined


@BOARDS
def test_links_lead_to_dashboards_and_variables_that_there_are(board):
    links = [text for text in _texts(board) if text.startswith("/d/")]
    for link in links:
        uid = re.match(r"/d/([\w-]+)\?", link)[1]
        variables = {variable["name"] for variable in DASHBOARDS[uid]["templating"]["list"]}
        named = set(re.findall(r"var-(\w+)=", link)) | set(re.findall(r"\$\{(\w+):queryparam\}", link))
        assert named <= variables, link
        assert "${__url_time_range}" in link
    (to_all,) = board["links"]
    assert (to_all["type"], to_all["tags"]) == ("dashboards", ["odradek"])
    assert to_all["includeVars"] and to_all["keepTime"]
    assert "odradek" in board["tags"]


@BOARDS
def test_labels_in_links_are_labels_of_the_panel(board):
    for panel in panels(board):
        headings = {
            name
            for transformation in panel.get("transformations", [])
            for name in transformation["options"].get("renameByName", {}).values()
        }
        legends = " ".join(target["legendFormat"] for target in panel["targets"])
        for text in _texts(panel["fieldConfig"]):
            for kind, label in re.findall(r"\$\{__(data\.fields|field\.labels)\.(\w+)\}", text):
                if kind == "data.fields":
                    assert label in headings, panel["title"]
                else:
                    assert f"{{{{{label}}}}}" in legends, panel["title"]


@BOARDS
def test_columns_with_a_unit_or_link_are_in_the_table(board):
    for panel in panels(board):
        if panel["type"] == "table":
            (organize,) = [t["options"] for t in panel["transformations"] if t["id"] == "organize"]
            headings = set(organize["renameByName"].values())
            overridden = {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]}
            assert overridden <= headings, panel["title"]
            assert {target["legendFormat"] for target in panel["targets"]} <= overridden, panel["title"]


@BOARDS
def test_starts_of_the_broker_are_marked_at_their_very_time(board):
    (starts,) = [a for a in board["annotations"]["list"] if a["name"] == "Broker starts"]
    assert starts["enable"] and starts["useValueForTime"] == "on" and starts["expr"].endswith("* 1000")


def test_provisioning_fits_the_readme_and_the_scrape_interval():
    readme = (ROOT / "grafana/README.md").read_text()
    (provider,) = yaml.safe_load((ROOT / "grafana/provisioning/dashboards/odradek.yaml").read_text())["providers"]
    assert f"cp grafana/dashboards/*.json {provider['options']['path']}/" in readme
    (source,) = yaml.safe_load((ROOT / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    scraping = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["global"]["scrape_interval"]
    assert (source["type"], source["jsonData"]["timeInterval"]) == ("prometheus", scraping)
