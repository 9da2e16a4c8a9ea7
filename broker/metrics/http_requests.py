"""HTTP/1 requests without a body, from bytes: what the reporter's server reads, and the head of what it answers.

Pure functions, used in the threads of connections. The standard library's server reads heads with its parser of mail, and
brings 3 MB of modules that each reporter would hold for ever; of HTTP, a scraper and a person with curl use this much. Every
bound is checked here: a head of any length that is not a request is an error before more is read.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple

MOST_HEAD_BYTES = 64 << 10
MOST_TARGET_BYTES = 8 << 10
MOST_HEADERS = 100

OK, BAD_REQUEST, NOT_FOUND, TARGET_TOO_LONG, HEAD_TOO_LONG = 200, 400, 404, 414, 431
INTERNAL_ERROR, NOT_IMPLEMENTED, UNAVAILABLE, VERSION_NOT_SUPPORTED = 500, 501, 503, 505
REASONS = {
    OK: "OK",
    BAD_REQUEST: "Bad Request",
    NOT_FOUND: "Not Found",
    TARGET_TOO_LONG: "URI Too Long",
    HEAD_TOO_LONG: "Request Header Fields Too Large",
    INTERNAL_ERROR: "Internal Server Error",
    NOT_IMPLEMENTED: "Not Implemented",
    UNAVAILABLE: "Service Unavailable",
    VERSION_NOT_SUPPORTED: "HTTP Version Not Supported",
}
METHODS = frozenset({"GET", "HEAD"})

_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class RequestError(ValueError):
    """What came is no request that is served. :param status: of the answer."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Request(NamedTuple):
    """A request's head. :param headers: by name in lower case; values of one that came several times joined by commas."""

    method: str
    target: str
    headers: Mapping[str, str]


def read_request(data: bytes | bytearray) -> Request | None:
    """The request at the beginning of `data`; None while its head is not whole. Raises RequestError. (RFC 9112)"""
    end = data.find(b"\n\r\n")
    bare = data.find(b"\n\n")  # a line may end without its CR
    if end < 0 or 0 <= bare < end:
        end = bare
    line_end = data.find(b"\n")
    if (line_end if line_end >= 0 else len(data)) > MOST_TARGET_BYTES:
        raise RequestError(TARGET_TOO_LONG, f"the request line has more than {MOST_TARGET_BYTES} bytes")
    if line_end >= 0:
        method, target = _request_line(data[:line_end].decode("latin-1").rstrip("\r"))
    if (end if end >= 0 else len(data)) > MOST_HEAD_BYTES:
        raise RequestError(HEAD_TOO_LONG, f"the head has more than {MOST_HEAD_BYTES} bytes")
    if end < 0:
        return None
    lines = data[line_end + 1 : end].decode("latin-1").split("\n") if end > line_end else []
    if len(lines) > MOST_HEADERS:
        raise RequestError(HEAD_TOO_LONG, f"the head has more than {MOST_HEADERS} fields")
    headers: dict[str, str] = {}
    for line in lines:
        name, value = _field(line.rstrip("\r"))
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Request(method, target, headers)


def _request_line(line: str) -> tuple[str, str]:
    words = line.split(" ")
    if len(words) != 3 or not _TOKEN.issuperset(words[0]) or not words[0] or not words[1].isprintable() or not words[1]:
        raise RequestError(BAD_REQUEST, "the request line is not: method, target, version")
    method, target, version = words
    if not version.startswith("HTTP/"):
        raise RequestError(BAD_REQUEST, "the request line does not end with a version of HTTP")
    if version not in ("HTTP/1.0", "HTTP/1.1"):
        raise RequestError(VERSION_NOT_SUPPORTED, "HTTP/1.0 and HTTP/1.1 are served")
    if method not in METHODS:
        raise RequestError(NOT_IMPLEMENTED, "GET and HEAD are served")
    return method, target


def _field(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name or not _TOKEN.issuperset(name):
        raise RequestError(BAD_REQUEST, "a header field is not: name, colon, value")
    value = value.strip(" \t")
    if "\0" in value or "\r" in value:
        raise RequestError(BAD_REQUEST, f"the value of {name} has a character that no value has")
    return name.lower(), value


def response_head(status: int, headers: Mapping[str, str], now_s: float) -> bytes:
    """Status line and fields of an answer after which the connection is closed. :param now_s: seconds since 1970."""
    fields = {"Server": "odradek", "Date": http_date(now_s), **headers, "Connection": "close"}
    lines = [f"HTTP/1.1 {status} {REASONS[status]}", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def http_date(now_s: float) -> str:
    """As `Date` wants it, whatever the locale."""
    then = time.gmtime(now_s)
    day, month = _DAYS[then.tm_wday], _MONTHS[then.tm_mon - 1]
    return f"{day}, {then.tm_mday:02} {month} {then.tm_year} {then.tm_hour:02}:{then.tm_min:02}:{then.tm_sec:02} GMT"


# -- what the scraper accepts -----------------------------------------------------------------------------------------

TEXT = "text/plain; version=0.0.4; charset=utf-8"
TEXT_1 = "text/plain; version=1.0.0; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
ESCAPINGS = frozenset({"allow-utf-8", "underscores", "dots", "values"})


def metrics_format(accept: str) -> tuple[bool, str]:
    """Whether `/metrics` is to be OpenMetrics for a field `Accept`, and the content type to say.

    As prometheus_client decides: the first of its parts that can be had, whatever their weights; what was asked for says
    its escaping too. Our names are of the characters that no scheme escapes, so each of them is the truth.
    """
    for part in accept.split(","):
        media, *parameters = (word.strip() for word in part.split(";"))
        found: dict[str, str] = {}
        for name, _, value in (word.partition("=") for word in parameters):
            found.setdefault(name, value)
        escaping = found.get("escaping", "")
        suffix = f"; escaping={escaping if escaping in ESCAPINGS else 'underscores'}"
        version = found.get("version", "")
        if media == "application/openmetrics-text" and not version:
            return True, OPENMETRICS
        if media == "application/openmetrics-text" and at_least_1(version):
            return True, OPENMETRICS + suffix
        if media == "text/plain" and at_least_1(version):
            return False, TEXT_1 + suffix
    return False, TEXT


def at_least_1(version: str) -> bool:
    """Whether a version's first number is 1 or more; what is no version is not."""
    first = version.partition(".")[0]
    return first.isascii() and first.isdigit() and int(first[:9]) >= 1


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether a field `Accept-Encoding` allows gzip."""
    for part in accept_encoding.split(","):
        coding, _, weight = part.partition(";")
        if coding.strip().lower() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
