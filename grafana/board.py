"""A dashboard: variables, links, annotations, and rows of panels on Grafana's grid of 24 columns. Pure functions.

``CLUSTER`` selects series that exist once per cluster (offsets of topics, groups, counts of the controller), ``BROKER`` selects
series that each broker reports about itself. So the series of the cluster stay visible if the user selects a single broker.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard as model

from grafana.panels import DATASOURCE, Placed

CLUSTER = 'job=~"$job"'
BROKER = 'job=~"$job",instance=~"$instance"'
RATE = "$__rate_interval"


def rate(metric: str, *labels: str, where: str = BROKER) -> str:
    """Return a query for the rate per second of a counter, summed by `labels` (as in `largest`)."""
    by = f" by ({', '.join(labels)}) " if labels else ""
    return f"sum{by}(rate({metric}{{{where}}}[{RATE}]))"


def largest(number: int, query: str, *labels: str) -> str:
    """Return a query for a graph: the `number` series of `query` with the highest values in the displayed time range.

    The same series are shown at every point. A plain topk() selects at each point separately, so that lines begin and end where
    series change their ranks.

    :param labels: the labels of the query's series; one argument may contain several, separated by commas as in PromQL.
    """
    highest = f"max_over_time(({query})[$__range:$__interval] @ end())"
    return f"{query} and on ({', '.join(labels)}) topk({number}, {highest})"


TAG = "odradek"
GRID = 24


@dataclass(frozen=True)
class Variable:
    """A selection list at the top of a dashboard; all values are selected by default.

    :param everything: the regular expression for all values; ``.+`` excludes series whose label is empty.
    """

    name: str
    title: str
    query: str
    everything: str = ".+"


TOPIC = Variable("topic", "Topic", f"label_values(kafka_topic_partitions{{{CLUSTER}}}, topic)")
GROUP = Variable("consumergroup", "Group", f"label_values(kafka_consumergroup_members{{{CLUSTER}}}, consumergroup)")
CLIENT = Variable(
    "client", "Client", f"label_values(odradek_usage_connection_seconds_total{{{BROKER}}}, client_id)", everything=".*"
)


@dataclass(frozen=True)
class Row:
    """Panels side by side, each with its width in columns; panels that do not fit continue on the next line.

    :param height: the height of its panels, in Grafana's units of 30 pixels.
    """

    title: str
    height: int
    panels: Sequence[Placed]


@dataclass(frozen=True)
class Board:
    """The contents of one dashboard.

    :param history: whether the dashboard has a variable ``$history``: the period from which trends are computed.
    :param of_mirror: whether its jobs and instances are those of workers of a mirror, not of brokers.
    """

    uid: str
    title: str
    description: str
    rows: Sequence[Row]
    variables: Sequence[Variable] = field(default=())
    history: bool = False
    of_mirror: bool = False


def to_model(board: Board) -> model.Dashboard:
    """Return the dashboard with all panels placed and numbered. Raises ValueError for a panel that is wider than the grid."""
    dashboard = (
        build.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG, "kafka"])
        .editable()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .time("now-3h", "now")
        .refresh("30s")
        .timezone("browser")
        .link(
            build.DashboardLink("Odradek")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(False)
            .include_vars(True)
            .keep_time(True)
        )
    )
    for annotation in _annotations(board):
        dashboard.annotation(annotation)
    for variable in _variables(board):
        dashboard.with_variable(variable)
    number, y = 1, 0
    for row in board.rows:
        dashboard.with_row(build.Row(row.title).id(number).grid_pos(model.GridPos(h=1, w=GRID, x=0, y=y)))
        number, y, x = number + 1, y + 1, 0
        for width, panel in row.panels:
            if width > GRID:
                raise ValueError(
                    f"row {row.title!r} of {board.uid}: a panel is {width} columns wide; the grid has {GRID}"
                )
            if x + width > GRID:
                x, y = 0, y + row.height
            dashboard.with_panel(panel.id(number).grid_pos(model.GridPos(h=row.height, w=width, x=x, y=y)))
            number, x = number + 1, x + width
        y += row.height
    return dashboard.build()


def _annotations(board: Board) -> "list[_Annotation]":
    if board.of_mirror:
        starts = f"odradek_mirror_start_time_seconds{{{BROKER}}} * 1000"
        return [_Annotation("Worker starts", starts, "blue", "{{instance}}")]
    return [
        _Annotation("Broker starts", f"odradek_boot_time_seconds{{{BROKER}}} * 1000", "blue", "{{instance}}"),
        _Annotation(
            "Process starts",
            f'process_start_time_seconds{{{BROKER},process!=""}} * 1000',
            "orange",
            "{{instance}} {{process}} {{ordinal}}",
            enabled=False,
        ),
    ]


def _variables(board: Board) -> list[build.QueryVariable | build.DatasourceVariable | build.CustomVariable]:
    info, title = ("odradek_mirror_info", "Worker") if board.of_mirror else ("odradek_build_info", "Broker")
    variables = [
        build.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        _query(Variable("job", "Job", f"label_values({info}, job)"), multi=False),
        _query(Variable("instance", title, f'label_values({info}{{job=~"$job"}}, instance)')),
    ]
    variables += [_query(variable) for variable in board.variables]
    if board.history:
        default = model.VariableOption(selected=True, text="1d", value="1d")
        variables.append(build.CustomVariable("history").label("Trend over").values("1h,6h,1d,7d").current(default))
    return variables


def _query(variable: Variable, multi: bool = True) -> build.QueryVariable:
    """Build the variable. The default is All, or the first value if only one can be selected."""
    built = (
        build.QueryVariable(variable.name)
        .label(variable.title)
        .datasource(DATASOURCE)
        .query({"query": variable.query, "refId": f"variable-{variable.name}"})
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC)
        .multi(multi)
    )
    if multi:
        everything = model.VariableOption(selected=True, text=["All"], value=["$__all"])
        built.include_all(True).all_value(variable.everything).current(everything)
    return built


class _Annotation(build.AnnotationQuery):
    """Marks at the times that a query returns as values, in milliseconds since 1970; the SDK has no fields for that."""

    def __init__(self, name: str, expr: str, color: str, text: str, enabled: bool = True) -> None:
        super().__init__()
        self._internal = _TimeValues(text)
        self.name(name).datasource(DATASOURCE).enable(enabled).hide(False).icon_color(color).expr(expr)


class _TimeValues(model.AnnotationQuery):
    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def to_json(self) -> dict[str, object]:
        return super().to_json() | {
            "titleFormat": self.name,
            "textFormat": self._text,
            "useValueForTime": "on",
            "step": "60s",
        }
