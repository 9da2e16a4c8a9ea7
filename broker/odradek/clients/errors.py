"""What can go wrong between a client and a cluster; each error's text is one line for people."""

from odradek.protocol.errors import ErrorCode

INSTALL_LIBRARY = "pip install 'confluent-kafka>=2.5' (Odradek's extra `clients`)"
"""What installs librdkafka's Python client, wherever Odradek itself came from."""


class ClientError(Exception):
    """Anything that keeps a client from an answer."""


class Unreachable(ClientError):
    """Nobody answers, or not in time, or what answers is no broker."""


class Unsupported(ClientError):
    """The broker does not serve the API, or none of the versions that are needed."""


class Refused(ClientError):
    """The broker answered with an error. :param code: Kafka's. :param what: what was asked for."""

    def __init__(self, code: int, message: str | None = None, what: str = "") -> None:
        self.code = code_of(code)
        self.reason = message or told(code)
        super().__init__(f"{what}: {self.reason}" if what else self.reason)


def code_of(code: int) -> ErrorCode:
    """Kafka's code, UNKNOWN_SERVER_ERROR for one that is not known."""
    try:
        return ErrorCode(code)  # type: ignore[call-arg]
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def told(code: int) -> str:
    """An error code in words, with its name."""
    known = code_of(code)
    if known == code:
        return f"{known.message} ({known.name})"
    return f"the broker answered with the unknown error code {code}"
