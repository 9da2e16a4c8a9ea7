"""The broker's session in ZooKeeper: what happens to it, and what the broker does then. Pure.

The table `MOVES` has every state and event. While the connection is lost, a broker goes on as a leader and as a follower: only
the controller stops to act, when the session may have ended.
"""

from collections.abc import Mapping
from enum import Enum


class SessionEvent(Enum):
    """What happened to the connection to ZooKeeper, or to the session."""

    CONNECTED = "connected"  # in the session as before
    SUSPENDED = "suspended"  # the connection is lost; the session may continue
    LOST = "lost"  # the session ended, and its ephemeral nodes are deleted
    NEW_SESSION = "new session"  # connected, but in another session
    WRONG_TREE = "wrong tree"  # connected to a tree that is not that of the cluster
    TIMEOUT = "timeout"  # without a connection for the session timeout: the session may have ended


class SessionState(Enum):
    """What is known about the session."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # not connected for less than the session timeout
    OVERDUE = "overdue"  # not connected for longer: other brokers may have taken over
    LOST = "lost"


CODES = {SessionState.CONNECTED: 1, SessionState.SUSPENDED: 2, SessionState.OVERDUE: 3, SessionState.LOST: 4}
"""The numbers of the states in the coordinator's meter page. 0: it has not joined the cluster yet, or does not run."""
WRONG_TREE_CODE = 5
"""The number for CONNECTED, but to a tree that is not that of the cluster."""


class Action(Enum):
    """What the broker does, in this order."""

    RESIGN = "resign"  # stop to be the controller
    REREAD = "reread"  # check the cluster id; read all settings again, and watch them
    REGISTER = "register"  # register the broker, with a new broker epoch
    ELECT = "elect"  # become the controller, if there is none
    RESUME = "resume"  # look at /controller before the next act; read again what is watched


_REJOIN = (Action.REREAD, Action.REGISTER, Action.ELECT)

MOVES: Mapping[SessionState, Mapping[SessionEvent, tuple[SessionState, tuple[Action, ...]]]] = {
    SessionState.CONNECTED: {
        SessionEvent.CONNECTED: (SessionState.CONNECTED, ()),
        SessionEvent.SUSPENDED: (SessionState.SUSPENDED, ()),
        SessionEvent.LOST: (SessionState.LOST, (Action.RESIGN,)),
        SessionEvent.NEW_SESSION: (SessionState.CONNECTED, (Action.RESIGN, *_REJOIN)),
        SessionEvent.WRONG_TREE: (SessionState.CONNECTED, (Action.RESIGN, *_REJOIN)),
        SessionEvent.TIMEOUT: (SessionState.CONNECTED, ()),
    },
    SessionState.SUSPENDED: {
        SessionEvent.CONNECTED: (SessionState.CONNECTED, (Action.RESUME,)),
        SessionEvent.SUSPENDED: (SessionState.SUSPENDED, ()),
        SessionEvent.LOST: (SessionState.LOST, (Action.RESIGN,)),
        SessionEvent.NEW_SESSION: (SessionState.CONNECTED, (Action.RESIGN, *_REJOIN)),
        SessionEvent.WRONG_TREE: (SessionState.SUSPENDED, (Action.RESIGN, *_REJOIN)),
        SessionEvent.TIMEOUT: (SessionState.OVERDUE, (Action.RESIGN,)),
    },
    SessionState.OVERDUE: {
        SessionEvent.CONNECTED: (SessionState.CONNECTED, (Action.RESUME,)),
        SessionEvent.SUSPENDED: (SessionState.OVERDUE, ()),
        SessionEvent.LOST: (SessionState.LOST, ()),
        SessionEvent.NEW_SESSION: (SessionState.CONNECTED, _REJOIN),
        SessionEvent.WRONG_TREE: (SessionState.OVERDUE, _REJOIN),
        SessionEvent.TIMEOUT: (SessionState.OVERDUE, ()),
    },
    SessionState.LOST: {
        SessionEvent.CONNECTED: (SessionState.CONNECTED, _REJOIN),
        SessionEvent.SUSPENDED: (SessionState.LOST, ()),
        SessionEvent.LOST: (SessionState.LOST, ()),
        SessionEvent.NEW_SESSION: (SessionState.CONNECTED, _REJOIN),
        SessionEvent.WRONG_TREE: (SessionState.LOST, ()),
        SessionEvent.TIMEOUT: (SessionState.LOST, ()),
    },
}


class SessionMachine:
    """The state of the session, and the actions that are still to be taken.

    An action that failed because ZooKeeper is away stays wanted, and is taken when there is a connection again. The events of a
    new session replace what the old one wanted.
    """

    def __init__(self) -> None:
        self.state = SessionState.CONNECTED
        self._wanted: set[Action] = set()
        self._begun: set[Action] = set()

    def event(self, event: SessionEvent) -> None:
        """Something happened; `next_action` may have another result now."""
        self.state, actions = MOVES[self.state][event]
        if Action.REGISTER in actions or self.state is SessionState.LOST:
            self._wanted.discard(Action.RESUME)
        if Action.RESUME in actions and Action.REGISTER in self._wanted:
            actions = ()  # everything is read again anyway
        self._wanted.update(actions)
        self._begun.difference_update(actions)

    def next_action(self) -> Action | None:
        """The action to take now; None if there is none, or if it needs a connection."""
        for action in Action:
            if action in self._wanted and (action is Action.RESIGN or self.state is SessionState.CONNECTED):
                self._begun.add(action)
                return action
        return None

    def done(self, action: Action) -> None:
        """The action was taken. It stays wanted if an event has requested it again meanwhile."""
        if action in self._begun:
            self._begun.discard(action)
            self._wanted.discard(action)
