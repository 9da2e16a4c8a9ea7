"""The broker's session in ZooKeeper: what happens to it.

Pure values. See docs/cluster.md for what an operator sees.
"""

from enum import Enum


class SessionEvent(Enum):
    """What happened to the connection to ZooKeeper, or to the session."""

    CONNECTED = "connected"  # also for the first time; the session is the same as before
    SUSPENDED = "suspended"  # the connection is lost; the session may continue
    LOST = "lost"  # the session ended, and its ephemeral nodes are deleted
    NEW_SESSION = "new session"  # connected, but in another session
