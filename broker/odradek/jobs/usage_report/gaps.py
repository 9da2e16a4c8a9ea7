"""Gaps in the data of the report: times without data, damaged files, clocks that were set.

Pure functions on the driver, over a few rows per hour. A gap of length 0 is an observation whose duration is unknown.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median_low
from typing import Any, NamedTuple

from odradek.jobs.usage_report.errors import ReportError
from odradek.jobs.usage_report.times import DAY_MS, HOUR_MS, iso


class Span(NamedTuple):
    """Consecutive intervals, as `spool` reads them. `hour` is None before the period."""

    boot: str
    first_seq: int
    seq: int
    from_ms: int
    end_ms: int
    intervals: int
    elapsed_ms: int
    longest_ms: int
    jump_ms: int
    hour: int | None
    source: str
    broker: int = 0


class FileDamage(NamedTuple):
    """A part of a spool file that could not be read, as `spool` reports it.

    `seq` and `end_ms` are the number and the end of the interval before it; `source` is the file and the byte as text.
    """

    boot: str
    seq: int
    end_ms: int
    reason: str
    source: str
    damaged_file: str


class Gap(NamedTuple):
    """A row of the table `gaps`. `damaged_files`: names of the damaged spool files that are its reason, separated by spaces."""

    from_ms: int
    to_ms: int
    reason: str
    source: str
    damaged_files: str = ""


#: The number of a boot's first interval.
FIRST_SEQ = 1


def boots_in_order(spans: Iterable[Span]) -> list[list[Span]]:
    """Return the spans of each boot, ordered by number; the boots are ordered by their beginning."""
    by_boot: dict[str, list[Span]] = {}
    for span in spans:
        by_boot.setdefault(span.boot, []).append(span)
    for boot_spans in by_boot.values():
        boot_spans.sort(key=lambda span: span.first_seq)
    return sorted(by_boot.values(), key=lambda boot_spans: boot_spans[0].from_ms)


def known_from(spans: Iterable[Span]) -> dict[str, int | None]:
    """Return for each boot the time from which its spool exists: None if it is complete from the beginning of the boot."""
    return {
        boot_spans[0].boot: None if boot_spans[0].first_seq == FIRST_SEQ else boot_spans[0].from_ms
        for boot_spans in boots_in_order(spans)
    }


def find_gaps(
    spans: Sequence[Span],
    damages: Iterable[FileDamage],
    from_ms: int,
    to_ms: int,
    now_ms: int,
    *,
    has_older: bool = True,
) -> list[Gap]:
    """Return all gaps of the period.

    :param now_ms: times after it are not missing
    :param has_older: whether there are data from before the period. If not, and the spool is complete from the beginning of its
        first boot, nothing is missing before that: the broker did not exist.
    """
    result: list[Gap] = []
    to_ms = min(to_ms, now_ms)
    usual_ms = _usual_ms(spans)
    damages_by_place: dict[tuple[str, int], list[FileDamage]] = {}
    for damage in damages:
        damages_by_place.setdefault((damage.boot, damage.seq), []).append(damage)
    covered_to = None
    for boot_spans in boots_in_order(spans):
        if covered_to is not None and boot_spans[0].from_ms > covered_to:
            reason = "the broker did not run, or did not write its usage spool"
            source = f"between boots, the later one is {boot_spans[0].boot}"
            result.append(Gap(covered_to, boot_spans[0].from_ms, reason, source))
        for before, span in zip([None, *boot_spans], boot_spans, strict=False):
            if before is not None:
                result += _between(before, span, damages_by_place)
            if _is_long(span, usual_ms):
                reason = f"an interval of {span.longest_ms / 1000:.0f} s: its counts belong to the hour of its end"
                result.append(Gap(span.from_ms, span.end_ms, reason, span.source))
        latest = max(span.end_ms for span in boot_spans)
        covered_to = latest if covered_to is None else max(covered_to, latest)
    for unexplained in damages_by_place.values():
        result += [
            Gap(damage.end_ms, damage.end_ms, damage.reason, damage.source, damage.damaged_file)
            for damage in unexplained
        ]
    inside = [span for span in spans if span.hour is not None]
    nothing = "there is no interval"
    if not inside and from_ms < to_ms:
        result.append(Gap(from_ms, to_ms, nothing, "the whole period"))
    elif inside:
        first, last = min(span.from_ms for span in inside), max(span.end_ms for span in inside)
        before_it = [span.end_ms for span in spans if span.hour is None]
        began = not has_older and boots_in_order(spans)[0][0].first_seq == FIRST_SEQ
        if first > from_ms and not before_it and not began:
            result.append(Gap(from_ms, first, nothing, "before the first interval of the spool"))
        if (
            last + 2 * usual_ms + 1000 < to_ms
        ):  # the next interval, which belongs to the following hour, covers some of it
            result.append(Gap(last, to_ms, nothing, "after the last interval of the spool"))
    return clip(result, from_ms, to_ms)


def find_gaps_of_brokers(
    spans: Sequence[Span],
    damages: Sequence[FileDamage],
    from_ms: int,
    to_ms: int,
    now_ms: int,
    known_before: Collection[int] | None,
) -> list[Gap]:
    """Return the gaps of each broker, as `find_gaps` does; with several brokers, the source names the broker.

    :param known_before: ids of the brokers with data from before the period; None: all
    """
    broker_of = {span.boot: span.broker for span in spans}
    brokers = sorted(set(broker_of.values()))

    def existed(broker: int) -> bool:
        return known_before is None or broker in known_before

    if len(brokers) < 2:
        return find_gaps(spans, damages, from_ms, to_ms, now_ms, has_older=all(map(existed, brokers)))
    # a file without any interval does not tell whose it is
    unknown = [damage for damage in damages if damage.boot not in broker_of]
    result = clip((Gap(at.end_ms, at.end_ms, at.reason, at.source, at.damaged_file) for at in unknown), from_ms, to_ms)
    for broker in brokers:
        own = [span for span in spans if span.broker == broker]
        hurt = [damage for damage in damages if broker_of.get(damage.boot) == broker]
        found = find_gaps(own, hurt, from_ms, to_ms, now_ms, has_older=existed(broker))
        result += [gap._replace(source=f"broker {broker}: {gap.source}") for gap in found]
    return result


def find_unread_members(
    hours: Mapping[int, Collection[int]], read: Collection[int], from_ms: int, to_ms: int
) -> list[Gap]:
    """Return a gap for each broker of the cluster whose data were not read.

    :param hours: by broker id the hours in which other brokers knew it as a live one. :param read: ids of brokers with data
    """
    reason = "broker {} was a live member of the cluster, but its data are not in this report"
    unread = [
        Gap(min(at), max(at) + HOUR_MS, reason.format(broker), f"broker {broker}")
        for broker, at in hours.items()
        if broker not in read
    ]
    return clip(unread, from_ms, to_ms)


def _between(before: Span, span: Span, damages: dict[tuple[str, int], list[FileDamage]]) -> list[Gap]:
    """Return the gap between two spans of a boot; damages that explain it are removed from `damages`."""
    missing = span.first_seq - before.seq - 1
    if missing > 0:
        causes = damages.pop((before.boot, before.seq), [])
        reason = f"{missing} interval{'s' if missing > 1 else ''} missing"
        for damage in causes:
            reason += f"; the file {damage.reason}"
        source = "; ".join(damage.source for damage in causes) or f"between {before.source} and {span.source}"
        start, end = sorted((before.end_ms, span.from_ms))
        return [Gap(start, end, reason, source, " ".join(sorted({damage.damaged_file for damage in causes})))]
    if span.jump_ms:
        reason = f"the clock was set {'forward' if span.jump_ms > 0 else 'back'} by {abs(span.jump_ms) / 1000:.0f} s"
        return [Gap(min(before.end_ms, span.from_ms), span.from_ms, reason, span.source)]
    return []


def clip(gaps: Iterable[Gap], from_ms: int, to_ms: int) -> list[Gap]:
    """Return the gaps of the period, cut at its ends and at each midnight, sorted and without duplicates."""
    result = set()
    for gap in gaps:
        start, end = max(gap.from_ms, from_ms), min(gap.to_ms, to_ms)
        if gap.from_ms == gap.to_ms and from_ms <= gap.from_ms < max(to_ms, from_ms + 1):
            result.add(gap)
        while start < end:
            stop = min(end, (start // DAY_MS + 1) * DAY_MS)
            result.add(gap._replace(from_ms=start, to_ms=stop))
            start = stop
    return sorted(result)


def coverage(spans: Sequence[Span]) -> list[Mapping[str, Any]]:
    """Return per hour of the period and broker the number of intervals, their total length, and `carried_ms`.

    `carried_ms` is how long before the hour the gap (or the long interval) began whose counts are in this hour.
    """
    hours: dict[tuple[int, int], list[int]] = {}
    usual_ms = _usual_ms(spans)
    for boot_spans in boots_in_order(spans):
        for before, span in zip([None, *boot_spans], boot_spans, strict=False):
            if span.hour is None:
                continue
            hour = hours.setdefault((span.hour, span.broker), [0, 0, 0])
            hour[0] += span.intervals
            hour[1] += span.elapsed_ms
            if before is not None and span.first_seq > before.seq + 1:
                hour[2] = max(hour[2], span.hour - before.end_ms)
            elif _is_long(span, usual_ms):
                hour[2] = max(hour[2], span.hour - span.from_ms)
    return [
        {"hour_ms": at, "broker": broker, "intervals": count, "covered_ms": length, "carried_ms": carried}
        for (at, broker), (count, length, carried) in sorted(hours.items())
    ]


def _usual_ms(spans: Sequence[Span]) -> int:
    return median_low([span.elapsed_ms // span.intervals for span in spans]) if spans else 0


def _is_long(span: Span, usual_ms: int) -> bool:
    """Whether the span has an interval that is much longer than usual, because the spool could not be written meanwhile."""
    return span.longest_ms > 3 * usual_ms + 1000


class Scraped(NamedTuple):
    """A time in which one instance was scraped without a break, as `prometheus` reads it."""

    instance: str
    hour: int
    from_ms: int
    end_ms: int
    samples: int
    boot: float


def brokers_of(own: Iterable[Mapping[str, str]], instances: Collection[str], members: Sequence[str]) -> dict[str, int]:
    """Return the broker ids of instances, as far as they are known.

    :param own: labels of odradek_broker_info, which older brokers lack. :param members: ids of all live brokers
    """
    ids = {f"{labels.get('job', '')}/{labels.get('instance', '')}": int(labels["id"]) for labels in own}
    if not ids and len(members) == 1 == len(instances):
        return {instance: int(members[0]) for instance in instances}
    return {instance: ids[instance] for instance in instances if instance in ids}


def check_instances(spans: Iterable[Scraped], ids: Mapping[str, int], match: str, step_ms: int) -> None:
    """:raises ReportError: two instances are of one broker id at the same time: two scrapes of one broker, or two clusters"""
    times = ((ids[span.instance], span.instance, span.from_ms, span.end_ms) for span in spans if span.instance in ids)
    for broker, first, second, at_ms in overlaps(times, 2 * step_ms):
        raise ReportError(
            f"--match {match!r} selects two instances of broker {broker} at {iso(at_ms)}: {first} and {second} (job/instance). "
            "Select one cluster, and one Prometheus job that scrapes it, for example with --match 'job=\"odradek\"'"
        )


def overlaps(times: Iterable[tuple[int, str, int, int]], tolerated_ms: int) -> Iterator[tuple[int, str, str, int]]:
    """Yield (broker, place, other place, time) where data of one broker from two places are of the same time.

    :param times: (broker, place, from_ms, end_ms)
    """
    latest: dict[int, tuple[int, str]] = {}
    for broker, place, from_ms, end_ms in sorted(times, key=lambda time: time[2:]):
        before_ms, before = latest.get(broker, (from_ms, place))
        if place != before and from_ms + tolerated_ms < min(before_ms, end_ms):
            yield broker, before, place, from_ms
        if end_ms >= before_ms:
            latest[broker] = end_ms, place


def find_scrape_gaps(
    spans: Iterable[Scraped], from_ms: int, to_ms: int, now_ms: int, step_ms: int, older: Collection[str] | None = None
) -> list[Gap]:
    """Return the times in which an instance was not scraped, and its restarts.

    :param step_ms: time between samples; less than two steps at the ends of the period is not a gap
    :param older: the instances that were scraped before the period; None: all. Nothing is missing before the first sample of
        another one.
    """
    result: list[Gap] = []
    to_ms = min(to_ms, now_ms)
    by_instance: dict[str, list[Scraped]] = {}
    for span in spans:
        by_instance.setdefault(span.instance, []).append(span)
    not_scraped = "the broker was not scraped"
    for instance, scraped in by_instance.items():
        scraped.sort(key=lambda span: span.from_ms)
        if scraped[0].from_ms > from_ms + 2 * step_ms and (older is None or instance in older):
            result.append(Gap(from_ms, scraped[0].from_ms, not_scraped, instance))
        for before, span in pairwise(scraped):
            if span.from_ms > before.end_ms:
                result.append(Gap(before.end_ms, span.from_ms, not_scraped, instance))
            if span.boot != before.boot:
                reason = "the broker was restarted: its counts after the last scrape before that are not known"
                result.append(Gap(span.from_ms, span.from_ms, reason, instance))
        if scraped[-1].end_ms + 2 * step_ms < to_ms:
            result.append(Gap(scraped[-1].end_ms, to_ms, not_scraped, instance))
    return clip(result, from_ms, to_ms)


def scrape_coverage(spans: Iterable[Scraped], ids: Mapping[str, int]) -> list[Mapping[str, Any]]:
    """Return per hour and broker the samples, the covered time, and `carried_ms` as in `coverage`.

    :param ids: by instance the id of its broker. Instances whose broker is unknown are one row: the longest time of one of them
    """
    hours: dict[tuple[int, int | None], dict[str, list[int]]] = {}
    last: dict[str, Scraped] = {}
    for span in sorted(spans, key=lambda span: span.from_ms):
        sums = hours.setdefault((span.hour, ids.get(span.instance)), {}).setdefault(span.instance, [0, 0, 0])
        sums[0] += span.samples
        sums[1] += span.end_ms - span.from_ms
        before = last.get(span.instance)
        if before is not None and before.boot == span.boot and before.end_ms < span.from_ms:
            sums[2] = max(sums[2], span.hour - before.end_ms)
        last[span.instance] = span
    return [
        {
            "hour_ms": at,
            "broker": broker,
            "intervals": sum(count for count, _, _ in instances.values()),
            "covered_ms": max(length for _, length, _ in instances.values()),
            "carried_ms": max(carried for _, _, carried in instances.values()),
        }
        for (at, broker), instances in sorted(hours.items(), key=lambda hour: (hour[0][0], str(hour[0][1])))
    ]
