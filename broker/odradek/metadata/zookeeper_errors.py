"""The errors of the metadata store for the errors of kazoo."""

from kazoo import exceptions
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from odradek.metadata.store import (
    BadVersion,
    NoChildrenForEphemerals,
    NodeError,
    NodeExists,
    NoNode,
    NotEmpty,
    NotPermitted,
    OverLimit,
    StoreError,
    StoreTimeout,
    StoreUnavailable,
    parent_of,
)

OF_KAZOO: dict[type[KazooException], type[NodeError]] = {
    exceptions.NoNodeError: NoNode,
    exceptions.NodeExistsError: NodeExists,
    exceptions.BadVersionError: BadVersion,
    exceptions.NotEmptyError: NotEmpty,
    exceptions.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
}
UNANSWERED = (exceptions.ConnectionLoss, exceptions.ConnectionClosedError, KazooTimeoutError)
NOT_TRIED = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)
"""The results of the operations of a refused transaction, except the operation that was refused."""


def error_of(error: Exception, path: str, hosts: str, creates: bool = False) -> StoreError:
    """The StoreError for an error of kazoo.

    :param path: the node that the request names. :param hosts: the servers. :param creates: the request creates the node.
    """
    for kind, meaning in OF_KAZOO.items():
        if isinstance(error, kind):
            return meaning(parent_of(path) if creates and meaning is NoNode else path)
    if isinstance(error, exceptions.AuthFailedError):
        return StoreUnavailable("ZooKeeper refuses the credentials of this broker")
    if isinstance(error, exceptions.NoAuthError):
        return NotPermitted(
            f"ZooKeeper does not permit this broker to use {path}: check its credentials and the ACL of the node"
        )
    if isinstance(error, exceptions.InvalidACLError):
        return NotPermitted(
            f"{path} cannot get an ACL (zookeeper.set.acl=true): ZooKeeper does not know who this broker is"
        )
    if isinstance(error, exceptions.QuotaExceededError):
        return OverLimit(
            f"a change of {path} would exceed a quota that the operator of ZooKeeper has set for the node or a parent"
        )
    if isinstance(error, exceptions.ThrottledOpError):
        return OverLimit(f"ZooKeeper at {hosts} has too many requests and did not execute one for {path}")
    if isinstance(error, (*UNANSWERED, exceptions.SessionExpiredError)):
        return StoreTimeout(f"ZooKeeper at {hosts} did not respond to a request for {path}")
    return StoreUnavailable(f"ZooKeeper at {hosts} refused a request for {path}: {error!r}")
