"""HTTP requests from bytes, the head of an answer, and what a scraper accepts against prometheus_client's own decision."""

import email.utils

import pytest
from prometheus_client.exposition import choose_encoder

from broker.metrics import http_requests
from broker.metrics.http_requests import (
    MOST_HEAD_BYTES,
    MOST_HEADERS,
    MOST_TARGET_BYTES,
    RequestError,
    accepts_gzip,
    http_date,
    metrics_format,
    read_request,
    response_head,
)

WHOLE = b"GET /usage?top=3 HTTP/1.1\r\nHost: a:9404\r\naccept:text/plain;q=0.5\r\nAccept:  */* \r\nEmpty:\r\n\r\n"


@pytest.mark.parametrize("data", [WHOLE, WHOLE.replace(b"\r\n", b"\n")], ids=["CR LF", "LF"])
def test_a_request_is_read_once_it_is_whole_wherever_it_is_split(data):
    for end in range(len(data)):
        assert read_request(data[:end]) is None
    for behind in (b"", b"\r\n", b"GET / HTTP/1.1\r\n\r\n"):
        method, target, headers = read_request(bytearray(data + behind))
        assert (method, target) == ("GET", "/usage?top=3")
        assert headers == {"host": "a:9404", "accept": "text/plain;q=0.5, */*", "empty": ""}


def test_a_request_without_fields():
    assert read_request(b"HEAD / HTTP/1.0\r\n\r\n") == ("HEAD", "/", {})


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\r\n", 400),
        (b"GET\r\n", 400),
        (b"GET /\r\n", 400),
        (b"GET  / HTTP/1.1\r\n", 400),
        (b"G\0T / HTTP/1.1\r\n", 400),
        (b"GET /\x7f HTTP/1.1\r\n", 400),
        (b"GET / FTP/1.1\r\n", 400),
        (b"GET / HTTP/2.0\r\n", 505),
        (b"POST / HTTP/1.1\r\n", 501),
        (b"GET / HTTP/1.1\r\nno field\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n: nameless\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nname : blank\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: \0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\rc\r\n\r\n", 400),
        (b"\x16\x03\x01" * MOST_TARGET_BYTES, 414),
        (b"GET /" + b"a" * MOST_TARGET_BYTES + b" HTTP/1.1\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * MOST_HEAD_BYTES, 431),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * (MOST_HEADERS + 1) + b"\r\n", 431),
    ],
)
def test_what_is_no_request_is_an_error_of_its_status(data, status):
    with pytest.raises(RequestError) as raised:
        read_request(data)
    assert raised.value.status == status and "\n" not in str(raised.value)


def test_an_answers_head_says_when_it_was_made():
    for now in (0.0, 951_827_696.0, 1_795_294_800.9):
        assert http_date(now) == email.utils.formatdate(int(now), usegmt=True)
    head = response_head(http_requests.NOT_FOUND, {"Content-Length": "0"}, 0.0)
    assert head.startswith(b"HTTP/1.1 404 Not Found\r\nServer: odradek\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n")
    assert head.endswith(b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "text/plain",
        "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        "text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
        "text/plain; version=1.0.0; escaping=dots",
        "application/openmetrics-text",
        "application/openmetrics-text;version=0.0.1",
        "application/openmetrics-text;version=0.0.1,text/plain;version=1.0.0;escaping=none-such",
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
        "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,*/*;q=0.1",
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
        "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
        "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
        "application/openmetrics-text; escaping=values; version=1.0.0; escaping=dots; version=0.0.1",
        "application/openmetrics-text;version=",
        ",;=,",
    ],
)
def test_the_format_is_the_one_that_prometheus_client_would_choose(accept):
    openmetrics, content_type = metrics_format(accept)
    assert content_type == choose_encoder(accept)[1]
    assert openmetrics == content_type.startswith("application/openmetrics-text")


def test_a_newer_openmetrics_is_answered_by_what_is_written():
    assert metrics_format("application/openmetrics-text;version=2.0.0") == (
        True,
        "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores",
    )
    assert metrics_format("text/plain;version=one,application/openmetrics-text;version=\xb2") == (
        False,
        "text/plain; version=0.0.4; charset=utf-8",
    )


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("*", True),
        ("br, GZIP", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0", False),
        ("", False),
    ],
)
def test_which_headers_allow_gzip(header, accepted):
    assert accepts_gzip(header) is accepted
