"""Range queries against a real Prometheus, directly and through a proxy that fails: the right samples, or one clear line."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.jobs.usage_report.errors import ReportError
from odradek.jobs.usage_report.prometheus_http import Labels, Prometheus, Query, Samples
from tests.jobs.prometheus_server import PrometheusServer, Proxy, Sample, answer_with
from tests.jobs.spools import HOUR_MS, at

pytestmark = pytest.mark.xdist_group("prometheus-http")

START = at("2025-11-20")
HOURS = 3
TOPICS = ["", "plain", 'a"quote', "back\\slash", "dot.ted|(x)*", "päge", *(f"t{number}" for number in range(14))]
QUERY = Query("odradek_usage_bytes_in_total", shard="topic")
END = START + HOURS * HOUR_MS

Found = dict[tuple[tuple[str, str], ...], Samples]


def samples() -> list[Sample]:
    return [
        (QUERY.metric, {"instance": "b:1", "topic": topic}, START + minute * 60_000, float(minute * 7 + number))
        for number, topic in enumerate(TOPICS)
        for minute in range(HOURS * 60 + 1)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    # less than an hour of all topics (a query looks at 20 x 61 samples an hour), more than an hour of some
    one = PrometheusServer(tmp_path_factory.mktemp("prometheus") / "data", samples(), "--query.max-samples=800")
    yield one
    one.stop()


@pytest.fixture
def proxy(server: PrometheusServer) -> Iterator[Proxy]:
    one = Proxy(server.url)
    yield one
    one.stop()


def collected(parts: Iterator[tuple[Labels, Samples]]) -> Found:
    found: Found = {}
    for labels, some in parts:
        known = found.setdefault(tuple(sorted(labels.items())), [])
        assert not known or known[-1][0] < some[0][0], "pieces come in order and without overlap"
        known += some
    return found


def expected(step_ms: int = 60_000) -> Found:
    result: Found = {}
    for metric, labels, at_ms, value in samples():
        one = result.setdefault(
            tuple(sorted({"__name__": metric, **{k: v for k, v in labels.items() if v}}.items())), []
        )
        if step_ms == 60_000:
            one.append((at_ms, value))
        elif at_ms < END:
            one += [(at_ms + later, value) for later in range(0, 60_000, step_ms)]
        else:
            one.append((at_ms, value))
    return result


def test_a_response_beyond_the_limit_of_prometheus_is_requested_in_pieces_of_time_and_labels(proxy: Proxy) -> None:
    assert collected(Prometheus(proxy.url).samples(QUERY, START, END)) == expected()
    ranges = [request for request in proxy.requests if "query_range" in request]
    assert len(ranges) > 3 and any("topic%3D~" in request for request in ranges)


def test_a_response_beyond_our_limit_is_requested_in_pieces(server: PrometheusServer) -> None:
    assert collected(Prometheus(server.url, most_bytes=6000).samples(QUERY, START, END)) == expected()


def test_too_many_points_are_requested_in_pieces(server: PrometheusServer) -> None:
    one_topic = QUERY._replace(metric=QUERY.metric)
    source = Prometheus(server.url, match='topic="plain"', step_s=1)
    assert HOURS * 3600 + 1 < 11_000
    found = collected(source.samples(one_topic, START, END))
    assert found == {key: some for key, some in expected(1000).items() if ("topic", "plain") in key}
    later = collected(source.samples(one_topic, START, END + HOUR_MS))
    [(key, some)] = later.items()
    assert some[: len(found[key])] == found[key] and some[-1][0] - END in (299_000, 300_000), (
        "its last sample is taken for 5 minutes"
    )


def test_a_piece_that_cannot_be_split_further_is_an_error(server: PrometheusServer) -> None:
    with pytest.raises(
        ReportError, match=r"odradek_usage_bytes_in_total at 2025-11-20T00:00:00Z: .* even for one time of topic="
    ):
        collected(Prometheus(server.url, most_bytes=100).samples(QUERY, START, END))


def test_temporary_failures_are_retried_with_growing_pauses(proxy: Proxy) -> None:
    slept: list[float] = []
    busy = lambda handler: answer_with(handler, 503, b'{"status":"error","error":"starting"}')  # noqa: E731
    cut = lambda handler: answer_with(handler, 200, b'{"status":"succ', 1000)  # noqa: E731
    broken = lambda handler: answer_with(handler, 429, gzip.compress(b"slow down"))  # noqa: E731
    proxy.faults = [busy, cut, broken]
    source = Prometheus(proxy.url, match='topic="plain"', sleep=slept.append)
    assert len(collected(source.samples(QUERY, START, END))) == 1
    assert slept == [0.5, 1.0, 2.0]


@pytest.mark.parametrize(
    ("status", "content", "message"),
    [
        (503, b'{"status":"error","error":"starting\\nup"}', r"returned HTTP 503: starting up; tried 5 times"),
        (401, b"Unauthorized\n", r"returned HTTP 401: Unauthorized$"),
        (404, b"<html>not here</html>", r"returned HTTP 404: <html>not here</html>$"),
        (200, b"<html>a login page</html>", r"the response is not that of a Prometheus: b'<html>a login"),
        (200, b'{"status":"error","data":{},"error":"odd"}', r"odd$"),
        (200, b'{"status":"success","data":{"resultType":"vector","result":[]}}', r"is not a matrix of samples"),
        (
            400,
            b'{"status":"error","errorType":"bad_data","error":"parse error: unexpected"}',
            r"returned HTTP 400: parse error",
        ),
    ],
)
def test_an_error_is_one_line(proxy: Proxy, status: int, content: bytes, message: str) -> None:
    proxy.faults = [lambda handler: answer_with(handler, status, content)] * 5
    with pytest.raises(ReportError, match=message) as caught:
        collected(Prometheus(proxy.url, sleep=lambda _: None).samples(QUERY, START, END))
    assert "\n" not in str(caught.value) and proxy.url in str(caught.value)


def test_a_partial_response_is_an_error(proxy: Proxy) -> None:
    def warn(document: dict[str, Any]) -> None:
        document["warnings"] = ["1 of 2 stores did not answer"]

    proxy.change = warn
    with pytest.raises(ReportError, match="returned a partial response: 1 of 2 stores did not answer"):
        collected(Prometheus(proxy.url, match='topic="plain"').samples(QUERY, START, END))


def test_one_that_does_not_answer_in_time_is_an_error(proxy: Proxy) -> None:
    done = threading.Event()
    proxy.faults = [lambda handler: done.wait(120)] * 5
    try:
        with pytest.raises(ReportError, match=r"did not respond within 1 s; tried 5 times"):
            collected(Prometheus(proxy.url, timeout_s=1, sleep=lambda _: None).samples(QUERY, START, END))
    finally:
        done.set()


def test_an_unreachable_prometheus_is_an_error() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(ReportError, match=f"Prometheus {url} cannot be reached: Connection refused; tried 5 times"):
            collected(Prometheus(url, sleep=lambda _: None).samples(QUERY, START, END))


def test_user_and_password_go_into_the_header_and_not_into_messages(proxy: Proxy) -> None:
    seen: list[str] = []

    def look(handler: Any) -> bool:
        seen.append(handler.headers["Authorization"])
        return answer_with(handler, 403, b"no")

    proxy.faults = [look]
    with pytest.raises(ReportError) as caught:
        collected(Prometheus(proxy.url.replace("//", "//me:se%20cret@")).samples(QUERY, START, END))
    assert seen == ["Basic bWU6c2UgY3JldA=="] and "cret" not in str(caught.value)
