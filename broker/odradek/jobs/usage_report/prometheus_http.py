"""A Prometheus over its HTTP API: range queries that are right, or fail in one line.

Pure but for the requests; used on the driver and in Spark's Python workers, one object a task. What may pass by itself (no
connection, a timeout, 429, 5xx) is tried again with growing pauses. An answer that is too large, for Prometheus (11,000
points a series, its limit of samples) or for us, is asked for in pieces: by time, down to an hour, then by the values of a
label, then by time again. An answer with warnings is a partial one, and fails.
"""

import base64
import json
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit

from odradek.jobs.usage_report.errors import ReportError
from odradek.jobs.usage_report.times import HOUR_MS, iso

#: Prometheus refuses more points a series.
MOST_POINTS = 11_000
#: Bytes of an answer, uncompressed; as Python objects it takes seven times that.
MOST_BYTES = 16 << 20
_POINT_BYTES = 30
_STALE_MS = 5 * 60_000  # for so long Prometheus takes a series' last sample for its present one
_PAUSES_S = (0.5, 1.0, 2.0, 4.0)
_TOO_LARGE = ("too many samples", "exceeded maximum resolution", "maximum query", "response too large", "limit")

Labels = dict[str, str]
Samples = list[tuple[int, float]]  # (milliseconds, value), in order
Values = list[str] | None  # of the label by which an answer is split: only these; None: all


class _TooLarge(Exception):
    """The answer must be asked for in pieces."""


class Query(NamedTuple):
    """What to ask for.

    :ivar metric: its name
    :ivar template: the expression, with ``{}`` where the series selector stands; ``{}`` alone for the series themselves
    :ivar shard: the label by whose values a large answer is split; a label of the result
    """

    metric: str
    template: str = "{}"
    shard: str = ""


