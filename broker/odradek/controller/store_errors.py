"""Kafka's error codes for failures of the metadata store. Pure."""

from odradek.metadata.store import NodeError, NodeExists, StoreError, StoreTimeout, TooLarge, WrongTree
from odradek.protocol.errors import ErrorCode


class NotController(Exception):
    """Another broker is the controller."""


def code_of(error: StoreError | NotController | OSError) -> ErrorCode:
    """The code of a request that failed because of the store.

    REQUEST_TIMED_OUT: a store over a network did not respond, or does not contain the tree of the cluster. NOT_CONTROLLER:
    another broker changed the tree at the same time; clients look up the controller and retry. INVALID_REQUEST: the change is
    larger than the store accepts, and clients do not retry.
    """
    if isinstance(error, TooLarge):
        return ErrorCode.INVALID_REQUEST
    if isinstance(error, NotController | NodeError):
        return ErrorCode.NOT_CONTROLLER
    return ErrorCode.REQUEST_TIMED_OUT if isinstance(error, StoreTimeout | WrongTree) else ErrorCode.KAFKA_STORAGE_ERROR


def code_of_topic(error: StoreError | NotController) -> tuple[ErrorCode, str]:
    """The code and the message of a topic that could not be created or changed."""
    if isinstance(error, NodeExists):
        return ErrorCode.TOPIC_ALREADY_EXISTS, "The topic already exists."
    return code_of(error), str(error)
