"""The usage report's page: its numbers equal the tables', Chromium shows its charts, the same tables produce the same bytes."""

from __future__ import annotations

import io
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pandas as pd
import pyarrow.dataset
import pytest

from odradek.clients import wire
from odradek.jobs.usage_report import aggregates, report
from odradek.jobs.usage_report.aggregates import aggregate
from odradek.jobs.usage_report.errors import ReportError
from odradek.jobs.usage_report.options import Options
from odradek.jobs.usage_report.summary import Summary
from tests import toolchains
from tests.jobs import report_tables
from tests.jobs.report_tables import DAY, END, GAP, HOSTILE, HOUR, make_tables

pytestmark = [pytest.mark.xdist_group("usage_report_page"), pytest.mark.timeout(1200)]

DAYS = 22
TO = datetime.fromtimestamp(END, UTC)
WEEK = (TO - timedelta(days=7), TO)
A_PART_OF_A_RECORD = 2e-8  # of the traffic of an hour: some bytes in each, and not one whole record
WHAT_IFS = ("retention.ms=20d,topic=orders.*", "growth=1.3")


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")  # of no consequence
    return spark


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("usage-report")
    make_tables(directory / "tables", DAYS, more_topics=4)
    (directory / "prices.toml").write_text('currency = "EUR"\n[per_gb]\nin = 0.5\nout = 0.25\nstored_month = 2\n')
    (directory / "owners.csv").write_text(
        "kind,pattern,team\nclient,spark-*,Lake\ntopic,orders.*,Shop\ntopic,web.*,Web\n"
    )
    return directory


def options(place: Path, **others: Any) -> Options:
    return Options(
        prices=place / "prices.toml",
        owners=place / "owners.csv",
        what_if=WHAT_IFS,
        source="spool /data/usage",
        **others,
    )


@pytest.fixture(scope="module")
def week(session: Any, place: Path) -> Summary:
    """The report of a week, with all sections."""
    return report.build(session, place / "tables", place, *WEEK, options(place, png=True, pdf=True))


@pytest.fixture(scope="module")
def page(week: Summary, place: Path) -> Page:
    return Page((place / "report.html").read_text())


def rows_of(place: Path, table: str, first: float = WEEK[0].timestamp(), last: float = END) -> list[dict[str, Any]]:
    """The rows of a table in a period, read without Spark."""
    rows = (
        pyarrow.dataset.dataset(place / "tables" / table, format="parquet", partitioning="hive").to_table().to_pylist()
    )
    return [row for row in rows if first <= row["hour"].timestamp() < last]


class Page(HTMLParser):
    """Contents of a page: `cells[table][row][key]`, `tiles[key]`, `charts[name]` (their values), `findings` and all text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.cells: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
        self.tiles: dict[str, float] = {}
        self.charts: dict[str, Any] = {}
        self.findings: dict[str, list[str]] = defaultdict(list)
        self.said = ""
        self._table = self._row = self._chart = ""
        self._in_data = False
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attributes}
        self._table = given.get("data-table", self._table)
        self._row = given.get("data-row", self._row)
        self._chart = given.get("data-chart", self._chart)
        if "data-finding" in given:
            self.findings[given["data-finding"]].append(given["data-subject"])
        if "data-key" in given and given["data-value"]:
            value = float(given["data-value"])
            if tag == "dd":
                self.tiles[given["data-key"]] = value
            else:
                self.cells[self._table][self._row][given["data-key"]] = value
        self._in_data = tag == "script" and given.get("type") == "application/json"

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.charts[self._chart] = json.loads(data)
        else:
            self.said += data

    def handle_endtag(self, tag: str) -> None:
        self._in_data = False


def colors_of(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The colours of an image, and how many points have each."""
    red, green, blue = (np.round(image[..., index] * 255).astype(np.uint32) for index in range(3))
    return np.unique(red << 16 | green << 8 | blue, return_counts=True)


