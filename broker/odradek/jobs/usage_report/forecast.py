"""Forecasts when a disk will be full: fits trend and weekly season to its used bytes, and returns calibrated intervals.

Runs in the driver of the report's job; pure functions of arrays, without clock, files or shared state.

The model of a series of daily used bytes `y` is `y = X b + u`. `X` contains a level, a slope, the days of the week, and the
interventions in the history: a **step** where a topic was deleted or bulk-loaded, a **bend** where the slope changed
permanently (a topic reached its retention, a producer was added). `u` is the sum of a random walk (changes that persist),
an integrated random walk (the slope drifts) and noise that does not persist (segments deleted a little earlier or later).
Their shares are unknown: `_SHARES` lists the possibilities, each is fitted exactly (generalised least squares), and the
predictions are weighted by their restricted likelihood. So the interval includes the uncertainty of the slope, of the
season, of the noise and of the kind of noise. Future paths are drawn from that mixture; the day on which the disk is full
is the first day on which a path reaches the capacity. Future interventions are not predicted.

Days without measurements are left out of the equations; nothing is interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

#: Minimum number of measured days, and minimum span of these days: two weeks, because a weekly season needs them.
MINIMUM_DAYS = 14
#: Quantiles of the forecast in charts: the 95 % and the 80 % interval around the median.
QUANTILES = (0.025, 0.1, 0.5, 0.9, 0.975)
_PATHS = 4000
_SEED = 20260101
_MOST_STEPS = 4
_MOST_BENDS = 2
#: A bend must raise twice the log-likelihood by this much, because the search tries all days and noise looks like a bend too.
_BEND_EVIDENCE = 16.0

#: Possible kinds of `u`: share of the random walk in the daily variance (the rest does not persist), and variance of the daily
#: change of the slope relative to it, each with its prior weight.
_WALK_SHARES = ((0.0, 0.1), (0.03, 0.08), (0.1, 0.08), (0.3, 0.14), (0.6, 0.15), (0.85, 0.15), (1.0, 0.3))
_DRIFTS = ((0.0, 0.4), (1e-4, 0.15), (1e-3, 0.17), (1e-2, 0.18), (1e-1, 0.1))
_SHARES = tuple((walk, drift, math.log(p * q)) for walk, p in _WALK_SHARES for drift, q in _DRIFTS)


class TooShort(ValueError):
    """The history is too short for a forecast; the message has the required and the actual number of days."""

    def __init__(self, needs: int, has: int) -> None:
        super().__init__(f"needs {needs} days, has {has}")
        self.needs = needs
        self.has = has


@dataclass(frozen=True)
class Fullness:
    """Days from the last measured day until the capacity is reached; None means not within the horizon.

    `low`/`high` are the ends of the 80 % (`_80`) and 95 % (`_95`) interval, `chance` the share of paths that reach the
    capacity within the horizon.
    """

    median: float | None
    low_80: float | None
    high_80: float | None
    low_95: float | None
    high_95: float | None
    chance: float


@dataclass(frozen=True)
class Forecast:
    """Simulated futures of one series: `paths[i, k]` is its value `k + 1` days after `last_day` on path `i`.

    `last_day` counts days since 1970-01-01; `last_value` is the measured value of that day; `slope` is in bytes per day at the
    end of the history; `steps` and `bends` are the (day, bytes) and (day, change of bytes per day) of the fit.
    """

    last_day: int
    last_value: float
    slope: float
    paths: Floats
    measured_days: int
    steps: tuple[tuple[int, float], ...] = ()
    bends: tuple[tuple[int, float], ...] = ()
    season: tuple[float, ...] = field(default=())

    @property
    def growth_a_day(self) -> float:
        """Mean growth of the median path over the next four weeks, in bytes per day; the report uses only this
        figure for growth.
        """
        ahead = min(28, self.paths.shape[1] - 1)
        median = np.quantile(self.paths[:, [0, ahead]], 0.5, axis=0)
        return float((median[1] - median[0]) / ahead)

    def shifted(self, change: Floats, floor: float = 0.0) -> Forecast:
        """Return this forecast with `change[k]` added to every path `k + 1` days ahead.

        :param floor: bytes that the change does not affect: it reduces no path below `floor` or below zero
        """
        return Forecast(
            self.last_day,
            self.last_value,
            self.slope,
            np.maximum(
                self.paths + change[None, : self.paths.shape[1]], np.minimum(np.maximum(self.paths, 0.0), floor)
            ),
            self.measured_days,
            self.steps,
            self.bends,
            self.season,
        )

    def quantiles(self) -> Floats:
        """Return an array of shape (len(QUANTILES), horizon): the paths' quantiles for each day ahead."""
        return np.quantile(self.paths, QUANTILES, axis=0)

    def until(self, capacity: float) -> Fullness:
        """Return when the series reaches `capacity` (bytes)."""
        days = first_passages(self.paths, self.last_value, capacity)
        finite = np.isfinite(days)
        low_95, low_80, median, high_80, high_95 = (_quantile(days, q) for q in QUANTILES)
        return Fullness(median, low_80, high_80, low_95, high_95, float(finite.mean()))


