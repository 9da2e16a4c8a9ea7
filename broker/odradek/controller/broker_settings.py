"""Settings of brokers and groups that change at run time: stored in the metadata store, then applied in all processes.

Runs in the coordinator's store thread. The transaction of the store decides: if the coordinator dies after it, the next
coordinator loads all settings from the store (`load`). See docs/decisions/0015-running-configuration.md.
"""

import copy
import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Protocol

from odradek._ext.shm.shared_memory import SharedMemory
from odradek.config.broker_config import BrokerConfig
from odradek.config.dynamic import (
    change_text,
    check_broker_changes,
    check_group_settings,
    check_listeners,
    file_changes,
)
from odradek.config.errors import ConfigError
from odradek.config.key import Value
from odradek.config.loggers import effective
from odradek.config.table import LISTENER_PREFIX
from odradek.controller.client_changes import TopicSettings
from odradek.controller.topics import Refusal
from odradek.metadata import znodes
from odradek.metadata.corrupt_nodes import usable, usable_settings
from odradek.metadata.store import NoNode, Store, Watch
from odradek.protocol.errors import ErrorCode
from odradek.security import peer_settings
from odradek.security.sasl.settings import all_settings
from odradek.shm.confirmed_version import TAKEN_WITHIN_S, serving
from odradek.shm.running_config import Running, RunningConfig, TooManySettings, encoded

log = logging.getLogger("odradek.config")

Change = Callable[[Mapping[str, str]], dict[str, str]]


class TlsChanges(Protocol):
    """Replaces the certificates of listeners. See `odradek.processes.coordinator.security.tls_reload`."""

    def check(self, config: BrokerConfig) -> Any: ...

    def apply(self, material: Any) -> None: ...

    def follow(self, config: BrokerConfig) -> None: ...


def of_tls_stores(name: str) -> bool:
    """Whether a key is one of TLS, for a single listener or for all."""
    return name.startswith("ssl.") or (name.startswith(LISTENER_PREFIX) and ".ssl." in name)


def read_running(store: Store, broker_id: int, before: Running) -> Running:
    """The settings made at run time, from the store, and the levels of loggers. Raises StoreError.

    :param before: what the broker uses now: the levels of loggers, and settings in place of those that cannot be decoded.
    """
    consequence = "the broker keeps the settings that it has, after a start those of its file,"
    of_all, of_broker = (
        usable_settings(store, znodes.broker_config_path(broker), consequence) for broker in (None, broker_id)
    )
    return before._replace(
        of_all=dict(before.of_all) if of_all is None else of_all,
        of_broker=dict(before.of_broker) if of_broker is None else of_broker,
    )


def read_settings(store: Store, path: str) -> dict[str, str]:
    """The settings in a node; empty if the node does not exist. Raises StoreError."""
    try:
        return znodes.decode_config(path, store.get(path)[0])
    except NoNode:
        return {}


def show_running(store: Store, config: BrokerConfig, running: RunningConfig) -> None:
    """Apply the settings of the store to the configuration of this process and publish them to all processes.

    Settings that do not fit into the shared memory are not applied; an error is logged. Raises StoreError.
    """
    before = running.read()[1]
    stored = read_running(store, config.node_id, before)
    if stored != before:
        try:
            running.publish(stored)
        except TooManySettings as error:
            log.error("cannot apply any setting that was made at run time: %s", error)
            stored = before._replace(of_all={}, of_broker={})
    for refusal in config.run_with(stored.of_all, stored.of_broker):
        log.error("ignoring a setting in the metadata store: %s", refusal)
    running.set_levels(config, stored.loggers)


