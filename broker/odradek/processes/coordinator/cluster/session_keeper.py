"""Follows the broker's session in ZooKeeper, and lets the broker do what its loss or return requires (`metadata.session`).

Used in the coordinator's event loop; only `on_event` may be called in another thread. One task takes the actions, one after
another, and repeats those that fail.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from odradek._ext.shm.metering import count
from odradek.metadata.cluster import BrokerIdTaken, WrongCluster
from odradek.metadata.session import Action, SessionEvent, SessionMachine, SessionState
from odradek.metadata.store import StoreError, WrongTree
from odradek.processes.supervised_tasks import supervised

log = logging.getLogger("odradek.metadata")

COUNTED = {
    SessionEvent.LOST: "sessions_expired",
    SessionEvent.NEW_SESSION: "sessions_expired",
    SessionEvent.SUSPENDED: "session_disconnects",
}
"""The counters of events in the meter page."""
RETRY_S = 1.0
"""The time in seconds between two attempts to take an action."""
REPLACE_S = 5.0
"""The time in seconds between two looks whether ZooKeeper accepts other sessions."""
REPORT_TREE_S = 60.0
"""The time in seconds between two reports that the tree is not that of the cluster."""


class SessionKeeper:
    """See the module.

    :param timeout_s: the session timeout in seconds, as granted by ZooKeeper.
    :param take: takes an action. Raises StoreError, WrongCluster, BrokerIdTaken; the action is then taken again.
    :param revive: lets the store connect again if it has given up; called while the session is lost.
    :param replace: lets the store begin a new session if ZooKeeper does not accept the present one; called from time to time
        while there is no connection for longer than the session timeout.
    :param note: called with the state of the session when the keeper begins to follow it, and after each change of the state or
        of `wrong_tree`.
    """

    def __init__(
        self,
        timeout_s: Callable[[], float],
        take: Callable[[Action], Awaitable[None]],
        revive: Callable[[], Awaitable[None]],
        replace: Callable[[], Awaitable[None]],
        note: Callable[[SessionState], None] = lambda _: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout_s = timeout_s
        self._take = take
        self._revive = revive
        self._replace = replace
        self._note = note
        self._machine = SessionMachine()
        self._active = False
        self._closed = False
        self._timeout: asyncio.TimerHandle | None = None
        self._reviving: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._reported_tree, self._report_tree_at = "", 0.0
        self.losses = 0
        """The number of sessions that ended."""

    @property
    def state(self) -> SessionState:
        """The state of the session."""
        return self._machine.state

    @property
    def wrong_tree(self) -> bool:
        """Whether an action failed because the tree is not that of the cluster, and none has succeeded since."""
        return bool(self._reported_tree)

    def begin(self) -> None:
        """Begin to follow the session: the broker is registered in it. Earlier events need no action."""
        if self._task is None and not self._closed:
            self._machine = SessionMachine()
            self._active = True
            self._note(self._machine.state)
            self._task = supervised(self._loop, "the keeper of the session in ZooKeeper", self._run)

    def on_event(self, event: SessionEvent) -> None:
        """See `ZookeeperStore.on_session`. May be called in any thread."""
        try:
            self._loop.call_soon_threadsafe(self._event, event)
        except RuntimeError:  # the loop is closed
            log.debug("the coordinator has ended; ignoring: %s", event.value)

    def _event(self, event: SessionEvent) -> None:
        if event in (SessionEvent.LOST, SessionEvent.NEW_SESSION):
            self.losses += 1
        if not self._active or self._closed:
            return
        if event in COUNTED:
            count(COUNTED[event])
        before = self._machine.state
        self._machine.event(event)
        if self._machine.state is not before:
            self._note(self._machine.state)
        self._set_timers()
        self._changed.set()

    def _set_timers(self) -> None:
        """The session may have ended when the connection is away for its timeout; a lost session must be replaced."""
        state = self._machine.state
        if state is not SessionState.SUSPENDED and self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        elif state is SessionState.SUSPENDED and self._timeout is None:
            self._timeout = self._loop.call_later(self._timeout_s(), self._timed_out)
        if state not in (SessionState.LOST, SessionState.OVERDUE) and self._reviving is not None:
            self._reviving.cancel()
            self._reviving = None
        elif state in (SessionState.LOST, SessionState.OVERDUE) and self._reviving is None:
            after_s = RETRY_S if state is SessionState.LOST else REPLACE_S
            self._reviving = self._loop.call_later(after_s, self._look_at_lost)

    def _timed_out(self) -> None:
        self._timeout = None
        log.warning(
            "no connection to ZooKeeper for %g s: other brokers may take over; produce and fetch requests are served meanwhile",
            self._timeout_s(),
        )
        self._event(SessionEvent.TIMEOUT)

    def _look_at_lost(self) -> None:
        self._reviving = None
        self._changed.set()

    # -- actions --------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            while (action := self._machine.next_action()) is not None:
                if await self._attempt(action):
                    self._machine.done(action)
                else:
                    await self._wait()
            help_store = {SessionState.LOST: self._revive, SessionState.OVERDUE: self._replace}.get(self._machine.state)
            if help_store is not None:
                try:
                    await help_store()
                except StoreError as error:
                    log.warning("waiting for ZooKeeper: %s; retrying", error)
                except Exception:
                    log.exception("cannot revive the session in ZooKeeper; retrying")
                self._set_timers()

    async def _attempt(self, action: Action) -> bool:
        """Take an action. Returns False if it must be taken again."""
        try:
            await self._take(action)
        except WrongTree as error:
            self._report_tree(str(error))
        except StoreError as error:
            log.warning("cannot %s after the loss of the connection to ZooKeeper: %s; retrying in %g s",
                        action.value, error, RETRY_S)  # fmt: skip
        except (WrongCluster, BrokerIdTaken) as error:
            log.error("cannot join the cluster again: %s; retrying in %g s", error, RETRY_S)
        except Exception:
            log.exception(
                "cannot %s after the loss of the connection to ZooKeeper; retrying in %g s", action.value, RETRY_S
            )
        else:
            self._set_reported_tree("")
            return True
        return False

    def _set_reported_tree(self, error: str) -> None:
        before = self.wrong_tree
        self._reported_tree = error
        if self.wrong_tree is not before:
            self._note(self._machine.state)

    def _report_tree(self, error: str) -> None:
        """Report that the tree is not that of the cluster: at once, then from time to time."""
        now = self._loop.time()
        if error != self._reported_tree or now >= self._report_tree_at:
            self._set_reported_tree(error)
            self._report_tree_at = now + REPORT_TREE_S
            log.error(
                "%s. Until then this broker is not registered: it serves the partitions that it has, changes no topics or"
                " settings, and deletes nothing",
                error,
            )

    async def _wait(self) -> None:
        """Wait before the next attempt; an event ends the wait."""
        try:
            await asyncio.wait_for(self._changed.wait(), RETRY_S)
        except TimeoutError:
            return
        self._changed.clear()

    def close(self) -> None:
        """Stop; the action that is being taken in another thread is finished there."""
        self._closed = True
        for timer in (self._timeout, self._reviving):
            if timer is not None:
                timer.cancel()
        if self._task is not None:
            self._task.cancel()
