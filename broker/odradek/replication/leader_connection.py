"""A blocking connection of a replica fetcher to the leader, for the requests that are not on the data path.

Owned by one thread of the replicator. With `PeerSecurity`, the connection is encrypted and logged in before the first request.
"""

import socket
import time
from typing import TYPE_CHECKING, Any

from odradek._ext.protocol.messages import ProtocolError
from odradek.protocol.client_connection import (
    ClientConnection,
    CorrelationError,
    UnservedError,
    VersionsRefused,
    converse,
    renewal_s,
)
from odradek.protocol.schema import ApiSchema, Ask
from odradek.protocol.schemas import fetch, list_offsets
from odradek.security.opening import MAX_OPENING_BYTES, PeerRefused, opening
from odradek.security.sasl.client import Credentials, LoginError, NoTokenError, TokenCredentials

if TYPE_CHECKING:
    from odradek.security.peers import PeerSecurity
    from odradek.security.tls_socket import TlsSocket

Address = tuple[str, int]

LATEST, EARLIEST_LOCAL, EARLIEST = -1, -4, -2
FIRST_WITH_EPOCH = 4
FIRST_WITH_LOCAL_START = 8
NEWEST_LIST_OFFSETS = 9
HINT = "; its log says why, if it refused the certificate of this broker"


class LeaderError(Exception):
    """The leader did not answer, or answered with something that cannot be used."""


class LeaderTimeout(LeaderError):
    """The connection was not set up in time."""


class LeaderRefused(LeaderError):
    """The TLS handshake or the login failed."""


