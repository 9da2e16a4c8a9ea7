"""A change of configuration as a person makes it: said first, with what it would delete, then done."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from odradek.cli.failure import fail
from odradek.cli.options import confirm
from odradek.cli.output import count, print_table, size, span
from odradek.cli.values import config_value
from odradek.clients import configs
from odradek.clients.cluster import Cluster
from odradek.clients.freed_space import CHECK_INTERVAL, DELETE_DELAY, FreedSpace, SpaceRules, space_rules
from odradek.clients.retention import ExpectedDeletion, preview
from odradek.config.readable import with_reading

EXACT = "odradek.retention.exact"
RETENTION = ("retention.ms", "retention.bytes", "cleanup.policy", EXACT)


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
    rules = space_rules(cluster, resource.name) if resource.kind == "topic" and set(RETENTION) & set(names) else None
    losses = [] if rules is None else _losses(cluster, resource, before, settings, unset, rules)
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
        shown = [
            [row["key"], *(with_reading(str(row["key"]), row[when]) for when in ("before", "after"))] for row in rows
        ]
        print_table(["key", "before", "after"], shown, "")
        if lost and rules is not None:
            print_losses(losses, rules, is_exact(before, settings))
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


def similar_keys(names: Iterable[str]) -> str:
    """A hint for the settings of a topic among these names that are probably misspelled; empty if none is."""
    from difflib import get_close_matches

    from odradek.config.table import TOPIC_KEYS

    unknown = [name for name in names if name not in TOPIC_KEYS]
    close = [match for name in unknown for match in get_close_matches(name, list(TOPIC_KEYS), 1, 0.5)]
    return f"; did you mean '{close[0]}'?" if close else ""


def is_exact(entries: Mapping[str, configs.Entry], settings: Mapping[str, str]) -> bool:
    """Whether retention.ms applies to records with these settings, and no limit of size to segments."""
    values = {key: settings.get(key, entries[key].value if key in entries else None) for key in RETENTION}
    return values[EXACT] == "true" and values["retention.bytes"] == "-1"


def print_losses(losses: Sequence[ExpectedDeletion], rules: SpaceRules, exact: bool) -> None:
    """What would be deleted, partition by partition where there are few, and what that frees.

    :param exact: see `is_exact`.
    """
    records = sum(loss.records for loss in losses)
    click.echo(f"it deletes {'' if exact else 'up to '}{count(records, 'record')}:")
    rows = [
        [one.partition, one.start, one.before, one.end, one.records, size(one.size)] for one in losses if one.records
    ]
    print_table(["partition", "start", "up to", "end", "records", "size"], rows, "")
    sizes = [(one.size_at_least, one.size) for one in losses]
    if not any(None in pair for pair in sizes):
        print_freed(FreedSpace(sum(least or 0 for least, _ in sizes), sum(most or 0 for _, most in sizes)), rules)


def print_freed(freed: FreedSpace, rules: SpaceRules) -> None:
    """How much space that frees, and when."""
    if freed.at_least == freed.at_most:
        click.echo(f"about {size(freed.at_most)} of log files become free")
    else:
        of = "" if rules.segment_bytes is None else f" of up to {size(rules.segment_bytes)} (segment.bytes)"
        click.echo(
            f"between {size(freed.at_least)} and {size(freed.at_most)} of log files become free: only whole segments{of} are "
            "deleted, and of each partition the segment that is being written stays until it is rolled"
        )
    if freed.at_most and rules.check_interval_ms is not None and rules.delete_delay_ms is not None:
        click.echo(
            f"they leave the log within {span(rules.check_interval_ms)} ({CHECK_INTERVAL}) and are deleted "
            f"{span(rules.delete_delay_ms)} later ({DELETE_DELAY})"
            + ("; both within seconds while the disk is full" if rules.is_odradek else "")
        )


def losses_with(
    cluster: Cluster,
    topic: str,
    entries: Mapping[str, configs.Entry],
    settings: Mapping[str, str],
    rules: SpaceRules,
) -> list[ExpectedDeletion]:
    """What the topic may lose with these settings over those that it has, whatever it may lose already without them."""
    merged = {key: settings.get(key, entries[key].value if key in entries else None) for key in RETENTION}
    try:
        retention_ms, retention_bytes = int(merged["retention.ms"] or -1), int(merged["retention.bytes"] or -1)
    except ValueError:
        return []  # the broker says what is wrong with it
    deletes = "delete" in (merged["cleanup.policy"] or "")
    return preview(cluster, topic, retention_ms, retention_bytes, deletes, time.time_ns() // 1_000_000, rules)


def _losses(
    cluster: Cluster,
    resource: configs.Resource,
    before: Mapping[str, configs.Entry],
    settings: Mapping[str, str],
    unset: Sequence[str],
    rules: SpaceRules,
) -> list[ExpectedDeletion]:
    """What the change adds to what retention deletes without it."""
    wanted = dict(settings) | {key: _fallback(cluster, before.get(key)) or "" for key in unset if key in RETENTION}
    then = losses_with(cluster, resource.name, before, wanted, rules)
    if wanted.get(EXACT) == "true" and (EXACT not in before or before[EXACT].value != "true"):
        return then  # also the records that stay at present as long as their segment
    now = {loss.partition: loss for loss in losses_with(cluster, resource.name, before, {}, rules)}
    added = []
    for loss in then:
        already = now[loss.partition]
        more = max(0, loss.records - already.records)
        part = None if loss.size is None else max(0, loss.size - (already.size or 0))
        least = None if loss.size_at_least is None else max(0, loss.size_at_least - (already.size or 0))
        added.append(loss._replace(start=already.before, records=more, size=part, size_at_least=least))
    return added


def _fallback(cluster: Cluster, entry: configs.Entry | None) -> str | None:
    """What counts when the topic's own value is taken away, in the unit of the topic's key: brokers count in hours too.

    Kafka's synonyms leave out those keys of a broker whose value is in another unit; the broker itself is asked for them then.
    """
    from odradek.config.key import show
    from odradek.config.table import TOPIC_KEYS

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
