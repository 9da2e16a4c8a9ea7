"""The connection of a process to ZooKeeper, and its session: kazoo's client, with what it lacks. Used by `ZookeeperStore` only.

The thread that uses the store starts and ends the connection. kazoo has a connection thread, which sends requests in the order
in which they were made and reports changes of its state, and a callback thread, which calls watches. A lock protects the missed
watches.

What kazoo lacks, and how this module adds it:

- kazoo drops all watches at every loss of the connection. This connection notes them, and calls them when it is connected
  again: a watch only means that its node must be read again.
- After a session has expired, kazoo begins a new one by itself, without a report. The ids are compared at every connection.
- kazoo ends a connection only when the server responds. Here, every wait of its connection thread ends at once (`abort`).
- kazoo's client is unusable after an authentication failure; `alive` is False then.
"""

import encodings.idna  # noqa: F401 - the resolver of addresses imports it otherwise after the fork
import errno
import logging
import math
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped, KazooException, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.serialization import CloseInstance
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.retry import KazooRetry

from odradek.backoff import Backoff
from odradek.metadata.session import SessionEvent
from odradek.metadata.store import (
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    Event,
    Session,
    StoreTimeout,
    StoreUnavailable,
    Watch,
)

log = logging.getLogger("odradek.metadata")
kazoo_log = logging.getLogger("odradek.metadata.kazoo")

FIRST_RETRY_S, LONGEST_RETRY_S = 0.05, 1.0
END_WITHIN_S = 2.0
"""The time in seconds within which ZooKeeper must confirm the end of a session; after that, the session ends by its timeout."""
FIRST_WAIT_S = 2.0
"""The time in seconds that the first server has to accept a connection and to confirm the session."""
LEAST_ATTEMPTS = 3
"""The number of servers that can be tried, one after another, within the session timeout."""
ACCEPTS_WITHIN_S = 3.0
"""The time in seconds within which a server must accept a connection to count as working."""
REPORT_AFTER_S = 5.0
"""The time in seconds after which a log line says that the first connection is being waited for."""
LOOK_EVERY_S = 0.5

KINDS = {
    EventType.CREATED: CREATED,
    EventType.DELETED: DELETED,
    EventType.CHANGED: CHANGED,
    EventType.CHILD: CHILDREN,
}


class ZookeeperOptions(NamedTuple):
    """How to connect to ZooKeeper.

    ``servers``: as in ``zookeeper.connect``: host:port, comma-separated, with an optional /chroot. ``session_timeout_s``: the
    time after which ZooKeeper ends a session without a connection; also the time that a call waits for its response.
    ``connection_timeout_s``: the time that the first connection may take. ``in_flight``: the number of requests of a bulk that
    wait for responses. ``set_acl``: create nodes that only this identity may change. ``auth``: pairs of scheme and credentials.
    ``sasl``: the options of kazoo's SASL client. ``tls``: None for a connection without TLS.
    """

    servers: str
    session_timeout_s: float = 18.0
    connection_timeout_s: float = 18.0
    in_flight: int = 10
    set_acl: bool = False
    auth: tuple[tuple[str, str], ...] = ()
    sasl: dict[str, str] | None = None
    tls: ssl.SSLContext | None = None

    @property
    def hosts(self) -> str:
        """The servers without the chroot."""
        return self.servers.partition("/")[0]

    @property
    def chroot(self) -> str:
        """The path of the root of the tree in ZooKeeper; empty for ZooKeeper's own root."""
        return self.servers[len(self.hosts) :].rstrip("/")


