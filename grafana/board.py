"""A dashboard: variables, links, annotations, and rows of panels placed on Grafana's grid of 24 columns. Pure.

Series that the whole cluster has once (topics' offsets, groups, the controller's counts) are chosen by ``CLUSTER``, those that
each broker tells of itself by ``BROKER``: to look at one broker must not make the cluster disappear.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard as model

from grafana.panels import DATASOURCE, Panel

CLUSTER = 'job=~"$job"'
BROKER = 'job=~"$job",instance=~"$instance"'
RATE = "$__rate_interval"


def largest(number: int, query: str, *labels: str) -> str:
    """A query for a graph: of `query` the series with the highest values in the shown time, the same ones at every point.

    A plain topk() chooses anew at each point, so that lines begin and end where series change their ranks.

    :param labels: of the query's series; each may be several, as PromQL writes them.
    """
    highest = f"max_over_time(({query})[$__range:$__interval] @ end())"
    return f"{query} and on ({', '.join(labels)}) topk({number}, {highest})"


TAG = "odradek"
GRID = 24


@dataclass(frozen=True)
class Variable:
    """A list to choose from, all by default.

    :param everything: the regular expression that stands for all; ``.+`` where the empty value means something else.
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
    """Panels side by side, each with its width in columns; what does not fit goes to the next line.

    :param height: of its panels, in Grafana's units of 30 pixels.
    """

    title: str
    height: int
    panels: Sequence[tuple[int, Panel]]


@dataclass(frozen=True)
class Board:
    """:param history: an own variable ``$history``: how far back trends look."""

    uid: str
    title: str
    description: str
    rows: Sequence[Row]
    variables: Sequence[Variable] = field(default=())
    history: bool = False


def to_model(board: Board) -> model.Dashboard:
    """The dashboard with all panels placed and numbered. Raises ValueError for a panel that is wider than the grid."""
    made = (
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
        .annotation(
            _Annotation("Broker starts", f"odradek_boot_time_seconds{{{BROKER}}} * 1000", "blue", "{{instance}}")
        )
        .annotation(
            _Annotation(
                "Process starts",
                f'process_start_time_seconds{{{BROKER},process!=""}} * 1000',
                "orange",
                "{{instance}} {{process}} {{ordinal}}",
                enabled=False,
            )
        )
    )
    for variable in _variables(board):
        made.with_variable(variable)
    number, y = 1, 0
    for row in board.rows:
        made.with_row(build.Row(row.title).id(number).grid_pos(model.GridPos(h=1, w=GRID, x=0, y=y)))
        number, y, x = number + 1, y + 1, 0
        for width, panel in row.panels:
            if width > GRID:
                raise ValueError(f"row {row.title!r} of {board.uid}: a panel of {width} columns, there are {GRID}")
            if x + width > GRID:
                x, y = 0, y + row.height
            made.with_panel(panel.id(number).grid_pos(model.GridPos(h=row.height, w=width, x=x, y=y)))
            number, x = number + 1, x + width
        y += row.height
    return made.build()


def _variables(board: Board) -> list[build.QueryVariable | build.DatasourceVariable | build.CustomVariable]:
    made = [
        build.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        _query(Variable("job", "Job", "label_values(odradek_build_info, job)"), multi=False),
        _query(Variable("instance", "Broker", 'label_values(odradek_build_info{job=~"$job"}, instance)')),
    ]
    made += [_query(variable) for variable in board.variables]
    if board.history:
        chosen = model.VariableOption(selected=True, text="1d", value="1d")
        made.append(build.CustomVariable("history").label("Trend over").values("1h,6h,1d,7d").current(chosen))
    return made


def _query(variable: Variable, multi: bool = True) -> build.QueryVariable:
    """All is the choice to begin with, but where only one can be chosen: there it is the first that is found."""
    made = (
        build.QueryVariable(variable.name)
        .label(variable.title)
        .datasource(DATASOURCE)
        .query({"query": variable.query, "refId": f"variable-{variable.name}"})
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC)
        .multi(multi)
    )
    if multi:
        chosen = model.VariableOption(selected=True, text=["All"], value=["$__all"])
        made.include_all(True).all_value(variable.everything).current(chosen)
    return made


class _Annotation(build.AnnotationQuery):
    """Marks at the times that are the values of a query, in milliseconds since 1970; the SDK knows no fields for that."""

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
