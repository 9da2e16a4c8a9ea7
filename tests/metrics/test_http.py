"""HTTP of the reporter: formats, paths, and clients that are slow, hang, or are too many."""

import contextlib
import errno
import gzip
import http.client
import json
import socket
import threading

import pytest

from odradek.metrics import http as metrics_http
from odradek.metrics.http import (
    MOST_CONNECTIONS,
    MOST_PAGES,
    MOST_PAGES_OF_ADDRESS,
    HttpServer,
    Pages,
    Shared,
    accepts_gzip,
)
from odradek.metrics.registry import Wanted, wanted
from tests.waiting import until

PATIENCE_S = 90.0
HANGING = 4


class Broker:
    """What is served, as a test wants it."""

    def __init__(self):
        self.reason = None
        self.renderings = 0
        self.error = None
        self.text = b" 1\n" * 1000
        self.began_usage = threading.Semaphore(0)

    def render(self, wanted):
        self.renderings += 1
        if self.error is not None:
            raise self.error
        yield " ".join(("openmetrics" if wanted.openmetrics else "text", *wanted.names)).encode()
        yield self.text

    def usage(self, query, look_for_client):
        self.began_usage.release()
        while "slow" in query:
            look_for_client()
        if "wrong" in query:
            raise ValueError("wrong is not known")
        return {"query": query}


@contextlib.contextmanager
def serving(most):
    """A server. :param most: how many connections may wait for their thread to read a request."""
    broker = Broker()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        listening.setblocking(False)
        server = HttpServer(listening, Pages(broker.render, lambda: broker.reason, broker.usage), most)
        server.start()
        broker.address, broker.server = listening.getsockname(), server
        yield broker
        server.stop()


@pytest.fixture
def served():
    """As in the product: no connection is replaced because its thread starts slowly."""
    with serving(MOST_CONNECTIONS) as broker:
        yield broker


@pytest.fixture
def narrow():
    """A server at whose limit a new connection replaces another one soon."""
    with serving(HANGING) as broker:
        yield broker


