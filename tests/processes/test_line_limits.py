"""No client and no fault fills the log: lines of a kind are limited, and so are the texts in them."""

import logging
from collections.abc import Iterator

import pytest

from odradek.processes import logs
from odradek.processes.line_limits import MOST_ADDRESSES, MOST_KINDS, OF_ADDRESS, OF_KIND, LineLimits, address_of
from odradek.processes.logs import LONGEST_ARGUMENT, LONGEST_MESSAGE, LONGEST_TRACEBACK, TEXT, Formatter
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import find_coordinator, init_producer_id
from odradek.testing import Broker
from tests.waiting import until
from tests.wire import Wire

NAME = "odradek.tests.line_limits"


class Lines(logging.Handler):
    """Keeps the messages that pass its filter, as text."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.now = 0.0
        self.addFilter(LineLimits(lambda: self.now))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    logger = logging.getLogger(NAME)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    yield handler
    logger.removeHandler(handler)
    logger.propagate = True
    logger.setLevel(logging.NOTSET)


log = logging.getLogger(NAME)


def refuse(number: int, peer: str, kind: str = "") -> None:
    log.warning("refused request %d", number, extra={"client_address": peer, "line_kind": kind})


def test_an_address_gets_a_few_lines_of_a_kind_and_hides_no_others(lines: Lines) -> None:
    for number in range(1000):
        refuse(number, f"10.0.0.1:{number}")
    assert lines.lines == [f"refused request {number}" for number in range(OF_ADDRESS)]
    refuse(1, "10.0.0.2:1")
    refuse(2, "[::1]:2")
    refuse(3, "10.0.0.1:1", "another kind")
    log.warning("another line about it", extra={"client_address": "10.0.0.1:1"})
    log.warning("a line about no client")
    assert len(lines.lines) == OF_ADDRESS + 5
    log.debug("what somebody asked for", extra={"client_address": "10.0.0.1:1"})
    assert len(lines.lines) == OF_ADDRESS + 6


def test_all_addresses_of_a_network_of_ipv6_have_one_share(lines: Lines) -> None:
    for number in range(1000):
        refuse(number, f"[2001:db8::{number:x}]:1")
    assert len(lines.lines) == OF_ADDRESS


def test_after_a_minute_a_line_says_how_many_were_left_out(lines: Lines) -> None:
    for number in range(100):
        refuse(number, f"10.0.0.1:{number}")
    lines.lines.clear()
    lines.now = 60.0
    refuse(5, "10.0.0.1:1")
    summary, line = lines.lines
    assert summary.startswith(f"{100 - OF_ADDRESS} more messages like 'refused request %d' were left out since 2")
    assert line == "refused request 5"
    lines.now = 200.0
    refuse(6, "10.0.0.1:1")
    assert len(lines.lines) == 3  # nothing was left out in the meantime


def test_what_no_client_causes_is_limited_as_a_whole(lines: Lines) -> None:
    for number in range(OF_KIND + 10):
        log.error("cannot open partition %d", number)
    assert len(lines.lines) == OF_KIND


def test_its_memory_is_bounded(lines: Lines) -> None:
    limits = LineLimits(lambda: 0.0)

    def record(text: str, peer: str) -> logging.LogRecord:
        made = logging.LogRecord(NAME, logging.WARNING, __file__, 1, text, (), None)
        made.client_address = peer
        return made

    for number in range(2 * MOST_ADDRESSES):
        limits.filter(record("a line", f"10.0.{number // 250}.{number % 250}:1"))
    for number in range(2 * MOST_KINDS):
        limits.filter(record(f"text {number}", "10.0.0.1:1"))
    assert len(limits._of_address) <= MOST_ADDRESSES + MOST_KINDS + 1
    assert len(limits._of_kind) <= MOST_KINDS + 1 and len(limits._left_out) <= MOST_KINDS + 1


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("10.0.0.1:5", "10.0.0.1"),
        ("[2001:db8::1]:5", "2001:db8::/64"),
        ("::1", "::/64"),
        ("10.0.0.1", "10.0.0.1"),
        (None, ""),
        ("", ""),
    ],
)
def test_the_address_is_the_network_of_the_client(peer: str | None, address: str) -> None:
    assert address_of({"client_address": peer}) == address


def test_every_handler_of_the_broker_has_the_limits() -> None:
    assert any(isinstance(item, LineLimits) for item in logs.make_handler(TEXT).filters)


def formatted(message: str, *arguments: object, **fields: object) -> str:
    record = logging.LogRecord(NAME, logging.INFO, __file__, 1, message, arguments, None)
    vars(record).update(fields)
    formatter = Formatter(TEXT, True)
    formatter.name("worker-0")
    return formatter.format(record).removeprefix("<6>worker-0: ")


def test_texts_in_messages_are_cut_and_those_of_clients_more() -> None:
    name = "\x01" * 30_000
    assert formatted("id %r", name, client_address="10.0.0.1:1") == "id " + repr(name[:300] + "...")
    assert formatted("id %s of %d", "x" * 30_000, 7) == f"id {'x' * LONGEST_ARGUMENT}... of 7"
    assert (
        formatted("%s and %r", ValueError("y" * 30_000), ValueError("z"))
        == f"{'y' * LONGEST_ARGUMENT}... and ValueError('z')"
    )
    assert len(formatted("%s", "x" * 30_000)) == LONGEST_MESSAGE + 3
    assert formatted("%.2f %5s|%-5s|%g", 1.5, "a", "b", 3) == "1.50     a|b    |3"
    assert formatted("%(a)s", {"a": "b"}) == "b"


def test_a_traceback_has_no_control_characters_and_its_end() -> None:
    try:
        raise ValueError("\x1b[2J" + "x" * 100_000 + "\u202eend")
    except ValueError as error:
        record = logging.LogRecord(
            NAME, logging.ERROR, __file__, 1, "failed", (), (ValueError, error, error.__traceback__)
        )
    text = Formatter(TEXT, False).format(record)
    assert "\x1b" not in text and "\u202e" not in text
    assert text.endswith("\\u202eend") and "characters left out" in text and len(text) < LONGEST_TRACEBACK + 1000


def test_refused_requests_of_a_client_do_not_fill_the_log() -> None:
    with Broker({"num.network.threads": 1}) as broker, Wire.to(broker) as wire:
        wire.ask(find_coordinator.Request(key="g", key_type=1), 10, 3)
        request = init_producer_id.Request(transactional_id="\x01" * 30_000, transaction_timeout_ms=2**31 - 1)

        def answered() -> bool:
            return wire.ask(request, 22, 4).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT

        until(answered, "the refusal of the timeout")  # the coordinator has loaded the log of this id
        for _ in range(100):
            answer = wire.ask(request, 22, 4)
            assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        text = broker.log_file.read_text()
    refused = [line for line in text.splitlines() if "refused the producer" in line]
    assert len(refused) == OF_ADDRESS and all(len(line) < 2000 for line in refused)