class _OnlyErrors(logging.Filter):
    """kazoo reports every attempt to connect; this module reports what matters. All records pass on the level DEBUG."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR or log.isEnabledFor(logging.DEBUG)


kazoo_log.addFilter(_OnlyErrors())


def _polled(readers: Sequence[Any], writers: Sequence[Any], timeout_s: float | None) -> tuple[list[Any], list[Any]]:
    """The readers and the writers that are ready, or have failed. kazoo waits several times for each request and response: a
    poll is one system call, its own selector makes five. Raises ValueError for a socket that is closed."""
    poll = select.poll()
    for sock in readers:
        poll.register(sock, select.POLLIN)
    for sock in writers:
        poll.register(sock, select.POLLOUT)
    ready = {fd for fd, _ in poll.poll(None if timeout_s is None else math.ceil(timeout_s * 1000))}
    if not ready:
        return [], []
    return [sock for sock in readers if _fd(sock) in ready], [sock for sock in writers if _fd(sock) in ready]


Beat = Callable[[], float]
"""Called several times in a session timeout by the thread that keeps the session. Returns the time in seconds until the next
call."""


def _fd(sock: Any) -> int:
    return sock if isinstance(sock, int) else sock.fileno()


class _Handler(SequentialThreadingHandler):
    """kazoo's threads and waits. `abort` ends every wait of the connection thread at once.

    :param beat: called by the connection thread from the first connection on, between waits of at most the time that it
        returns.
    """

    def __init__(self, tls: ssl.SSLContext | None, connect_limit_s: float, beat: Beat | None) -> None:
        super().__init__()
        self._beat = beat
        self._keeps_session = False
        self._tls = tls
        self._waits_s = Backoff(FIRST_WAIT_S, connect_limit_s)
        self._attempts = 1
        self._aborted = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._connecting = False
        self.failure = ""
        """The failure of the last TLS handshake; empty after a success."""

    def connected(self) -> None:
        """A server has confirmed the session. Before that, the waits for a server are short and become longer with each
        attempt: ZooKeeper sometimes never responds to a connection that it accepted while it was starting."""
        self._connecting = False
        self._keeps_session = True
        self.failure = ""
        self._attempts = 1

    def abort(self) -> None:
        """End the waits of the connection thread, with ECANCELED."""
        os.eventfd_write(self._aborted, 1)

    def close(self) -> None:
        """Release the descriptor, after the connection thread has ended."""
        os.close(self._aborted)

    def select(self, readers: Any, writers: Any, errors: Any, timeout: float | None = None) -> Any:
        """The readers and writers that are ready; data that TLS has decrypted already counts as readable. Raises OSError after
        `abort`."""
        decrypted = [sock for sock in readers if isinstance(sock, ssl.SSLSocket) and sock.pending()]
        if decrypted:
            timeout = 0
        elif self._connecting:
            wait_s = self._waits_s.after(self._attempts)
            timeout = wait_s if timeout is None else min(timeout, wait_s)
        found = self._wait_until_ready([*readers, self._aborted], writers, timeout)
        if self._aborted in found[0]:
            raise OSError(errno.ECANCELED, "the connection is being closed")
        return list({*found[0], *decrypted}), found[1], []

    def _wait_until_ready(
        self, readers: Sequence[Any], writers: Sequence[Any], timeout_s: float | None
    ) -> tuple[list[Any], list[Any]]:
        """See `_polled`. A long wait is divided, so that the thread shows that it would send the next ping."""
        if self._beat is None or not self._keeps_session:
            return _polled(readers, writers, timeout_s)
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            wait_s, left_s = self._beat(), max(deadline - time.monotonic(), 0.0)
            found = _polled(readers, writers, min(wait_s, left_s))
            if left_s <= wait_s or found[0] or found[1]:
                return found

    def sleep_func(self, seconds: float) -> None:
        """Sleep between two attempts to connect. kazoo requires this name, and the same function in its retries."""
        self._wait_until_ready([self._aborted], [], seconds)

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> socket.socket:
        """A connected socket, with TLS if configured. Raises OSError, KazooTimeoutError."""
        if self._connecting:  # the last attempt failed
            self._attempts += 1
        self._connecting = True
        wait_s = self._waits_s.after(self._attempts)
        deadline = time.monotonic() + (wait_s if timeout is None else min(timeout, wait_s))
        sock = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = sock.connect_ex(address)
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
            self._wait(sock, False, deadline)
            if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(code, os.strerror(code))
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_hostname=hostname, do_handshake_on_connect=False)
                self._shake_hands(sock, deadline)
        except BaseException:
            sock.close()
            raise
        return sock

    def _shake_hands(self, sock: ssl.SSLSocket, deadline: float) -> None:
        while True:
            try:
                return sock.do_handshake()
            except ssl.SSLWantReadError:
                self._wait(sock, True, deadline)
            except ssl.SSLWantWriteError:
                self._wait(sock, False, deadline)
            except ssl.SSLError as error:
                if str(error) != self.failure:  # not for each attempt
                    self.failure = str(error)
                    log.error("the TLS handshake with ZooKeeper failed: %s; retrying", error)
                raise

    def _wait(self, sock: socket.socket, to_read: bool, deadline: float) -> None:
        left = max(deadline - time.monotonic(), 0)
        found = self.select([sock] if to_read else [], [] if to_read else [sock], [], left)
        if not found[0] and not found[1]:
            raise KazooTimeoutError("the server does not respond")


class ZookeeperConnection:
    """See the module.

    :param on_event: called in kazoo's connection thread after `start` has returned; must return at once.
    :param beat: called in that thread from the first connection on, as long as the thread runs, whether it is connected or not.
    """

    def __init__(
        self, options: ZookeeperOptions, on_event: Callable[[SessionEvent], None], beat: Beat | None = None
    ) -> None:
        self._options = options
        self._beat = beat
        self._on_event = on_event
        self._changed = threading.Condition()
        self._lock = threading.Lock()
        self._missed: list[tuple[Watch, Event]] = []
        self._started = self._ending = self._ended = False
        self.lost_at = 0.0
        """When the connection was lost (monotonic); 0 while there is one, and before the first."""
        self.timeout_s = options.session_timeout_s
        """The session timeout that ZooKeeper has granted, in seconds."""
        self.session: Session | None = None
        """The present session; the last one while there is no connection."""

    # -- begin ----------------------------------------------------------------------------------------------------

    def start(self, resume: Session | None, last_zxid: int, chroot: str) -> None:
        """Begin to connect, in a new session or in the session `resume`. If that has ended, `session` is a new one.
        `wait_until_started` must follow."""
        options = self._options
        attempts = max(options.hosts.count(",") + 1, LEAST_ATTEMPTS)
        handler = self._handler = _Handler(options.tls, options.session_timeout_s / attempts, self._beat)
        client = self.client = KazooClient(
            hosts=options.hosts + chroot,
            timeout=options.session_timeout_s,
            client_id=None if resume is None else (resume.id, resume.password),
            handler=self._handler,
            auth_data=set(options.auth),
            sasl_options=None if options.sasl is None else dict(options.sasl),
            connection_retry=KazooRetry(
                max_tries=-1, delay=FIRST_RETRY_S, max_delay=LONGEST_RETRY_S, sleep_func=handler.sleep_func
            ),
            command_retry=KazooRetry(max_tries=0, sleep_func=handler.sleep_func),
            logger=kazoo_log,
        )
        client.last_zxid = last_zxid
        self._note_timeout()
        client.add_listener(self._on_state)
        client.start_async()

    def wait_until_started(self) -> None:
        """Wait for the first connection. Raises StoreUnavailable; then the connection has ended."""
        began, within_s = time.monotonic(), self._options.connection_timeout_s
        connected = self.wait_until_connected(began + min(within_s, REPORT_AFTER_S))
        if not connected and within_s > REPORT_AFTER_S and not self._ending:
            log.warning(
                "waiting for ZooKeeper at %s: no server answered within %g s", self._options.hosts, REPORT_AFTER_S
            )
            connected = self.wait_until_connected(began + within_s)
        if not connected:
            self.end(in_order=False)
            reason = f" (TLS: {self._handler.failure})" if self._handler.failure else ""
            raise StoreTimeout(
                f"ZooKeeper at {self._options.hosts} did not accept a connection within {within_s:g} s{reason}"
            )
        self._started = True

    def _note_timeout(self) -> None:
        """Let the attribute `timeout_s` follow what the servers grant; kazoo does not keep it. Let every refusal of the
        session be an authentication failure for kazoo."""
        connect = self.client._connection._connect

        def noting(*arguments: Any) -> tuple[float, float]:
            try:
                read_timeout_ms, connect_timeout_ms = connect(*arguments)
            except (AuthFailedError, ConnectionDropped, SessionExpiredError, KazooTimeoutError):
                raise
            except KazooException as error:  # would end kazoo's thread with a traceback
                raise AuthFailedError(f"ZooKeeper refused the session: {error!r}") from error
            self.timeout_s = read_timeout_ms * 1.5 / 1000  # kazoo reads for two thirds of the session timeout
            return read_timeout_ms, connect_timeout_ms

        self.client._connection._connect = noting

    @property
    def alive(self) -> bool:
        """Whether kazoo still tries to connect; False after an authentication failure."""
        return not self.client._connection.connection_stopped.is_set()

    def wait_until_connected(self, deadline: float) -> bool:
        """Wait for a connection until the deadline (monotonic). Returns False without one, or if there will be none."""
        with self._changed:
            while not self.client.connected:
                left = deadline - time.monotonic()
                if left <= 0 or self._ending or (self._started and not self.alive):
                    return False
                self._changed.wait(min(left, LOOK_EVERY_S))
        return True

    # -- events ---------------------------------------------------------------------------------------------------

    def _on_state(self, state: str) -> None:
        """Called in kazoo's connection thread."""
        if state == KazooState.CONNECTED:
            self._connected()
        elif not self._ending:
            lost = state == KazooState.LOST
            self.lost_at = self.lost_at or time.monotonic()
            log.warning(
                "the session in ZooKeeper has ended"
                if lost
                else "lost the connection to ZooKeeper at %s; reconnecting",
                *(() if lost else (self._options.hosts,)),
            )
            self._report(SessionEvent.LOST if lost else SessionEvent.SUSPENDED)
        with self._changed:
            self._changed.notify_all()

    def _connected(self) -> None:
        self._handler.connected()
        before, self.session = self.session, Session(self.client._session_id, self.client._session_passwd)
        if self.lost_at:
            log.info("connected to ZooKeeper again after %.1f s", time.monotonic() - self.lost_at)
            self.lost_at = 0.0
        same = before is None or before.id == self.session.id
        self._report(SessionEvent.CONNECTED if same else SessionEvent.NEW_SESSION)
        self._call_missed()

    def _report(self, event: SessionEvent) -> None:
        if self._started and not self._ending:
            self._on_event(event)

    # -- watches --------------------------------------------------------------------------------------------------

    def armed(self, watch: Watch | None, kind: str, path: str) -> Callable[[WatchedEvent], None] | None:
        """The form in which kazoo calls a watch. :param kind: of the event after a loss of the connection."""
        if watch is None:
            return None

        def called(event: WatchedEvent) -> None:
            if event.type in KINDS:
                _call(watch, Event(KINDS[event.type], event.path))
                return
            with self._lock:
                self._missed.append((watch, Event(kind, path)))
            if self.client.connected:  # again, before this call
                self._call_missed()

        return called

    def _call_missed(self) -> None:
        """Let the callback thread call the watches that kazoo has dropped."""
        with self._lock:
            missed, self._missed = self._missed, []
        for watch, event in missed:
            self._handler.callback_queue.put(lambda watch=watch, event=event: _call(watch, event))

    # -- end ------------------------------------------------------------------------------------------------------

    def withdraw(self, pending: Any) -> None:
        """Remove a request whose caller does not wait any more, if it was not sent yet."""
        queue = self.client._queue
        for entry in list(queue):
            if entry[1] is pending:
                try:
                    queue.remove(entry)
                except ValueError:
                    log.debug("a request was sent to ZooKeeper when its caller had ceased to wait for it")

    def stop_waiting(self) -> None:
        """End the connection and all waits of other threads; may be called in any thread. `end` must follow."""
        self._ending = True
        self.client._stopped.set()
        with self._lock:
            if not self._ended:
                self._handler.abort()
        with self._changed:
            self._changed.notify_all()

    def end(self, in_order: bool) -> bool:
        """End the connection; a second call does nothing.

        :param in_order: also end the session, and delete its ephemeral nodes. Otherwise a successor can resume it.
        :return: whether ZooKeeper has confirmed the end of the session.
        """
        client, connection = self.client, self.client._connection
        confirmed = False
        if in_order and not self._ending and self.wait_until_connected(time.monotonic() + END_WITHIN_S):
            self._ending = True
            client._stopped.set()
            client._queue.append((CloseInstance, None))
            connection._write_sock.send(b"\0")
            confirmed = connection.connection_stopped.wait(END_WITHIN_S)
        self.stop_waiting()
        if not connection.connection_stopped.wait(END_WITHIN_S):
            log.warning(
                "the connection thread to ZooKeeper does not end (a name of zookeeper.connect is being resolved)"
            )
            return confirmed
        with self._lock:
            ended, self._ended = self._ended, True
        if not ended:
            connection.stop()
            client.handler.stop()
            client.close()
            self._handler.close()
        return confirmed


def accepts(options: ZookeeperOptions) -> bool:
    """Whether a server accepts a connection in a new session now. May be called in any thread; waits up to `ACCEPTS_WITHIN_S`.

    A server refuses a session that has seen a later transaction than itself. No server of a working ensemble does that for
    long, but all do after ZooKeeper was restored from a backup or replaced by an empty one.
    """
    connection = ZookeeperConnection(options._replace(connection_timeout_s=ACCEPTS_WITHIN_S), lambda _: None)
    connection.start(None, 0, "")
    try:
        connection.wait_until_started()
    except StoreUnavailable:
        return False
    connection.end(in_order=True)
    return True


def _call(watch: Watch, event: Event) -> None:
    """Call a watch; an exception of it is logged."""
    try:
        watch(event)
    except Exception:
        log.exception("the watch of %s failed", event.path)
