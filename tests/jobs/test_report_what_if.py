"""What-ifs: the grammar and its errors, and the model of a topic against a step-by-step simulation."""

import math

import numpy as np
import pytest

from odradek.jobs.usage_report import whatif
from odradek.jobs.usage_report.errors import ReportError
from odradek.jobs.usage_report.whatif import Topic, WhatIf


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("retention.ms=604800000", WhatIf("retention.ms=604800000", retention_days=7)),
        ("retention.ms=36h,topic=orders.*", WhatIf("retention.ms=36h,topic=orders.*", "orders.*", 1.5)),
        (" growth = 1.3 , topic = a? ", WhatIf(" growth = 1.3 , topic = a? ", "a?", growth=1.3)),
        ("retention.ms=-1", WhatIf("retention.ms=-1", retention_days=math.inf)),
        ("retention.bytes=2GiB", WhatIf("retention.bytes=2GiB", retention_bytes=2 * 1024**3)),
        ("retention.bytes=1.5GB", WhatIf("retention.bytes=1.5GB", retention_bytes=1.5e9)),
        ("retention.bytes=500,growth=0", WhatIf("retention.bytes=500,growth=0", retention_bytes=500, growth=0)),
    ],
)
def test_a_what_if_is_parsed(text: str, wanted: WhatIf) -> None:
    assert whatif.parse(text) == wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'nothing': expected KEY=VALUE"),
        ("growth", "'growth': expected KEY=VALUE"),
        ("growth=", "expected KEY=VALUE"),
        (
            "retention=7d",
            "unknown key 'retention': expected KEY=VALUE,... of retention.ms, retention.bytes, growth, topic",
        ),
        ("growth=1,growth=2", "growth is given twice"),
        ("topic=a", "changes nothing: give retention.ms, retention.bytes or growth"),
        ("retention.ms=soon", "retention.ms=soon: expected milliseconds, or a number with ms, s, m, h, d or w"),
        ("retention.ms=0", "retention.ms=0: expected milliseconds"),
        ("retention.ms=99999999w", "up to 100 years"),
        ("retention.bytes=-5", "retention.bytes=-5: expected bytes per partition"),
        ("growth=fast", "growth=fast: expected a factor from 0 to 1000"),
        ("growth=-1", "growth=-1: expected a factor"),
        ("growth=nan", "growth=nan: expected a factor"),
    ],
)
def test_an_invalid_what_if_is_refused(text: str, said: str) -> None:
    with pytest.raises(ReportError, match=f"^--what-if {text}: ") as caught:
        whatif.parse(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def belt(topic: Topic, days: int, growth: float, retention_days: float, retention_bytes: float) -> list[float]:
    """Simulate a topic in hundredths of a day: the oldest bytes are deleted at their age, or when there are too many."""
    part = 0.01
    held = [(-(i + 0.5) * part, topic.rate * part) for i in range(round(topic.age_days / part))]  # newest first
    result = []
    for step in range(1, round(days / part) + 1):
        now = step * part
        held.insert(0, (now - part / 2, growth * topic.rate * part))
        while held and now - held[-1][0] > retention_days:
            held.pop()
        while held and sum(size for _, size in held) > retention_bytes * 1.0001:
            held.pop()
        if step % round(1 / part) == 0:
            result.append(sum(size for _, size in held))
    return result


@pytest.mark.parametrize(
    ("topic", "growth", "retention_days", "retention_bytes"),
    [
        (Topic("filling", 300.0, 100.0, 7, math.inf), 1.0, 7, math.inf),
        (Topic("steady", 700.0, 100.0, 7, math.inf), 1.3, 7, math.inf),
        (Topic("shorter", 700.0, 100.0, 7, math.inf), 1.0, 3, math.inf),
        (Topic("longer", 700.0, 100.0, 7, math.inf), 1.0, 12, math.inf),
        (Topic("less", 700.0, 100.0, 7, math.inf), 0.5, 7, math.inf),
        (Topic("by size", 300.0, 100.0, math.inf, math.inf), 1.0, math.inf, 650.0),
        (Topic("stopped", 500.0, 100.0, 7, math.inf), 0.0, 7, math.inf),
    ],
    ids=lambda value: value.name if isinstance(value, Topic) else "",
)
def test_the_model_of_a_topic_agrees_with_a_belt_moved_step_by_step(
    topic: Topic, growth: float, retention_days: float, retention_bytes: float
) -> None:
    days = 10
    wanted = belt(topic, days, growth, retention_days, retention_bytes)
    found = whatif.stored_at(topic, np.arange(1.0, days + 1), growth, retention_days, retention_bytes)
    assert found == pytest.approx(wanted, abs=2 * topic.rate * 0.01 * max(1, growth))


def whole(topics: list[Topic]) -> dict[str, float]:
    """All topics are completely on the disk."""
    return dict.fromkeys((topic.name for topic in topics), 1.0)


def test_a_topic_counts_on_a_disk_by_the_part_that_lies_there() -> None:
    topics = [Topic("a", 700.0, 100.0, 7, math.inf), Topic("b", 300.0, 100.0, 7, math.inf)]
    growth = whatif.parse("growth=2")
    part = whatif.change(topics, {}, {"a": 0.25}, growth, 30)
    assert part == pytest.approx(whatif.change(topics[:1], {}, {"a": 1.0}, growth, 30) / 4)
    assert not whatif.change(topics, {}, {}, growth, 30).any()
    assert whatif.filling(topics, {"b": 0.5}, 10) == pytest.approx(whatif.filling(topics[1:], {"b": 1.0}, 10) / 2)


def test_only_the_topics_of_the_pattern_change_and_nothing_changes_by_nothing() -> None:
    topics = [Topic("orders.a", 700.0, 100.0, 7, math.inf), Topic("web", 50.0, 10.0, math.inf, math.inf)]
    assert not whatif.change(topics, {}, whole(topics), whatif.parse("growth=1"), 30).any()
    assert not whatif.change(topics, {}, whole(topics), whatif.parse("growth=2,topic=none*"), 30).any()
    both = whatif.change(topics, {}, whole(topics), whatif.parse("growth=2"), 30)
    parts = [
        whatif.change(topics, {}, whole(topics), whatif.parse(f"growth=2,topic={name}"), 30)
        for name in ("orders.*", "web")
    ]
    assert both == pytest.approx(parts[0] + parts[1])
    assert both[29] == pytest.approx(7 * 100 + 30 * 10)


def test_retention_bytes_count_for_each_partition() -> None:
    topic = Topic("t", 700.0, 100.0, math.inf, math.inf)
    change = whatif.change([topic], {"t": 4}, whole([topic]), whatif.parse("retention.bytes=100"), 5)
    assert change == pytest.approx([400 - (700 + 100 * day) for day in range(1, 6)])


def test_a_topic_that_is_beyond_its_retention_today_stays_so() -> None:
    late = Topic("segments still open", 900.0, 100.0, 7, math.inf)
    assert whatif.change([late], {}, whole([late]), whatif.parse("retention.ms=7d"), 20) == pytest.approx(np.zeros(20))


def test_topics_that_fill_up_slow_the_growth_and_others_do_not() -> None:
    young = Topic("young", 300.0, 100.0, 7, math.inf)
    found = whatif.filling([young], whole([young]), 10)
    assert found == pytest.approx([0, 0, 0, 0, -100, -200, -300, -400, -500, -600])
    endless = Topic("endless", 300.0, 100.0, math.inf, math.inf)
    steady = Topic("steady", 700.0, 100.0, 7, math.inf)
    assert not whatif.filling([endless, steady], whole([endless, steady]), 10).any()
