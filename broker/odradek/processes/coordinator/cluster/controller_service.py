"""The controller of a cluster in the coordinator, if this broker is elected: connects `ClusterController` with the store thread
and with the other brokers.

The store thread owns the controller. The event loop owns the connections to the brokers (`BrokerChannels`) and the timers.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek._ext.shm import brokers
from odradek._ext.shm.metering import count
from odradek.config.broker_config import BrokerConfig
from odradek.controller.cluster.admin import ClusterAdmin
from odradek.controller.cluster.cluster_controller import RETRY_S, ClusterController, ControllerSettings
from odradek.controller.cluster.context import LiveBroker
from odradek.controller.cluster.requests import VERSIONS
from odradek.metadata.store import Store, StoreError
from odradek.net.peers import Address, Peer, PeerClosed, setup_ms
from odradek.processes import own_tasks
from odradek.protocol.registry import by_key

if TYPE_CHECKING:
    from odradek.security.peers import PeerSecurity

log = logging.getLogger("odradek.controller")

CONTROLLER, REBALANCE = "controller of the cluster", "rebalance of leaders"


class BrokerChannels:
    """The controller's connections to brokers, see `executor.Channels`. The connections live in the event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, config: BrokerConfig, security: "PeerSecurity | None" = None
    ) -> None:
        self._loop = loop
        self._security = security
        self._setup_ms = setup_ms(config)
        self._listener = config.inter_broker_listener.name
        self._client_id = str(config.node_id)
        self._timeout_s = config.integer("controller.socket.timeout.ms") / 1000
        self._peers: dict[int, Peer] = {}

    def open(self, broker: LiveBroker) -> None:
        """See `Channels`."""
        self._loop.call_soon_threadsafe(self._open, broker)

    def close(self, broker_id: int) -> None:
        """See `Channels`."""
        self._loop.call_soon_threadsafe(self._close, broker_id)

    def send(self, broker_id: int, api_key: int, request: Any, then: Callable[[Any], None]) -> None:
        """See `Channels`."""
        self._loop.call_soon_threadsafe(self._send, broker_id, api_key, request, then)

    # -- event loop -----------------------------------------------------------------------------------------------

    def _open(self, broker: LiveBroker) -> None:
        self._close(broker.id)
        endpoint = broker.endpoint(self._listener)
        if endpoint is None:
            log.error(
                "broker %d has no listener %s (inter.broker.listener.name): it receives no requests of the controller",
                broker.id, self._listener,
            )  # fmt: skip
        address: Address | None = None if endpoint is None else (endpoint.host, endpoint.port)
        self._peers[broker.id] = Peer(
            self._loop,
            f"broker {broker.id}",
            lambda: address,
            self._client_id,
            self._timeout_s,
            self._security,
            self._setup_ms,
        )

    def _close(self, broker_id: int) -> None:
        peer = self._peers.pop(broker_id, None)
        if peer is not None:
            peer.close()

    def _send(self, broker_id: int, api_key: int, request: Any, then: Callable[[Any], None]) -> None:
        def answered(outcome: Any) -> None:
            if not isinstance(outcome, PeerClosed):
                then(outcome)

        peer = self._peers.get(broker_id)
        if peer is not None:
            peer.send(by_key(api_key), request, answered, version=VERSIONS[api_key], repeat=True)

    def close_all(self) -> None:
        """Close all connections. Called in the event loop when the coordinator stops."""
        for broker_id in list(self._peers):
            self._close(broker_id)