def get(broker, path, method="GET", **headers):
    connection = http.client.HTTPConnection(*broker.address, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


def test_the_format_is_the_one_that_the_scraper_accepts(served):
    status, headers, body = get(served, "/metrics")
    assert (
        status == 200 and body.startswith(b"text") and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    )
    accepts = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
    _, headers, body = get(served, "/metrics", Accept=accepts)
    assert body.startswith(b"openmetrics")
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert get(served, "/metrics?name[]=b&name[]=a")[2].startswith(b"text a b")
    assert get(served, "/metrics", Accept="application/openmetrics-text;version=x")[0] == 200


def test_gzip_is_used_only_if_the_request_accepts_it(served):
    _, headers, body = get(served, "/metrics", Accept_Encoding="deflate, gzip;q=0.8")
    assert headers["Content-Encoding"] == "gzip" and gzip.decompress(body) == b"text" + b" 1\n" * 1000
    assert len(body) < 200
    _, headers, body = get(served, "/metrics", Accept_Encoding="identity")
    assert "Content-Encoding" not in headers and body.startswith(b"text 1")


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        (None, False),
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


def test_health_and_readiness(served):
    assert get(served, "/healthz")[0::2] == (200, b"ok\n")
    assert get(served, "/readyz")[0::2] == (200, b"ready\n")
    served.reason = "no worker serves"
    assert get(served, "/readyz")[0::2] == (503, b"not ready: no worker serves\n")
    assert get(served, "/healthz")[0] == 200


def test_usage_is_json_and_a_wrong_query_returns_an_error(served):
    status, headers, body = get(served, "/usage?top=3&client=a&client=b%20c")
    assert status == 200 and headers["Content-Type"] == "application/json"
    assert json.loads(body) == {"query": {"top": ["3"], "client": ["a", "b c"]}}
    status, _, body = get(served, "/usage?wrong=1")
    assert status == 400 and json.loads(body) == {"error": "wrong is not known"}


def test_other_paths_and_methods(served):
    assert get(served, "/nothing")[0] == 404
    assert get(served, "/metrics", "POST")[0] == 501
    status, headers, body = get(served, "/metrics", "HEAD")
    assert status == 200 and int(headers["Content-Length"]) == 3004 and body == b""
    assert b"/metrics" in get(served, "/")[2]


def test_an_internal_error_is_returned_and_the_next_request_is_served(served):
    served.error = RuntimeError("as the test wished")
    status, _, body = get(served, "/metrics")
    assert status == 500 and b"Traceback" not in body
    served.error = None
    assert get(served, "/metrics")[0] == 200


def test_internal_errors_of_a_page_are_logged_once_in_a_minute(served, caplog):
    served.error = RuntimeError("as the test wished")
    for number in range(5):
        assert get(served, f"/metrics?x={number}")[0] == 500
    [record] = [record for record in caplog.records if "internal error" in record.message]
    assert "GET /metrics?x=0 of 127.0.0.1" in record.message and record.exc_info[1] is served.error
    served.error = ValueError("another")
    assert get(served, "/metrics")[0] == 500
    assert len([record for record in caplog.records if "internal error" in record.message]) == 2


def test_a_connection_without_request_is_replaced_at_the_limit(narrow):
    with contextlib.ExitStack() as stack:
        hanging = [
            stack.enter_context(socket.create_connection(narrow.address, PATIENCE_S)) for _ in range(3 * HANGING)
        ]
        for one in hanging[::2]:
            one.sendall(b"GET /metr")
        assert get(narrow, "/healthz")[0] == 200
        assert hanging[0].recv(1) == b""  # it was cut off


def stalled(broker, stack, path="/metrics", address="127.0.0.1"):
    """A client that sends a request and reads nothing."""
    client = stack.enter_context(socket.socket())
    client.bind((address, 0))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the kernel's least
    client.settimeout(PATIENCE_S)
    client.connect(broker.address)
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return client


LONG = b"x" * (32 << 20)


def patient(monkeypatch):
    """Nobody is cut off for being slow, however slow this machine is."""
    monkeypatch.setattr(metrics_http, "RESPONSE_S", 600)
    monkeypatch.setattr(metrics_http, "STALLED_S", 600)


def take_all_places(broker, stack, addresses):
    """Clients of each address take its places and read nothing."""
    for address in addresses:
        for _ in range(MOST_PAGES // len(addresses)):
            stalled(broker, stack, address=address)

    def sending():
        pages = list(broker.server._pages.values())
        return len(pages) == MOST_PAGES and all(page.read_at is not None for page in pages)

    until(sending, "all places are taken by pages that nobody reads")


def get_short(broker):
    broker.text = b"y"
    return get(broker, "/metrics")[0]


def test_two_addresses_that_hold_all_places_lock_out_no_other(served, monkeypatch):
    patient(monkeypatch)
    served.text = LONG
    with contextlib.ExitStack() as stack:
        take_all_places(served, stack, ["127.0.0.2", "127.0.0.3"])
        assert [get_short(served) for _ in range(3)] == [200] * 3


def test_a_page_that_nobody_reads_makes_room_for_another_one(served, monkeypatch):
    patient(monkeypatch)
    served.text = LONG
    with contextlib.ExitStack() as stack:
        take_all_places(served, stack, [f"127.0.0.{number}" for number in range(2, 2 + MOST_PAGES)])
        assert get_short(served) == 503, "each address has its share, and the clients may still read"
        monkeypatch.setattr(metrics_http, "STALLED_S", 0)
        assert get_short(served) == 200


def test_at_its_limit_an_address_loses_only_its_own_pages(served, monkeypatch):
    patient(monkeypatch)
    served.text = LONG
    with contextlib.ExitStack() as stack:
        other = stalled(served, stack, address="127.0.0.2")
        until(lambda: len(served.server._pages) == 1, "the oldest page is that of the other address")
        for _ in range(MOST_PAGES_OF_ADDRESS):
            stalled(served, stack)
        until(lambda: all(page.read_at for page in list(served.server._pages.values())), "all are being sent")
        until(lambda: len(served.server._pages) == 1 + MOST_PAGES_OF_ADDRESS, "the address is at its limit")
        assert get_short(served) == 503
        monkeypatch.setattr(metrics_http, "STALLED_S", 0)
        assert get_short(served) == 200
        assert "127.0.0.2" in {page.network for page in served.server._pages.values()}
        monkeypatch.setattr(metrics_http, "STALLED_S", 600)
        received = 0
        while received < len(LONG):
            data = other.recv(1 << 20)
            assert data, "the response is complete"
            received += len(data)


def test_all_addresses_of_a_network_of_ipv6_have_one_share(served):
    places = [socket.socket() for _ in range(MOST_PAGES_OF_ADDRESS + 1)]
    taken = [served.server.begin_page(place, f"2001:db8::{number}") for number, place in enumerate(places)]
    assert taken == [True] * MOST_PAGES_OF_ADDRESS + [False]
    for place in places:
        served.server.end_page(place)
        place.close()


def test_health_checks_are_answered_beside_any_number_of_clients_that_do_not_read(served, monkeypatch):
    patient(monkeypatch)
    served.text = LONG
    with contextlib.ExitStack() as stack:
        for _ in range(3 * MOST_PAGES):
            stalled(served, stack)
        until(lambda: len(served.server._pages) == MOST_PAGES_OF_ADDRESS, "the places of the address are taken")
        for _ in range(5):
            assert get(served, "/healthz")[0] == get(served, "/readyz")[0] == 200
        status, _, body = get(served, "/metrics")
        assert status == 503 and b"too many requests" in body
    until(lambda: len(served.server._pages) == 0, "their places are free again")
    served.text = b"y"
    assert get(served, "/metrics")[0] == 200


def test_a_page_is_not_made_any_longer_when_its_client_has_gone(served):
    with contextlib.ExitStack() as stack:
        for _ in range(MOST_PAGES_OF_ADDRESS):
            stalled(served, stack, "/usage?slow=1")
            assert served.began_usage.acquire(timeout=PATIENCE_S)
        assert get(served, "/usage")[0] == 503
        assert get(served, "/healthz")[0] == 200
    until(lambda: len(served.server._pages) == 0, "the threads end")
    assert get(served, "/usage")[0] == 200


def test_a_client_that_does_not_read_its_response_is_cut_off(served, monkeypatch):
    monkeypatch.setattr(metrics_http, "RESPONSE_S", 0.2)
    served.text = b"x" * (32 << 20)
    with contextlib.ExitStack() as stack:
        stalled(served, stack)
        until(lambda: served.renderings == 1 and not served.server._answered, "it is cut off")
    assert len(served.server._pages) == 0


def test_a_request_that_does_not_arrive_in_time_ends_its_connection(served, monkeypatch):
    monkeypatch.setattr(metrics_http, "PATIENCE_S", 0.2)
    with socket.create_connection(served.address, PATIENCE_S) as slow:
        slow.sendall(b"GET /metr")
        assert slow.recv(1) == b""


def test_at_the_limit_the_address_with_most_connections_makes_room(narrow):
    with contextlib.ExitStack() as stack:

        def connect(address):
            client = stack.enter_context(socket.socket())
            client.settimeout(PATIENCE_S)
            client.bind((address, 0))
            client.connect(narrow.address)
            return client

        slow = connect("127.0.0.2")
        many = [connect("127.0.0.3") for _ in range(3 * HANGING)]
        assert many[0].recv(1) == b""
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert slow.recv(12) == b"HTTP/1.1 200"


def test_garbage_is_answered_and_closes_its_connection_alone(served):
    for garbage in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20, b"GET\r\n\r\n", b"\0" * 70_000, b"\r\n"):
        with socket.create_connection(served.address, PATIENCE_S) as one:
            try:
                one.sendall(garbage)
                one.shutdown(socket.SHUT_WR)
                while one.recv(65536):
                    pass
            except OSError as error:  # it was closed before all was sent, or read
                assert error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN), error
    assert get(served, "/healthz")[0] == 200


