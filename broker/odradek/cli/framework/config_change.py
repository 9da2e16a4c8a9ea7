"""Changes a configuration for `config set` and `topic alter`: shows the change and the records that it deletes, asks for
confirmation, and sends the change. Runs in the process of the command."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from odradek import clock
from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import fail
from odradek.cli.framework.options import confirm
from odradek.cli.framework.output import count, print_table, size, span
from odradek.cli.framework.values import config_value
from odradek.clients import configs
from odradek.clients.cluster import Cluster
from odradek.clients.freed_space import CHECK_INTERVAL, DELETE_DELAY, FreedSpace, SpaceRules, space_rules
from odradek.clients.retention import ExpectedDeletion, preview
from odradek.config.readable import with_reading
from odradek.spelling import did_you_mean

KEY_CUTOFF = 0.5  # for hints: the beginning of a key is enough
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
    """Make the change, or only show it with `dry_run`; return the document for `--json`.

    Ends the command if the user does not confirm. Raises ClientError.

    :param quiet: print nothing but the confirmation.
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
    result: dict[str, Any] = {"changes": rows, "dry_run": dry_run}
    lost = sum(loss.records for loss in losses)
    if losses:
        result["deletes"] = {"records_at_most": lost, "partitions": [loss._asdict() for loss in losses]}
    if not quiet:
        cells = [
            [row["key"], *(with_reading(str(row["key"]), row[when]) for when in ("before", "after"))] for row in rows
        ]
        print_table(["key", "before", "after"], cells, "")
        if lost and rules is not None:
            print_losses(losses, rules, is_exact(before, settings))
    if dry_run:
        return result
    if lost:
        confirm(f"This permanently deletes up to {count(lost, 'record')} of {resource}.", yes)
    configs.alter(cluster, resource, settings, unset)
    if not quiet:
        echo(f"changed {resource}")
    return result


def unknown_key(name: str, resource: object, known: Sequence[str]) -> str:
    """The error text for a key that does not exist, with the closest known key."""
    hint = did_you_mean(name, known, KEY_CUTOFF)
    return f"{resource} has no setting '{name}'" + (f"; {hint}" if hint else "")


def similar_keys(names: Iterable[str]) -> str:
    """A hint on probably misspelled topic settings among these names; empty if there are none."""
    from odradek.config.table import TOPIC_KEYS

    unknown = (name for name in names if name not in TOPIC_KEYS)
    hints = (hint for name in unknown if (hint := did_you_mean(name, TOPIC_KEYS, KEY_CUTOFF)))
    return next((f"; {hint}" for hint in hints), "")


def is_exact(entries: Mapping[str, configs.Entry], settings: Mapping[str, str]) -> bool:
    """Whether `odradek.retention.exact` applies retention.ms to single records, and there is no retention.bytes."""
    values = {key: settings.get(key, entries[key].value if key in entries else None) for key in RETENTION}
    return values[EXACT] == "true" and (values["retention.bytes"] or "").startswith("-")


def print_losses(losses: Sequence[ExpectedDeletion], rules: SpaceRules, exact: bool) -> None:
    """Print the records that would be deleted from each partition, and the disk space that becomes free.

    :param exact: see `is_exact`.
    """
    records = sum(loss.records for loss in losses)
    echo(f"retention deletes {'' if exact else 'up to '}{count(records, 'record')}:")
    rows = [
        [loss.partition, loss.start, loss.before, loss.end, loss.records, size(loss.size)]
        for loss in losses
        if loss.records
    ]
    print_table(["partition", "start", "up to", "end", "records", "size"], rows, "")
    sizes = [(loss.size_at_least, loss.size) for loss in losses]
    if not any(None in pair for pair in sizes):
        print_freed(FreedSpace(sum(least or 0 for least, _ in sizes), sum(most or 0 for _, most in sizes)), rules)


def print_freed(freed: FreedSpace, rules: SpaceRules) -> None:
    """Print how much disk space becomes free, and when."""
    if freed.at_least == freed.at_most:
        echo(f"this frees about {size(freed.at_most)} of log files")
    else:
        limit = "" if rules.segment_bytes is None else f" of up to {size(rules.segment_bytes)} (segment.bytes)"
        echo(
            f"this frees between {size(freed.at_least)} and {size(freed.at_most)} of log files: brokers delete only whole "
            f"segments{limit}, and keep the active segment of each partition until it is rolled"
        )
    if freed.at_most and rules.check_interval_ms is not None and rules.delete_delay_ms is not None:
        echo(
            f"segments are removed from the log within {span(rules.check_interval_ms)} ({CHECK_INTERVAL}), and their files "
            f"are deleted {span(rules.delete_delay_ms)} later ({DELETE_DELAY})"
            + ("; while the disk is full, both happen within seconds" if rules.is_odradek else "")
        )


def losses_with(
    cluster: Cluster,
    topic: str,
    entries: Mapping[str, configs.Entry],
    settings: Mapping[str, str],
    rules: SpaceRules,
) -> list[ExpectedDeletion]:
    """The records that retention may delete if the settings replace the topic's entries, including those that it may delete
    without the settings."""
    merged = {key: settings.get(key, entries[key].value if key in entries else None) for key in RETENTION}
    try:
        retention_ms, retention_bytes = int(merged["retention.ms"] or -1), int(merged["retention.bytes"] or -1)
    except ValueError:
        return []  # the broker rejects the value, and its error names the reason
    deletes = "delete" in (merged["cleanup.policy"] or "")
    return preview(cluster, topic, retention_ms, retention_bytes, deletes, clock.now_ms(), rules)


def _losses(
    cluster: Cluster,
    resource: configs.Resource,
    before: Mapping[str, configs.Entry],
    settings: Mapping[str, str],
    unset: Sequence[str],
    rules: SpaceRules,
) -> list[ExpectedDeletion]:
    """The records that retention deletes because of the change, beyond those that it deletes without the change."""
    after = dict(settings) | {key: _fallback(cluster, before.get(key)) or "" for key in unset if key in RETENTION}
    then = losses_with(cluster, resource.name, before, after, rules)
    if after.get(EXACT) == "true" and (EXACT not in before or before[EXACT].value != "true"):
        return then  # includes expired records that are kept now because their segment is kept
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
    """The value that applies without the topic's own value, in the unit of the topic's key.

    Some keys of a broker have another unit (log.retention.hours). Kafka leaves them out of a topic's synonyms, so they are
    read from a broker's configuration.
    """
    from odradek.config.key import show
    from odradek.config.table import TOPIC_KEYS

    if entry is None:
        return None
    fallbacks = [(name, value) for name, value, source in entry.synonyms if source != configs.TOPIC_SOURCE]
    key = TOPIC_KEYS.get(entry.name)
    if key is None:
        return fallbacks[0][1] if fallbacks else None
    if not fallbacks and key.synonyms:
        names = [synonym.name for synonym in key.synonyms]
        broker = configs.Resource("broker", str(min(cluster.view().brokers)))
        entries = configs.describe(cluster, broker, names)
        fallbacks = [(name, entries[name].value) for name in names if name in entries and entries[name].value]
    if not fallbacks:
        return show(key.default)
    name, value = fallbacks[0]
    factor = next((synonym.factor for synonym in key.synonyms if synonym.name == name), 1)
    if factor == 1 or value is None or not value.isdigit():
        return value
    return str(int(value) * factor)
