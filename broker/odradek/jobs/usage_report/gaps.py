"""What the report does not know: times that nothing covers, damaged files, clocks that were set.

Pure functions on the driver, over a few rows an hour. A gap of no length is a finding of which no time is known.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median_low
from typing import Any, NamedTuple

from odradek.jobs.usage_report.times import DAY_MS


class Span(NamedTuple):
    """Intervals that follow one another, as `spool` found them. `hour` is None before the period."""

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


class Gap(NamedTuple):
    """A row of the table of gaps."""

    from_ms: int
    to_ms: int
    reason: str
    source: str


#: The number of a boot's first interval.
FIRST_SEQ = 1


def boots_in_order(spans: Iterable[Span]) -> list[list[Span]]:
    """The spans of each boot by number, the boots by when they began."""
    by_boot: dict[str, list[Span]] = {}
    for span in spans:
        by_boot.setdefault(span.boot, []).append(span)
    for some in by_boot.values():
        some.sort(key=lambda span: span.first_seq)
    return sorted(by_boot.values(), key=lambda some: some[0].from_ms)


def known_from(spans: Iterable[Span]) -> dict[str, int | None]:
    """For each boot since when its spool is there: None if from its very beginning."""
    return {some[0].boot: None if some[0].first_seq == FIRST_SEQ else some[0].from_ms for some in boots_in_order(spans)}


def find_gaps(
    spans: Sequence[Span], damages: Iterable[tuple[str, int, int, str, str]], from_ms: int, to_ms: int, now_ms: int
) -> list[Gap]:
    """All of the period.

    :param damages: boot, number of the interval before it, that one's end, reason and source (file and byte)
    :param now_ms: later times cannot be missing
    """
    found: list[Gap] = []
    to_ms = min(to_ms, now_ms)
    usual_ms = _usual_ms(spans)
    told: dict[tuple[str, int], list[tuple[int, str, str]]] = {}
    for boot, seq, end_ms, reason, source in damages:
        told.setdefault((boot, seq), []).append((end_ms, reason, source))
    covered_to = None
    for some in boots_in_order(spans):
        if covered_to is not None and some[0].from_ms > covered_to:
            reason = "the broker did not run, or did not write what it counted"
            found.append(Gap(covered_to, some[0].from_ms, reason, f"between boots, the later one is {some[0].boot}"))
        for before, span in zip([None, *some], some, strict=False):
            if before is not None:
                found += _between(before, span, told)
            if _is_long(span, usual_ms):
                reason = f"an interval of {span.longest_ms / 1000:.0f} s: what was counted in it counts at its end"
                found.append(Gap(span.from_ms, span.end_ms, reason, span.source))
        latest = max(span.end_ms for span in some)
        covered_to = latest if covered_to is None else max(covered_to, latest)
    for some_told in told.values():
        found += [Gap(end_ms, end_ms, reason, source) for end_ms, reason, source in some_told]
    inside = [span for span in spans if span.hour is not None]
    nothing = "no interval is there"
    if not inside and from_ms < to_ms:
        found.append(Gap(from_ms, to_ms, nothing, "the whole period"))
    elif inside:
        first, last = min(span.from_ms for span in inside), max(span.end_ms for span in inside)
        before_it = [span.end_ms for span in spans if span.hour is None]
        if first > from_ms and not before_it:
            found.append(Gap(from_ms, first, nothing, "before the first one of the spool"))
        if last + 2 * usual_ms + 1000 < to_ms:  # the next interval, which belongs to the hour behind, covers some of it
            found.append(Gap(last, to_ms, nothing, "behind the last one of the spool"))
    return clip(found, from_ms, to_ms)


def _between(before: Span, span: Span, told: dict[tuple[str, int], list[tuple[int, str, str]]]) -> list[Gap]:
    """What lies between two spans of a boot; damages that explain it are taken out of `told`."""
    missing = span.first_seq - before.seq - 1
    if missing > 0:
        causes = told.pop((before.boot, before.seq), [])
        reason = f"{missing} interval{'s' if missing > 1 else ''} missing"
        for _, why, _ in causes:
            reason += f"; the file {why}"
        source = "; ".join(where for _, _, where in causes) or f"between {before.source} and {span.source}"
        start, end = sorted((before.end_ms, span.from_ms))
        return [Gap(start, end, reason, source)]
    if span.jump_ms:
        reason = f"the clock was set {'forward' if span.jump_ms > 0 else 'back'} by {abs(span.jump_ms) / 1000:.0f} s"
        return [Gap(min(before.end_ms, span.from_ms), span.from_ms, reason, span.source)]
    return []


def clip(gaps: Iterable[Gap], from_ms: int, to_ms: int) -> list[Gap]:
    """Those of the period, cut at its ends and at each midnight, in order and once each."""
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
    """By hour of the period: how many intervals there are, how long they are together, and `carried_ms`.

    `carried_ms` says how long before the hour the gap (or the long interval) began whose counts are in this hour.
    """
    hours: dict[int, list[int]] = {}
    usual_ms = _usual_ms(spans)
    for some in boots_in_order(spans):
        for before, span in zip([None, *some], some, strict=False):
            if span.hour is None:
                continue
            hour = hours.setdefault(span.hour, [0, 0, 0])
            hour[0] += span.intervals
            hour[1] += span.elapsed_ms
            if before is not None and span.first_seq > before.seq + 1:
                hour[2] = max(hour[2], span.hour - before.end_ms)
            elif _is_long(span, usual_ms):
                hour[2] = max(hour[2], span.hour - span.from_ms)
    return [
        {"hour_ms": at, "intervals": count, "covered_ms": length, "carried_ms": carried}
        for at, (count, length, carried) in sorted(hours.items())
    ]


def _usual_ms(spans: Sequence[Span]) -> int:
    return median_low([span.elapsed_ms // span.intervals for span in spans]) if spans else 0


def _is_long(span: Span, usual_ms: int) -> bool:
    """Whether the span has an interval that is much longer than the usual one: the spool could not be written meanwhile."""
    return span.longest_ms > 3 * usual_ms + 1000


class Scraped(NamedTuple):
    """When one instance was scraped without a break, as `prometheus` found it."""

    instance: str
    hour: int
    from_ms: int
    end_ms: int
    samples: int
    boot: float


def find_scrape_gaps(spans: Iterable[Scraped], from_ms: int, to_ms: int, now_ms: int, step_ms: int) -> list[Gap]:
    """When an instance was not scraped, or was started anew.

    :param step_ms: between samples; what is shorter than two at the ends of the period is no gap
    """
    found: list[Gap] = []
    to_ms = min(to_ms, now_ms)
    by_instance: dict[str, list[Scraped]] = {}
    for span in spans:
        by_instance.setdefault(span.instance, []).append(span)
    not_scraped = "the broker was not scraped"
    for instance, some in by_instance.items():
        some.sort(key=lambda span: span.from_ms)
        if some[0].from_ms > from_ms + 2 * step_ms:
            found.append(Gap(from_ms, some[0].from_ms, not_scraped, instance))
        for before, span in pairwise(some):
            if span.from_ms > before.end_ms:
                found.append(Gap(before.end_ms, span.from_ms, not_scraped, instance))
            if span.boot != before.boot:
                reason = "the broker was started anew: what it counted between the last scrape and its end is not known"
                found.append(Gap(span.from_ms, span.from_ms, reason, instance))
        if some[-1].end_ms + 2 * step_ms < to_ms:
            found.append(Gap(some[-1].end_ms, to_ms, not_scraped, instance))
    return clip(found, from_ms, to_ms)


def scrape_coverage(spans: Iterable[Scraped]) -> list[Mapping[str, Any]]:
    """By hour: samples of all instances, how long the longest known one is known, and `carried_ms` as in `coverage`."""
    hours: dict[int, dict[str, list[int]]] = {}
    last: dict[str, Scraped] = {}
    for span in sorted(spans, key=lambda span: span.from_ms):
        one = hours.setdefault(span.hour, {}).setdefault(span.instance, [0, 0, 0])
        one[0] += span.samples
        one[1] += span.end_ms - span.from_ms
        before = last.get(span.instance)
        if before is not None and before.boot == span.boot and before.end_ms < span.from_ms:
            one[2] = max(one[2], span.hour - before.end_ms)
        last[span.instance] = span
    return [
        {
            "hour_ms": at,
            "intervals": sum(count for count, _, _ in some.values()),
            "covered_ms": max(length for _, length, _ in some.values()),
            "carried_ms": max(carried for _, _, carried in some.values()),
        }
        for at, some in sorted(hours.items())
    ]