def test_requests_during_a_rendering_share_the_next_one():
    going_on, began = threading.Semaphore(0), threading.Semaphore(0)
    made = []

    def render(_):
        began.release()
        assert going_on.acquire(timeout=PATIENCE_S)
        made.append(len(made))
        yield str(made[-1]).encode()

    shared = Shared(render)
    found = []

    def scrape():
        found.append(shared.get(Wanted("text/plain"), False))

    threads = [threading.Thread(target=scrape) for _ in range(4)]
    threads[0].start()
    assert began.acquire(timeout=PATIENCE_S)
    for thread in threads[1:]:
        thread.start()
    while len(shared._waiting) < 4:
        threads[-1].join(0.01)
    going_on.release(2)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(found) == [[b"0"], [b"1"], [b"1"], [b"1"]]
    assert not shared._made  # nothing is kept for nobody


class Renderings:
    """Renderings that begin when a test says so. :ivar begun: what each was of."""

    def __init__(self):
        self.begun = []
        self.shared = Shared(self.render)
        self._going_on, self._began = threading.Semaphore(0), threading.Semaphore(0)
        self._threads = []
        self.found = []

    def render(self, wanted):
        self.begun.append(wanted)
        self._began.release()
        assert self._going_on.acquire(timeout=PATIENCE_S)
        yield b" ".join((str(len(self.begun)).encode(), *map(str.encode, wanted.names)))

    def request(self, accept="", names=(), look=lambda: None):
        """Begin a request in another thread."""

        def get():
            with contextlib.suppress(ConnectionResetError):
                self.found.append(self.shared.get(wanted(accept, names), False, look))

        self._threads.append(threading.Thread(target=get))
        self._threads[-1].start()

    def begin(self):
        """Wait until a rendering has begun."""
        assert self._began.acquire(timeout=PATIENCE_S)

    def turns(self, number):
        """Wait until so many requests have a turn, in all."""
        until(lambda: self.shared._next_turn == number, f"{number} turns")

    def end(self):
        """Let all renderings end."""
        self._going_on.release(1000)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        assert not any(thread.is_alive() for thread in self._threads)


