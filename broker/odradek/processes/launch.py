"""From a configuration to a running broker: limits of the process, locks of the log directories, bound sockets, the supervisor.

Runs in the process that becomes the supervisor; what is opened here outlives every child and every memory fault.
"""

import logging
import resource
import socket
from collections.abc import Sequence

from odradek.config.broker_config import BrokerConfig
from odradek.config.errors import ConfigError
from odradek.config.listeners import Listener
from odradek.net import listeners
from odradek.processes import logs
from odradek.processes.log_dirs import LogDirectories, StartError
from odradek.processes.supervisor import Supervisor
from odradek.processes.table import PROCESSES, ProcessRow

log = logging.getLogger("odradek.config")

MOST_OPEN_FILES = 1 << 20
PROTECTIVE = ("sasl.", "ssl.", "listener.name.", "super.users", "allow.everyone.if.no.acl.found", "delegation.token.",
              "connections.max.reauth.ms", "principal.builder.class")  # fmt: skip
"""Prefixes of keys by which an operator protects a broker from clients."""

__all__ = ["StartError", "run"]


def run(config: BrokerConfig, rows: Sequence[ProcessRow] = PROCESSES) -> int:
    """Run the broker in the foreground until it is asked to stop; the exit code.

    :raises StartError: it cannot start; the message is one line for the operator.
    :raises ConfigError: the configuration cannot be used.
    """
    config.check_metadata_store()
    logs.set_up("supervisor", config)
    for line in config.warnings:
        log.warning("%s", line)
    _warn_of_settings_without_effect(config)
    _check_policies(config)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    with LogDirectories(config) as directories:
        sockets: list[socket.socket] = []
        try:
            sockets.extend(_bind(config, listener) for listener in config.listeners)
            bound = [listeners.as_bound(one, sock) for one, sock in zip(config.listeners, sockets, strict=True)]
            metrics_socket = None
            if config.metrics_listener is not None:
                # Outlives every reporter, so that a scrape waits while one restarts.
                metrics_socket = _bind_metrics(config.metrics_listener)
                sockets.append(metrics_socket)
            return Supervisor(
                config, directories, sockets[: len(bound)], bound, rows, metrics_socket=metrics_socket
            ).run()
        finally:
            for sock in sockets:
                sock.close()


def _check_policies(config: BrokerConfig) -> None:
    """Before anything is made, so that a class that cannot be loaded stops the start with one line."""
    try:
        if config.get("create.topic.policy.class.name") or config.get("alter.config.policy.class.name"):
            from odradek.controller.policies import Policies  # hardly anybody has some

            Policies(config)
        if config.get("odradek.segment.deletion.policy.class.name"):
            from odradek.cleaner.deletion_policy import load_policy

            load_policy(config)
    except ConfigError as error:
        raise StartError(str(error)) from error


def _warn_of_settings_without_effect(config: BrokerConfig) -> None:
    protective = [name for name in config.without_effect if name.startswith(PROTECTIVE)]
    others = [name for name in config.without_effect if name not in protective]
    if protective:
        places = ", ".join(f"{name} ({config.settings[name].where})" for name in protective)
        log.warning("this broker has no authentication and no authorization yet: every client that can connect may read, write "
                    "and delete everything; these settings have no effect: %s", places)  # fmt: skip
    if others:
        log.warning("these settings have no effect yet: %s", ", ".join(others))


def _bind_metrics(listener: Listener) -> socket.socket:
    try:
        return listeners.bind(listener)
    except listeners.BindError as error:
        address = str(listener).partition("://")[2]
        reason = str(error).removeprefix(f"listener {listener}").lstrip(": ")
        raise StartError(
            f"metrics.listener={address} {reason}; give it another address, or none to turn it off"
        ) from error


def _bind(config: BrokerConfig, listener: Listener) -> socket.socket:
    backlog = "socket.listen.backlog.size"
    try:
        return listeners.bind(
            listener,
            # Kafka's default of 50 suits a thread that only accepts; connections also wait while processes are started.
            backlog=config.integer(backlog) if config.is_set(backlog) else listeners.BACKLOG,
            send_buffer=config.integer("socket.send.buffer.bytes"),
            receive_buffer=config.integer("socket.receive.buffer.bytes"),
        )
    except listeners.BindError as error:
        raise StartError(str(error)) from error
