"""Settings that change while the broker runs, of brokers and of groups: durable in the store, then in force everywhere.

Runs in the coordinator's controller thread. The store's transaction is the truth; a successor of a coordinator that died
right after takes everything from it (`load`). See docs/decisions/0015-running-configuration.md.
"""

import logging
from collections.abc import Callable, Mapping

from odradek._ext.shm.layout import ProcessState
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.config.broker_config import BrokerConfig
from odradek.config.dynamic import change_text, check_broker_changes, check_group_settings
from odradek.config.errors import ConfigError
from odradek.config.key import Value
from odradek.config.loggers import configured, effective
from odradek.controller.controller import Controller
from odradek.controller.topics import Refusal
from odradek.metadata import znodes
from odradek.metadata.store import NoNode, Store
from odradek.protocol.errors import ErrorCode
from odradek.shm.running_config import Running, RunningConfig, TooManySettings, encoded

log = logging.getLogger("odradek.config")

TAKEN_OVER_WITHIN_S = 2.0

Change = Callable[[Mapping[str, str]], dict[str, str]]


def read_running(store: Store, broker_id: int, loggers: Mapping[str, str]) -> Running:
    """What the store says was changed at run time, and the levels of `loggers`. Raises StoreError."""
    of_all, of_broker = (read_settings(store, znodes.broker_config_path(broker)) for broker in (None, broker_id))
    return Running(of_all, of_broker, dict(loggers))


def read_settings(store: Store, path: str) -> dict[str, str]:
    """The settings of a node; none if there is no node. Raises StoreError."""
    try:
        return znodes.decode_config(path, store.get(path)[0])
    except NoNode:
        return {}


def show_running(store: Store, config: BrokerConfig, running: RunningConfig) -> None:
    """Take the store's settings into this process's configuration, and show them to every process. Raises StoreError.

    Settings that do not fit into what is shared are left out, with a line in the log.
    """
    before = running.read()[1]
    found = read_running(store, config.node_id, before.loggers)
    if found != before:
        try:
            running.publish(*found)
        except TooManySettings as error:
            log.error("no setting changed at run time is in force: %s", error)
            found = before._replace(of_all={}, of_broker={})
    for unusable in config.run_with(found.of_all, found.of_broker):
        log.error("a setting of the metadata store is not used: %s", unusable)
    running.set_levels(config, found.loggers)