class ControllerService:
    """See the module.

    :param store: a store with an open session.
    :param store_thread: executes everything that uses the store. :param security: of the connections to brokers.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: BrokerConfig,
        store: Store,
        store_thread: Executor,
        security: "PeerSecurity | None" = None,
    ) -> None:
        self._loop = loop
        self._config = config
        self._store_thread = store_thread
        self._channels = BrokerChannels(loop, config, security)
        self._woken = False  # whether `_process` is queued in the loop
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._closed = False
        self._takes_part = False  # from the registration of the broker until the loss of the session
        self._waits_for = ""  # the failure that was logged last
        self.controller = ClusterController(
            store,
            self._channels,
            config.node_id,
            self._settings,
            config.inter_broker_listener.name,
            self._wake,
            self._again,
            count,
            lambda: int(brokers.controller()[1]),
        )
        self.admin = ClusterAdmin(self.controller, config)

    def _settings(self) -> ControllerSettings:
        """The present settings. Called in the store thread."""
        config = self._config
        return ControllerSettings(
            unclean_elections=bool(config["unclean.leader.election.enable"]),
            deletion_enabled=bool(config["delete.topic.enable"]),
            rebalance_enabled=bool(config["auto.leader.rebalance.enable"]),
            imbalance_percentage=config.integer("leader.imbalance.per.broker.percentage"),
        )

    # -- event loop -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take part in the election of the controller; called after each registration of the broker."""
        self._takes_part = True
        self._submit(self.controller.look)
        interval_s = self._config.integer("leader.imbalance.check.interval.seconds")
        if REBALANCE not in self._timers:
            own_tasks.expect(REBALANCE, round(interval_s * 1000))
            self._every(REBALANCE, interval_s, self.controller.rebalance)

    def reconnected(self) -> None:
        """The connection to the store is back, in the same session."""
        self._takes_part = True
        self._submit(self.controller.reconnected)

    def settings_changed(self) -> None:
        """Settings of topics or of brokers have changed. May be called in any thread."""
        self._loop.call_soon_threadsafe(self._submit, self.controller.unclean_elections_changed)

    def resign(self) -> None:
        """The session is lost: this broker is not the controller any more, and is registered again before it can be."""
        self._takes_part = False
        self._submit(self.controller.resign)

    def close(self) -> None:
        """Stop; requests that brokers have not answered are dropped, and the next controller sends them again."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._channels.close_all()

    def _wake(self) -> None:
        """Called in any thread: the controller has events."""
        self._loop.call_soon_threadsafe(self._process)

    def _process(self) -> None:
        if not self._woken and not self._closed:
            self._woken = True
            self._submit(self._process_events)

    def _process_events(self) -> None:
        """Called in the store thread."""
        self._woken = False
        self.controller.process()

    def _submit(self, work: Callable[[], None], task: str = CONTROLLER) -> None:
        """Execute a function of the controller in the store thread. If it fails, the controller has called `_again`.

        :param task: the background task that it belongs to.
        """
        if not self._closed:
            done = partial(self._done, task)
            self._loop.run_in_executor(self._store_thread, work).add_done_callback(done)

    def _done(self, task: str, work: "asyncio.Future[None]") -> None:
        if self._closed or work.cancelled():
            return
        error = work.exception()
        own_tasks.ran(task, None if error is None else {"": str(error) or repr(error)})
        if error is None:
            self._waits_for = ""
            return
        if isinstance(error, StoreError):
            if str(error) != self._waits_for:  # not for each attempt
                self._waits_for = str(error)
                log.warning("the controller waits for ZooKeeper: %s; retrying each %g s", error, RETRY_S)
        else:
            log.error("the controller failed; it reads everything again in %g s", RETRY_S, exc_info=error)

    def _again(self, after_s: float) -> None:
        """See `ClusterController`. Called in the store thread."""
        if not self._closed:
            self._loop.call_soon_threadsafe(self._begin_again_after, after_s)

    def _begin_again_after(self, after_s: float) -> None:
        due = self._loop.time() + after_s
        timer = self._timers.get("again")
        if self._closed or (timer is not None and timer.when() <= due):
            return
        if timer is not None:
            timer.cancel()
        self._timers["again"] = self._loop.call_at(due, self._begin_again)

    def _begin_again(self) -> None:
        del self._timers["again"]
        if self._takes_part:
            self._submit(self.controller.begin_again)
            self._process()

    def _every(self, name: str, interval_s: float, work: Callable[[], None]) -> None:
        def due() -> None:
            self._submit(work, name)
            self._timers[name] = self._loop.call_later(interval_s, due)

        self._timers[name] = self._loop.call_later(interval_s, due)
