"""Errors between a client and a cluster. The text of each error is one line for people."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from odradek.protocol.errors import ErrorCode, known_error
from odradek.spelling import did_you_mean

Result = TypeVar("Result")

INSTALL_LIBRARY = "pip install 'confluent-kafka>=2.5' (Odradek's extra `clients`)"
"""The command that installs librdkafka's Python client, however Odradek was installed."""


_DENIALS = frozenset(
    (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
)
"""The codes of requests that access control lists deny."""
REMEDY = "the broker's log names the principal and the missing right"
"""Ends the reason of a denial."""


class ClientError(Exception):
    """A request got no successful response."""


class UnreachableError(ClientError):
    """The broker does not answer, does not answer in time, or is not a Kafka broker."""


class ResponseTooLargeError(UnreachableError):
    """The response has more bytes than the client takes. The connection cannot be used any more."""


class UnknownHostError(UnreachableError):
    """The name of a broker's host has no address here."""


class HandshakeError(UnreachableError):
    """The listener was reached, but one side refuses the certificate or the TLS settings of the other one."""


class NoBootstrapServerError(UnreachableError):
    """None of the bootstrap servers could be reached, or none is a Kafka broker.

    :param refused: whether all were reached, and failed with HandshakeError: another address would not help.
    :param unknown: whether none of their names could be resolved.
    """

    def __init__(self, text: str, refused: bool = False, unknown: bool = False) -> None:
        self.refused = refused
        self.unknown = unknown
        super().__init__(text)


class UnsupportedError(ClientError):
    """The broker does not serve the API, or none of the versions that the client needs."""


class RefusedError(ClientError):
    """The broker answered with an error. :param code: Kafka's error code. :param what: the subject of the request."""

    def __init__(self, code: int, message: str | None = None, what: str = "") -> None:
        self.code = code_of(code)
        self.reason = message or describe_code(code)
        if self.denied and REMEDY not in self.reason:  # the reason may be that of another RefusedError
            self.reason = f"{self.reason.rstrip('.')}; {REMEDY}"
        super().__init__(f"{what}: {self.reason}" if what else self.reason)

    @property
    def denied(self) -> bool:
        """Whether an access control list, or the lack of one, denies the request."""
        return self.code in _DENIALS


def hint_on(name: str, known: Callable[[], Iterable[str]], listing: str) -> str:
    """What an error about a name that does not exist adds: a similar name that exists, or `listing`: how to list all names.

    :param known: returns the names that exist. After its ClientError (no right to list them, a broker that is down), no similar
        name is known.
    """
    try:
        return did_you_mean(name, known()) or listing
    except ClientError:
        return listing


def no_topic(name: str, known: Iterable[str]) -> RefusedError:
    """The error for a topic that does not exist. :param known: names of topics, one of which may be the one that was meant."""
    hint = hint_on(name, lambda: known, "`odradek topic list` shows all topics")
    return RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{name}' does not exist; {hint}")


def code_of(code: int) -> ErrorCode:
    """The ErrorCode of a number; UNKNOWN_SERVER_ERROR for an unknown number."""
    error = known_error(code)
    return ErrorCode.UNKNOWN_SERVER_ERROR if error is None else error


def describe_code(code: int) -> str:
    """The message and the name of an error code."""
    known = code_of(code)
    if known == code:
        return f"{known.message} ({known.name})"
    return f"the broker returned the unknown error code {code}"


def only(results: Sequence[Result], what: str) -> Result:
    """The result of a request for one thing. Raises ClientError if a broker returned none, or several."""
    if len(results) != 1:
        raise ClientError(f"{what}: the broker returned {len(results)} results instead of 1")
    return results[0]
