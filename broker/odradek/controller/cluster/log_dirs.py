"""Failures of log directories: brokers report them, and the controller finds the replicas that went offline with them.

Pure, see `effects`. A report names only the broker. The controller sends it the present states of all its replicas; the answer
names the replicas whose log directory has failed.
"""

import json
import logging
from collections.abc import Collection, Iterable, Sequence

from odradek.controller.cluster import replica_states
from odradek.controller.cluster.broker_events import replicas_offline
from odradek.controller.cluster.context import ControllerContext, Partition
from odradek.controller.cluster.effects import Children, Delete, Read, Send, Steps, Write
from odradek.controller.cluster.partition_states import UncleanElections
from odradek.controller.cluster.requests import RequestBatch
from odradek.metadata.znodes import UNDECODABLE
from odradek.protocol.errors import ErrorCode

log = logging.getLogger("odradek.controller")

LOG_DIR_EVENTS = "/log_dir_event_notification"


def broker_of_event(data: bytes) -> int:
    """The broker that reported a failed log directory. Raises ValueError if the report cannot be decoded."""
    try:
        return int(json.loads(data)["broker"])
    except UNDECODABLE as error:
        raise ValueError(f"cannot decode the report of a failed log directory: {data[:200]!r}") from error


def events_reported(context: ControllerContext) -> Steps[None]:
    """Work through the reports of failed log directories, and remove them."""
    names = yield Children(LOG_DIR_EVENTS, watched=True)
    if not names:
        return
    paths = [f"{LOG_DIR_EVENTS}/{name}" for name in names]
    brokers = set()
    for node in (yield Read(paths)):
        if node is not None:
            try:
                brokers.add(broker_of_event(node[0]))
            except ValueError as error:
                log.error("%s; skipping it", error)
    if brokers:
        log.warning("brokers %s reported failed log directories", sorted(brokers))
        yield from ask(context, brokers)
    yield Write([(Delete(path),) for path in paths])


def ask(context: ControllerContext, brokers: Collection[int]) -> Steps[None]:
    """Send the states of all their replicas to brokers; `answered` finds the failed replicas in the answers."""
    batch = RequestBatch(context)
    replicas = [replica for replica in context.replicas_on(brokers) if not context.is_deleting(replica[0])]
    movable = [
        replica for replica in replicas
        if replica[0].replica_status.get(replica[1]) in replica_states.ALLOWED[replica_states.ONLINE]
    ]  # fmt: skip
    replica_states.to_online(movable, batch)
    yield Send(batch.take())


def answered(
    context: ControllerContext,
    broker_id: int,
    codes: Iterable[tuple[Partition, int]],
    unclean: UncleanElections,
) -> Steps[None]:
    """A broker answered LeaderAndIsr. :param codes: the error code of each partition."""
    before = context.offline_dirs.get(broker_id, set())
    failed, working = set(), set()
    for partition, code in codes:
        if code == ErrorCode.KAFKA_STORAGE_ERROR:
            failed.add(partition)
        elif code == ErrorCode.NONE:
            working.add(partition)
    now = (before - working) | failed
    if now:
        context.offline_dirs[broker_id] = now
    else:
        context.offline_dirs.pop(broker_id, None)
    new = [(partition, broker_id) for partition in now - before]
    if new:
        log.warning("replicas on broker %d are offline, because their log directory failed: %s", broker_id, new[:20])
        yield from replicas_offline(context, new, unclean)


def remove_notifications(paths: Sequence[str]) -> Steps[None]:
    """Remove pending notifications, because a new controller reads everything anyway."""
    groups = []
    for path in paths:
        names = yield Children(path, watched=True)
        groups += [(Delete(f"{path}/{name}"),) for name in names]
    if groups:
        yield Write(groups)