def test_the_sums_of_the_page_are_those_of_the_tables(place: Path, page: Page, week: Summary) -> None:
    traffic = rows_of(place, "traffic_hourly")
    requests = sum(row["requests"] for row in traffic if row["topic"] is None)
    assert page.tiles["bytes_in"] == sum(row["bytes_in"] for row in traffic) == week.document["traffic"]["bytes_in"]
    assert page.tiles["bytes_out"] == sum(row["bytes_out"] for row in traffic) == week.document["traffic"]["bytes_out"]
    assert page.tiles["requests"] == requests == week.document["traffic"]["requests"]
    assert page.tiles["known_hours"] == 7 * 24 - 5
    last = max(row["hour"] for row in rows_of(place, "topics_hourly"))
    stored = {row["topic"]: row for row in rows_of(place, "topics_hourly") if row["hour"] == last}
    assert page.tiles["stored_bytes"] == sum(row["stored_bytes"] for row in stored.values())
    assert {name: cells["stored"] for name, cells in page.cells["storage"].items()} == {
        name: row["stored_bytes"] for name, row in stored.items()
    }
    assert {name: cells["largest"] for name, cells in page.cells["partitions"].items()} == {
        name: row["largest_partition_bytes"] for name, row in stored.items()
    }


def test_topics_and_clients_have_their_bytes_and_their_change(place: Path, page: Page) -> None:
    traffic = rows_of(place, "traffic_hourly", END - 14 * DAY)
    hours = {row["hour"].timestamp() for row in rows_of(place, "coverage_hourly", END - 14 * DAY)}
    compared = {hour for hour in hours if hour >= END - 7 * DAY and hour - 7 * DAY in hours}
    for table, name_of in (
        ("topics", lambda row: row["topic"]),
        ("clients", lambda row: f"{row['client']} ({row['principal']})"),
    ):
        wanted: dict[str, dict[str, float]] = defaultdict(lambda: {"in": 0, "out": 0, "change": 0})
        for row in traffic:
            at, name = row["hour"].timestamp(), name_of(row)
            moved = row["bytes_in"] + row["bytes_out"]
            if at >= END - 7 * DAY:
                wanted[name]["in"] += row["bytes_in"]
                wanted[name]["out"] += row["bytes_out"]
            wanted[name]["change"] += moved * ((at in compared) - (at + 7 * DAY in compared))
        wanted.pop(None, None)  # type: ignore[call-overload]
        found = {
            name: {key: cells[key] for key in ("in", "out", "change")} for name, cells in page.cells[table].items()
        }
        assert found == wanted
    assert f'{HOSTILE} (User:<b>"&)' in page.cells["clients"]


def test_the_charts_hold_the_hours_of_the_tables_and_a_gap_where_there_are_none(place: Path, page: Page) -> None:
    sums: dict[float, int] = defaultdict(int)
    for row in rows_of(place, "traffic_hourly"):
        sums[row["hour"].timestamp()] += row["bytes_in"]
    chart = page.charts["traffic"]
    line = dict(chart["lines"])["in"]
    assert len(chart["times"]) == 7 * 24
    for at, value in zip(chart["times"], line, strict=True):
        if GAP[0] <= at < GAP[1]:
            assert value is None
        else:
            assert value == pytest.approx(sums[at] / HOUR)
    assert line.count(None) == 5
    lag = {(row["hour"].timestamp(), row["name"]): row["lag_max"] for row in rows_of(place, "lag_hourly")}
    billing = dict(page.charts["lag"]["lines"])["billing on orders.placed"]
    assert [value for value in billing if value is not None] == [
        lag[at, "billing"] for at in page.charts["lag"]["times"] if (at, "billing") in lag
    ]
    connections = dict(page.charts["connections"]["lines"])["open (maximum)"]
    assert max(value for value in connections if value is not None) == max(
        sum(row["connections_max"] for row in rows_of(place, "workers_hourly") if row["hour"] == hour)
        for hour in {row["hour"] for row in rows_of(place, "workers_hourly")}
    )


def test_lag_workers_errors_and_throttling_are_those_of_the_tables(place: Path, page: Page) -> None:
    lag = rows_of(place, "lag_hourly")
    assert {name: cells["max"] for name, cells in page.cells["lag"].items()} == {
        name: max(row["lag_max"] for row in lag if row["name"] == name) for name in {row["name"] for row in lag}
    }
    workers = rows_of(place, "workers_hourly")
    assert {name: cells["bytes"] for name, cells in page.cells["workers"].items()} == {
        f"worker {number}": sum(row["bytes_in"] + row["bytes_out"] for row in workers if row["worker"] == number)
        for number in range(4)
    }
    traffic = rows_of(place, "traffic_hourly")
    assert {name: cells["errors"] for name, cells in page.cells["apis"].items()} == {
        api: sum(row["errors"] for row in traffic if row["api"] == api and row["topic"] is None)
        for api in ("Fetch", "Produce")
    }  # with a topic they are counted once more
    throttled = {name: cells["throttle"] for name, cells in page.cells["client-errors"].items() if cells["throttle"]}
    assert throttled == {"spark-lake (User:etl)": sum(row["throttle_ms"] for row in traffic)}


