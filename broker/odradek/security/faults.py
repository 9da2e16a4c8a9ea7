"""Present faults of TLS and of logins between brokers, as `shm.published_faults` publishes them."""

from typing import NamedTuple

PRESENT_MS = 10 * 60_000
EXPIRES_SOON_DAYS = 14
"""Days before the end of a certificate from which commands warn of it."""


class StoreFault(NamedTuple):
    """Changed key stores or trust stores of a listener cannot be used.

    :param since_ms: Unix time of the attempt.
    """

    listener: str
    since_ms: int
    reason: str


class LoginFault(NamedTuple):
    """This broker could not authenticate its last connection to an address of another broker.

    :param broker: such as "broker 2". :param since_ms: Unix time of the first failure. :param last_ms: of the last one that was
        published; a fault that lasts is published every minute.
    """

    broker: str
    host: str
    port: int
    reason: str
    since_ms: int
    last_ms: int


def is_present(fault: LoginFault, now_ms: int) -> bool:
    """Whether this broker still tries to log in at the address. Without an attempt for `PRESENT_MS`, the other broker has left
    the cluster or has another address."""
    return now_ms - fault.last_ms < PRESENT_MS
