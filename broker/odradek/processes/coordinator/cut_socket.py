"""The cut socket: tells `odradek backup` up to which offset it may copy each log. Runs in the coordinator's loop.

A client connects to `odradek.cut.sock` in the first log directory, receives one JSON document, and is disconnected; it sends
nothing. The offsets of all partitions are read in one call, in which the loop does nothing else. Only this loop appends to
`__consumer_offsets` and `__transaction_state`, and on a single broker also the markers of transactions. Therefore the cut is
one consistent state (docs/decisions/0037-backup.md): every committed offset is at or below the offset of its partition, and
either all markers of a transaction are in the cut, or the decision is, so that a start writes the missing ones.

If the socket cannot be created, backups of the running broker fail, and nothing else.
"""

import asyncio
import json
import logging
import os
import socket
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import odradek._ext.partition.slot_upkeep as slot_upkeep
import odradek._ext.partition.slots as slots
from odradek.config.pid_file import CUT_SOCKET
from odradek.net.listeners import listen_unix
from odradek.processes.context import ProcessContext

log = logging.getLogger("odradek.coordination")

SEND_TIMEOUT_S = 30.0
PAUSE_S = 0.2
MOST_CLIENTS = 4
CUT_VERSION = 1


class CutSocket:
    """The listening socket; only the broker's own user (and root) may connect. Used in the loop, except for `_send`."""

    def __init__(self, context: ProcessContext, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop
        self._listening: socket.socket | None = None
        self._clients: set[socket.socket] = set()

    def start(self) -> None:
        """Listen. A failure is logged."""
        directory = Path(self._context.log_dirs[0])
        try:
            self._listening = listen_unix(directory, CUT_SOCKET, MOST_CLIENTS)
        except OSError as error:
            log.warning(
                "cannot create %s: %s; `odradek backup create` fails until the coordinator is restarted",
                directory / CUT_SOCKET, error.strerror,
            )  # fmt: skip
            return
        self._watch()

    def _watch(self) -> None:
        if self._listening is not None:
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        assert self._listening is not None
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            log.warning("cannot accept a connection on %s: %s; retrying in %g s", CUT_SOCKET, error.strerror, PAUSE_S)
            self._loop.remove_reader(self._listening.fileno())
            self._loop.call_later(PAUSE_S, self._watch)
            return
        if len(self._clients) >= MOST_CLIENTS:
            connection.close()  # the client reports that it received nothing
            return
        self._clients.add(connection)
        sending = self._loop.run_in_executor(None, _send, connection, take_cut(self._context))
        sending.add_done_callback(partial(self._sent, connection))

    def _sent(self, connection: socket.socket, sending: "asyncio.Future[None]") -> None:
        self._clients.discard(connection)
        connection.close()
        if not sending.cancelled() and (error := sending.exception()) is not None:
            log.debug("a client of the cut socket disconnected before it read the reply: %s", error)

    def close(self) -> None:
        """Stop listening, and end what is being sent: a client that does not read must not delay the stop."""
        listening, self._listening = self._listening, None
        if listening is None:
            return
        self._loop.remove_reader(listening.fileno())
        listening.close()
        for connection in self._clients:
            with suppress(OSError):  # the client has closed it
                connection.shutdown(socket.SHUT_RDWR)


def take_cut(context: ProcessContext) -> dict[str, Any]:
    """The cut, as a JSON object. Its `partitions` are lists of topic, partition, topic id (hex), number of the log directory,
    log start offset and high watermark; both offsets are -1 if the log is not open."""
    partitions = []
    for slot, (topic, partition, log_dir, _, log_start, high_watermark) in slot_upkeep.checkpoint_offsets():
        partitions.append((topic, partition, slots.log_of(slot)[2], log_dir, log_start, high_watermark))
    shm, config = context.shm, context.config
    return {
        "version": CUT_VERSION,
        "pid": os.getppid(),
        "time_ms": time.time_ns() // 1_000_000,
        "node_id": config.node_id,
        "cluster_id": shm.cluster_id,
        "clustered": config.clustered,
        "log_dirs": [str(path) for path in context.log_dirs],
        "offline": [str(path) for number, path in enumerate(context.log_dirs) if shm.log_dir_offline(number)],
        "partitions": partitions,
    }


def _send(connection: socket.socket, cut: dict[str, Any]) -> None:
    """Encode and send the cut, in a thread, because a table of many partitions takes long. Raises OSError."""
    connection.settimeout(SEND_TIMEOUT_S)
    connection.sendall(json.dumps(cut, default=bytes.hex, separators=(",", ":")).encode())