class BrokerSettings:
    """The settings made at run time for this broker, for all brokers, and for groups.

    :param config: the configuration of this process, which the controller and its partitions share; changed in place.
    :param running: publishes changes to the other processes. :param tls: replaces the certificates of listeners; None
    if none has any.
    """

    def __init__(
        self,
        store: Store,
        controller: TopicSettings,
        config: BrokerConfig,
        running: RunningConfig,
        shm: SharedMemory,
        tls: TlsChanges | None = None,
    ) -> None:
        self._tls = tls
        self._store = store
        self._controller = controller
        self._config = config
        self._running = running
        self._shm = shm

    def load(self, groups_watch: Watch | None = None) -> None:
        """Load all settings from the store; called before this broker becomes the controller. Raises StoreError.

        :param groups_watch: see `load_groups`.
        """
        show_running(self._store, self._config, self._running)
        if self._tls is not None:
            self._tls.follow(self._config)
        self._running.taken(self._running.version)
        self.load_groups(groups_watch)

    def reload_brokers(self) -> None:
        """Apply the settings of brokers that another broker changed in the store, in all processes. Raises StoreError."""
        version, before = self._running.version, self._config.topic_defaults
        show_running(self._store, self._config, self._running)
        if self._running.version != version:
            log.info("another broker changed the settings of this broker or of all brokers")
            if self._tls is not None:
                self._tls.follow(self._config)
            self._running.taken(self._running.version)
            self._shm.wake_all()
        if self._config.topic_defaults != before:
            self._controller.configure_all()

    def load_groups(self, watch: Watch | None = None) -> None:
        """Load the settings of groups from the store. Raises StoreError.

        :param watch: called for the next change of any of them.
        """
        nodes = self._store.children(znodes.GROUP_CONFIGS, watch)
        paths = [f"{znodes.GROUP_CONFIGS}/{node}" for node in nodes]
        groups: dict[str, dict[str, Value]] = {}
        for path, entry in zip(paths, self._store.get_many(paths, watch), strict=True):
            group_id = znodes.decode_name(path.rpartition("/")[2])
            stored = usable(
                path,
                partial(znodes.decode_config, path, b"" if entry is None else entry[0]),
                {},
                f"group {group_id} uses the settings of the broker",
            )
            try:
                groups[group_id] = check_group_settings(self._config, stored)
            except ConfigError as error:
                log.error(
                    "group %s uses the settings of the broker, because one of its own is invalid: %s", group_id, error
                )
        self._config.groups = groups

    # -- brokers --------------------------------------------------------------------------------------------------

    def of_broker(self, own: bool) -> dict[str, str]:
        """The stored settings of this broker (`own`), or of all brokers. Raises StoreError."""
        return read_settings(self._store, znodes.broker_config_path(self._config.node_id if own else None))

    def alter_broker(
        self, own: bool, change: Change, validate_only: bool, named: Collection[str] = frozenset()
    ) -> None:
        """Change the settings of this broker (`own`), or of all brokers; when this returns, all processes use them.

        :param named: the keys in the request. If one of TLS is among them, key stores and trust stores are read
            again, also if the value, a path, is the present one.
        Raises Refusal, StoreError, NotController.
        """
        present = self.of_broker(own)
        settings = change(present)
        layers = (self.of_broker(False), settings) if own else (settings, self.of_broker(True))
        try:
            if own:
                check_listeners(self._config, {name: settings[name] for name in named if name in settings})
            apply_tls = self._check(check_broker_changes(self._config, *layers), named)
        except ConfigError as error:
            raise Refusal(ErrorCode.INVALID_REQUEST, str(error)) from None
        if validate_only:
            return
        path = znodes.broker_config_path(self._config.node_id if own else None)
        running = self._running.read()[1]._replace(of_all=layers[0], of_broker=layers[1])
        try:
            encoded(running)
        except TooManySettings as error:
            raise Refusal(ErrorCode.INVALID_REQUEST, str(error)) from None
        # Also if they are stored already: the broker that stored them may have failed before it notified the others.
        self._controller.write_settings(path, settings)
        if settings != present:
            changes = change_text(present, settings)
            log.info("changed the settings of %s: %s", "this broker" if own else "all brokers", changes)
        self._apply(running, apply_tls)

    def _check(self, checked: BrokerConfig, named: Collection[str]) -> Callable[[], None]:
        """Check settings against key stores and logins. Returns what makes the key stores effective. Raises ConfigError.

        :param named: the keys that may change; if one of TLS is among them, key stores and trust stores are read again.
        """
        tls = self._tls if any(of_tls_stores(name) for name in named) else None
        material = None if tls is None else tls.check(checked)
        all_settings(checked)  # of SASL listeners
        peer_settings.check(checked)
        return lambda: None if tls is None else tls.apply(material)

    def _apply(self, running: Running, apply_tls: Callable[[], None]) -> None:
        """Let all processes use settings that were checked. If this fails, a repetition does all of it again."""
        before = copy.copy(self._config)
        self._config.run_with(running.of_all, running.of_broker, running.of_file)
        try:
            if self._config["min.insync.replicas"] != before["min.insync.replicas"]:
                for line in self._config.replica_warnings():
                    log.warning("%s", line)
            if self._config.topic_defaults != before.topic_defaults:
                self._controller.configure_all()
            apply_tls()
            self._running.set_levels(self._config, running.loggers)
        except BaseException:
            vars(self._config).update(vars(before))
            raise
        self._publish(running)

    def _publish(self, running: Running) -> None:
        """Publish settings to all processes, and wait up to `TAKEN_WITHIN_S` until each has applied them."""
        version = self._running.publish(running)
        self._running.taken(version)
        self._shm.wake_all()
        late = self._running.wait_until_taken(version, serving(self._shm), TAKEN_WITHIN_S)
        if late:
            log.warning(
                "%d processes have not applied the new settings within %g s (indexes %s of the process table); "
                "they apply them when their event loops continue",
                len(late), TAKEN_WITHIN_S, ", ".join(map(str, late)),
            )  # fmt: skip

    def reload_file(self) -> None:
        """Read the configuration file again, and let all processes use what changed in it and can change at run time. If the
        file cannot be used, log why; nothing changes."""
        request, refused = self._running.reload_requests, True
        try:
            self._read_file_again()
            refused = False
        except ConfigError as error:
            log.error(
                "cannot use the changed configuration file; all settings stay as they are: %s",
                "; ".join(map(str, error.errors)),
            )
        except TooManySettings as error:
            log.error("cannot use the changed configuration file; all settings stay as they are: %s", error)
        finally:
            self._running.reloaded(request, refused)

    def _read_file_again(self) -> None:
        """Raises ConfigError, TooManySettings."""
        source = self._config.source
        assert source is not None, "the supervisor requests this only if there is a file"
        fresh = source.read_again()
        for line in fresh.warnings:
            if line not in self._config.warnings:
                log.warning("%s", line)
        of_file, at_start = file_changes(self._config, fresh)
        before = self._running.read()[1]
        running = before._replace(of_file=of_file)
        encoded(running)
        changed = sorted({name for name, _ in before.of_file.items() ^ of_file.items()})
        # Not `before`'s: a stored setting that this broker ignores must not keep it from using its file.
        of_all, of_broker = (
            {name: setting.text for name, setting in layer.items()}
            for layer in (self._config.of_all, self._config.of_broker)
        )
        apply_tls = self._check(self._config.changed(of_all, of_broker, of_file), changed)
        self._apply(running, apply_tls)
        static = self._config.static
        values = ", ".join(f"{name}={static[name].text}" if name in static else f"{name} unset" for name in changed)
        log.info("read %s again: %s", source.path, values or "no setting that can change at run time has changed")
        hidden = [name for name in changed if name in of_all or name in of_broker]
        if hidden:
            log.warning(
                "%s: the new values of these keys have no effect, because `odradek config set` has set other values: %s",
                source.path, ", ".join(hidden),
            )  # fmt: skip
        if at_start:
            log.warning(
                "%s: the new values of these keys need a restart of the broker: %s", source.path, ", ".join(at_start)
            )

    # -- loggers --------------------------------------------------------------------------------------------------

    def levels_changed(self) -> dict[str, str]:
        """Level by logger, for the loggers whose level was set at run time."""
        return self._running.read()[1].loggers

    def levels(self) -> dict[str, str]:
        """The effective level of every logger."""
        return effective(self._config.logger_levels(self.levels_changed()))

    def alter_levels(self, change: Change, validate_only: bool) -> None:
        """Change levels of loggers in all processes until the broker stops. Raises Refusal."""
        present = self.levels_changed()
        changed = change(present)
        if validate_only or changed == present:
            return
        before = self._running.read()[1]
        try:
            encoded(before._replace(loggers=changed))
        except TooManySettings as error:
            raise Refusal(ErrorCode.INVALID_REQUEST, str(error)) from None
        log.info("changed the levels of loggers until the next start: %s", change_text(present, changed))
        self._running.set_levels(self._config, changed)
        self._publish(before._replace(loggers=changed))

    # -- groups ---------------------------------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """Ids of the groups with stored settings. Raises StoreError."""
        return sorted(znodes.decode_name(name) for name in self._store.children(znodes.GROUP_CONFIGS))

    def of_group(self, group_id: str) -> dict[str, str]:
        """The stored settings of a group. Raises StoreError."""
        return read_settings(self._store, znodes.group_config_path(group_id))

    def alter_group(self, group_id: str, change: Change, validate_only: bool) -> None:
        """Change the settings of a group, which need not exist. Raises Refusal, StoreError, NotController."""
        present = self.of_group(group_id)
        settings = change(present)
        try:
            values = check_group_settings(self._config, settings)
        except ConfigError as error:
            raise Refusal(ErrorCode.INVALID_CONFIG, str(error)) from None
        if validate_only or settings == present:
            return
        self._controller.write_settings(znodes.group_config_path(group_id), settings, keep_empty=False)
        other_groups = {name: own for name, own in self._config.groups.items() if name != group_id}
        self._config.groups = other_groups | ({group_id: values} if values else {})
        log.info("changed the settings of group %s: %s", group_id, change_text(present, settings))
