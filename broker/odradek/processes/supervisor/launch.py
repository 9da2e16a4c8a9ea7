"""Starts a broker from a configuration: sets process limits, locks the log directories, binds the sockets, runs the supervisor.

Runs in the process that becomes the supervisor. Sockets and locks opened here outlive every child and every memory fault.
"""

import logging
import resource
import socket
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from odradek.config.broker_config import BrokerConfig
from odradek.config.errors import ConfigError
from odradek.config.key import show
from odradek.config.listeners import Listener, by_connection
from odradek.config.table import broker_key
from odradek.metrics import http_access
from odradek.net import listeners
from odradek.processes import logs
from odradek.processes.supervisor import late_imports
from odradek.processes.supervisor.core_dumps import limit_core_dumps
from odradek.processes.supervisor.log_dirs import LogDirectories, StartError
from odradek.processes.supervisor.running_broker import BrokerResources
from odradek.processes.supervisor.supervisor import Supervisor
from odradek.processes.table import PROCESSES, ProcessRow
from odradek.security import peer_settings
from odradek.security.hosts import LOOPBACK
from odradek.security.sasl.oauth_settings import HANDLER, OAuthSettings
from odradek.security.sasl.settings import all_settings

if TYPE_CHECKING:
    from odradek.net.tls_listeners import TlsListeners

log = logging.getLogger("odradek.config")

MAX_OPEN_FILES = 1 << 20
STACK_BYTES = 8 << 20
"""Address space for the stack of each thread, as glibc gives it. musl would give 128 KiB, which is less than native code needs
that has the text of a file on its stack (_ext/partition/leader_epochs.pyx)."""
PROTECTIVE = ("sasl.", "ssl.", "listener.name.", "super.users", "allow.everyone.if.no.acl.found", "delegation.token.",
              "connections.max.reauth.ms", "principal.builder.class")  # fmt: skip
"""Prefixes of the keys with which an operator restricts what clients may do."""
CHECKED_CLASSES = tuple(
    f".oauthbearer.{key}" for key in (HANDLER, peer_settings.LOGIN_HANDLER, peer_settings.RETRIEVER)
)
"""The ends of keys that may only name what this broker does anyway (`oauth_settings`, `peer_settings`)."""

__all__ = ["StartError", "run"]


def run(config: BrokerConfig, rows: Sequence[ProcessRow] = PROCESSES) -> int:
    """Run the broker in the foreground until a signal stops it. Returns the exit code.

    :raises StartError: the broker cannot start; the message is one line for the operator.
    :raises ConfigError: the configuration is invalid.
    """
    config.check_metadata_store()
    logs.set_up("supervisor", config)
    logs.log_uncaught()
    tls = check(config)
    limit_core_dumps(config)
    threading.stack_size(STACK_BYTES)  # the children inherit it
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    with LogDirectories(config) as directories:
        sockets: list[socket.socket] = []
        try:
            sockets.extend(_bind(config, listener) for listener in config.listeners)
            bound = [
                listeners.as_bound(listener, sock) for listener, sock in zip(config.listeners, sockets, strict=True)
            ]
            metrics_socket = None
            if config.metrics_listener is not None:
                # The socket outlives every reporter, so a scrape waits while the reporter restarts.
                metrics_socket = _bind_metrics(config, config.metrics_listener)
                sockets.append(metrics_socket)
            resources = BrokerResources(
                config, directories, sockets[: len(bound)], bound, metrics_socket, rows, tls=tls
            )
            with late_imports.refused_after_upgrade():
                return Supervisor(resources).run()
        finally:
            for sock in sockets:
                sock.close()


def check(config: BrokerConfig) -> "TlsListeners | None":
    """Check what can be checked before log directories and sockets are opened, and log warnings. Returns the listeners' TLS.

    :raises StartError: a broker cannot start with this configuration; the message is one line for the operator.
    :raises ConfigError: the configuration is invalid.
    """
    for line in config.warnings:
        log.warning("%s", line)
    for line in config.notes:
        log.info("%s", line)
    _report_settings_without_effect(config)
    _report_published_address(config)
    _check_policies(config)
    tls = _begin_tls(config)
    _check_logins(config)
    _check_peers(config)
    _check_metrics_access(config)
    return tls


def _check_policies(config: BrokerConfig) -> None:
    """Load the configured policy classes before anything is created, so that one that cannot be loaded fails the start.

    :raises StartError: a class cannot be loaded.
    """
    try:
        if config.get("create.topic.policy.class.name") or config.get("alter.config.policy.class.name"):
            from odradek.controller.policies import Policies  # imported only if configured, which is rare

            Policies(config)
        if config.get("odradek.segment.deletion.policy.class.name"):
            from odradek.cleaner.deletion_policy import load_policy

            load_policy(config)
    except ConfigError as error:
        raise StartError(str(error)) from error


def _begin_tls(config: BrokerConfig) -> "TlsListeners | None":
    """The listeners with TLS; None if there are none.

    :raises StartError: a listener cannot work.
    """
    if all(listener.protocol == "PLAINTEXT" for listener in config.listeners):
        return None  # without the TLS library, which takes memory in all processes
    from odradek.net.tls_listeners import begin_tls

    try:
        return begin_tls(config)
    except ConfigError as error:
        raise StartError(str(error)) from None


