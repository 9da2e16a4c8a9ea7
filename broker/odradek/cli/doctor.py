"""``odradek doctor``: what is wrong with a broker or cluster, why that matters, and what to do."""

import sys
from typing import Any

import click

from odradek.cli.options import BOOTSTRAP_OPTION, JSON_OPTION, TIMEOUT_OPTION


@click.command("doctor")
@BOOTSTRAP_OPTION
@TIMEOUT_OPTION
@JSON_OPTION
@click.option(
    "--data-dir", metavar="DIR", help="Also look at the broker of this log directory, on this machine, from inside."
)
@click.option(
    "-m",
    "--metrics",
    metavar="HOST:PORT",
    envvar="ODRADEK_METRICS",
    show_envvar=True,
    help="Also look at the metrics of a broker, by its metrics.listener; with --data-dir at that broker's.",
)
def doctor(servers: str, timeout: float, as_json: bool, data_dir: str | None, metrics: str | None) -> None:
    """Look for what is wrong. Exit code 1 if something needs doing; warnings alone end with 0."""
    from odradek.cli.finding import Finding
    from odradek.cli.health import examine_cluster
    from odradek.cli.health_local import examine_broker, metrics_of
    from odradek.cli.output import count, echo_json
    from odradek.clients.cluster import Cluster
    from odradek.clients.errors import ClientError

    looked: list[str] = []
    findings: list[Finding] = []
    if data_dir is not None:
        looked.append(f"the broker of {data_dir}")
        findings += examine_broker(data_dir)
        metrics = metrics_of(data_dir) or metrics
    if metrics is not None:
        from odradek.cli.health_metrics import examine_metrics

        looked.append(f"the metrics at {metrics}")
        findings += examine_metrics(metrics, timeout)
    try:
        with Cluster(servers, timeout) as cluster:
            looked.append(f"the cluster at {servers}")
            findings += examine_cluster(cluster)
    except ClientError as error:
        findings.append(
            Finding(
                "error",
                "cluster",
                f"no answer from {servers}: {error}",
                "no client that begins there can work",
                "check that the broker runs (`odradek status`) and that --bootstrap-server names one of its listeners",
            )
        )
    findings.sort(key=lambda one: ("error", "warning").index(one.severity))
    errors = sum(one.severity == "error" for one in findings)
    if as_json:
        echo_json({"healthy": not errors, "looked_at": looked, "findings": [one._asdict() for one in findings]})
    else:
        _print(findings)
        warnings = len(findings) - errors
        verdict = "Nothing is wrong" if not findings else f"{count(errors, 'error')}, {count(warnings, 'warning')}"
        click.echo(f"{verdict}; looked at {' and '.join(looked)}.")
    sys.exit(1 if errors else 0)


def _print(findings: list[Any]) -> None:
    for one in findings:
        colour = "red" if one.severity == "error" else "yellow"
        click.echo(f"{click.style(one.severity, fg=colour)}  {one.subject}: {one.what}")
        click.echo(f"  why it matters: {one.reason}")
        click.echo(f"  what to do: {one.remedy}")
