"""A worker's membership in the group of a flow, on the target: the classic group protocol, with lanes as what is
assigned.

A `Membership` belongs to one thread, which runs `run`; `stop` and `rejoin` may be called by others. A lane keeps
running during a rebalance: the worker that gets it fences the former owner with InitProducerId, so nothing is written
twice. Without transactions there is no fencing, so a worker stops its lanes before it joins again, and when it has
had no contact for the session timeout.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from odradek.backoff import Backoff
from odradek.clients.cluster import Cluster
from odradek.clients.errors import ClientError, RefusedError, UnreachableError
from odradek.mirror import assignment
from odradek.mirror.assignment import Lanes
from odradek.mirror.settings import PROTOCOL_TYPE
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import heartbeat, join_group, leave_group, sync_group

log = logging.getLogger("odradek.mirror")

HEARTBEATS_IN_A_SESSION = 12
"""How many heartbeats a worker sends in the time after which the coordinator removes it from the group."""
RETRIES_S = Backoff(first=0.1, longest=2.0)
_MOVED = frozenset(
    (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
)
_JOIN_AGAIN = frozenset((ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID))
_FINAL = frozenset(
    (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    )
)


class MembershipError(Exception):
    """The group refuses the worker, and will do so again. The text is one sentence with the value and the remedy."""


class Membership:
    """One member of a flow's group.

    :param worker: the name of the worker, for people. :param connect: makes the `Cluster` of the target for this
        thread.
    :param assigned: called in the thread of `run` with the lanes that the worker owns from now on.
    :param stops_first: whether the lanes stop before the worker joins again (no transactions).
    """

    def __init__(
        self,
        group_id: str,
        lanes: int,
        worker: str,
        connect: Callable[[], Cluster],
        session_timeout_ms: int,
        assigned: Callable[[Lanes], None],
        stops_first: bool = False,
    ) -> None:
        self._group_id = group_id
        self._lanes = lanes
        self._worker = worker
        self._connect = connect
        self._session_timeout_ms = session_timeout_ms
        self._assigned = assigned
        self._stops_first = stops_first
        self._cluster: Cluster | None = None
        self._member_id = ""
        self._generation = -1
        self._owned: Lanes = frozenset()
        self._contact = time.monotonic()
        self._changed = threading.Event()
        self._stopping = False
        self._again = False
        self.leads = False
        self.rebalances = 0
        self.joined = threading.Event()

    @property
    def owned(self) -> Lanes:
        """The lanes of this worker."""
        return self._owned

    def stop(self) -> None:
        """Let `run` leave the group and return."""
        self._stopping = True
        self._changed.set()

    def rejoin(self) -> None:
        """Join the group again: a lane was fenced, so this worker's view of the assignment may be old."""
        self._again = True
        self._changed.set()

    def run(self) -> None:
        """Be a member until `stop`. Raises MembershipError if the group refuses this worker for good."""
        failures = 0
        while not self._stopping:
            try:
                self._join()
                failures = 0
                self._beat()
            except ClientError as error:
                if isinstance(error, RefusedError) and error.code in _FINAL:
                    raise MembershipError(self._final(error)) from error
                failures += 1
                retry_s = RETRIES_S.after(failures)
                log.warning(
                    "the worker lost contact with group %s: %s; retrying in %.1f s", self._group_id, error, retry_s
                )
                self._disconnect()
                self._check_session()
                self._changed.wait(retry_s)
        self._leave()

    # -- requests -------------------------------------------------------------------------------------------------

    def _ask(self, api: Any, request: Any, timeout_s: float | None = None) -> Any:
        """Send a request to the coordinator. Raises ClientError; coordinators that moved are looked up again."""
        if self._cluster is None:
            self._cluster = self._connect()
        node = self._cluster.coordinator_of(self._group_id)
        try:
            return self._cluster.broker(node).ask(api, request, timeout_s=timeout_s)
        except UnreachableError:
            self._cluster.view(fresh=True)
            raise

    def _join(self) -> None:
        """Join the group and take over what it assigns. Raises RefusedError, ClientError."""
        self._again = False
        if self._stops_first and self._owned:
            self._take(frozenset())
        while not self._stopping:
            joined = self._send_join()
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = joined.member_id
                continue
            if joined.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self._member_id = ""
                continue
            if joined.error_code:
                raise RefusedError(joined.error_code, what=f"cannot join group {self._group_id}")
            self._member_id, self._generation = joined.member_id, joined.generation_id
            self.leads = joined.leader == joined.member_id
            synced = self._sync(joined)
            if synced.error_code in _JOIN_AGAIN:
                if synced.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                    self._member_id = ""
                continue
            if synced.error_code:
                raise RefusedError(synced.error_code, what=f"cannot get an assignment of group {self._group_id}")
            self._contact = time.monotonic()
            self.rebalances += 1
            self._take(assignment.assigned_by(synced.assignment))
            self.joined.set()
            return

    def _send_join(self) -> Any:
        make = join_group.Request
        protocol = make.JoinGroupRequestProtocol(
            name=assignment.protocol_name(self._lanes), metadata=assignment.encode_member(self._worker, self._owned)
        )
        request = make(
            group_id=self._group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._session_timeout_ms,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[protocol],
        )
        # The coordinator responds when all members have joined, or when those that have not are given up; the first member of a
        # new group also waits for group.initial.rebalance.delay.ms.
        return self._ask(join_group.SCHEMA, request, timeout_s=3 * self._session_timeout_ms / 1000 + 10)

    def _sync(self, joined: Any) -> Any:
        make = sync_group.Request
        assignments = []
        if self.leads:
            owned = {member.member_id: assignment.owned_by(member.metadata) for member in joined.members}
            assignments = [
                make.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment.encode_assignment(lanes))
                for member_id, lanes in assignment.assign(owned, self._lanes).items()
            ]
        request = make(
            group_id=self._group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=assignment.protocol_name(self._lanes),
            assignments=assignments,
        )
        return self._ask(sync_group.SCHEMA, request)

    def _beat(self) -> None:
        """Send heartbeats until the worker must join again or stop. Raises RefusedError, ClientError."""
        while True:
            self._changed.wait(self._session_timeout_ms / 1000 / HEARTBEATS_IN_A_SESSION)
            self._changed.clear()
            if self._stopping or self._again:
                return
            request = heartbeat.Request(
                group_id=self._group_id, generation_id=self._generation, member_id=self._member_id
            )
            code = self._ask(heartbeat.SCHEMA, request).error_code
            if code in _JOIN_AGAIN:
                if code == ErrorCode.UNKNOWN_MEMBER_ID:
                    self._member_id = ""
                return
            if code in _MOVED:
                self._check_session()
                continue
            if code:
                raise RefusedError(code, what=f"group {self._group_id} refused a heartbeat")
            self._contact = time.monotonic()

    def _leave(self) -> None:
        """Leave the group, so that others take the lanes over at once. A failure is logged: the session will end by
        itself.
        """
        self._take(frozenset())
        try:
            if self._member_id:
                make = leave_group.Request
                member = make.MemberIdentity(member_id=self._member_id)
                request = make(group_id=self._group_id, member_id=self._member_id, members=[member])
                self._ask(leave_group.SCHEMA, self._for_version(request))
        except ClientError as error:
            log.warning(
                "the worker could not leave group %s: %s; its lanes are taken over after %d ms",
                self._group_id, error, self._session_timeout_ms,
            )  # fmt: skip
        self._disconnect()

    def _for_version(self, request: Any) -> Any:
        """The request with the fields of the version that the coordinator serves: one member before version 3."""
        assert self._cluster is not None
        connection = self._cluster.broker(self._cluster.coordinator_of(self._group_id))
        if connection.version_of(leave_group.SCHEMA) < 3:
            request.members = []
        else:
            request.member_id = ""
        return request

    # -- state ----------------------------------------------------------------------------------------------------

    def _take(self, lanes: Lanes) -> None:
        """Own these lanes from now on."""
        self._owned = lanes
        self._assigned(lanes)

    def _check_session(self) -> None:
        """Without transactions, stop the lanes when others may have them: the session has ended."""
        if self._stops_first and self._owned and time.monotonic() - self._contact > self._session_timeout_ms / 1000:
            log.warning(
                "the session of the worker in group %s has ended; its lanes stop until it joins again", self._group_id
            )
            self._take(frozenset())

    def _disconnect(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _final(self, error: RefusedError) -> str:
        """The sentence for an error that a retry does not change."""
        if error.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            return (
                f"group {self._group_id} has workers with another number of lanes than odradek.mirror.lanes={self._lanes}, or "
                "members that are no mirror; set the number of the running workers, or stop all of them first"
            )
        if error.code == ErrorCode.INVALID_SESSION_TIMEOUT:
            return (
                f"the target refuses odradek.mirror.session.timeout.ms={self._session_timeout_ms}: it must be between its "
                "group.min.session.timeout.ms and group.max.session.timeout.ms"
            )
        return f"{error}"