def first_passages(paths: Floats, start: float, capacity: float) -> Floats:
    """Return for each path the (fractional) days until it first reaches `capacity`, inf if it does not; `start` is day 0."""
    if start >= capacity:
        return np.zeros(len(paths))
    whole = np.concatenate([np.full((len(paths), 1), start), paths], axis=1)
    reached = whole >= capacity
    reaches = reached.any(axis=1)
    at = np.where(reaches, reached.argmax(axis=1), 1)
    rows = np.arange(len(paths))
    before, after = whole[rows, at - 1], whole[rows, at]
    with np.errstate(divide="ignore", invalid="ignore"):
        part = (capacity - before) / (after - before)
    return np.where(reaches, at - 1 + part, np.inf)


def _quantile(days: Floats, q: float) -> float | None:
    """Return a quantile of days of which some may be infinite: without interpolation; None if it is infinite."""
    value = float(np.sort(days)[min(len(days) - 1, int(q * len(days)))])
    return value if math.isfinite(value) else None


def fit(days: Sequence[int], values: Sequence[float], horizon: int = 365, *, resolution: float = 0.0) -> Forecast:
    """Fit `values` (bytes) measured on `days` (days since 1970-01-01, ascending, gaps allowed) and simulate `horizon` days.

    A jump smaller than `resolution` bytes is never treated as a step.
    Raises TooShort if fewer than MINIMUM_DAYS were measured, and ValueError if days and values differ in number or the
    days do not ascend.
    """
    day = np.asarray(days, dtype=np.int64)
    y = np.asarray(values, dtype=np.float64)
    if day.shape != y.shape:
        raise ValueError(f"{len(day)} days and {len(y)} values: there must be a value for each day")
    if len(day) > 1 and not (np.diff(day) > 0).all():
        raise ValueError("the days must ascend")
    if len(day) < MINIMUM_DAYS:
        raise TooShort(MINIMUM_DAYS, len(day))
    scale = float(np.max(np.abs(y - y[-1]))) or 1.0
    z = (y - y[-1]) / scale
    t = (day - day[0]).astype(np.float64)
    steps = _steps(day, z, resolution / scale)
    bends = _bends(day, t, z, steps)
    ahead = np.arange(1, horizon + 1)
    future_day = day[-1] + ahead
    x = _design(day, t, steps, bends)
    future = _design(future_day, (future_day - day[0]).astype(np.float64), steps, bends)
    paths, b = _simulate(t, z, x, (future_day - day[0]).astype(np.float64), future)
    season = np.append(b[2:8], 0.0)
    slope = float(b[1] + b[8 + len(steps) :].sum())
    return Forecast(
        int(day[-1]),
        float(y[-1]),
        slope * scale,
        np.maximum(paths * scale + y[-1], 0.0),
        len(day),
        tuple((int(at), float(size) * scale) for at, size in zip(steps, b[8 : 8 + len(steps)], strict=True)),
        tuple((int(at), float(size) * scale) for at, size in zip(bends, b[8 + len(steps) :], strict=True)),
        tuple(float(value) * scale for value in season - season.mean()),
    )


