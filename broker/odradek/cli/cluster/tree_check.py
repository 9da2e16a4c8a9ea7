"""The work of ``odradek cluster check``: connects to ZooKeeper, looks twice, prints. Runs in the process of the command."""

import time
from collections.abc import Collection, Sequence

from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import fail, warn
from odradek.cli.framework.output import count, echo_json, print_table
from odradek.clients import configs
from odradek.clients.cluster import Cluster
from odradek.clients.errors import hint_on
from odradek.clients.tree_check import Looked, lasting, look
from odradek.config.broker_config import load
from odradek.config.errors import ConfigError
from odradek.metadata.store import StoreError
from odradek.metadata.tree import NoTree, read_tree
from odradek.metadata.zookeeper import ZookeeperStore, zookeeper_options
from odradek.metadata.zookeeper_connection import ZookeeperOptions

CONNECT = "zookeeper.connect"


def options_of(cluster: Cluster, servers: str | None, config_file: str | None) -> ZookeeperOptions:
    """How to connect to ZooKeeper. Ends the command if nothing names its servers. Raises ClientError."""
    if config_file is not None:
        try:
            options = zookeeper_options(load(config_file, []))
        except ConfigError as error:
            fail(error)
        options = options if servers is None else options._replace(servers=servers)
        if not options.servers:
            fail(f"{config_file} does not set {CONNECT}: add --zookeeper HOST:PORT/CHROOT")
        return options
    return ZookeeperOptions(servers or _connect_of(cluster))


def _connect_of(cluster: Cluster) -> str:
    """The zookeeper.connect of the first broker that has one."""
    for node_id in sorted(cluster.view(fresh=True).brokers):
        entries = configs.describe(cluster, configs.Resource("broker", str(node_id)), [CONNECT])
        value = entries[CONNECT].value if CONNECT in entries else None
        if value:
            return value
    return fail(f"no broker has a {CONNECT}: a broker with an embedded metadata store has no ZooKeeper to compare with")


def run(
    cluster: Cluster, options: ZookeeperOptions, topics: Collection[str] | None, roles: bool, settle_s: float
) -> Looked:
    """Look twice, `settle_s` seconds apart, unless the first look finds nothing. Raises ClientError.

    Without a chroot in the connection, because a store creates its chroot, and this command changes nothing.
    """
    store = ZookeeperStore(options._replace(servers=options.hosts))
    try:
        store.start_session()
        found = _look(cluster, store, options.chroot, topics, roles)
        if found.differences or found.silent:
            time.sleep(settle_s)
            found = lasting(found, _look(cluster, store, options.chroot, topics, roles))
        store.end_session()
    except (StoreError, NoTree) as error:
        fail(f"ZooKeeper at {options.servers}: {error}")
    finally:
        store.close()
    return found


def _look(cluster: Cluster, store: ZookeeperStore, root: str, topics: Collection[str] | None, roles: bool) -> Looked:
    store.sync()
    tree = read_tree(store, root)
    unknown = sorted(set(topics or ()) - tree.topics.keys())
    if unknown:
        hint = hint_on(unknown[0], lambda: tree.topics, "`odradek topic list` shows all topics")
        fail(f"topic '{unknown[0]}' does not exist in ZooKeeper; {hint}")
    cluster.view(fresh=True)
    return look(cluster, tree, topics, roles)


def print_text(found: Looked) -> None:
    """Print the differences as a table, the meaning of each kind below it, and a line with the result."""
    rows: list[Sequence[object]] = [
        [difference.subject, difference.broker_id, difference.field, difference.in_tree, difference.reported]
        for difference in found.differences
    ]
    if rows:
        print_table(["subject", "broker", "what", "in ZooKeeper", "reported"], rows, "")
        echo()
    for meaning in dict.fromkeys(difference.meaning for difference in found.differences):
        fields = dict.fromkeys(difference.field for difference in found.differences if difference.meaning == meaning)
        echo(f"{', '.join(fields)}: {meaning}")
    for broker_id, reason in found.silent.items():
        warn(f"broker {broker_id} is registered, but does not respond: {reason}")
    verdict = count(len(rows), "difference") if rows else "no differences"
    echo(f"{count(found.partitions, 'partition')} compared with {count(found.brokers, 'broker')}: {verdict}")


def print_json(found: Looked) -> None:
    """Print the result as JSON."""
    echo_json(
        {
            "partitions": found.partitions,
            "brokers": found.brokers,
            "differences": [difference._asdict() for difference in found.differences],
            "silent": [{"broker": broker_id, "reason": reason} for broker_id, reason in found.silent.items()],
        }
    )