def test_disks_have_their_usage_and_a_forecast_for_each_what_if(place: Path, page: Page, week: Summary) -> None:
    last = max(row["hour"] for row in rows_of(place, "log_dirs_hourly"))
    used = {
        f"{row['path']} of broker 1": row["total_bytes"] - row["free_bytes_min"]
        for row in rows_of(place, "log_dirs_hourly")
        if row["hour"] == last
    }
    assert {name: cells["used"] for name, cells in page.cells["disks"].items() if "used" in cells} == used
    first, *_ = week.document["disks"]
    assert first["log_dir"] == "/data/a"
    until, shorter, more = (
        first["days_until_full"], *(one["days_until_full"] for one in first["what_if"])
    )  # fmt: skip
    assert [one["what_if"] for one in first["what_if"]] == list(WHAT_IFS)
    assert more["median"] < until["median"] < shorter["median"]
    assert until["low_95"] <= until["low_80"] <= until["median"] <= until["high_80"] <= until["high_95"]
    assert page.tiles["days_until_full"] == pytest.approx(until["median"], abs=0.01)
    names = [name for name, _ in page.charts["disk:1:/data/a"]["lines"]]
    assert names == ["used", "forecast (median)", *(f"what if {one}" for one in WHAT_IFS)]


def test_readers_that_were_connected_for_seconds_have_no_lag_and_those_that_go_back_do_not_fall_behind(
    session: Any,
) -> None:
    begin = END - DAY
    traffic = [
        ("User:a", "peek", 240_000),
        ("User:a", "export", 600_000),
        ("User:a", "old", 0),
        ("User:b", "peek", 300_000),
        ("User:a", "odradek", 24 * 300_000 - 1),
        ("User:b", "odradek", 24 * 300_000),
    ]
    short = aggregates._short(pd.DataFrame(traffic, columns=["principal", "client", "connection_ms"]), DAY)
    assert short == {"User:a/peek", "User:a/odradek"}
    assert wire.SOFTWARE == aggregates._COMMAND  # jobs import nothing of the clients
    # the export begins again every hour, the old reader did so once: before the period
    returns: dict[str, Any] = defaultdict(lambda: lambda hour: None)
    returns |= {
        "User:a/export": lambda hour: (begin + hour * HOUR) * 1000,
        "User:a/old": lambda hour: (begin - 60) * 1000,
    }
    rows = [
        (begin + hour * HOUR, kind, name, "orders", lag, float(lag), 1.0, back)
        for kind, name, growth in (
            ("reader", "User:a/peek", 1000), ("reader", "User:a/export", 900), ("reader", "User:a/old", 800),
            ("reader", "User:b/peek", 700), ("group", "User:a/peek", 600),
        )
        for hour in range(24)
        for lag in (growth * (hour + 1),)
        for back in (returns[name](hour),)
    ]  # fmt: skip
    schema = aggregates.SCHEMAS["lag_hourly"].replace("hour timestamp", "hour bigint").removesuffix(", day string")
    shown, drawn = aggregates._lag(session.createDataFrame(rows, schema), short)
    assert list(zip(shown["kind"], shown["name"], shown["back_late"], strict=True)) == [
        ("reader", "User:a/export", True), ("reader", "User:a/old", False), ("reader", "User:b/peek", False),
        ("group", "User:a/peek", False),
    ]  # fmt: skip
    assert [int(at) for at in shown["back"].dropna()] == [begin + 23 * HOUR]
    assert ("reader", "User:a/peek") not in set(zip(drawn["kind"], drawn["name"], strict=True))


