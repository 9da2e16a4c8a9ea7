"""A change of configuration as a person makes it: said first, with what it would delete, then done."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from broker.cli.failure import fail
from broker.cli.options import confirm
from broker.cli.output import count, print_table, size
from broker.cli.values import config_value
from broker.clients import configs
from broker.clients.cluster import Cluster
from broker.clients.retention import Loss, preview

RETENTION = ("retention.ms", "retention.bytes", "cleanup.policy")


def change(
    cluster: Cluster,
    resource: configs.Resource,
    values: Mapping[str, str],
    unset: Sequence[str],
    *,
    yes: bool,
    dry_run: bool,
    quiet: bool,
) -> dict[str, Any]:
    """Make the change, or only say it; what was done. Ends the command where a person says no. Raises ClientError.

    :param quiet: print nothing.
    """
    both = sorted(set(values) & set(unset))
    if both:
        fail(f"{both[0]} is both set and unset; leave one out")
    settings = {key: config_value(key, value) for key, value in values.items()}
    names = [*settings, *unset]
    before = configs.describe(cluster, resource)
    unknown = [name for name in names if name not in before and resource.kind == "topic"]
    if unknown:
        fail(unknown_key(unknown[0], resource, list(before)))
    losses = _losses(cluster, resource, before, settings, unset)
    rows = [
        {
            "key": name,
            "before": before[name].value if name in before else None,
            "after": settings[name] if name in settings else _fallback(cluster, before.get(name)),
        }
        for name in names
    ]
    configs.alter(cluster, resource, settings, unset, validate_only=True)
    told: dict[str, Any] = {"changes": rows, "dry_run": dry_run}
    lost = sum(loss.records for loss in losses)
    if losses:
        told["deletes"] = {"records_at_most": lost, "partitions": [loss._asdict() for loss in losses]}
    if not quiet:
        print_table(["key", "before", "after"], [list(row.values()) for row in rows], "")
        if lost:
            print_losses(losses)
    if dry_run:
        return told
    if lost:
        confirm(f"This lets {resource} lose up to {count(lost, 'record')} for good.", yes)
    configs.alter(cluster, resource, settings, unset)
    if not quiet:
        click.echo(f"changed {resource}")
    return told


def unknown_key(name: str, resource: object, known: Sequence[str]) -> str:
    """What to say of a key that there is not."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1, 0.5)
    return f"{resource} has no setting '{name}'" + (f"; did you mean '{close[0]}'?" if close else "")


def print_losses(losses: Sequence[Loss]) -> None:
    """What would be deleted, partition by partition where there are few."""
    records = sum(loss.records for loss in losses)
    sizes = [loss.size for loss in losses]
    bytes_lost = None if None in sizes else sum(filter(None, sizes))
    about = "" if bytes_lost is None else f", about {size(bytes_lost)}"
    click.echo(f"it deletes up to {count(records, 'record')}{about} (whole segments go, at the brokers' next looks):")
    rows = [
        [one.partition, one.start, one.before, one.end, one.records, size(one.size)] for one in losses if one.records
    ]
    print_table(["partition", "start", "up to", "end", "records", "size"], rows, "")


def losses_with(
    cluster: Cluster, topic: str, entries: Mapping[str, configs.Entry], settings: Mapping[str, str]
) -> list[Loss]:
    """What the topic may lose with these settings over those that it has; nothing is compared with what it may lose now."""
    merged = {key: settings.get(key, entries[key].value if key in entries else None) for key in RETENTION}
    try:
        retention_ms, retention_bytes = int(merged["retention.ms"] or -1), int(merged["retention.bytes"] or -1)
    except ValueError:
        return []  # the broker says what is wrong with it
    deletes = "delete" in (merged["cleanup.policy"] or "")
    return preview(cluster, topic, retention_ms, retention_bytes, deletes, time.time_ns() // 1_000_000)


def _losses(
    cluster: Cluster,
    resource: configs.Resource,
    before: Mapping[str, configs.Entry],
    settings: Mapping[str, str],
    unset: Sequence[str],
) -> list[Loss]:
    """What the change adds to what retention takes anyhow."""
    if resource.kind != "topic" or not set(RETENTION) & {*settings, *unset}:
        return []
    wanted = dict(settings) | {key: _fallback(cluster, before.get(key)) or "" for key in unset if key in RETENTION}
    now = {loss.partition: loss for loss in losses_with(cluster, resource.name, before, {})}
    then = losses_with(cluster, resource.name, before, wanted)
    added = []
    for loss in then:
        anyhow = now[loss.partition]
        more = max(0, loss.records - anyhow.records)
        part = None if loss.size is None else max(0, loss.size - (anyhow.size or 0))
        added.append(loss._replace(start=anyhow.before, records=more, size=part))
    return added


def _fallback(cluster: Cluster, entry: configs.Entry | None) -> str | None:
    """What counts when the topic's own value is taken away, in the unit of the topic's key: brokers count in hours too.

    Kafka's synonyms leave out those keys of a broker whose value is in another unit; the broker itself is asked for them then.
    """
    from broker.config.key import show
    from broker.config.table import TOPIC_KEYS

    if entry is None:
        return None
    others = [(name, value) for name, value, source in entry.synonyms if source != configs.TOPIC_SOURCE]
    key = TOPIC_KEYS.get(entry.name)
    if key is None:
        return others[0][1] if others else None
    if not others and key.synonyms:
        names = [one.name for one in key.synonyms]
        broker = configs.Resource("broker", str(min(cluster.view().brokers)))
        theirs = configs.describe(cluster, broker, names)
        others = [(name, theirs[name].value) for name in names if name in theirs and theirs[name].value]
    if not others:
        return show(key.default)
    name, value = others[0]
    factor = next((one.factor for one in key.synonyms if one.name == name), 1)
    if factor == 1 or value is None or not value.isdigit():
        return value
    return str(int(value) * factor)
