"""Rights that are taken away while clients use them, and while workers are killed.

No request that began after the answer to DeleteAcls succeeds, whichever worker has its connection, also one that was
just started.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from odradek.protocol.schemas import fetch, produce
from odradek.security.acl import AclFilter, Operation
from odradek.testing import Broker
from tests.security.over_wire import ACLS_OF_ADMIN, ADMIN, CONFIG, GROUP, TOPIC, Client, acl
from tests.waiting import until
from tests.wire import batch, fetch_request, produce_request

pytestmark = pytest.mark.timeout(3600)
ROUNDS = int(os.environ.get("REVOCATION_ROUNDS", "12"))
"""1,000 in the nightly run."""
CLIENTS = 6
PIPELINED = 4
RULES = [
    acl(TOPIC, "t", Operation.READ),
    acl(TOPIC, "t", Operation.WRITE),
    acl(GROUP, "g", Operation.READ),
]
ALLOWED, DENIED, OTHER = "allowed", "denied", "other"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(CONFIG | {"num.network.threads": 3}) as broker, Client(broker, ADMIN) as admin:
        assert set(admin.create_acls(ACLS_OF_ADMIN)) == {0}
        admin.create("t", 3)
        admin.until_coordinated("g")
        yield broker


def verdict(code: int) -> str:
    return DENIED if code in (29, 30) else ALLOWED if code in (0, 25, 22) else OTHER


def produced(client: Client) -> list[str]:
    """Several requests at once: the later ones may be executed much later than they began."""
    for _ in range(PIPELINED):
        client.send(produce_request([("t", [(0, batch(b"v"))])], -1), produce.API_KEY, 9)
    return [verdict(client.receive().responses[0].partition_responses[0].error_code) for _ in range(PIPELINED)]


def fetched(client: Client) -> list[str]:
    request = fetch_request([("t", 1, 0)], wait_ms=20)
    return [verdict(client.ask(request, fetch.API_KEY, 12).responses[0].partitions[0].error_code)]


def beaten(client: Client) -> list[str]:
    """Served in the coordinator without a task."""
    return [verdict(client.heartbeat("g", "nobody", 1).error_code)]


def committed(client: Client) -> list[str]:
    answer = client.commit("g", {("t", 2): 1})
    return [verdict(answer.topics[0].partitions[0].error_code)]


WORK: tuple[Callable[[Client], list[str]], ...] = (produced, produced, fetched, fetched, beaten, committed)


class User(threading.Thread):
    """Uses its rights all the time, and notes what it received and when it began to ask."""

    def __init__(self, broker: Broker, work: Callable[[Client], list[str]]) -> None:
        super().__init__(daemon=True)
        self._broker, self._work = broker, work
        self.stopped = False
        self.seen: list[tuple[float, str]] = []

    def run(self) -> None:
        while not self.stopped:
            with suppress(OSError, EOFError), Client(self._broker) as client:
                self._use(client)

    def _use(self, client: Client) -> None:
        while not self.stopped:
            began = time.monotonic()
            self.seen += [(began, one) for one in self._work(client)]

    def since(self, moment: float) -> list[str]:
        return [one for began, one in self.seen if began > moment]


def a_worker(broker: Broker, rng: random.Random) -> int:
    pids: list[Any] = [process["pid"] for process in broker.processes() if process["kind"] == "worker"]
    return int(rng.choice([pid for pid in pids if pid]))


def test_no_request_that_began_after_the_answer_succeeds_in_any_worker(broker: Broker) -> None:
    rng = random.Random(1)
    users = [User(broker, work) for work in WORK]
    for user in users:
        user.start()
    killed = 0
    try:
        for number in range(ROUNDS):
            began = time.monotonic()
            assert set(_asked(broker, lambda admin: admin.create_acls(RULES))) == {0}
            for user in users:
                until(lambda user=user, began=began: ALLOWED in user.since(began), f"{user._work.__name__} is allowed")
            if number % 3 == 1:
                os.kill(a_worker(broker, rng), signal.SIGKILL)
                killed += 1
            _asked(broker, lambda admin: admin.delete_acls(*(AclFilter(*rule) for rule in RULES)))
            answered = time.monotonic()
            if number % 3 == 2:
                os.kill(a_worker(broker, rng), signal.SIGKILL)
                killed += 1
            for user in users:
                until(
                    lambda user=user, answered=answered: user.since(answered).count(DENIED) >= 3,
                    f"{user._work.__name__} is denied",
                )
                assert ALLOWED not in user.since(answered), (number, user._work.__name__)
                user.seen.clear()
    finally:
        for user in users:
            user.stopped = True
        for user in users:
            user.join(60)
    assert killed == sum(number % 3 > 0 for number in range(ROUNDS))


def _asked(broker: Broker, ask: Callable[[Client], Any]) -> Any:
    """Ask until an answer comes: the connection may be that of the killed worker."""

    def answered() -> Any:
        with suppress(OSError, EOFError), Client(broker, ADMIN) as admin:
            return ask(admin)
        return None

    return until(answered, "an answer")