def test_costs_are_the_prices_times_the_bytes_and_leave_nothing_out(place: Path, page: Page) -> None:
    traffic, topics = rows_of(place, "traffic_hourly"), rows_of(place, "topics_hourly")
    costs = page.cells["costs"]
    assert set(costs) == {"Lake", "Shop", "Web", "(no owner)"}
    assert sum(row["in"] for row in costs.values()) == sum(row["bytes_in"] for row in traffic)
    assert sum(row["out"] for row in costs.values()) == sum(row["bytes_out"] for row in traffic)
    assert sum(row["stored"] for row in costs.values()) == sum(row["stored_bytes"] for row in topics)
    lake = sum(
        row["bytes_in"] / 1e9 * 0.5 + row["bytes_out"] / 1e9 * 0.25 for row in traffic if row["client"] == "spark-lake"
    )
    assert costs["Lake"]["total"] == pytest.approx(lake)
    shop = sum(row["stored_bytes"] for row in topics if row["topic"] == "orders.placed")
    assert costs["Shop"]["cost_stored"] == pytest.approx(shop / 1e9 / 730 * 2)


def test_the_findings_contain_the_problems_of_the_week(page: Page, week: Summary) -> None:
    assert page.findings["gaps"] and page.findings["damaged_files"] and page.findings["disk_fills"]
    assert page.findings["lag_grows"] == ["billing orders.placed"]
    assert page.findings["unread"] == ["audit.trail"]
    assert page.findings["throttled"] == ["spark-lake"]
    assert page.findings["worker_skew"] == ["0"]
    assert set(page.cells["unread"]) >= {"audit.trail"}
    assert not {"orders.placed", "web.clicks", "stock.levels", "__consumer_offsets"} & set(page.cells["unread"])
    missing = week.document["missing"]
    assert missing == {"hours": 5, "seconds": 5 * HOUR + 60, "damaged_files": ["usage-20261117T08-0badcafe.jsonl.gz"]}
    levels = [one["level"] for one in week.document["findings"]]
    assert levels == sorted(levels, key=["bad", "warn", "note", "good"].index) and week.document["worst"] == levels[0]
    assert json.loads((week.files[1]).read_text()) == week.document
    said = "\n".join(week.lines())
    assert "/data/a of broker 1 will be full in" in said and "orders.placed" in said and str(week.files[0]) in said
    tables = week.text[week.text.index("Days until each log directory is full:") :]
    assert len(tables) > 15 and max(map(len, tables)) <= 100


def test_every_number_of_a_finding_is_on_the_page_below_the_findings(page: Page, week: Summary) -> None:
    below = re.sub(r'<ol class="findings".*?</ol>', "", page.html, flags=re.DOTALL)
    rest = Page(below.replace("<", " <")).said  # the numbers of two cells are not one
    shown = set(re.findall(r"\d[\d\u202f.:-]*", rest))
    missing = {
        (finding["key"], number)
        for finding in week.document["findings"]
        for number in re.findall(r"(?<![\w.-])\d[\d\u202f.:-]*", finding["sentence"])
        if number.rstrip(".:-\u202f") not in {found.rstrip(".:-\u202f") for found in shown}
    }
    assert not missing


@pytest.mark.parametrize("read", [False, True])
def test_a_topic_of_which_a_client_was_sent_bytes_is_not_unread(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: bool
) -> None:
    reader = ("User:ANONYMOUS", "kcat", "audit.trail", 0.0, A_PART_OF_A_RECORD)
    monkeypatch.setattr(report_tables, "CLIENTS", [*report_tables.CLIENTS, *([reader] if read else [])])
    tables = make_tables(tmp_path, days=2, gap=None, more_topics=0)
    figures = aggregate(session, tables, END - DAY, END)
    assert ("audit.trail" in list(figures.unread["topic"])) is not read


def test_the_same_tables_make_the_same_bytes(session: Any, place: Path, week: Summary) -> None:
    before = {path: path.read_bytes() for path in week.files}
    again = report.build(session, place / "tables", place, *WEEK, options(place, pdf=True))
    assert again.files == tuple(path for path in week.files if path.suffix != ".png")
    assert [path.name for path, content in before.items() if path.read_bytes() != content] == []
    assert not list(place.glob("**/*.unfinished"))


def test_pictures_and_pdf_are_made_on_request(page: Page, week: Summary) -> None:
    pictures = [path for path in week.files if path.suffix == ".png"]
    assert len(pictures) == len(page.charts)
    for path in pictures:
        assert len(colors_of(matplotlib.image.imread(path))[0]) > 20, path.name
    (pdf,) = (path.read_bytes() for path in week.files if path.suffix == ".pdf")
    assert pdf.startswith(b"%PDF-") and len(re.findall(rb"/Type /Page\b", pdf)) == len(page.charts) + 1


