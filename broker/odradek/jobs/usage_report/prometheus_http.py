"""Client of Prometheus' HTTP API: range queries return complete results, or fail with an error of one line.

Pure except for the requests; used on the driver and in Spark's Python workers, one object per task. Temporary failures (no
connection, a timeout, 429, 5xx) are retried with growing pauses. A response that is too large, for Prometheus (11,000 points
per series, its limit of samples) or for this client, is requested in pieces: by time, down to an hour, then by the values of a
label, then by time again. A response with warnings is partial, and fails.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit

from odradek.backoff import Backoff
from odradek.http_request import HttpError, RedirectError, Response, TooLargeError, basic_login, request
from odradek.jobs.usage_report.errors import ReportError
from odradek.jobs.usage_report.times import HOUR_MS, iso

#: Prometheus refuses more points per series.
MOST_POINTS = 11_000
#: Maximum size of a response, uncompressed; as Python objects it takes seven times as much memory.
MOST_BYTES = 16 << 20
_POINT_BYTES = 30
_STALE_MS = 5 * 60_000  # Prometheus returns the last sample of a series as the current one for this time
_BACKOFF = Backoff(first=0.5, longest=4.0)
_ATTEMPTS = 5
_TOO_LARGE = ("too many samples", "exceeded maximum resolution", "maximum query", "response too large", "limit")


Labels = dict[str, str]
Samples = list[tuple[int, float]]  # (milliseconds, value), in order
Values = list[str] | None  # only series with these values of the label `shard`; None: all


class _TooLarge(Exception):
    """The response is too large and must be requested in pieces."""


class Query(NamedTuple):
    """A query.

    :ivar metric: the name of the metric
    :ivar template: the expression, with ``{}`` in place of the series selector; ``{}`` alone for the series themselves
    :ivar shard: the label by whose values a large response is split; a label of the result
    :ivar other: another metric with that label, whose series selector takes the place of ``{other}`` in the template
    """

    metric: str
    template: str = "{}"
    shard: str = ""
    other: str = ""


class Prometheus:
    """A Prometheus server.

    :param url: root URL, optionally with user and password
    :param match: matchers for all series, or ""
    :param timeout_s: timeout of one request
    :param sleep: replaced in tests
    """

    def __init__(
        self,
        url: str,
        match: str = "",
        step_s: int = 60,
        timeout_s: float = 120,
        most_bytes: int = MOST_BYTES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = urlsplit(url)
        host = parts.hostname or ""
        host = f"[{host}]" if ":" in host else host
        bare = parts._replace(netloc=host if parts.port is None else f"{host}:{parts.port}")
        self.url = urlunsplit(bare).rstrip("/")
        self.about = f"Prometheus {self.url}"
        self.step_ms = step_s * 1000
        self._match, self._timeout_s, self._most_bytes, self._sleep = match, timeout_s, most_bytes, sleep
        self._headers: dict[str, str] = {}
        if parts.username is not None:
            self._headers |= basic_login(f"{unquote(parts.username)}:{unquote(parts.password or '')}")

    def samples(self, query: Query, start_ms: int, end_ms: int) -> Iterator[tuple[Labels, Samples]]:
        """Yield all series at the multiples of the step from `start_ms` to `end_ms`, both inclusive.

        A series may come in several pieces, in order.

        :raises ReportError: Prometheus does not return a complete result
        """
        if (end_ms - start_ms) // self.step_ms >= MOST_POINTS:
            yield from self._in_time(query, start_ms, end_ms, 2, None)
            return
        yield from self._pieces(query, start_ms, end_ms, None)

    def label_values(self, label: str, query: Query, start_ms: int, end_ms: int) -> list[str]:
        """Return the values of a label of these series, sorted."""
        form = {"match[]": self._selector(query, None), "start": _seconds(start_ms), "end": _seconds(end_ms)}
        try:
            values = self._request(f"/api/v1/label/{quote(label)}/values?{urlencode(form)}", None, MOST_BYTES)
        except _TooLarge as error:
            raise ReportError(f"{self.about}: the values of {label} of {query.metric}: {error}") from None
        return sorted(str(value) for value in values)

    def series(self, query: Query, start_ms: int, end_ms: int) -> list[Labels]:
        """Return the labels of these series."""
        form = {"match[]": self._selector(query, None), "start": _seconds(start_ms), "end": _seconds(end_ms)}
        try:
            found = self._request(f"/api/v1/series?{urlencode(form)}", None, MOST_BYTES)
        except _TooLarge as error:
            raise ReportError(f"{self.about}: the series of {query.metric}: {error}") from None
        return [{str(name): str(value) for name, value in labels.items()} for labels in found]

    def _pieces(self, query: Query, start_ms: int, end_ms: int, values: Values) -> Iterator[tuple[Labels, Samples]]:
        try:
            series = self._range(query, start_ms, end_ms, values)
        except _TooLarge as error:
            points = (end_ms - start_ms) // self.step_ms + 1
            parts = self._count(query, end_ms, values) * points * _POINT_BYTES // self._most_bytes + 2
            hours = -(-(end_ms - start_ms) // HOUR_MS)
            if hours > 1 and points > 2:
                yield from self._in_time(query, start_ms, end_ms, min(parts, hours), values)
                return
            if values is None and query.shard:
                values = ["", *self.label_values(query.shard, query, start_ms - _STALE_MS, end_ms)]
            if values is not None and len(values) > 1:
                yield from self._in_values(query, start_ms, end_ms, parts, values)
            elif points > 1:
                yield from self._in_time(query, start_ms, end_ms, 2, values)
            else:
                least = f"{query.shard}={values[0]!r}" if values else "all series"
                at = iso(start_ms)
                raise ReportError(
                    f"{self.about}: {query.metric} at {at}: {error}, even for one time of {least}"
                ) from None
            return
        yield from series

    def _in_time(
        self, query: Query, start_ms: int, end_ms: int, parts: int, values: Values
    ) -> Iterator[tuple[Labels, Samples]]:
        points = (end_ms - start_ms) // self.step_ms + 1
        each = min(-(-points // parts), MOST_POINTS)
        for first in range(0, points, each):
            last = min(first + each, points) - 1
            yield from self._pieces(query, start_ms + first * self.step_ms, start_ms + last * self.step_ms, values)

    def _in_values(
        self, query: Query, start_ms: int, end_ms: int, parts: int, values: list[str]
    ) -> Iterator[tuple[Labels, Samples]]:
        """Split by the values of the label; "" selects series without it."""
        each = -(-len(values) // min(parts, len(values)))
        for first in range(0, len(values), each):
            yield from self._pieces(query, start_ms, end_ms, values[first : first + each])

    def _count(self, query: Query, at_ms: int, values: Values) -> int:
        """Return the approximate number of series."""
        form = {"query": f"count({self._selector(query, values)})", "time": _seconds(at_ms)}
        try:
            data = self._request("/api/v1/query", form, MOST_BYTES)
            return int(float(data["result"][0]["value"][1]))
        except (LookupError, TypeError, ValueError, _TooLarge):
            return 1

    def _range(self, query: Query, start_ms: int, end_ms: int, values: Values) -> list[tuple[Labels, Samples]]:
        expression = query.template.replace("{}", self._selector(query, values))
        if query.other:
            expression = expression.replace("{other}", self._selector(query._replace(metric=query.other), values))
        form = {
            "query": expression,
            "start": _seconds(start_ms),
            "end": _seconds(end_ms),
            "step": _seconds(self.step_ms),
        }
        data = self._request("/api/v1/query_range", form, self._most_bytes)
        try:
            if data["resultType"] != "matrix":
                raise ValueError(data["resultType"])
            return [
                (dict(series["metric"]), [(round(at * 1000), float(value)) for at, value in series["values"]])
                for series in data["result"]
            ]
        except (LookupError, TypeError, ValueError):
            raise ReportError(f"{self.about}: {query.metric}: the response is not a matrix of samples") from None

    def _selector(self, query: Query, values: Values) -> str:
        matchers = [self._match] if self._match else []
        if values is not None:
            matchers.append(f'{query.shard}=~"{"|".join(_escaped(value) for value in values)}"')
        return f"{query.metric}{{{','.join(matchers)}}}"

    def _request(self, path: str, form: dict[str, str] | None, most_bytes: int) -> Any:
        """Return the data of the response; the request is a POST if there is a form.

        :raises _TooLarge: the response must be requested in pieces
        """
        body = None
        headers = self._headers
        if form is not None:
            body = urlencode(form).encode()
            headers = headers | {"Content-Type": "application/x-www-form-urlencoded"}
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                response = request(
                    self.url + path,
                    limit_s=self._timeout_s,
                    largest=most_bytes,
                    body=body,
                    headers=headers,
                    compressed=True,
                )
            except TooLargeError:
                raise _TooLarge(f"the response has more than {most_bytes} bytes") from None
            except RedirectError as error:
                raise ReportError(
                    f"{self.about} returned HTTP {error.status}: it redirects; give the address that it names"
                ) from None
            except HttpError as error:
                problem = error.predicate
            else:
                if response.status == 200:
                    return self._data(response.body)
                problem = self._refusal(response)
            if attempt == _ATTEMPTS:
                raise ReportError(f"{self.about} {problem}; tried {_ATTEMPTS} times")
            self._sleep(_BACKOFF.after(attempt))
        raise AssertionError("unreachable")

    def _refusal(self, response: Response) -> str:
        """What a response with an error says, if it is temporary.

        :raises _TooLarge: the response would be too large
        :raises ReportError: the error is not temporary
        """
        text = _message(response.body)
        if response.status == 413 or (
            response.status in (400, 422) and any(mark in text.lower() for mark in _TOO_LARGE)
        ):
            raise _TooLarge(text or "the response is too large")
        problem = f"returned HTTP {response.status}{': ' + text if text else ''}"
        if response.status != 429 and response.status < 500:
            raise ReportError(f"{self.about} {problem}")
        return problem

    def _data(self, content: bytes) -> Any:
        try:
            response = json.loads(content)
            status, data = response["status"], response["data"]
        except (ValueError, LookupError, TypeError):
            raise ReportError(f"{self.about}: the response is not that of a Prometheus: {content[:80]!r}") from None
        if status != "success":
            raise ReportError(f"{self.about}: {response.get('error', status)}")
        if response.get("warnings"):
            warnings = "; ".join(str(warning) for warning in response["warnings"])[:300]
            raise ReportError(f"{self.about} returned a partial response: {warnings}")
        return data


def _message(body: bytes) -> str:
    """Return the message in an error's body, in one line."""
    try:
        text = str(json.loads(body)["error"])
    except (ValueError, LookupError, TypeError):
        text = body.decode(errors="replace")
    return " ".join(text.split())[:300]


def _seconds(at_ms: int) -> str:
    return f"{at_ms / 1000:.3f}"


def _escaped(value: str) -> str:
    """Escape a value for a regular expression (RE2) within a string of PromQL."""
    expression = "".join("\\" + character if character in r"\.+*?()|[]{}^$" else character for character in value)
    return expression.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