OPENMETRICS = "application/openmetrics-text"


def test_pages_are_kept_by_format_whatever_versions_and_names_clients_send():
    renderings = Renderings()
    renderings.request()
    renderings.begin()
    for number in range(50):
        renderings.request(f"{OPENMETRICS}; version=1.{number}.0; escaping=allow-utf-8")
        renderings.request(f"{OPENMETRICS}; version={number}.5.0")
        renderings.request(names=[f"name{number}"])
    renderings.turns(1 + 100 + 1)
    kept = []

    def note():
        kept.append(len(renderings.shared._made))

    renderings.request(names=["last"], look=note)
    renderings.end()
    made = [wanted for wanted in renderings.begun if not wanted.names]
    assert len(made) <= 3, "text, and OpenMetrics, of which version 0.5.0 does not exist"
    assert len({wanted.content_type for wanted in made}) <= 3 and kept[0] <= 2
    assert len(renderings.begun) == len(made) + 51
    assert not renderings.shared._made and not renderings.shared._waiting


def test_a_scrape_waits_for_one_special_page_at_most():
    renderings = Renderings()
    renderings.request(names=["first"])
    renderings.begin()
    for number in range(10):
        renderings.request(names=[f"name{number}"])
        renderings.request(f"{OPENMETRICS}; version=1.0.{number}; escaping=dots")
    renderings.turns(1)
    renderings.request()
    renderings.turns(2)
    renderings.end()
    assert [bool(wanted.special) for wanted in renderings.begun[:2]] == [True, False]
    assert len(renderings.begun) == 22


def test_no_page_is_made_for_a_client_that_has_gone():
    def gone():
        raise ConnectionResetError

    renderings = Renderings()
    renderings.request()
    renderings.begin()
    renderings.request(look=gone)
    renderings.request(names=["a"], look=gone)
    renderings.turns(3)
    renderings.end()
    assert [wanted.names for wanted in renderings.begun] == [()] and renderings.found == [[b"1"]]
    renderings.request()
    renderings.end()
    assert renderings.found[1:] == [[b"2"]], "the next request has its turn"
