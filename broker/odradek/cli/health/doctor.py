"""``odradek doctor``: prints problems of a broker or cluster, why they matter, and their remedies. Runs in the process of the
command."""

import sys
from pathlib import Path
from typing import Any

import click

from odradek.cli.framework.command import HelpfulCommand
from odradek.cli.framework.echo import echo
from odradek.cli.framework.options import (
    BOOTSTRAP_OPTION,
    JSON_OPTION,
    TIMEOUT_OPTION,
    command_security,
    connection_to,
    is_default,
)


@click.command("doctor", cls=HelpfulCommand)
@BOOTSTRAP_OPTION
@TIMEOUT_OPTION
@JSON_OPTION
@click.option(
    "--data-dir",
    metavar="DIR",
    help="Also check the broker of this machine with this first log directory: its metrics, processes, disks, open files. "
    "Without --bootstrap-server, the command connects to a listener of this broker.",
)
@click.option(
    "-m",
    "--metrics",
    metavar="HOST:PORT",
    envvar="ODRADEK_METRICS",
    show_envvar=True,
    help="Also check the metrics of the broker with this metrics.listener. With --data-dir, the metrics.listener of that broker"
    " has precedence.",
)
@click.option(
    "--bundle",
    metavar="FILE",
    type=click.Path(path_type=Path),
    is_flag=False,
    flag_value="odradek-doctor.tar.gz",
    help="Also write a .tar.gz archive for a bug report (without FILE: odradek-doctor.tar.gz): findings, versions, settings"
    " without secrets, status, metrics, processes, shared memory, the last lines of the log. The file must not exist.",
)
def doctor(
    servers: str, timeout: float, as_json: bool, data_dir: str | None, metrics: str | None, bundle: Path | None
) -> None:
    """Check a cluster's brokers, partitions and groups; report each problem, why it matters, and its remedy.

    Exit code 1 if there is an error, 0 if there are only warnings.
    """
    from odradek.cli.framework.failure import fail
    from odradek.cli.framework.output import ATTENTION, BAD, GOOD, count, echo_json
    from odradek.cli.health.cluster import examine_cluster
    from odradek.cli.health.finding import Finding, merged
    from odradek.cli.health.local import address_for, examine_broker, metrics_of
    from odradek.clients.errors import ClientError

    try:
        command_security()
    except ClientError as error:  # of the command's own file, not of a broker
        fail(error)
    checked: list[str] = []
    own_metrics: str | None = None
    findings: list[Finding] = []
    if data_dir is not None:
        checked.append(f"the broker of {data_dir}")
        findings += examine_broker(data_dir)
        own_metrics = metrics_of(data_dir)
        metrics = own_metrics or metrics
    if metrics is not None:
        from odradek.cli.health.metrics import examine_metrics

        checked.append(f"the metrics at {metrics}")
        findings += examine_metrics(metrics, timeout, status_judged=own_metrics is not None)
    found: str | Finding | None = servers
    try:
        if data_dir is not None and is_default("servers"):
            found = address_for(data_dir, command_security().protocol)
        if isinstance(found, Finding):
            findings.append(found)
        elif found is not None:
            servers = found
            with connection_to(servers, timeout) as cluster:
                checked.append(f"the cluster at {servers}")
                findings = merged(findings, examine_cluster(cluster))
    except ClientError as error:
        findings.append(
            Finding(
                "error",
                "cluster",
                f"there is no response from {servers}: {error}",
                "clients that bootstrap from this address cannot connect",
                "check that the broker runs (`odradek status`), that --bootstrap-server names one of its listeners, and that "
                "--command-config has what this listener requires",
            )
        )
    findings.sort(key=lambda finding: ("error", "warning").index(finding.severity))
    errors = sum(finding.severity == "error" for finding in findings)
    report = {"healthy": not errors, "checked": checked, "findings": [finding._asdict() for finding in findings]}
    if bundle is not None:
        _write_bundle(bundle, report, data_dir, metrics, servers, timeout)
    if as_json:
        echo_json(report)
    else:
        _print(findings)
        warnings = len(findings) - errors
        verdict = "No problems found" if not findings else f"{count(errors, 'error')}, {count(warnings, 'warning')}"
        echo(verdict, nl=False, style=BAD if errors else ATTENTION if findings else GOOD)
        echo(f"; checked {' and '.join(checked)}.")
    sys.exit(1 if errors else 0)


def _write_bundle(
    path: Path, report: dict[str, Any], data_dir: str | None, metrics: str | None, servers: str, timeout: float
) -> None:
    from odradek.cli.framework.failure import fail
    from odradek.cli.framework.output import size
    from odradek.cli.health.bundle import BundleError, write_bundle
    from odradek.cli.inspection.usage_source import Source, UsageLocation

    of_metrics = None if metrics is None else Source(UsageLocation(metrics), timeout).metrics
    try:
        written = write_bundle(path, report, data_dir, of_metrics, lambda: connection_to(servers, timeout))
    except BundleError as error:
        fail(error)
    echo(f"wrote {path} ({size(written)}); read it before you send it", err=True)


def _print(findings: list[Any]) -> None:
    from odradek.cli.framework.output import ATTENTION, BAD
    from odradek.printable import one_line

    for finding in findings:
        echo(finding.severity, nl=False, style=BAD if finding.severity == "error" else ATTENTION)
        echo(f"  {one_line(finding.subject)}: {one_line(finding.what)}")
        echo(f"  why it matters: {one_line(finding.reason)}")
        for consequence in finding.consequences:
            echo(f"  consequence: {one_line(consequence)}")
        echo(f"  what to do: {one_line(finding.remedy)}")