class BrokerSettings:
    """The settings changed at run time, of this broker, of all brokers, and of groups.

    :param config: of this process, changed in place; that of the controller and its partitions.
    :param running: how every other process hears of it.
    """

    def __init__(
        self, store: Store, controller: Controller, config: BrokerConfig, running: RunningConfig, shm: SharedMemory
    ) -> None:
        self._store = store
        self._controller = controller
        self._config = config
        self._running = running
        self._shm = shm

    def load(self) -> None:
        """Take everything from the store, before the controller takes office. Raises StoreError."""
        show_running(self._store, self._config, self._running)
        self._running.taken(self._running.version)
        groups: dict[str, dict[str, Value]] = {}
        for group_id in self.groups():
            try:
                groups[group_id] = check_group_settings(self._config, self.of_group(group_id))
            except ConfigError as error:
                log.error("group %s keeps to the broker's settings, one of its own is bad: %s", group_id, error)
        self._config.groups = groups

    # -- brokers --------------------------------------------------------------------------------------------------

    def of_broker(self, own: bool) -> dict[str, str]:
        """What is stored for this broker, or for all. Raises StoreError."""
        return read_settings(self._store, znodes.broker_config_path(self._config.node_id if own else None))

    def alter_broker(self, own: bool, change: Change, validate_only: bool) -> None:
        """Change the settings of this broker, or of all; in force in all processes when this returns.

        Raises Refusal, StoreError, NotController.
        """
        present = self.of_broker(own)
        settings = change(present)
        layers = (self.of_broker(False), settings) if own else (settings, self.of_broker(True))
        try:
            checked = check_broker_changes(self._config, *layers)
        except ConfigError as error:
            raise Refusal(ErrorCode.INVALID_REQUEST, str(error)) from None
        if validate_only or settings == present:
            return
        before = self._config.topic_defaults
        path = znodes.broker_config_path(self._config.node_id if own else None)
        loggers = self.levels_changed()
        try:
            encoded(*layers, loggers)
        except TooManySettings as error:
            raise Refusal(ErrorCode.INVALID_REQUEST, str(error)) from None
        self._controller.write_settings(path, settings)
        log.info(
            "changed the settings of %s: %s", "this broker" if own else "all brokers", change_text(present, settings)
        )
        replicas_before = self._config["min.insync.replicas"]
        self._config.run_with(*layers)
        if self._config["min.insync.replicas"] != replicas_before:
            for line in self._config.replica_warnings():
                log.warning("%s", line)
        if checked.topic_defaults != before:
            self._controller.configure_all()
        self._publish(Running(*layers, dict(loggers)))

    def _publish(self, running: Running) -> None:
        """Show settings to every process, and wait until each has taken them over, but not for long."""
        version = self._running.publish(*running)
        self._running.taken(version)
        self._shm.wake_all()
        serving = [one.index for one in self._shm.processes() if one.state == ProcessState.SERVING]
        late = self._running.wait_until_taken(version, serving, TAKEN_OVER_WITHIN_S)
        if late:
            log.warning(
                "%d processes have not taken over the new settings within %g s, at the places %s of the process table; "
                "they will when their event loops continue",
                len(late), TAKEN_OVER_WITHIN_S, ", ".join(map(str, late)),
            )  # fmt: skip

    # -- loggers --------------------------------------------------------------------------------------------------

    def levels_changed(self) -> dict[str, str]:
        """The level of each logger that has one since it was changed at run time."""
        return self._running.read()[1].loggers

    def levels(self) -> dict[str, str]:
        """The level of every logger, its own or that of its parent."""
        return effective(configured(self._config, self.levels_changed()))

    def alter_levels(self, change: Change, validate_only: bool) -> None:
        """Change the levels of loggers in all processes, until the broker stops. Raises Refusal."""
        present = self.levels_changed()
        changed = change(present)
        if validate_only or changed == present:
            return
        before = self._running.read()[1]
        try:
            encoded(before.of_all, before.of_broker, changed)
        except TooManySettings as error:
            raise Refusal(ErrorCode.INVALID_REQUEST, str(error)) from None
        log.info("changed the levels of loggers until the next start: %s", change_text(present, changed))
        self._running.set_levels(self._config, changed)
        self._publish(before._replace(loggers=changed))

    # -- groups ---------------------------------------------------------------------------------------------------

    def groups(self) -> list[str]:
        """Ids of the groups that have settings of their own. Raises StoreError."""
        return sorted(znodes.decode_name(name) for name in self._store.children(znodes.GROUP_CONFIGS))

    def of_group(self, group_id: str) -> dict[str, str]:
        """A group's own settings. Raises StoreError."""
        return read_settings(self._store, znodes.group_config_path(group_id))

    def alter_group(self, group_id: str, change: Change, validate_only: bool) -> None:
        """Change a group's own settings, whether or not there is such a group. Raises Refusal, StoreError, NotController."""
        present = self.of_group(group_id)
        settings = change(present)
        try:
            values = check_group_settings(self._config, settings)
        except ConfigError as error:
            raise Refusal(ErrorCode.INVALID_CONFIG, str(error)) from None
        if validate_only or settings == present:
            return
        self._controller.write_settings(znodes.group_config_path(group_id), settings, keep_empty=False)
        others = {name: own for name, own in self._config.groups.items() if name != group_id}
        self._config.groups = others | ({group_id: values} if values else {})
        log.info("changed the settings of group %s: %s", group_id, change_text(present, settings))