class LeaderConnection:
    """Connects, logs in, and asks for the versions that the leader serves.

    :param timeout_s: for each response. :param receive_buffer: SO_RCVBUF in bytes; -1: the system decides.
    :param setup_s: for the whole set-up; None: as `timeout_s`. :param security: None: the listener is PLAINTEXT.
    :ivar tls: for the native part; None without TLS. :ivar renew_at: when the connection must be replaced, because the session
        of its login ends soon: a monotonic time in seconds; None: never.
    :raises LeaderError: no connection, or no usable response; LeaderRefused: the handshake or the login failed.
    """

    def __init__(
        self,
        address: Address,
        client_id: str,
        timeout_s: float,
        receive_buffer: int = -1,
        *,
        setup_s: float | None = None,
        security: "PeerSecurity | None" = None,
    ) -> None:
        self._protocol = ClientConnection(client_id, MAX_OPENING_BYTES)
        self._timeout_s = timeout_s
        self.tls: TlsSocket | None = None
        self.renew_at: float | None = None
        setup_s = timeout_s if setup_s is None else setup_s
        credentials: Credentials | TokenCredentials | None = None
        if security is not None:
            try:  # before the leader, which bounds the time of a login, sees a connection
                credentials = security.credentials(setup_s)
            except NoTokenError as error:
                raise LeaderRefused(str(error)) from error
        self._began = time.monotonic()
        self._deadline = self._began + setup_s
        try:
            self._socket = socket.create_connection(address, setup_s)
        except TimeoutError as error:
            raise LeaderTimeout(f"cannot connect within {setup_s:g} s") from error
        except OSError as error:
            raise LeaderError(f"cannot connect: {error.strerror or error}") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if receive_buffer > 0:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            self._set_up(address[0], setup_s, security, credentials)
        except OSError as error:
            self.close()
            raise LeaderError(f"cannot connect: {error.strerror or error}") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; may be called more than once."""
        self._socket.close()

    def fileno(self) -> int:
        """The descriptor of the socket."""
        return self._socket.fileno()

    def newest(self, api: ApiSchema) -> int:
        """The newest version of an API that the leader serves; -1 if it does not serve the API."""
        return (self._protocol.ranges or {}).get(api.key, (0, -1))[1]

    @property
    def fetch_version(self) -> int:
        """The newest version of Fetch that the leader serves; -1 if it serves none."""
        return self.newest(fetch.SCHEMA)

    def offset_of(
        self, topic: str, partition: int, leader_epoch: int, replica_id: int, *, latest: bool
    ) -> tuple[int, int]:
        """(error code, offset): the leader's log end offset, or its log start offset.

        :raises LeaderError: no usable response.
        """
        version = min(self.newest(list_offsets.SCHEMA), NEWEST_LIST_OFFSETS)
        if version < FIRST_WITH_EPOCH:
            raise LeaderError(f"it serves ListOffsets only up to version {version}")
        earliest = EARLIEST_LOCAL if version >= FIRST_WITH_LOCAL_START else EARLIEST
        wanted = list_offsets.Request.ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=leader_epoch, timestamp=LATEST if latest else earliest
        )
        request = list_offsets.Request(
            replica_id=replica_id, topics=[list_offsets.Request.ListOffsetsTopic(name=topic, partitions=[wanted])]
        )
        response = self._ask(Ask(list_offsets.SCHEMA, request, newest=version))
        for row in response.topics:
            for found in row.partitions:
                if (row.name, found.partition_index) == (topic, partition):
                    return found.error_code, found.offset
        raise LeaderError("its response to ListOffsets does not contain the partition")

    # -- setting up ---------------------------------------------------------------------------------------------------

    def _set_up(
        self,
        host: str,
        setup_s: float,
        security: "PeerSecurity | None",
        credentials: Credentials | TokenCredentials | None,
    ) -> None:
        """Handshake, versions, login. All together end at the deadline, however slowly the leader sends. Raises LeaderError."""
        phase = "the TLS handshake"
        try:
            context = security.context() if security is not None else None
            if context is not None:
                from odradek.security.tls_socket import (
                    TlsSocket,  # with the TLS library, which plain connections do not need
                )

                self._socket.settimeout(self._time_left())
                self._socket = wrapped = context.wrap_socket(self._socket, server_hostname=host)
                self.tls = TlsSocket(wrapped)
            phase = "the first response" if credentials is None else "the login"
            lifetime_ms = converse(opening(credentials), self._exchange)
        except (LoginError, PeerRefused, UnservedError) as error:
            raise LeaderRefused(str(error)) from error
        except VersionsRefused as error:
            raise (LeaderError if security is None else LeaderRefused)(str(error)) from error
        except ProtocolError as error:
            if security is None:
                raise LeaderError(f"it sent a malformed response to ApiVersions: {error}") from error
            raise LeaderRefused(f"it sent a malformed response in {phase}: {error}") from error
        except TimeoutError as error:
            text = f"no end of {phase} within {setup_s:g} s"
            raise (LeaderTimeout if security is None else LeaderRefused)(text) from error
        except OSError as error:
            reason = None if security is None else security.reason_of(error, host)
            if reason is not None:
                raise LeaderRefused(reason) from error
            raise LeaderError(f"it closed the connection in {phase}{HINT if self.tls else ''}") from error
        except UnicodeError as error:  # the host name cannot be sent as a server name
            raise LeaderRefused(f"the host {host} is not a valid name: {error}") from error
        self.renew_at = renewal_s(self._began, lifetime_ms)

    # -- requests -----------------------------------------------------------------------------------------------------

    def _ask(self, ask: Ask) -> Any:
        """Send a request and wait for the response. Raises LeaderError; then the connection is closed, because a late response
        would be taken for that of the next request."""
        name = ask.api.name
        self._deadline = time.monotonic() + self._timeout_s
        try:
            return self._exchange(ask)
        except UnservedError as error:
            raise LeaderError(str(error)) from error
        except (OSError, ProtocolError) as error:
            self.close()
            if isinstance(error, CorrelationError):
                reason = f"it sent a response with another correlation id to {name}"
            elif isinstance(error, ProtocolError):
                reason = f"it sent a malformed response to {name}: {error}"
            else:
                reason = f"no response to {name}: {error.strerror or error}"
            raise LeaderError(reason) from error

    def _exchange(self, ask: Ask) -> Any:
        """Send a request and wait for the response until the deadline. Raises OSError, ProtocolError, UnservedError."""
        frame = self._protocol.ask(ask)
        self._socket.settimeout(self._time_left())
        self._socket.sendall(frame)
        while (response := self._protocol.response()) is None:
            self._socket.settimeout(self._time_left())
            received = self._socket.recv_into(self._protocol.frames.room)
            if not received:
                raise ConnectionError("it closed the connection")
            self._protocol.frames.filled(received)
        return response

    def _time_left(self) -> float:
        """Raises TimeoutError."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left
