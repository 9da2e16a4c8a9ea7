"""Panels: one function per kind, so that all panels of a kind look alike. Pure; each returns a builder that `board` places.

The arguments without defaults are what every panel has: its width in columns, a title, a unit of Grafana
(https://grafana.com/docs/grafana/latest/panels-visualizations/configure-standard-options/), a description that explains its
contents, and queries. Dashboards are rows of such calls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import heatmap as heatmap_options
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

GREEN, YELLOW, ORANGE, RED, BLUE, GRAY = "green", "yellow", "orange", "red", "blue", "text"
DATASOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")

Panel = timeseries.Panel | stat.Panel | table.Panel | bargauge.Panel | heatmap.Panel | statetimeline.Panel
Placed = tuple[int, Panel]
"""A panel and its width in columns of the grid."""
Steps = Sequence[tuple[float, str]]
"""(value, colour): the colour from this value upwards; below the first value the colour is green."""


@dataclass(frozen=True)
class Query:
    """A PromQL query of a panel.

    :param legend: Grafana's template for the name of a series, such as ``{{topic}}``; in tables the heading of the column.
    :param unit: the unit of this column in a table, if it differs from the panel's.
    """

    expr: str
    legend: str
    unit: str = ""


@dataclass(frozen=True)
class Link:
    """A link from each series to another dashboard. ``variables``: {variable of that dashboard: label of the series}."""

    title: str
    uid: str
    variables: Mapping[str, str]

    def build(self, in_table: bool) -> build.DashboardLink:
        source = "__data.fields" if in_table else "__field.labels"
        values = "".join(f"&var-{name}=${{{source}.{label}}}" for name, label in self.variables.items())
        url = f"/d/{self.uid}?${{datasource:queryparam}}&${{job:queryparam}}{values}&${{__url_time_range}}"
        return build.DashboardLink(self.title).url(url).type(model.DashboardLinkType.LINK)


def time_series(
    width: int,
    title: str,
    unit: str,
    description: str,
    *queries: Query,
    steps: Steps = (),
    stacked: bool = False,
    low: float | None = 0,
    high: float | None = None,
    link: Link | None = None,
) -> Placed:
    """Lines over time; the legend is a table of the last, mean and largest value. ``steps`` are drawn as dashed lines.

    :param low, high: ends of the axis in the panel's unit; with None Grafana chooses them.
    """
    panel = (
        timeseries.Panel()
        .draw_style(options.GraphDrawStyle.LINE)
        .line_width(1)
        .fill_opacity(25 if stacked else 8)
        .show_points(options.VisibilityMode.NEVER)
        .legend(
            common.VizLegendOptions()
            .display_mode(options.LegendDisplayMode.TABLE)
            .placement(options.LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["lastNotNull", "mean", "max"])
            .sort_by("Last *")
            .sort_desc(True)
        )
        .tooltip(common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI).sort(options.SortOrder.DESCENDING))
    )
    if stacked:
        panel.stacking(common.StackingConfig().mode(options.StackingMode.NORMAL))
    if steps:
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(options.GraphTresholdsStyleMode.DASHED))
    if low is not None:
        panel.min(low)
    if high is not None:
        panel.max(high)
    if link:
        panel.data_links([link.build(in_table=False)])
    return width, _finish(panel, title, description, unit, queries, steps)


def number(
    width: int,
    title: str,
    unit: str,
    description: str,
    query: Query,
    *,
    steps: Steps = (),
    names: Mapping[int, tuple[str, str]] | None = None,
    text: bool = False,
    named: bool = False,
    decimals: int | None = None,
) -> Placed:
    """The current value as a large number.

    :param names: the text and colour for each value of a state.
    :param text: show the name of the series instead of its value. :param named: show both, of the present only: the query may
        have chosen another series before.
    """
    shown = options.BigValueTextMode.VALUE_AND_NAME if named else options.BigValueTextMode.AUTO
    panel = (
        stat.Panel()
        .graph_mode(options.BigValueGraphMode.NONE if names or text or named else options.BigValueGraphMode.AREA)
        .color_mode(options.BigValueColorMode.VALUE)
        .text_mode(options.BigValueTextMode.NAME if text else shown)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .no_value("no data")
    )
    if names:
        panel.mappings([_mapping(names)])
    if decimals is not None:
        panel.decimals(decimals)
    return width, _finish(panel, title, description, unit, [query], steps, instant=named)


def bars(
    width: int,
    title: str,
    unit: str,
    description: str,
    query: Query,
    *,
    steps: Steps = (),
    low: float = 0,
    high: float | None = None,
    link: Link | None = None,
) -> Placed:
    """Current values as horizontal bars."""
    panel = (
        bargauge.Panel()
        .display_mode(options.BarGaugeDisplayMode.BASIC)
        .orientation(options.VizOrientation.HORIZONTAL)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .min(low)
        .no_value("none")
    )
    if high is not None:
        panel.max(high)
    if link:
        panel.data_links([link.build(in_table=False)])
    return width, _finish(panel, title, description, unit, [query], steps, instant=True)


def states(width: int, title: str, description: str, query: Query, names: Mapping[int, tuple[str, str]]) -> Placed:
    """One band per series, coloured by its state."""
    panel = (
        statetimeline.Panel()
        .mappings([_mapping(names)])
        .merge_values(True)
        .show_value(options.VisibilityMode.AUTO)
        .legend(
            common.VizLegendOptions()
            .display_mode(options.LegendDisplayMode.LIST)
            .placement(options.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
    )
    return width, _finish(panel, title, description, "none", [query], ())


def histogram(width: int, title: str, unit: str, description: str, query: Query) -> Placed:
    """Buckets of a Prometheus histogram over time; the query must keep the label ``le``."""
    panel = (
        heatmap.Panel()
        .calculate(False)
        .color(
            heatmap.HeatmapColorOptions()
            .mode(heatmap_options.HeatmapColorMode.SCHEME)
            .scheme("Oranges")
            .steps(64)
            .reverse(False)
        )
        .y_axis(heatmap.YAxisConfig().unit(unit))
        .show_legend()
    )
    panel.unit(unit)
    return width, _finish(panel, title, description, unit, [query], (), query_format=PromQueryFormat.HEATMAP)


def rows(
    width: int,
    title: str,
    unit: str,
    description: str,
    labels: Mapping[str, str],
    *queries: Query,
    links: Mapping[str, Link] | None = None,
    steps: Mapping[str, Steps] | None = None,
) -> Placed:
    """A table of current values: one row per combination of ``labels``, one column per query, sorted by the first query.

    :param labels: {label: heading of its column}; all queries must be grouped by exactly these labels.
    :param links, steps: by the heading of a column.
    """
    letters = [chr(ord("A") + index) for index in range(len(queries))]
    values = [f"Value #{letter}" for letter in letters] if len(queries) > 1 else ["Value"]
    order = [*labels, *values]
    panel = table.Panel().sort_by([_sort_by(queries[0].legend)])
    if len(queries) > 1:
        panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    panel.with_transformation(
        model.DataTransformerConfig(
            id_val="organize",
            options={
                "excludeByName": {"Time": True},
                "indexByName": {name: index for index, name in enumerate(order)},
                "renameByName": dict(labels) | {v: q.legend for v, q in zip(values, queries, strict=True)},
            },
        )
    )
    for query in queries:
        properties = [model.DynamicConfigValue(id_val="unit", value=query.unit or unit)]
        if steps and query.legend in steps:
            properties += [
                model.DynamicConfigValue(id_val="thresholds", value=_thresholds(steps[query.legend]).build()),
                model.DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-text"}),
            ]
        panel.override_by_name(query.legend, properties)
    for heading, link in (links or {}).items():
        built = [link.build(in_table=True).build()]
        panel.override_by_name(heading, [model.DynamicConfigValue(id_val="links", value=built)])
    return width, _finish(
        panel, title, description, unit, queries, (), instant=True, query_format=PromQueryFormat.TABLE
    )


def _finish(
    panel: Panel,
    title: str,
    description: str,
    unit: str,
    queries: Sequence[Query],
    steps: Steps,
    *,
    instant: bool = False,
    query_format: PromQueryFormat = PromQueryFormat.TIME_SERIES,
) -> Panel:
    """Set what all kinds of panels have, and add the queries."""
    panel.title(title).description(description).datasource(DATASOURCE).unit(unit).thresholds(_thresholds(steps))
    for index, query in enumerate(queries):
        target = (
            prometheus.Dataquery()
            .expr(query.expr)
            .legend_format(query.legend)
            .ref_id(chr(ord("A") + index))
            .format(query_format)
            .datasource(DATASOURCE)
        )
        panel.with_target(target.instant() if instant else target.range())
    return panel


def _thresholds(steps: Steps) -> build.ThresholdsConfig:
    return (
        build.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps([model.Threshold(value=None, color=GREEN)] + [model.Threshold(value=v, color=c) for v, c in steps])
    )


def _mapping(names: Mapping[int, tuple[str, str]]) -> model.ValueMap:
    return model.ValueMap(
        options={
            str(value): model.ValueMappingResult(text=text, color=color, index=index)
            for index, (value, (text, color)) in enumerate(names.items())
        }
    )


def _sort_by(heading: str) -> common.TableSortByFieldState:
    return common.TableSortByFieldState().display_name(heading).desc(True)
