"""The forecast's intervals contain the actual day as often as stated; generated and recorded series; steps, bends, refusals."""

import csv
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from odradek.jobs.usage_report import forecast

RECORDED = Path(__file__).parent / "data" / "recorded-disk-use.csv"
HORIZON = 120
FIRST_DAY = 20_000


def binomial_bounds(count: int, share: float, tail: float = 0.001) -> tuple[int, int]:
    """Return the range of the number of successes in `count` trials of probability `share`, without `tail` on either side."""
    weights = [math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(count + 1)]
    sums = np.cumsum(weights)
    return int(np.searchsorted(sums, tail)), int(np.searchsorted(sums, 1 - tail))


def season(random: np.random.Generator, days: int) -> np.ndarray:
    of_week = random.normal(0, 1, 7) * random.uniform(0, 1)
    return (of_week - of_week.mean())[np.arange(days) % 7]


def growth(random: np.random.Generator, known: int, days: int) -> np.ndarray:
    """Growth with noise that persists."""
    return 100 + np.cumsum(
        random.uniform(0.5, 2) + season(random, days) + random.normal(0, random.uniform(0.2, 1), days)
    )


def noise(random: np.random.Generator, known: int, days: int) -> np.ndarray:
    """Growth with noise that does not persist: segments deleted early or late."""
    return growth(random, known, days) + random.normal(0, random.uniform(0.2, 1.5), days)


def moods(random: np.random.Generator, known: int, days: int) -> np.ndarray:
    """Busy days follow busy ones."""
    steps = random.normal(0, random.uniform(0.2, 1), days)
    for day in range(1, days):
        steps[day] += 0.5 * steps[day - 1]
    return 100 + np.cumsum(random.uniform(0.5, 2) + season(random, days) + steps)


def deleted(random: np.random.Generator, known: int, days: int) -> np.ndarray:
    """A topic is deleted in the history."""
    series = noise(random, known, days) + 100
    series[random.integers(8, known - 3) :] -= random.uniform(20, 80)
    return series


