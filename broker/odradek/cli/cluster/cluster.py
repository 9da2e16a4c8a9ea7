"""``odradek cluster``: describe, check, wait. Runs in the process of the command."""

from typing import TYPE_CHECKING, Any

import click

from odradek.cli.framework.echo import echo
from odradek.cli.framework.lazy import LazyGroup
from odradek.cli.framework.options import BOOTSTRAP_OPTION, JSON_OPTION, Span, on_cluster

if TYPE_CHECKING:
    from odradek.clients.brokers import BrokerInfo, ClusterInfo
    from odradek.clients.cluster import Cluster


@click.group(cls=LazyGroup)
def cluster() -> None:
    """Show the cluster and its brokers, and wait until it is ready."""


@cluster.command("describe")
@on_cluster
def describe(cluster: "Cluster", as_json: bool) -> None:
    """Show the cluster's id, its controller and the levels of its features, and the address, rack, version and partitions of
    each broker.

    A broker that is not registered, but has replicas, has a row, too. The version is derived from the broker's ApiVersions
    response: the release for Kafka with KRaft, "Odradek" for Odradek, "-" for others. --json also prints the APIs of each
    broker, and the features with the levels that it supports.
    """
    from odradek.cli.framework.failure import warn
    from odradek.cli.framework.output import count, echo_json, print_table
    from odradek.clients import brokers

    info = brokers.describe(cluster)
    if as_json:
        echo_json(_as_dict(info))
        return
    topics = info.view.topics.values()
    internal = sum(topic.internal for topic in topics)
    controller = f"broker {info.view.controller_id}" if info.view.controller_id >= 0 else "none"
    echo(f"Cluster     {info.view.cluster_id or '-'}")
    echo(f"Controller  {controller}{' (it forwards to the KRaft controllers)' if info.kraft else ''}")
    echo(
        f"Topics      {len(topics):,} ({internal:,} internal), "
        f"{count(sum(len(topic.partitions) for topic in topics), 'partition')}"
    )
    if info.features is not None and info.features.levels:
        levels = (f"{name} {level}" for name, level in sorted(info.features.levels.items()))
        echo(f"Features    {', '.join(levels)}")
    echo()
    titles = ["broker", "address", "rack", "version", "leads", "replicas"]
    rows = [
        [
            broker.node_id,
            _address(broker),
            broker.rack,
            broker.software or ("not registered" if broker.address is None else "fenced" if broker.fenced else None),
            broker.leads,
            broker.replicas,
        ]
        for broker in info.brokers
    ]
    print_table(titles, rows, "no brokers")
    for broker in info.brokers:
        if broker.problem is not None:
            warn(f"broker {broker.node_id}: {broker.problem}")


@cluster.command("check")
@on_cluster
@click.option(
    "-z",
    "--zookeeper",
    metavar="HOST:PORT,.../CHROOT",
    help="The ZooKeeper of the cluster, as in zookeeper.connect. Default: the zookeeper.connect of a broker.",
)
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help="Configuration of a broker: how to connect to ZooKeeper, with its passwords and certificates.",
)
@click.option("-t", "--topic", "topics", metavar="TOPIC", multiple=True, help="Check only this topic. Repeatable.")
@click.option("--quick", is_flag=True, help="Do not ask each broker for its role in each partition.")
@click.option(
    "--settle",
    "settle_s",
    type=click.FloatRange(0),
    default=3.0,
    show_default=True,
    help="Seconds between two looks: only what both of them find is printed, because changes may be under way.",
)
def check(
    cluster: "Cluster",
    as_json: bool,
    zookeeper: str | None,
    config_file: str | None,
    topics: tuple[str, ...],
    quick: bool,
    settle_s: float,
) -> None:
    """Compare the state of a cluster in ZooKeeper with what each of its brokers reports, and print the differences.

    Nothing is changed. Exit code 1 if there is a difference, or if a registered broker does not respond.
    """
    import sys

    from odradek.cli.cluster import tree_check

    options = tree_check.options_of(cluster, zookeeper, config_file)
    found = tree_check.run(cluster, options, topics or None, not quick, settle_s)
    if as_json:
        tree_check.print_json(found)
    else:
        tree_check.print_text(found)
    sys.exit(1 if found.differences or found.silent else 0)


@cluster.command("wait")
@BOOTSTRAP_OPTION
@click.option(
    "--in-sync",
    is_flag=True,
    help="Wait until every partition has a leader and all its replicas are in sync, and all registered brokers respond.",
)
@click.option(
    "--brokers", "count", metavar="N", type=click.IntRange(1), help="Wait until at least N brokers are registered."
)
@click.option(
    "--broker",
    "ids",
    metavar="ID",
    type=click.IntRange(0),
    multiple=True,
    help="Wait until this broker is registered, and responds at its advertised address. Repeatable.",
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SPAN",
    type=Span(),
    default="5m",
    show_default=True,
    help="The longest time to wait: 5m, 1h30m, 90s, or a number of seconds.",
)
@JSON_OPTION
def wait(servers: str, in_sync: bool, count: int | None, ids: tuple[int, ...], timeout_s: float, as_json: bool) -> None:
    """Wait until the brokers are registered and respond; with --in-sync, also until all replicas are in sync.

    Connection errors count as "not ready yet". Exit code 0 as soon as the cluster is ready, 1 after the timeout; the command
    then prints what is missing. In a rolling restart, run it after the restart command of a broker has returned.
    """
    from odradek.cli.cluster.wait import run
    from odradek.cli.framework.failure import fail
    from odradek.clients.errors import ClientError
    from odradek.clients.readiness import Wanted

    try:
        run(servers, Wanted(frozenset(ids), count or 0, in_sync), timeout_s, as_json)
    except ClientError as error:
        fail(error)


def _address(broker: "BrokerInfo") -> str:
    if broker.address is None:
        return "-"
    host, port = broker.address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _as_dict(info: "ClusterInfo") -> dict[str, Any]:
    topics = info.view.topics.values()
    return {
        "cluster": info.view.cluster_id,
        "controller": info.view.controller_id if info.view.controller_id >= 0 else None,
        "kraft": info.kraft,
        "topics": len(topics),
        "internal_topics": sum(topic.internal for topic in topics),
        "partitions": sum(len(topic.partitions) for topic in topics),
        "features": None
        if info.features is None
        else {"epoch": info.features.epoch, "levels": dict(info.features.levels)},
        "brokers": [
            {
                "id": broker.node_id,
                "registered": broker.address is not None,
                "host": None if broker.address is None else broker.address.host,
                "port": None if broker.address is None else broker.address.port,
                "rack": broker.rack,
                "fenced": broker.fenced,
                "version": broker.software,
                "leads": broker.leads,
                "replicas": broker.replicas,
                "apis": None
                if broker.apis is None
                else {_api(key): list(versions) for key, versions in broker.apis.items()},
                "features": None
                if broker.features is None
                else {name: list(levels) for name, levels in broker.features.items()},
                "problem": broker.problem,
            }
            for broker in info.brokers
        ],
    }


def _api(key: int) -> str:
    """The name of an API key, or its number if this program does not know the API."""
    from odradek.protocol import registry

    try:
        return registry.by_key(key).name
    except registry.UnknownApiError:
        return str(key)
