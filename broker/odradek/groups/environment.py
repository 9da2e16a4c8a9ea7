"""The interface of the groups to the topics; also member ids. Used in one thread."""

import uuid
from collections.abc import Iterable
from typing import Protocol


class Topics(Protocol):
    """The existing topics."""

    @property
    def version(self) -> int:
        """A number that changes with every change of the topics."""

    def names(self) -> Iterable[str]:
        """The names of all topics."""

    def in_store(self) -> frozenset[str] | None:
        """Names of all topics in the metadata store, including those not served here; None if the store does not answer."""

    def find(self, name: str) -> tuple[bytes, int] | None:
        """Id and number of partitions of a topic; None if it does not exist."""

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of a topic by its id; None if it does not exist."""


def new_member_id(client_id: str | None) -> str:
    """A new member id in Kafka's form: the client id, for people, and a uuid."""
    return f"{client_id or ''}-{uuid.uuid4()}"