def _check_peers(config: BrokerConfig) -> None:
    """Check how this broker connects to others.

    :raises StartError: the settings of the inter-broker listener cannot be used.
    """
    try:
        for line in peer_settings.check(config):
            log.warning("%s", line)
    except ConfigError as error:
        raise StartError(str(error)) from None


def _check_logins(config: BrokerConfig) -> None:
    """Check the SASL settings of all listeners.

    :raises StartError: a listener has no mechanism that this broker supports, or a JAAS line cannot be used.
    """
    try:
        for listener, settings in all_settings(config).items():
            if settings.oauth is not None:
                _prepare_tokens(listener, settings.oauth)
            if settings.missing:
                log.warning(
                    "listener %s does not offer the SASL mechanisms %s, which are not supported",
                    listener, ", ".join(settings.missing),
                )  # fmt: skip
    except ConfigError as error:
        raise StartError(str(error)) from error


def _prepare_tokens(listener: str, settings: OAuthSettings) -> None:
    """Import, before the first fork, what checks tokens; check the trust store for the keys. Raises ConfigError."""
    import odradek.security.sasl.token_verifier  # noqa: F401 - so that the processes share its pages
    from odradek.security.provider_trust import tls_context

    url = settings.source.url
    if url.startswith("https:"):
        tls_context(settings.source.trust)
    elif url.startswith("http:") and urlsplit(url).hostname not in LOOPBACK:
        log.warning(
            "listener %s accepts tokens by keys that are read without encryption from %s: whoever can change them on the "
            "way can log in as anybody; use https",
            listener, url,
        )  # fmt: skip


def _check_metrics_access(config: BrokerConfig) -> None:
    """Check TLS and credentials of the metrics listener. Raises StartError."""
    if config.metrics_listener is None:
        return
    try:
        encrypted = bool(config[http_access.TLS])
        if encrypted:
            http_access.HttpTls(config)  # before the credentials: its error is reported first
        credentials = http_access.Credentials(config)
        if credentials.required and not encrypted and config.metrics_listener.host not in LOOPBACK:
            log.warning(
                "clients of metrics.listener=%s send their passwords and tokens unencrypted: set %s=true",
                config["metrics.listener"], http_access.TLS,
            )  # fmt: skip
    except ConfigError as error:
        raise StartError(str(error)) from None


def _report_settings_without_effect(config: BrokerConfig) -> None:
    """Log the settings that have no effect: at INFO those of Kafka's own files that no operator needs here, such as the keys of
    KRaft's controllers and numbers of threads; at WARNING those that an operator may rely on."""
    without_effect = [name for name in config.without_effect if not name.endswith(CHECKED_CLASSES)]
    protective = [name for name in without_effect if name.startswith(PROTECTIVE)]
    rest: list[str] = []
    foreign: list[str] = []
    for name in without_effect:
        row = broker_key(name)
        if name not in protective and row is not None and row.no_effect is not None:
            (rest if row.no_effect.warns else foreign).append(name)
    if protective:
        places = ", ".join(f"{name} ({config.settings[name].where})" for name in protective)
        log.warning("these security settings have no effect, and protect nothing: %s", places)
    if rest:
        log.warning("these settings have no effect: %s", ", ".join(rest))
    if foreign:
        log.info(
            "ignoring settings of Kafka's controllers, threads, JVM and share groups, which this broker does not have: %s",
            ", ".join(foreign),
        )


def _report_published_address(config: BrokerConfig) -> None:
    """Log which addresses clients receive, if that depends on their connection and on `odradek.published.address`."""
    if config.published_address is None or config.is_set("advertised.listeners") or config.clustered:
        return
    if any(by_connection(listener) for listener in config.listeners):
        log.info(
            "clients of a published port receive %s (odradek.published.address), other clients the address to which they have "
            "connected; set advertised.listeners to return one address to all clients of a listener",
            config["odradek.published.address"],
        )  # fmt: skip


def _bind_metrics(config: BrokerConfig, listener: Listener) -> socket.socket:
    """The socket of `metrics.listener`. If another process, such as a second broker, has the default port, the socket has a
    free port, because no Prometheus is configured for a default. A configured port must be free."""
    address = str(listener).partition("://")[2]
    try:
        return listeners.bind(listener)
    except listeners.BindError as error:
        if not error.in_use or config.is_set("metrics.listener"):
            raise StartError(
                f"metrics.listener={address} {error.reason}; set another address, or leave it empty to disable metrics over "
                "HTTP"
            ) from error
        free = listeners.bind(listener._replace(port=0))
        config.use_metrics_port(free.getsockname()[1])
        log.warning(
            "the default metrics.listener=%s %s; using %s, which has a free port, until the next start; set "
            "metrics.listener to the address that Prometheus scrapes, or to an empty value to disable metrics over HTTP",
            address, error.reason, config["metrics.listener"],
        )  # fmt: skip
        return free


def _bind(config: BrokerConfig, listener: Listener) -> socket.socket:
    try:
        return listeners.bind(
            listener,
            # The default is larger than Kafka's, because connections also wait here while processes start.
            backlog=config.integer("socket.listen.backlog.size"),
            send_buffer=config.integer("socket.send.buffer.bytes"),
            receive_buffer=config.integer("socket.receive.buffer.bytes"),
        )
    except listeners.BindError as error:
        raise StartError(f"{error}; set another address in listeners={show(config['listeners'])}") from error