def test_one_day_with_a_short_history_reports_the_missing_days(session: Any, place: Path, tmp_path: Path) -> None:
    make_tables(tmp_path / "tables", 3, gap=None, more_topics=1, prometheus=True)
    made = report.build(session, tmp_path / "tables", tmp_path, TO - timedelta(days=1), TO, Options())
    page = Page((tmp_path / "report.html").read_text())
    assert [path.name for path in made.files] == [
        "report.html", "report.json", "report-2026-11-19.html", "report-2026-11-19.json",
    ]  # fmt: skip
    assert page.tiles["known_hours"] == 24
    assert "a forecast needs 14 days, has 3" in page.said
    assert made.document["disks"][0]["no_forecast"] == "a forecast needs 14 days, has 3"
    assert made.document["disks"][0]["days_until_full"] is None
    assert made.document["disks"][0]["broker"] is None and set(page.cells["disks"]) == {"/data/a", "/data/b"}
    assert "retention" not in page.cells["storage"]["orders.placed"]  # not known: no number
    assert "nothing to compare" in page.said and made.document["traffic"]["compared_bytes"] is None
    assert len(page.charts["traffic"]["times"]) == 24
    assert "add --owners FILE" in page.said and made.document["costs"] is None


def test_an_empty_period_is_reported(session: Any, place: Path, tmp_path: Path) -> None:
    made = report.build(
        session,
        place / "tables",
        tmp_path,
        TO - timedelta(days=400),
        TO - timedelta(days=399),
        options(place, pdf=True),
    )
    page = Page((tmp_path / "report.html").read_text())
    assert list(page.findings) == ["no_data"] and made.document["worst"] == "bad"
    assert page.charts == {} and page.tiles["known_hours"] == 0
    assert "There are no data of this period." in page.said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"prices": "missing.toml"}, "missing.toml: the file of prices cannot be read: No such file or directory"),
        ({"owners": "wrong.csv"}, "wrong.csv:1: the first line is 'a': expected kind,pattern,team"),
        ({"what_if": ("growth=x",)}, "--what-if growth=x: growth=x: expected a factor"),
    ],
)
def test_wrong_options_are_refused_before_spark_is_needed(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    (tmp_path / "wrong.csv").write_text("a\n")
    named = {key: tmp_path / value if isinstance(value, str) else value for key, value in given.items()}
    with pytest.raises(ReportError, match=re.escape(said)):
        report.check(Options(**named))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    path = toolchains.require_command("chromium", "chromium")
    from playwright.sync_api import sync_playwright

    switches = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    switches += ["--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=switches, timeout=120_000)
        yield browser
        browser.close()


class Shown:
    """The page of the week in a browser, with its requests and console messages."""

    def __init__(self, browser: Any, file: Path, **context: Any) -> None:
        self.page = browser.new_context(**context).new_page()
        self.page.set_default_timeout(120_000)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(file.as_uri())

    def pixels(self, target: Any, **options: Any) -> np.ndarray:
        return matplotlib.image.imread(io.BytesIO(target.screenshot(**options)))[..., :3]


def test_a_browser_shows_every_chart_and_asks_the_network_for_nothing(
    chromium: Any, place: Path, page: Page, week: Summary
) -> None:
    file = place / "report.html"
    shown = Shown(chromium, file, viewport={"width": 1200, "height": 900}, color_scheme="light")
    assert shown.requests == [file.as_uri()]
    figures = shown.page.locator("figure.chart")  # each has drawings for several widths
    assert figures.count() == len(page.charts) >= 12
    for index in range(figures.count()):
        plot = figures.nth(index).locator("svg:visible")
        box = plot.bounding_box()
        assert box["width"] > 300 and box["height"] > 80
        image = shown.pixels(plot)
        colors, sizes = colors_of(image)
        assert len(colors) > 20 and sizes.max() < 0.99 * sizes.sum(), figures.nth(index).get_attribute("data-chart")
    whole = shown.pixels(shown.page, full_page=True)
    assert whole.std() > 0.05
    assert shown.page.evaluate("document.documentElement.scrollWidth") == 1200
    assert shown.page.evaluate("document.querySelectorAll('img').length") == 0
    assert shown.complaints == [] and shown.requests == [file.as_uri()]


#: The smallest height of a text in a chart and on the page in pixels; the texts of charts that are not inside their drawing;
#: the charts that are not inside their frame; the number of tables that scroll; the width of the page.
MEASURE = """() => {
  let least = 99;
  const outside = [], wide = [];
  for (const svg of document.querySelectorAll("svg")) {
    const box = svg.getBoundingClientRect(), frame = svg.closest("figure").getBoundingClientRect();
    if (!box.width) continue;
    if (box.left < frame.left || box.right > frame.right) wide.push(svg.getAttribute("aria-label"));
    for (const text of svg.querySelectorAll("text")) {
      const at = text.getBoundingClientRect();
      least = Math.min(least, parseFloat(getComputedStyle(text).fontSize) * box.width / svg.viewBox.baseVal.width);
      if (at.left < box.left - 2 || at.right > box.right + 2) outside.push(text.textContent);
    }
  }
  for (const part of document.querySelectorAll("body :not(svg *)")) {
    const own = [...part.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (own && part.getClientRects().length) least = Math.min(least, parseFloat(getComputedStyle(part).fontSize));
  }
  const cut = [...document.querySelectorAll(".scroll")].filter((table) => table.scrollWidth > table.clientWidth + 1).length;
  return { least, outside, wide, cut, width: document.documentElement.scrollWidth };
}"""


@pytest.mark.parametrize("width", [360, 400, 500, 768, 1000, 1400])
def test_texts_are_readable_and_charts_fit_on_a_screen_of_any_width(
    chromium: Any, place: Path, page: Page, week: Summary, width: int
) -> None:
    shown = Shown(chromium, place / "report.html", viewport={"width": width, "height": 900})
    assert shown.page.locator("figure.chart svg:visible").count() == len(page.charts)
    shown.page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    measured = shown.page.evaluate(MEASURE)
    assert measured["least"] >= 10 and measured["width"] == width
    assert measured["outside"] == [] and measured["wide"] == []
    # a table that is wider than the screen scrolls, and has a shadow at the edge where it continues
    layers = shown.page.locator(".scroll").first.evaluate("(table) => getComputedStyle(table).backgroundAttachment")
    assert layers == "local, local, scroll, scroll" and (measured["cut"] > 0 or width > 500)
    shown.page.set_viewport_size({"width": 700, "height": 900})
    shown.page.emulate_media(media="print")
    assert shown.page.evaluate(MEASURE)["cut"] == 0


def test_dark_is_dark_a_telephone_needs_no_sideways_scrolling_and_print_holds_the_tables(
    chromium: Any, place: Path, week: Summary
) -> None:
    file = place / "report.html"
    light, dark = (
        Shown(chromium, file, viewport={"width": 390, "height": 800}, color_scheme=scheme)
        for scheme in ("light", "dark")
    )
    assert light.pixels(light.page).mean() > 0.8 and dark.pixels(dark.page).mean() < 0.3
    assert light.page.evaluate("document.documentElement.scrollWidth") == 390
    assert light.page.locator("details[open]").count() == 0
    light.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert light.page.locator("details:not([open])").count() == 0
    light.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert light.page.locator("details[open]").count() == 0
    assert light.page.pdf().startswith(b"%PDF-")
    assert light.complaints == dark.complaints == []


def test_the_keyboard_reads_a_chart(chromium: Any, place: Path, page: Page, week: Summary) -> None:
    shown = Shown(chromium, place / "report.html", viewport={"width": 1200, "height": 900})
    figure = shown.page.locator('figure[data-chart="traffic"]')
    figure.locator("svg:visible").focus()
    shown.page.keyboard.press("Home")
    reading = figure.locator(".reading")
    assert reading.is_visible()
    chart = page.charts["traffic"]
    at = datetime.fromtimestamp(chart["times"][0], UTC).strftime("%Y-%m-%d %H:%M UTC")
    assert at in reading.inner_text()
    kilobytes = dict(chart["lines"])["in"][0] / 1000
    assert f"{kilobytes:.3g}"[:3] in reading.inner_text()
    gap = next(index for index, value in enumerate(dict(chart["lines"])["in"]) if value is None)
    for _ in range(gap):
        shown.page.keyboard.press("ArrowRight")
    before = dict(chart["lines"])["in, a week before"][gap]
    assert "in, a week before" in reading.inner_text() and before is not None
    assert reading.locator("span").count() == 2  # only the week before is known
    shown.page.keyboard.press("Escape")
    assert shown.complaints == []
