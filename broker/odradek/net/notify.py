"""Notifies systemd (sd_notify) of readiness, status, watchdog keep-alives, and the stop."""

import logging
import os
import socket
from collections.abc import Mapping

log = logging.getLogger("odradek.supervisor")

LONGEST_WAIT_S = 1.0


class Notifier:
    """Sends to ``NOTIFY_SOCKET``; does nothing if that is not set. Used only by the supervisor."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        variables = os.environ if environment is None else environment
        address = variables.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) if address else None
        if self._socket is not None:
            self._socket.settimeout(LONGEST_WAIT_S)
        usec = variables.get("WATCHDOG_USEC", "")
        for_this_process = variables.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_s: float | None = (
            int(usec) / 2_000_000 if usec.isdigit() and int(usec) > 0 and for_this_process else None
        )
        """The interval of ``WATCHDOG=1``, in seconds; None if systemd's watchdog is not active for this process."""

    def send(self, **fields: object) -> None:
        """Send ``KEY=value`` lines. A failure is only logged; without the socket's file, it is the last one."""
        if self._socket is None:
            return
        message = "\n".join(f"{name}={value}" for name, value in fields.items())
        try:
            self._socket.sendto(message.encode(), self._address)
        except FileNotFoundError:  # who started this broker waited only for its start, as `odradek.testing.Broker` does
            log.info("%s (NOTIFY_SOCKET) has gone: there are no further notifications", self._address)
            self.close()
        except OSError as error:
            log.warning("cannot send %s to the service manager: %s", message.replace("\n", " "), error)

    def extend_timeout(self, seconds: float, **fields: object) -> None:
        """Allow this process `seconds` from now on, besides what the service manager allows anyway; with other fields."""
        self.send(EXTEND_TIMEOUT_USEC=int(seconds * 1_000_000), **fields)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