class Prometheus:
    """:param url: its root, perhaps with user and password
    :param match: matchers for all series, or ""
    :param timeout_s: of one request
    :param sleep: for tests
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
        self._headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
        if parts.username is not None:
            secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(secret.encode()).decode()

    def samples(self, query: Query, start_ms: int, end_ms: int) -> Iterator[tuple[Labels, Samples]]:
        """All series at the multiples of the step from `start_ms` to `end_ms`, both included.

        A series may come in pieces, in order.

        :raises ReportError: it cannot be had, or not whole
        """
        if (end_ms - start_ms) // self.step_ms >= MOST_POINTS:
            yield from self._in_time(query, start_ms, end_ms, 2, None)
            return
        yield from self._pieces(query, start_ms, end_ms, None)

    def label_values(self, label: str, query: Query, start_ms: int, end_ms: int) -> list[str]:
        """The values of a label of these series."""
        asked = {"match[]": self._selector(query, None), "start": _seconds(start_ms), "end": _seconds(end_ms)}
        try:
            values = self._ask(f"/api/v1/label/{quote(label)}/values?{urlencode(asked)}", None, MOST_BYTES)
        except _TooLarge as error:
            raise ReportError(f"{self.about}: the values of {label} of {query.metric}: {error}") from None
        return sorted(str(value) for value in values)

    def _pieces(self, query: Query, start_ms: int, end_ms: int, values: Values) -> Iterator[tuple[Labels, Samples]]:
        try:
            found = self._range(query, start_ms, end_ms, values)
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
        yield from found

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
        """By the values of the label; "" stands for series without it."""
        each = -(-len(values) // min(parts, len(values)))
        for first in range(0, len(values), each):
            yield from self._pieces(query, start_ms, end_ms, values[first : first + each])

    def _count(self, query: Query, at_ms: int, values: Values) -> int:
        """How many series there are, about."""
        asked = {"query": f"count({self._selector(query, values)})", "time": _seconds(at_ms)}
        try:
            found = self._ask("/api/v1/query", asked, MOST_BYTES)
            return int(float(found["result"][0]["value"][1]))
        except (LookupError, TypeError, ValueError, _TooLarge):
            return 1

    def _range(self, query: Query, start_ms: int, end_ms: int, values: Values) -> list[tuple[Labels, Samples]]:
        expression = query.template.replace("{}", self._selector(query, values))
        asked = {
            "query": expression,
            "start": _seconds(start_ms),
            "end": _seconds(end_ms),
            "step": _seconds(self.step_ms),
        }
        data = self._ask("/api/v1/query_range", asked, self._most_bytes)
        try:
            if data["resultType"] != "matrix":
                raise ValueError(data["resultType"])
            return [
                (dict(one["metric"]), [(round(at * 1000), float(value)) for at, value in one["values"]])
                for one in data["result"]
            ]
        except (LookupError, TypeError, ValueError):
            raise ReportError(f"{self.about}: {query.metric}: the answer is no matrix of samples") from None

    def _selector(self, query: Query, values: Values) -> str:
        matchers = [self._match] if self._match else []
        if values is not None:
            matchers.append(f'{query.shard}=~"{"|".join(_escaped(value) for value in values)}"')
        return f"{query.metric}{{{','.join(matchers)}}}"

    def _ask(self, path: str, form: dict[str, str] | None, most_bytes: int) -> Any:
        """The answer's data; a POST if there is a form.

        :raises _TooLarge: to be asked for in pieces
        """
        body = None if form is None else urlencode(form).encode()
        for pause in (*_PAUSES_S, None):
            request = urllib.request.Request(self.url + path, body, self._headers)
            try:
                with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:
                    return self._data(self._content(answer, most_bytes))
            except urllib.error.HTTPError as error:
                with error:
                    said = _said(self._head(error))
                if error.code == 413 or (error.code in (400, 422) and any(mark in said.lower() for mark in _TOO_LARGE)):
                    raise _TooLarge(said or "the answer is too large") from None
                problem = f"answers {error.code}{': ' + said if said else ''}"
                if error.code != 429 and error.code < 500:
                    raise ReportError(f"{self.about} {problem}") from None
            except urllib.error.URLError as error:
                reason = error.reason
                problem = f"cannot be reached: {getattr(reason, 'strerror', None) or reason}"
            except TimeoutError:
                problem = f"did not answer within {self._timeout_s:g} s"
            except (HTTPException, OSError, zlib.error) as error:
                problem = f"broke off its answer: {error}"
            if pause is None:
                raise ReportError(f"{self.about} {problem}; tried {len(_PAUSES_S) + 1} times")
            self._sleep(pause)
        raise AssertionError("unreachable")

    def _content(self, answer: Any, most_bytes: int) -> bytes:
        """All of it, opened.

        :raises _TooLarge: it is longer than we want to hold
        """
        packed = answer.headers.get("Content-Encoding", "").lower() == "gzip"
        opened = zlib.decompressobj(wbits=31) if packed else None
        parts, size, received = [], 0, 0
        while block := answer.read(1 << 18):
            received += len(block)
            if opened is not None:
                block = opened.decompress(block)
            parts.append(block)
            size += len(block)
            if size > most_bytes:
                raise _TooLarge(f"the answer has more than {most_bytes} bytes")
        promised = answer.headers.get("Content-Length")
        if (opened is not None and not opened.eof) or (promised is not None and received < int(promised)):
            raise HTTPException("it is cut off")
        return b"".join(parts)

    def _head(self, answer: Any) -> bytes:
        """As much of an error's body as a message needs."""
        try:
            content: bytes = answer.read(1 << 16)
            if answer.headers.get("Content-Encoding", "").lower() == "gzip":
                content = zlib.decompressobj(wbits=31).decompress(content)
        except (HTTPException, OSError, zlib.error):
            return b""
        return content

    def _data(self, content: bytes) -> Any:
        try:
            answer = json.loads(content)
            status, data = answer["status"], answer["data"]
        except (ValueError, LookupError, TypeError):
            raise ReportError(f"{self.about}: its answer is not that of a Prometheus: {content[:80]!r}") from None
        if status != "success":
            raise ReportError(f"{self.about}: {answer.get('error', status)}")
        if answer.get("warnings"):
            warned = "; ".join(str(one) for one in answer["warnings"])[:300]
            raise ReportError(f"{self.about} gives a partial answer only: {warned}")
        return data


def _said(body: bytes) -> str:
    """The message in an error's body, in one line."""
    try:
        text = str(json.loads(body)["error"])
    except (ValueError, LookupError, TypeError):
        text = body.decode(errors="replace")
    return " ".join(text.split())[:300]


def _seconds(at_ms: int) -> str:
    return f"{at_ms / 1000:.3f}"


def _escaped(value: str) -> str:
    """For a regular expression (RE2) within a string of PromQL."""
    expression = "".join("\\" + one if one in r"\.+*?()|[]{}^$" else one for one in value)
    return expression.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