def saturation(random: np.random.Generator, known: int, days: int) -> np.ndarray:
    """A large topic reaches its retention in the history and stops growing; the others continue."""
    series = growth(random, known, days)
    at = int(random.integers(known // 3, 2 * known // 3))
    return series + random.uniform(2, 6) * np.minimum(np.arange(days), at)


@pytest.mark.parametrize("kind", [growth, noise, moods, deleted, saturation], ids=lambda kind: kind.__name__)
def test_the_actual_day_is_in_the_interval_as_often_as_stated(
    kind: Callable[[np.random.Generator, int, int], np.ndarray],
) -> None:
    tries, inside_80, inside_95 = 60, 0, 0
    for number in range(tries):
        random = np.random.default_rng(number)
        known = (21, 35, 60)[number % 3]
        series = kind(random, known, known + HORIZON)
        measured = np.ones(known, bool)
        if number % 4 == 0:  # some days are gaps
            measured[random.integers(3, known - 3, 3)] = False
        # what is left is what this series usually takes in 10 to 60 days, so that the day is neither tomorrow nor never
        usual = (series[known - 1] - series[known - 8]) / 7
        capacity = series[known - 1] + random.integers(10, 60) * max(usual, 0.5)
        made = forecast.fit(np.arange(FIRST_DAY, FIRST_DAY + known)[measured], series[:known][measured], HORIZON)
        full = made.until(capacity)
        real = forecast.first_passages(series[None, known:], series[known - 1], capacity)[0]
        inside_80 += _holds(full.low_80, full.high_80, real)
        inside_95 += _holds(full.low_95, full.high_95, real)
    low, high = binomial_bounds(tries, 0.80)
    assert low <= inside_80 <= high, f"{inside_80} of {tries} days in the 80 % interval, expected {low} to {high}"
    low, high = binomial_bounds(tries, 0.95)
    assert low <= inside_95 <= high, f"{inside_95} of {tries} days in the 95 % interval, expected {low} to {high}"


def _holds(low: float | None, high: float | None, real: float) -> bool:
    return (math.inf if low is None else low) <= real <= (math.inf if high is None else high)


def recorded_days() -> np.ndarray:
    """The highest use of each day of a real broker under a load with a week of seven (short) days; see record_disk_use.py."""
    days: dict[int, float] = {}
    with open(RECORDED, newline="") as file:
        for row in csv.DictReader(file):
            day = int(float(row["day"]))
            days[day] = max(days.get(day, 0.0), float(row["bytes"]))
    return np.array([days[day] for day in sorted(days)])


def test_the_days_of_a_recorded_series_lie_in_the_intervals() -> None:
    series = recorded_days()
    tries = inside_80 = inside_95 = 0
    # from a few days after the deletion on: what was still to come cannot be in an interval
    for known in range(36, len(series) - 15, 2):
        left = len(series) - known
        made = forecast.fit(range(FIRST_DAY, FIRST_DAY + known), series[:known], left)
        for ahead in (5, 10, 15):
            capacity = series[known - 1] + ahead * (series[known - 1] - series[known - 8]) / 7
            full = made.until(capacity)
            real = forecast.first_passages(series[None, known:], series[known - 1], capacity)[0]
            tries += 1
            inside_80 += _holds(full.low_80, full.high_80, real)
            inside_95 += _holds(full.low_95, full.high_95, real)
    # neighbouring forecasts share their future, so they say less than as many independent ones: a third of them counts
    assert tries >= 60
    for share, inside in ((0.80, inside_80), (0.95, inside_95)):
        low, _ = binomial_bounds(tries // 3, share)
        assert inside / 3 >= low, f"{inside} of {tries} days in the {share:.0%} interval"


def test_a_recorded_deletion_is_taken_for_a_step() -> None:
    made = forecast.fit(range(FIRST_DAY, FIRST_DAY + 45), recorded_days()[:45])
    ((day, size),) = made.steps  # deleted on day 30, its files were gone on day 33
    assert day == FIRST_DAY + 33 and -2_300_000 < size < -1_900_000


def test_too_short_a_history_is_refused_with_both_numbers() -> None:
    with pytest.raises(forecast.TooShort, match=r"^needs 14 days, has 13$"):
        forecast.fit(range(13), np.arange(13.0))
    with pytest.raises(forecast.TooShort, match=r"^needs 14 days, has 0$"):
        forecast.fit([], [])


def test_invalid_series_are_refused() -> None:
    with pytest.raises(ValueError, match="3 days and 2 values"):
        forecast.fit([1, 2, 3], [1.0, 2.0])
    with pytest.raises(ValueError, match="ascend"):
        forecast.fit([1, 3, 2], [1.0, 2.0, 3.0])


def test_an_exact_line_is_continued_to_the_day() -> None:
    made = forecast.fit(range(FIRST_DAY, FIRST_DAY + 30), 1000.0 + 10.0 * np.arange(30))
    full = made.until(1000.0 + 290 + 400)
    assert full.median == pytest.approx(40, abs=0.5)
    assert full.low_95 is not None and full.low_95 > 38
    assert made.slope == pytest.approx(10, rel=0.01)


def test_a_weekly_season_is_not_taken_for_growth_or_for_steps() -> None:
    days = np.arange(42)
    series = 500 + 2.0 * days + 8.0 * (days % 7 >= 5)
    made = forecast.fit(FIRST_DAY + days, series)
    assert made.steps == () and made.bends == ()
    assert made.slope == pytest.approx(2, rel=0.05)
    assert made.quantiles()[2][13] == pytest.approx(500 + 2.0 * 55 + 8.0 * (55 % 7 >= 5), abs=1)


def test_a_disk_whose_topics_reached_their_retention_does_not_fill() -> None:
    random = np.random.default_rng(3)
    series = 100 + 10.0 * np.minimum(np.arange(60), 30) + random.normal(0, 1, 60)
    made = forecast.fit(range(FIRST_DAY, FIRST_DAY + 60), series)
    assert [abs(day - FIRST_DAY - 30) <= 3 for day, _ in made.bends] == [True]
    assert made.until(700).median is None


def test_a_deleted_topic_does_not_turn_growth_into_shrinking() -> None:
    random = np.random.default_rng(4)
    series = 500 + np.cumsum(2 + random.normal(0, 0.3, 40))
    series[25:] -= 300
    made = forecast.fit(range(FIRST_DAY, FIRST_DAY + 40), series)
    assert [day for day, _ in made.steps] == [FIRST_DAY + 25]
    assert made.steps[0][1] == pytest.approx(-300, abs=3)
    full = made.until(series[-1] + 60)
    assert full.low_95 is not None and full.high_95 is not None and full.low_95 < 30 < full.high_95


def test_a_constant_series_never_fills_and_a_full_disk_is_full_today() -> None:
    made = forecast.fit(range(FIRST_DAY, FIRST_DAY + 20), np.full(20, 5e11))
    assert made.until(6e11) == forecast.Fullness(None, None, None, None, None, 0.0)
    assert made.until(5e11).median == 0


def test_the_same_series_makes_the_same_forecast() -> None:
    series = growth(np.random.default_rng(5), 30, 30)
    one, other = (forecast.fit(range(30), series) for _ in range(2))
    assert np.array_equal(one.paths, other.paths)