def _design(day: NDArray[np.int64], t: Floats, steps: Sequence[int], bends: Sequence[int]) -> Floats:
    """Return the matrix with the columns level, slope, six days of the week (0 is Thursday, as 1970-01-01), steps, bends."""
    first = day - t.astype(np.int64)
    columns = [np.ones(len(day)), t]
    columns += [(day % 7 == weekday).astype(np.float64) for weekday in range(6)]
    columns += [(day >= at).astype(np.float64) for at in steps]
    columns += [np.maximum(0.0, t - (at - first)) for at in bends]
    return np.stack(columns, axis=1)


def _covariance(walk: float, drift: float, s: Floats, t: Floats) -> Floats:
    """Return the covariance of `u` between times `s` and `t`, without the noise that does not persist."""
    least = np.minimum(s[:, None], t[None, :])
    most = np.maximum(s[:, None], t[None, :])
    covariance: Floats = walk * least + drift * least**2 * (3 * most - least) / 6
    return covariance


def _noise(walk: float) -> float:
    """Return the variance that does not persist; always above 0, so that the equations can be solved."""
    return max(1.0 - walk, 1e-6)


def _steps(day: NDArray[np.int64], z: Floats, resolution: float) -> list[int]:
    """Return the days on which the level jumped: the change of the day is far outside of the usual changes."""
    gap = np.diff(day).astype(np.float64)
    change = np.diff(z)
    usual = float(np.median(change / gap))
    rest = change - usual * gap
    weekday = day[1:] % 7
    if len(rest) >= 3 * 7:
        for which in range(7):
            mine = (weekday == which) & (gap == 1)
            if mine.sum() >= 3:
                rest[mine] -= np.median(rest[mine])
    spread = 1.4826 * float(np.median(np.abs(rest - np.median(rest))))
    bound = np.maximum(7 * spread * np.sqrt(gap), max(4 * abs(usual), resolution))
    size = np.abs(rest)
    large = [int(i) for i in np.argsort(-size, kind="stable") if size[i] > bound[i] and size[i] > 1e-9]
    return sorted(int(day[i + 1]) for i in large[: min(_MOST_STEPS, len(day) // 10)])


def _fit_one(k: Floats, x: Floats, z: Floats) -> tuple[float, Floats, float, Floats, Floats]:
    """Fit by generalised least squares under covariance `k`; return log-likelihood, coefficients, sum of squares,
    whitened x, z.
    """
    lower = np.linalg.cholesky(k)
    white = np.linalg.solve(lower, np.column_stack([x, z]))
    wx, wz = white[:, :-1], white[:, -1]
    q, r = np.linalg.qr(wx)
    b = np.linalg.lstsq(r, q.T @ wz, rcond=None)[0]
    squares = max(float(((wz - wx @ b) ** 2).sum()), 1e-18)
    freedom = len(z) - x.shape[1]
    likelihood = (
        -float(np.log(np.diag(lower)).sum())
        - float(np.log(np.abs(np.diag(r)) + 1e-300).sum())
        - freedom / 2 * math.log(squares)
    )
    return likelihood, b, squares, wx, wz


def _bends(day: NDArray[np.int64], t: Floats, z: Floats, steps: list[int]) -> list[int]:
    """Return the days on which the slope changed permanently, so clearly that neither drift nor noise explains it as well."""
    bends: list[int] = []
    candidates = [int(at) for at in day[5:-5]]
    covariances = [
        _covariance(walk, drift, t, t) + _noise(walk) * np.eye(len(t))
        for walk in (0.0, 0.03, 0.3, 0.85, 1.0)
        for drift in (0.0, 1e-3, 1e-1)
    ]
    while len(bends) < _MOST_BENDS and len(candidates) and len(day) >= MINIMUM_DAYS + 7 * (len(bends) + 1):
        x = _design(day, t, steps, bends)
        best_without, best_with, best_at = -math.inf, -math.inf, 0
        hinges = np.maximum(0.0, t[:, None] - (np.asarray(candidates) - day[0])[None, :])
        for k in covariances:
            lower = np.linalg.cholesky(k)
            white = np.linalg.solve(lower, np.column_stack([x, z, hinges]))
            width = x.shape[1]
            q, _ = np.linalg.qr(white[:, :width])
            rest = white[:, width:] - q @ (q.T @ white[:, width:])
            residual, columns = rest[:, 0], rest[:, 1:]
            squares = max(float(residual @ residual), 1e-18)
            norms = np.maximum((columns**2).sum(axis=0), 1e-12)
            left = np.maximum(squares - (columns.T @ residual) ** 2 / norms, squares * 1e-9)
            constant = -2 * float(np.log(np.diag(lower)).sum())
            best_without = max(best_without, constant - len(z) * math.log(squares))
            at = int(left.argmin())
            value = constant - len(z) * math.log(float(left[at]))
            if value > best_with:
                best_with, best_at = value, candidates[at]
        if best_with - best_without < _BEND_EVIDENCE:
            break
        bends.append(best_at)
        candidates = [at for at in candidates if abs(at - best_at) >= 5]
    return sorted(bends)


def _simulate(t: Floats, z: Floats, x: Floats, future_t: Floats, future_x: Floats) -> tuple[Floats, Floats]:
    """Draw _PATHS futures from the mixture over `_SHARES`; return them and the mean coefficients."""
    freedom = max(len(z) - x.shape[1], 1)
    fits = []
    for walk, drift, prior in _SHARES:
        k = _covariance(walk, drift, t, t) + _noise(walk) * np.eye(len(t))
        likelihood, b, squares, wx, wz = _fit_one(k, x, z)
        fits.append((likelihood + prior, walk, drift, k, b, squares, wx, wz))
    top = max(fitted[0] for fitted in fits)
    weights = np.array([math.exp(fitted[0] - top) for fitted in fits])
    weights /= weights.sum()
    weights = np.where(weights < 0.004, 0.0, weights)
    weights /= weights.sum()
    counts = np.floor(weights * _PATHS).astype(int)
    counts[int(weights.argmax())] += _PATHS - counts.sum()
    random = np.random.Generator(np.random.PCG64(_SEED))
    drawn = []
    mean = np.zeros(x.shape[1])
    for weight, count, (_, walk, drift, k, b, squares, wx, _) in zip(weights, counts, fits, strict=True):
        mean += weight * b
        if not count:
            continue
        cross = _covariance(walk, drift, future_t, t)
        solved = np.linalg.solve(k, np.column_stack([x, z]))
        kriging = cross @ solved
        rest = future_x - kriging[:, :-1]
        centre = kriging[:, -1] + rest @ b
        own = _covariance(walk, drift, future_t, future_t) + _noise(walk) * np.eye(len(future_t))
        conditional = own - cross @ np.linalg.solve(k, cross.T)
        coefficients = np.linalg.pinv(wx.T @ wx)
        spread = conditional + rest @ coefficients @ rest.T
        spread = (spread + spread.T) / 2
        lower = np.linalg.cholesky(spread + 1e-9 * np.trace(spread) / len(spread) * np.eye(len(spread)))
        sigma = np.sqrt(squares / random.chisquare(freedom, count))
        drawn.append(centre[None, :] + sigma[:, None] * (random.standard_normal((count, len(future_t))) @ lower.T))
    return np.concatenate(drawn), mean
