"""``odradek cluster``: describe. In the process of the command."""

from typing import TYPE_CHECKING, Any

import click

from odradek.cli.lazy import LazyGroup
from odradek.cli.options import on_cluster

if TYPE_CHECKING:
    from odradek.clients.brokers import BrokerInfo, ClusterInfo
    from odradek.clients.cluster import Cluster


@click.group(cls=LazyGroup)
def cluster() -> None:
    """Show the cluster and its brokers."""


@cluster.command("describe")
@on_cluster
def describe(cluster: "Cluster", as_json: bool) -> None:
    """Show the cluster's id and controller, and its brokers with address, rack, version and partitions.

    The version is what a broker's ApiVersions response tells: Kafka's with KRaft, and that it is Odradek; "-" if unknown.
    With --json also the APIs and features of each broker.
    """
    from odradek.cli.failure import warn
    from odradek.cli.output import count, echo_json, print_table
    from odradek.clients import brokers

    found = brokers.describe(cluster)
    if as_json:
        echo_json(_as_dict(found))
        return
    topics = found.view.topics.values()
    internal = sum(topic.internal for topic in topics)
    controller = f"broker {found.view.controller_id}" if found.view.controller_id >= 0 else "none"
    click.echo(f"Cluster     {found.view.cluster_id or '-'}")
    click.echo(f"Controller  {controller}{' (it forwards to the KRaft controllers)' if found.kraft else ''}")
    click.echo(
        f"Topics      {len(topics):,} ({internal:,} internal), "
        f"{count(sum(len(topic.partitions) for topic in topics), 'partition')}"
    )
    click.echo()
    titles = ["broker", "address", "rack", "version", "leads", "replicas"]
    rows = [
        [
            one.node_id,
            _address(one),
            one.rack,
            one.software or ("fenced" if one.fenced else None),
            one.leads,
            one.replicas,
        ]
        for one in found.brokers
    ]
    print_table(titles, rows, "no brokers")
    for one in found.brokers:
        if one.problem is not None:
            warn(f"broker {one.node_id}: {one.problem}")


def _address(one: "BrokerInfo") -> str:
    host, port = one.address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _as_dict(found: "ClusterInfo") -> dict[str, Any]:
    topics = found.view.topics.values()
    return {
        "cluster": found.view.cluster_id,
        "controller": found.view.controller_id if found.view.controller_id >= 0 else None,
        "kraft": found.kraft,
        "topics": len(topics),
        "internal_topics": sum(topic.internal for topic in topics),
        "partitions": sum(len(topic.partitions) for topic in topics),
        "brokers": [
            {
                "id": one.node_id,
                "host": one.address.host,
                "port": one.address.port,
                "rack": one.rack,
                "fenced": one.fenced,
                "version": one.software,
                "leads": one.leads,
                "replicas": one.replicas,
                "apis": None if one.apis is None else {_api(key): list(versions) for key, versions in one.apis.items()},
                "features": None if one.features is None else {name: list(ends) for name, ends in one.features.items()},
                "problem": one.problem,
            }
            for one in found.brokers
        ],
    }


def _api(key: int) -> str:
    """Its name, or its number if this program does not know it."""
    from odradek.protocol import registry

    try:
        return registry.by_key(key).name
    except registry.UnknownApiError:
        return str(key)
