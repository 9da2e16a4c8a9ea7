"""The requests of this broker to the controller of the cluster. Used only in the coordinator's event loop.

If this broker is the controller, the requests take the same way: through a connection to its own listener.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import odradek._ext.shm.brokers as brokers
from odradek.config.broker_config import BrokerConfig
from odradek.net.peers import Address, Peer, setup_ms
from odradek.protocol.schema import ApiSchema
from odradek.protocol.schemas import controlled_shutdown

if TYPE_CHECKING:
    from odradek.security.peers import PeerSecurity

CONTROLLED_SHUTDOWN_VERSION = 3
"""ControlledShutdown is sent without asking for API versions, as Kafka does."""


class ControllerChannel:
    """A connection to the broker that is the controller now, according to the last request of a controller."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, config: BrokerConfig, security: "PeerSecurity | None" = None
    ) -> None:
        self._loop = loop
        self._listener = config.inter_broker_listener.name
        timeout_s = config.integer("controller.socket.timeout.ms") / 1000
        self._peer = Peer(
            loop, "the controller", self._address, str(config.node_id), timeout_s, security, setup_ms(config)
        )

    def _address(self) -> Address | None:
        controller_id, _ = brokers.controller()
        for broker in brokers.brokers():
            if broker.id == controller_id:
                endpoint = broker.endpoint(self._listener)
                return None if endpoint is None else (endpoint.host, endpoint.port)
        return None

    def send(self, api: ApiSchema, message: Any | Callable[[int], Any], then: Callable[[Any], None]) -> None:
        """Send a request in the newest version that both brokers know. See `Peer.send`; it is not repeated."""
        self._peer.send(api, message, then)

    async def shut_down(self, message: Any) -> Any:
        """Send ControlledShutdown and return the response. Raises PeerError."""
        response: asyncio.Future[Any] = self._loop.create_future()

        def then(outcome: Any) -> None:
            if response.done():
                return
            if isinstance(outcome, Exception):
                response.set_exception(outcome)
            else:
                response.set_result(outcome)

        self._peer.send(controlled_shutdown.SCHEMA, message, then, version=CONTROLLED_SHUTDOWN_VERSION)
        return await response

    def close(self) -> None:
        """Close the connection."""
        self._peer.close()
