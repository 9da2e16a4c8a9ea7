"""Panels of the background tasks. Which tasks there are, and which alerts they have, is the table of the broker's package.

The tasks that publish their runs have the metrics `odradek_task_*`, with a label for the task: no panel names one. The others
have other metrics, which are in panels of several dashboards. The alerts of all tasks are in the table that `alerts` makes.
"""

from grafana.board import BROKER, CLUSTER, Row
from grafana.panels import ORANGE, RED, Placed, Query, number, rows, time_series
from odradek.metrics.background_tasks import TASKS

OF_MIRROR = "odradek-mirror@.service"
RUN = f"odradek_task_last_run_timestamp_seconds{{{BROKER}}}"
SUCCESS = f"odradek_task_last_success_timestamp_seconds{{{BROKER}}}"
INTERVAL = f"odradek_task_interval_seconds{{{BROKER}}}"
FAILED = f"odradek_task_failed_runs{{{BROKER}}}"


def alerts(width: int, of_mirror: bool) -> Placed:
    """A table of the alerts that are firing, of all background tasks of mirrors, or of all others."""
    signs = {row.signs for row in TASKS if (row.process == OF_MIRROR) == of_mirror}
    own = _firing({sign.alert for sign in signs if sign.metric}, f",{CLUSTER}")
    of_others = _firing({sign.alert for sign in signs if not sign.metric}, "")
    firing = " or ".join(filter(None, (own, of_others)))
    return rows(
        width,
        "Alerts of background tasks",
        "none",
        "Alerts that are firing now and say that a background task fails, does not run or cannot do its work: the table "
        "Background tasks of docs/reference/alerts.md. The row none is always there.",
        {"alertname": "Alert", "instance": "Instance"},
        Query(
            f'count by (alertname, instance) ({firing}) or label_replace(vector(0), "alertname", "none", "", "")',
            "Firing",
        ),
        steps={"Firing": [(1, RED)]},
    )


def _firing(alerts: set[str], more: str) -> str:
    """The selector of these alerts, each one name or several. :param more: more conditions, such as the job."""
    names = "|".join(sorted({name for text in alerts for name in text.split(", ")}))
    return f'ALERTS{{alertname=~"{names}",alertstate="firing"{more}}}' if names else ""


def _of_task(query: str) -> str:
    return f"max by (instance, task) ({query})"


def _since(time: str) -> str:
    return f"(time() - {_of_task(time)}) and on (instance, task) {_of_task(INTERVAL)} > 0"


# fmt: off
TASKS_ROW = Row("Background tasks", 9, [
    number(4, "Failing tasks", "none",
        "Background tasks whose last run failed, at one partition or file at least.",
        Query(f"count({FAILED} > 0) or vector(0)", "tasks"), steps=[(1, RED)]),
    number(4, "Late tasks", "none",
        "Background tasks that have not ended a run for twice their interval and a quarter of an hour.",
        Query(f"count(time() - {RUN} > 2 * {INTERVAL} + 900 and {INTERVAL} > 0) or vector(0)", "tasks"),
        steps=[(1, RED)]),
    number(4, "Logs set aside", "none",
        "Logs of former topics that the broker has set aside as *-stray and never deletes.",
        Query(f"sum(odradek_stray_logs{{{BROKER}}})", "logs"), steps=[(1, ORANGE)]),
    time_series(12, "Failed runs", "none",
        "Runs of each background task that have failed since its last success. A line that rises: the task fails "
        "again and again. `odradek doctor` names the partitions and the reasons.",
        Query(_of_task(FAILED), "{{instance}} {{task}}")),
    rows(16, "Tasks", "none",
        "What each background task last did. A task that runs all the time has no interval and no times.",
        {"instance": "Broker", "task": "Task"},
        Query(_of_task(FAILED), "Failed runs"),
        Query(_of_task(f"odradek_task_failing_objects{{{BROKER}}}"), "Failing at"),
        Query(_since(SUCCESS), "Since a success", unit="s"),
        Query(_since(RUN), "Since a run", unit="s"),
        Query(_of_task(INTERVAL), "Interval", unit="s"), steps={"Failed runs": [(1, RED)], "Failing at": [(1, RED)]}),
    alerts(8, of_mirror=False),
])
